"""What a run is called: a readable prefix, and a hash of everything that changes the science.

A key at its dataclass default is left out of the hash, so a new option keeps the identity of every earlier run.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING as REQUIRED
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.config import CONF, PACKAGE, Config, ConfigError

# Keys, and groups of keys, that change where or how a run is made, or how it is drawn, but not what it finds.
NOT_SCIENCE = (
    *("results", "device", "threads", "sweep", "study", "scale", "logger"),
    *("norm.label", "norm.color", "norm.linestyle", "norm.equation"),
)
# Fields of `norm` that stand in a variant's name where they differ from its file, the neutral value of each, and what is
# put before the value.
AXES: Mapping[str, tuple[str | None, str]] = {"kind": (None, ""), "qk": ("none", "qk_"), "qk_axis": ("head", "qk_")}
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
Science = dict[str, Any]  # flattened dotted keys


def science(cfg: DictConfig | Mapping[str, Any], schema: type = Config) -> Science:
    """The keys of a config that make a run what it is, with numbers in one spelling: 1.0, 1 and 1e0 are equal."""
    plain = OmegaConf.to_container(cfg, resolve=True) if isinstance(cfg, DictConfig) else cfg
    neutral = _neutral(schema)
    return {
        key: value
        for key, value in _flat(plain)
        if not any(key == left or key.startswith(f"{left}.") for left in NOT_SCIENCE)
        and not (key in neutral and neutral[key] == value)
    }


def run_id(cfg: DictConfig | Mapping[str, Any], schema: type = Config) -> str:
    """Eight hex digits of the SHA-256 of the science of a config, the seed included."""
    text = json.dumps(science(cfg, schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def variant(cfg: DictConfig) -> str:
    """norm.name, followed by each axis that differs from what the norm's own file gives, as in ``pre-rmsnorm``."""
    return "-".join([_safe("norm.name", cfg.norm.name), *_departures(cfg)])


def label(cfg: DictConfig) -> str:
    """norm.label, with the same axes in brackets, as in ``Pre-LN (rmsnorm)``."""
    departures = _departures(cfg)
    return f"{cfg.norm.label} ({', '.join(departures)})" if departures else str(cfg.norm.label)


def run_name(cfg: DictConfig) -> str:
    """``<variant>-L<depth>-w<warmup>-s<seed>-<hash8>``: the name of a run's folder."""
    return f"{variant(cfg)}-L{cfg.model.depth}-w{cfg.schedule.warmup}-s{cfg.seed}-{run_id(cfg)}"


def study_folder(cfg: DictConfig) -> Path:
    """Where the runs and plans of one study at one scale are."""
    return Path(cfg.results) / "runs" / _safe("study.name", cfg.study.name) / _safe("scale.name", cfg.scale.name)


def run_folder(cfg: DictConfig) -> Path:
    """Where the files of a run are; relative where ``results`` is."""
    return study_folder(cfg) / run_name(cfg)


@cache
def placement_code(name: str) -> str:
    """Digest of experiments/placements/<name>.py without comments and docstrings; empty where it cannot be read."""
    try:
        module = ast.parse((PACKAGE / "placements" / f"{name}.py").read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(module).encode()).hexdigest()[:16]


def config_difference(a: DictConfig | Mapping[str, Any], b: DictConfig | Mapping[str, Any]) -> list[str]:
    """Dotted keys, sorted, in which the science of two configs differs."""
    one, other = science(a), science(b)
    absent = object()
    return sorted(key for key in one.keys() | other.keys() if one.get(key, absent) != other.get(key, absent))


def _flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _one_spelling(value)


def _one_spelling(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_one_spelling(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def _neutral(schema: type) -> Science:
    """Defaults of the schema by dotted key; required values have none."""
    return dict(_flat(_defaults(schema)))


def _defaults(schema: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in fields(schema):
        value = item.default if item.default is not REQUIRED else None
        if item.default_factory is not REQUIRED:
            value = item.default_factory()
        if is_dataclass(value):
            found[item.name] = _defaults(type(value))
        elif value != "???":  # omegaconf.MISSING
            found[item.name] = value
    return found


def _departures(cfg: DictConfig) -> list[str]:
    name = _safe("norm.name", cfg.norm.name)
    given = {**_norm_of(CONF / "config.yaml", "norm"), **_norm_of(CONF / "norm" / f"{name}.yaml", None)}
    found = []
    for axis, (neutral, prefix) in AXES.items():
        value = OmegaConf.select(cfg, f"norm.{axis}")
        if value is not None and value != given.get(axis, neutral):
            found.append(prefix + _safe(f"norm.{axis}", value))
    return found


@cache
def _norm_of(path: Path, group: str | None) -> Mapping[str, Any]:
    plain: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False) if path.exists() else {}
    return (plain.get(group) if group else plain) or {}


def _safe(key: str, value: Any) -> str:
    if not SAFE.fullmatch(str(value)):
        raise ConfigError(
            f"{key}={value} cannot be part of a folder's name; use up to 64 letters, digits, '-', '_' and '.', "
            "starting with a letter or digit"
        )
    return str(value)
