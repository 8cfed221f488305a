"""The contract of a probe, and the panel that drives the probes of a run.

A probe is passive: with probes on or off, the weights after k steps are bit-identical. The order in a step is
open, (forward, backward, micro_batch) per micro-batch, unscale, gradients, clip, update, updated, read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from experiments.gauge import Gauge, exact_dtype
from experiments.model import Transformer


@dataclass(frozen=True)
class Column:
    """A column of the store, as results/schema.json lists it."""

    name: str
    unit: str
    meaning: str
    table: Literal["layers", "steps"] = "layers"
    dtype: str = "float32"


class Probe(ABC):
    """Measures on the steps that the panel opens it for; idle otherwise. Values stay on the device until read."""

    columns: ClassVar[tuple[Column, ...]]

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        """held_out_BT: validation sequences [B, T + 1], the same for every run of a source, on the model's device; for
        probes that evaluate the model by themselves."""
        self.model, self.held_out_BT = model, held_out_BT
        self.device = next(model.parameters()).device
        self.dtype = exact_dtype(self.device)

    def open(self) -> None:
        """Before the first micro-batch of a measured step."""

    def micro_batch(self) -> None:
        """After the backward pass of each micro-batch."""

    def gradients(self, norm_P: Tensor, loss_scale: float) -> None:
        """After unscaling, before clipping. norm_P: exact norm of every parameter's gradient, in the model's order;
        loss_scale: what the gradients of activations (not of parameters) are still multiplied by."""

    def updated(self) -> None:
        """After the optimizer's step."""

    @abstractmethod
    def read(self) -> dict[str, Tensor]:
        """Column -> [L + 1] (stream points), [L] (blocks) or [] (step table). Ends the measurement."""


class Meter:
    """Reads the gauges of a model, switching them on for measured steps and adding up their slots per micro-batch."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self.gauges = gauges
        self.slot_CS: list[Tensor] = []

    def open(self) -> None:
        self.slot_CS = []
        for gauge in self.gauges:
            gauge.on = True

    def micro_batch(self) -> None:
        if self.gauges:
            self.slot_CS.append(torch.stack([gauge.slot for gauge in self.gauges]))

    def close(self) -> Tensor:
        """Slots [micro-batch, gauge, slot]."""
        for gauge in self.gauges:
            gauge.on = False
        return torch.stack(self.slot_CS)


class Schedule:
    """Steps on which the panel measures: those listed, every k, or log-spaced; always the first and the last."""

    def __init__(self, steps: int, probe: DictConfig) -> None:
        if probe.steps is not None:
            chosen = np.asarray(probe.steps, dtype=int)
        elif probe.per_decade is None:
            chosen = np.arange(0, steps, probe.every or 1)
        else:
            decades = np.arange(0, np.log10(max(steps, 2)), 1 / probe.per_decade)
            chosen = np.r_[0, np.rint(10**decades)]
        self.steps = frozenset(int(s) for s in chosen if s < steps) | {0, max(steps - 1, 0)}

    def due(self, step: int) -> bool:
        return step in self.steps


class Panel:
    """The probes of a run. Values of one step cross to the host in a single copy."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.probes = probes
        self.active: Sequence[Probe] = ()

    def open(self) -> None:
        self.active = self.probes
        for probe in self.active:
            probe.open()

    def micro_batch(self) -> None:
        for probe in self.active:
            probe.micro_batch()

    def gradients(self, norm_P: Tensor, loss_scale: float) -> None:
        for probe in self.active:
            probe.gradients(norm_P, loss_scale)

    def updated(self) -> None:
        for probe in self.active:
            probe.updated()

    def read(self) -> dict[str, NDArray[np.float64]]:
        """Column -> values, of the step that was opened; closes it. Empty when nothing was."""
        values = {name: value for probe in self.active for name, value in probe.read().items()}
        self.active = ()
        return to_host(values)


def to_host(values: Mapping[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    """All values in one device-to-host copy, with their shapes."""
    if not values:
        return {}
    flat = torch.cat([value.detach().flatten().to(exact_dtype(value.device)) for value in values.values()])
    host = flat.cpu().numpy().astype(np.float64)
    parts = np.split(host, np.cumsum([value.numel() for value in values.values()])[:-1])
    return {name: part.reshape(value.shape) for (name, value), part in zip(values.items(), parts, strict=True)}


def gauges_of(modules: Iterable[torch.nn.Module]) -> list[Gauge]:
    """Gauges in the order in which the modules own them, those of nested modules included."""
    return [gauge for module in modules for gauge in module.modules() if isinstance(gauge, Gauge)]
