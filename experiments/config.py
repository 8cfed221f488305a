"""The typed schema of a run, and every check that needs no model.

Values live in conf/. A default here is the neutral "off" of an option: it is left out of a run's identity, so it is never
changed later. Required values are MISSING. Nothing here imports torch, so a sweep validates all its jobs in its own process.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

PACKAGE = Path(__file__).parent
CONF = PACKAGE.parent / "conf"
SINGLE = "single"  # the study name of a run that belongs to no study

# Options that are not files of their own. A test holds each tuple against the table that implements it.
KNOWN: dict[str, tuple[str, ...]] = {
    "norm.kind": ("layernorm", "rmsnorm"),
    "model.ffn": ("gelu", "gelu_tanh", "relu", "silu", "swiglu"),
    "model.positions": ("learned", "rope", "none"),
    "init.name": ("xavier", "gpt2", "gpt2_scaled", "torch"),
    "data.name": ("shakespeare", "text", "tokens", "random"),
    "optim.name": ("adamw", "sgd", "radam"),
    "schedule.name": ("constant", "cosine", "linear", "inverse_sqrt"),
    "train.precision": ("fp32", "bf16", "fp16"),
    "device": ("auto", "cpu", "cuda", "mps"),
}


class ConfigError(ValueError):
    """A value that cannot be run. The message names the value and the remedy."""


@dataclass
class NormConfig:
    name: str = MISSING
    placement: str = MISSING
    kind: str = MISSING
    eps: float = MISSING
    label: str = MISSING
    color: str = MISSING
    linestyle: str = MISSING


@dataclass
class ModelConfig:
    depth: int = MISSING
    width: int = MISSING
    n_head: int = MISSING
    ffn: str = MISSING
    positions: str = MISSING
    d_ff: int | None = None
    rope_base: float = 10000.0
    final_norm: bool | None = None
    tied: bool = False
    bias: bool = True
    dropout: float = 0.0
    checkpointing: bool = False


@dataclass
class InitConfig:
    name: str = MISSING
    std: float | None = None
    embedding_std: float | None = None


@dataclass
class DataConfig:
    name: str = MISSING
    path: str | None = None
    vocab: int | None = None
    valid_fraction: float | None = None


@dataclass
class OptimConfig:
    name: str = MISSING
    lr: float = MISSING
    weight_decay: float = MISSING
    betas: list[float] = MISSING
    eps: float = MISSING
    momentum: float = 0.0
    decay_embeddings: bool = False


@dataclass
class ScheduleConfig:
    name: str = MISSING
    warmup: int = MISSING
    final_ratio: float = 0.0


@dataclass
class TrainConfig:
    steps: int = MISSING
    batch: int = MISSING
    context: int = MISSING
    precision: str = MISSING
    eval_every: int | None = None
    eval_batches: int = MISSING
    accumulate: int = 1
    clip: float | None = None
    compile: bool = False


@dataclass
class ProbeConfig:
    names: list[str] = MISSING
    every: int | None = None
    per_decade: int | None = None


@dataclass
class StudyConfig:
    name: str = SINGLE
    seeds: dict[int, int] = field(default_factory=dict)


@dataclass
class ScaleConfig:
    name: str = MISSING
    steps: int = MISSING
    warmup: int = MISSING


@dataclass
class SweepConfig:
    jobs: int | None = None
    retry: bool = False
    dry: bool = False


@dataclass
class Config:
    norm: NormConfig = field(default_factory=NormConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    init: InitConfig = field(default_factory=InitConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    seed: int = MISSING
    study: StudyConfig = field(default_factory=StudyConfig)
    scale: ScaleConfig = field(default_factory=ScaleConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    results: str = MISSING
    device: str = MISSING
    threads: int = MISSING


def register() -> None:
    """Make the schema known to Hydra as ``schema``, the first entry of conf/config.yaml's defaults."""
    ConfigStore.instance().store(name="schema", node=Config)


def modules_in(folder: Path) -> tuple[str, ...]:
    """Names of the plug-in modules of a package folder, without importing them."""
    return tuple(sorted(p.stem for p in folder.glob("*.py") if p.stem not in {"__init__", "base"}))


