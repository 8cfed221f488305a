"""One run from its config: build, train, record. What a sweep's child process calls."""

import json
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import cast

import torch
from omegaconf import DictConfig, OmegaConf

from experiments import probes
from experiments.calibration import calibrate
from experiments.config import ConfigError
from experiments.data import Source, make_source
from experiments.identity import placement_code
from experiments.init import initialise
from experiments.loop import Loop, Report
from experiments.manifest import make_manifest
from experiments.model import Shape, Transformer, count_parameters, flops_per_token
from experiments.optim import make_optimizer
from experiments.probes.base import Panel
from experiments.record import RunWriter
from experiments.trial import check_variants


def silent(_step: int, _loss: float, _tokens: int) -> None:
    """Report nothing."""


def run(cfg: DictConfig, report: Report = silent) -> str:
    """Train the model that a validated config describes and write its run folder. Returns the state, complete or diverged.

    Errors are recorded in the run's folder and raised again.
    """
    device = find_device(cfg.device)
    torch.set_num_threads(cfg.threads)
    source = source_of(cfg)
    there = {"device": device.type, "device_name": device_name(device), "threads": cfg.threads}
    there |= {"placement_code": placement_code(cfg.norm.placement)}
    with RunWriter(cfg, make_manifest() | there | {"data": source.describe()}) as writer:
        torch.manual_seed(cfg.seed)  # dropout; weights and batches have generators of their own
        model = build(cfg, source.vocab, device)
        calibrate(model, torch.from_numpy(source.batch(cfg.seed, 0, cfg.train.batch, cfg.train.context)[:, :-1]).to(device))
        writer.made_with(
            parameters=count_parameters(model),
            flops_per_token=flops_per_token(model, cfg.train.context),
            tokens_per_step=cfg.train.batch * cfg.train.context,
        )
        if cfg.train.compile:
            for block in model.blocks:
                block.compile()
        panel = make_panel(cfg.probe.names, model, source, cfg.train)
        outcome = Loop(cfg, model, make_optimizer(cfg.optim, model), source).train(panel, writer, report)
        state = "complete" if outcome.diverged_step is None else "diverged"
        writer.finish(state, **vars(outcome))
    return state


def source_of(cfg: DictConfig) -> Source:
    """The token source of a config; the last one is kept, for the runs of one process that differ in their seed."""
    read = {"data": OmegaConf.to_container(cfg.data), "train": {"context": cfg.train.context}, "results": cfg.results}
    return _source(json.dumps(read), os.getcwd())


@lru_cache(maxsize=1)
def _source(read: str, _folder: str) -> Source:
    cfg = OmegaConf.create(json.loads(read))
    return make_source(cast("DictConfig", cfg))


def make_panel(names: Sequence[str], model: Transformer, source: Source, train: DictConfig) -> Panel:
    """The probes of these names, with the first validation batch."""
    (held_out,) = source.valid_batches(1, train.batch, train.context)
    held_out_BT = torch.from_numpy(held_out).to(next(model.parameters()).device)
    return Panel([probes.find(name)(model, held_out_BT) for name in names])


def build(cfg: DictConfig, vocab: int, device: torch.device) -> Transformer:
    """The initialised model on its device."""
    model = Transformer(cfg.model, cfg.norm, Shape(vocab, cfg.train.context))
    initialise(model, cfg.init, cfg.seed)
    return model.to(device, torch.float64 if cfg.train.precision == "fp64" else torch.float32)


def find_device(name: str) -> torch.device:
    """The device a config asks for; ``auto`` takes cuda, then mps, then cpu. ConfigError if it is not there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, is_there in there.items() if is_there))
    if not there[name]:
        here = ", ".join(kind for kind, is_there in there.items() if is_there)
        raise ConfigError(f"device={name} is not there; this machine and this torch have: {here}, or device=auto")
    return torch.device(name)


def check(cfgs: Sequence[DictConfig]) -> None:
    """ConfigError if a device or a precision is not to be had, or a variant is none."""
    check_devices(cfgs)
    check_variants(cfgs)


def check_devices(cfgs: Iterable[DictConfig]) -> None:
    """ConfigError if a config's device is missing, or does not support its precision."""
    for name, precision in {(cfg.device, cfg.train.precision): None for cfg in cfgs}:
        device = find_device(name)
        if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise ConfigError("train.precision=bf16 is not supported by this GPU; use train.precision=fp16 or fp32")
        if precision != "fp32" and device.type == "mps":
            raise ConfigError(f"train.precision={precision} is not supported on mps; use train.precision=fp32")


def device_name(device: torch.device) -> str:
    """The GPU's name, or the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
