"""The training loop, and nothing but the loop."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from experiments.data import Source
from experiments.gauge import exact_dtype, widen
from experiments.model import Transformer
from experiments.probes.base import Panel, Schedule
from experiments.record import RunWriter
from experiments.schedule import rate

SMALLEST_SCALE = 1e-4  # a gradient scaler below it has collapsed (fairseq's --min-loss-scale)
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}  # of a model in float32

Report = Callable[[int, float, int], None]  # step, loss, tokens of the step


@dataclass(frozen=True)
class Outcome:
    """How training ended. ``diverged_step`` and ``first_nonfinite_layer`` are None unless it diverged."""

    step: int
    loss: float | None  # last finite training loss, nats; None if there was none
    initial_loss: float | None
    val_loss: float | None = None
    diverged_step: int | None = None
    first_nonfinite_layer: int | None = None


class Loop:
    """Trains a model on a source, measuring on the way. One object per run."""

    def __init__(self, cfg: DictConfig, model: Transformer, optimizer: torch.optim.Optimizer, source: Source) -> None:
        self.cfg, self.model, self.optimizer, self.source = cfg, model, optimizer, source
        self.device = next(model.parameters()).device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=cfg.train.precision == "fp16")
        self.skipped = 0

    def train(self, panel: Panel, writer: RunWriter, report: Report) -> Outcome:
        """All steps of the run; of none, only a look at the initialisation.

        Under fp32 and bf16 the first non-finite loss or gradient ends it as diverged; under fp16 the step is skipped and
        counted, and a collapsed loss scale is divergence.
        """
        train, begun = self.cfg.train, time.monotonic()
        if train.steps == 0:
            return self._look(panel, writer)
        probed = Schedule(train.steps, self.cfg.probe)
        initial = last = None
        for step in range(train.steps):
            if probed.due(step):
                panel.open()
            row = self._validate_now(step) | self._step(step, panel) | {"seconds": time.monotonic() - begun}
            finite = math.isfinite(row["loss"]) and math.isfinite(row["grad_norm"])
            if self._diverged(finite):
                self._autopsy(step, panel)
                layer = self._record(writer, row, panel)
                return Outcome(step, last, initial, None, step, layer)
            self._record(writer, row, panel)
            last = row["loss"] if math.isfinite(row["loss"]) else last
            initial = last if initial is None else initial
            report(step, row["loss"], train.batch * train.context)
        val_loss = self.evaluate()
        writer.step({"step": train.steps, "val_loss": val_loss})
        return Outcome(train.steps, last, initial, val_loss)

    def _look(self, panel: Panel, writer: RunWriter) -> Outcome:
        """One forward and backward pass at initialisation, measured as step 0; no update, no validation."""
        panel.open()
        loss, norm_P = self._accumulate(0, panel)
        panel.gradients(norm_P, self.scaler.get_scale())
        norm = float(torch.linalg.vector_norm(norm_P))
        layer = self._record(writer, {"step": 0, "loss": float(loss), "grad_norm": norm}, panel)
        if math.isfinite(float(loss)) and math.isfinite(norm):
            return Outcome(0, float(loss), float(loss))
        return Outcome(0, None, None, None, 0, layer)

    @torch.no_grad()
    def evaluate(self) -> float:
        """Mean cross-entropy per token on the fixed validation batches, nats. Draws no random number."""
        train = self.cfg.train
        self.model.eval()
        losses = [
            self._loss(micro_batch)
            for batch in self.source.valid_batches(train.eval_batches, train.batch, train.context)
            for micro_batch in np.split(batch, train.accumulate)
        ]
        self.model.train()
        return float(torch.stack(losses).to(exact_dtype(self.device)).mean())

    def _validate_now(self, step: int) -> dict[str, float]:
        every = self.cfg.train.eval_every
        return {"val_loss": self.evaluate()} if every and step % every == 0 else {}

    def _step(self, step: int, panel: Panel) -> dict[str, float]:
        """One update: accumulate, unscale, probe gradients, clip, step, probe updates, zero."""
        train = self.cfg.train
        lr = rate(self.cfg.schedule, train.steps, self.cfg.optim.lr, step - self.skipped)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["rate"]
        loss, norm_P = self._accumulate(step, panel)
        norm = torch.linalg.vector_norm(norm_P)
        panel.gradients(norm_P, self.scaler.get_scale())
        loss_scale, (loss, norm) = self.scaler.get_scale(), torch.stack([loss.to(norm.dtype), norm]).tolist()
        clipped = self._clip(norm)
        if math.isfinite(norm) or self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.skipped += not math.isfinite(norm)
            panel.updated()
            self.optimizer.zero_grad(set_to_none=True)
        return {
            "step": step,
            "loss": loss,
            "lr": lr,
            "grad_norm": norm,
            "grad_norm_clipped": clipped,
            "loss_scale": loss_scale,
            "skipped": self.skipped,
            "tokens": (step + 1) * train.batch * train.context,
        }

    def _accumulate(self, step: int, panel: Panel) -> tuple[Tensor, Tensor]:
        """Mean loss over the batch, and the norm of each parameter's (unscaled) gradient of it."""
        train = self.cfg.train
        batch = self.source.batch(self.cfg.seed, step, train.batch, train.context)
        losses = []
        for micro_batch in np.split(batch, train.accumulate):
            loss = self._loss(micro_batch) / train.accumulate
            self.scaler.scale(loss).backward()
            panel.micro_batch()
            losses.append(loss.detach())
        self.scaler.unscale_(self.optimizer)
        return torch.stack(losses).sum(), gradient_norms(self.parameters)

    def _loss(self, tokens: NDArray[np.int64]) -> Tensor:
        tokens_BT = torch.from_numpy(tokens).to(self.device)
        with self._autocast():
            logits_BTV = self.model(tokens_BT[:, :-1])
        return F.cross_entropy(widen(logits_BTV).flatten(0, 1), tokens_BT[:, 1:].flatten())

    def _autocast(self) -> AbstractContextManager[object]:
        precision = self.cfg.train.precision
        return torch.autocast(self.device.type, AUTOCAST.get(precision), enabled=precision in AUTOCAST)

    def _clip(self, norm: float) -> float:
        """Scale the gradients down to the threshold; returns their norm afterwards. The threshold is of unscaled norms."""
        threshold = self.cfg.train.clip
        if threshold is None or not norm > threshold or not math.isfinite(norm):
            return norm
        torch._foreach_mul_([p.grad for p in self.parameters if p.grad is not None], threshold / norm)
        return float(threshold)

    def _diverged(self, finite: bool) -> bool:
        if self.scaler.is_enabled():
            return self.scaler.get_scale() < SMALLEST_SCALE
        return not finite

    def _autopsy(self, step: int, panel: Panel) -> None:
        """Measure the step that diverged once more, with every probe, before its update."""
        panel.read()
        self.optimizer.zero_grad(set_to_none=True)
        panel.open()
        _, norm_P = self._accumulate(step, panel)
        panel.gradients(norm_P, self.scaler.get_scale())

    def _record(self, writer: RunWriter, row: dict[str, float], panel: Panel) -> int | None:
        """Write a step; returns the first layer with a non-finite stream, or else the last with a non-finite gradient."""
        values = panel.read()
        layers = {name: value for name, value in values.items() if value.ndim}
        writer.step(row | {name: float(value) for name, value in values.items() if not value.ndim})
        if not layers:
            return None
        writer.layers(int(row["step"]), layers)
        return first_nonfinite_layer(layers)


def gradient_norms(parameters: Sequence[Tensor]) -> Tensor:
    """Exact Frobenius norm of each parameter's gradient, zero where it has none, shape [P]."""
    dtype = exact_dtype(parameters[0].device)
    grads = [p.grad if p.grad is not None else p.new_zeros(()) for p in parameters]
    return torch.stack(torch._foreach_norm(grads, 2, dtype))


def first_nonfinite_layer(layers: dict[str, NDArray[np.float64]]) -> int | None:
    """Where non-finite values began: the lowest stream point that has any, or else the highest block whose gradients
    have; None where all is finite or was not probed."""
    forward = np.flatnonzero(layers.get("nonfinite_stream", np.zeros(1)))
    backward = np.flatnonzero(layers.get("nonfinite_grad", np.zeros(1)))
    if forward.size:
        return int(forward[0])
    return int(backward[-1]) if backward.size else None