def validate(cfg: DictConfig) -> None:
    """Raise ConfigError for the first value that cannot be run. Reads no data and imports no torch."""
    for message in _complaints(cfg):
        raise ConfigError(message)


def _complaints(cfg: DictConfig) -> Iterator[str]:
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        yield f"no value for {', '.join(missing)}: set it on the command line or in conf/config.yaml"
    for key, known in KNOWN.items():
        yield from _unknown(key, [OmegaConf.select(cfg, key)], known)
    yield from _unknown("norm.placement", [cfg.norm.placement], modules_in(PACKAGE / "placements"))
    yield from _unknown("probe.names", cfg.probe.names, modules_in(PACKAGE / "probes"))
    yield from _numbers(cfg)
    yield from _model(cfg.model)
    yield from _training(cfg)


def _unknown(key: str, values: Iterable[str], known: tuple[str, ...]) -> Iterator[str]:
    for value in values:
        if value not in known:
            yield f"{key}={value} is not known; known are: {', '.join(known)}"


def _numbers(cfg: DictConfig) -> Iterator[str]:
    at_least_one = (
        "model.depth model.width model.n_head model.d_ff train.steps train.batch train.context train.accumulate "
        "train.eval_every train.eval_batches probe.every probe.per_decade data.vocab threads sweep.jobs"
    )
    for key in at_least_one.split():
        value = OmegaConf.select(cfg, key)
        if value is not None and value < 1:
            yield f"{key}={value} must be 1 or more"
    for key in ("norm.eps", "optim.lr", "optim.eps", "model.rope_base"):
        value = OmegaConf.select(cfg, key)
        if not (math.isfinite(value) and value > 0):
            yield f"{key}={value} must be a finite number above 0"
    for key in ("optim.weight_decay", "init.std", "init.embedding_std"):
        value = OmegaConf.select(cfg, key)
        if value is not None and not (math.isfinite(value) and value >= 0):
            yield f"{key}={value} must be a finite number, 0 or more"
    for key in ("model.dropout", "optim.momentum"):
        value = OmegaConf.select(cfg, key)
        if not 0 <= value < 1:
            yield f"{key}={value} must be in [0, 1)"
    if not 0 <= cfg.schedule.final_ratio <= 1:
        yield f"schedule.final_ratio={cfg.schedule.final_ratio} must be in [0, 1]"
    if cfg.seed < 0:
        yield f"seed={cfg.seed} must be 0 or more"


def _model(model: DictConfig) -> Iterator[str]:
    if model.width % model.n_head:
        yield f"model.width={model.width} is not a multiple of model.n_head={model.n_head}; choose a divisor of the width"
    head = model.width // model.n_head
    if model.positions == "rope" and head % 2:
        yield (
            f"model.positions=rope rotates pairs, but the head width {head} (model.width={model.width} / "
            f"model.n_head={model.n_head}) is odd; choose an even head width or model.positions=learned"
        )


def _training(cfg: DictConfig) -> Iterator[str]:
    train, schedule = cfg.train, cfg.schedule
    if schedule.warmup < 0:
        yield f"schedule.warmup={schedule.warmup} must be 0 or more"
    if schedule.warmup > train.steps:
        yield f"schedule.warmup={schedule.warmup} is longer than train.steps={train.steps}; shorten it or train longer"
    if train.batch % train.accumulate:
        yield f"train.batch={train.batch} is not a multiple of train.accumulate={train.accumulate}"
    if train.clip is not None and not train.clip > 0:
        yield f"train.clip={train.clip} must be above 0; use train.clip=null to switch clipping off"
    betas = list(cfg.optim.betas)
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        yield f"optim.betas={betas} must be two numbers in [0, 1)"
    if not cfg.probe.names:
        yield "probe.names is empty: a run without probes records nothing by layer; leave out the override"
    if cfg.probe.every is not None and cfg.probe.per_decade is not None:
        yield "probe.every and probe.per_decade exclude each other; set one of them to null"


def cores() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
