"""The typed schema of a run.

Values live in conf/. A default here is the neutral "off" of an option: it is left out of a run's identity, so it is never
changed later. Required values are MISSING. Nothing here imports torch.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

PACKAGE = Path(__file__).parent
CONF = PACKAGE.parent / "conf"
SINGLE = "single"  # the study name of a run that belongs to no study

# Options that are not files of their own. A test holds each tuple against the table that implements it.
KNOWN: dict[str, tuple[str, ...]] = {
    "norm.kind": ("layernorm", "rmsnorm", "dyt", "none"),
    "norm.qk": ("none", "l2", "layernorm", "rmsnorm"),
    "norm.qk_axis": ("head", "projection"),
    "model.ffn": ("gelu", "gelu_tanh", "relu", "silu", "swiglu"),
    "model.branches": ("attn", "cross", "ffn"),
    "model.positions": ("learned", "rope", "none"),
    "init.name": ("xavier", "gpt2", "gpt2_scaled", "torch"),
    "data.name": ("shakespeare", "text", "tokens", "random"),
    "optim.frozen": ("wte", "wpe", "head"),
    "init.zero": ("wq", "wk", "wv", "wo", "w1", "w2", "wg"),
    "optim.name": ("adamw", "sgd", "radam"),
    "schedule.name": ("constant", "cosine", "linear", "inverse_sqrt"),
    "train.precision": ("fp32", "bf16", "fp16", "fp64"),
    "device": ("auto", "cpu", "cuda", "mps"),
}


INSIDE = ("values", "output")  # sockets of a branch: norm_v, and norm_out before W_O and W_2
TAKES_STD = ("gpt2", "gpt2_scaled")  # schemes whose std is init.std
TAKES_BETAS = ("adamw", "radam")


class ConfigError(ValueError):
    """A value that cannot be run. The message names the value and the remedy."""


@dataclass
class EquationConfig:
    """What a placement computes, as formulas (experiments/formula.py) that the conformance kit holds its class to.

    Names: x and the further streams; f, the branch; N blocks, l this block, k this branch, both from 1; V, the summed output
    variance of all branches before this one at initialisation (Placement.calibrate); attn, cross, ffn, whether the branch is
    one; those of ``where``; final, the final norm; else an attribute of the class: a norm, a parameter.
    """

    x: str = ""  # the stream after a branch
    out: str = ""  # what the readout reads
    streams: dict[str, str] = field(default_factory=dict)  # further ones after a branch, in order
    enter: dict[str, str] = field(default_factory=dict)  # before the first branch; x = the embedded input
    where: dict[str, str] = field(default_factory=dict)  # constants
    start: dict[str, str] = field(default_factory=dict)  # initial values of the class's parameters, but for norms
    gain: str = "1"  # times the initial std of W_V, W_O, W_1, W_2, W_G
    inside: list[str] = field(default_factory=list)  # norms that it puts into the branch: values, output


@dataclass
class NormConfig:
    name: str = MISSING
    placement: str = MISSING
    kind: str = MISSING
    eps: float = MISSING
    label: str = MISSING
    color: str = MISSING
    linestyle: str = MISSING
    qk: str = "none"
    qk_axis: str = "head"
    dyt_alpha: float = 0.5
    equation: EquationConfig = field(default_factory=EquationConfig)


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
    branches: list[str] = field(default_factory=lambda: ["attn", "ffn"])
    value_only: bool = False
    memory_tokens: int = 64
    memory_cosine: float = 0.0
    vocab: int | None = None
    max_positions: int | None = None


@dataclass
class InitConfig:
    name: str = MISSING
    std: float | None = None
    embedding_std: float | None = None
    zero: list[str] = field(default_factory=list)
    qk_gain: float = 1.0


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
    betas: list[float] | None = None
    eps: float | None = None
    momentum: float = 0.0
    decay_embeddings: bool = False
    frozen: list[str] = field(default_factory=list)


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
    steps: list[int] | None = None


@dataclass
class StudyConfig:
    name: str = SINGLE
    factor: str = ""
    draws: int = 1
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


def cores() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
