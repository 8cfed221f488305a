"""The setting of a study in words, read from the configs of its runs."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from analysis.cells import configs

INITS = {"xavier": "Xavier-normal", "gpt2": "N(0, std²)", "gpt2_scaled": "N(0, std²), W_O and W_2 × 1/√(2L)", "torch": "torch"}
OPTIMIZERS = {"adamw": "AdamW", "sgd": "SGD", "radam": "RAdam"}
KINDS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "dyt": "DyT", "none": "no norms"}
FFNS = {"gelu": "GELU", "gelu_tanh": "GELU (tanh)", "relu": "ReLU", "silu": "SiLU", "swiglu": "SwiGLU"}


def setting(runs: pd.DataFrame) -> str:
    """Init, model, data and optimizer of a study in one line; where runs differ, every value, slashed."""
    config = configs(runs)
    untrained = max(config["train.steps"]) <= 1
    parts = [_init(config), _model(config), _data(config)] + ([] if untrained else [_optimizer(config)])
    return "; ".join(parts)


def init_name(runs: pd.DataFrame) -> str:
    """The weight init in words, with its std where it has one."""
    config = configs(runs)
    name = _each(config, "init.name", INITS)
    return name.replace("std²", f"{_each(config, 'init.std')}²")


def changed(runs: pd.DataFrame, base: pd.DataFrame) -> str:
    """The keys of the config, but for depth, in which runs are unlike those of `base`, with the values here."""
    here, there = configs(runs), configs(base)
    every = sorted({*here, *there} - {"model.depth", "data.sha256"})
    keys = [key for key in every if _values(here, key) != _values(there, key)]
    replaced = {key.rpartition(".")[0] for key in keys if key.endswith(".name")}  # another optimizer has no such option
    keys = [key for key in keys if _values(here, key) != [None] or key.rpartition(".")[0] not in replaced]
    return ", ".join(f"{_short(key)}={'/'.join(_listed(value) for value in _values(here, key))}" for key in keys)


def _short(key: str) -> str:
    """The last part of a dotted key, or the one before where that is `name`."""
    *groups, last = key.split(".")
    return groups[-1] if last == "name" and groups else last


def _listed(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else _word(value, {})


def _init(config: pd.DataFrame) -> str:
    name = _each(config, "init.name", INITS).replace("std²", f"{_each(config, 'init.std')}²")
    std = _values(config, "init.embedding_std")
    embedding = " or ".join("of unit variance per token" if v is None else f"std {v:g}" for v in std)
    tied = ", tied readout" if True in _values(config, "model.tied") else ""
    return f"init {name}, embeddings {embedding}{tied}"


def _model(config: pd.DataFrame) -> str:
    d_ff = "" if _values(config, "model.d_ff") == [None] else f" d_ff={_each(config, 'model.d_ff')}"
    kind = _each(config, "norm.kind", KINDS)
    qk = "" if _values(config, "norm.qk") in ([None], ["none"]) else f", QK-norm {_each(config, 'norm.qk')}"
    return (
        f"d={_each(config, 'model.width')}, {_each(config, 'model.n_head')} heads, "
        f"{_each(config, 'model.ffn', FFNS)}{d_ff}, {_each(config, 'model.positions')} positions, "
        f"{kind} ε={_each(config, 'norm.eps')}{qk}"
    )


def _data(config: pd.DataFrame) -> str:
    return (
        f"{_each(config, 'data.name')}, B={_each(config, 'train.batch')} sequences of T={_each(config, 'train.context')}, "
        f"{_each(config, 'train.precision')}"
    )


def _optimizer(config: pd.DataFrame) -> str:
    name = _each(config, "optim.name", OPTIMIZERS)
    if set(_values(config, "optim.name")) == {"sgd"}:
        detail = f"momentum {_each(config, 'optim.momentum')}"
    else:
        betas = "/".join(f"({a:g}, {b:g})" for a, b in _values(config, "optim.betas"))
        detail = f"β={betas}, ε={_each(config, 'optim.eps')}"
    clip = "no clipping" if _values(config, "train.clip") == [None] else f"clip {_each(config, 'train.clip')}"
    return (
        f"{name} lr {_each(config, 'optim.lr')}, {detail}, weight decay {_each(config, 'optim.weight_decay')}, {clip}, "
        f"{_each(config, 'schedule.name')} schedule, warmup {_each(config, 'schedule.warmup')} of "
        f"{_each(config, 'train.steps')} steps"
    )


def _values(config: pd.DataFrame, key: str) -> list[Any]:
    if key not in config:
        return [None]
    return sorted(config[key].unique(), key=lambda value: (value is not None, value if value is not None else 0))


def _each(config: pd.DataFrame, key: str, names: dict[str, str] | None = None) -> str:
    return "/".join(_word(value, names or {}) for value in _values(config, key))


def _word(value: Any, names: dict[str, str]) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "default"
    if isinstance(value, int | float):
        return f"{value:g}"
    return names.get(value, str(value))


def joined(words: Iterable[str]) -> str:
    """Distinct words in order, comma-separated."""
    return ", ".join(dict.fromkeys(words))
