"""Cells: a config without its seed. Runs are averaged over seeds only where nothing else differs."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from analysis.schema import SchemaError, neutral

# What does not change the science, or is the seed itself. `data.path` is replaced by the sha256 of what was read.
OUTSIDE = (
    *("seed", "results", "device", "threads", "sweep", "study", "scale", "data.path"),
    *("norm.label", "norm.color", "norm.linestyle", "norm.equation"),
)
CELL = ("variant", "depth", "warmup")


def groups(table: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The rows that share these columns, by sorted key; combinations that do not occur are left out."""
    for key, group in table.groupby(list(by), sort=True, observed=True):
        yield tuple(key) if isinstance(key, tuple) else (key,), group


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as dotted keys; lists as tuples."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = tuple(value) if isinstance(value, list) else value
    return out


def configs(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run, indexed by it, one column per key that belongs to the cell.

    A key that a run lacks has its neutral value, or else None.
    """
    rows = [{key: value for key, value in values.items() if _inside(key)} for values in options(runs)]
    frame = pd.DataFrame(rows, index=pd.Index(runs["run"]), dtype=object)
    return frame.where(~frame.map(_missing), None)


def options(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """The config of every run as dotted keys, with the neutral value of each option that came later, and data.sha256."""
    unsaid = flat(neutral())
    return [
        unsaid | flat(json.loads(config)) | {"data.sha256": json.loads(manifest).get("data", {}).get("sha256")}
        for config, manifest in zip(runs["config"], runs["manifest"], strict=True)
    ]


def factor(runs: pd.DataFrame) -> pd.Series:
    """What each run's study varied in it, one factor at a time: study.factor, empty where a study has none."""
    return runs["config"].map(lambda config: str(json.loads(config).get("study", {}).get("factor", "")))


def told_apart(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs` with every further key that was swept in the variant's name and label: two rates of Pre-LN are two series."""
    config = configs(runs)
    for key in _mixed(runs, config, CELL):
        words = [f"{key.rpartition('.')[2]}={_text(value)}" for value in config[key]]
        runs = runs.assign(variant=runs["variant"] + " " + words, label=runs["label"] + ", " + words)
    return runs


def check_cells(runs: pd.DataFrame, by: tuple[str, ...] = CELL) -> None:
    """Raise SchemaError where runs that share these columns differ in another key than the seed, or share their seed.

    by : columns of `runs`, the ones a table is about to group by.
    """
    config = configs(runs)
    for name, group in groups(runs, by):
        cell = ", ".join(f"{column}={value}" for column, value in zip(by, name, strict=True))
        if keys := _mixed(group, config, by):
            raise SchemaError(f"runs of one cell ({cell}) differ in {', '.join(keys)}; name these among the grouping columns")
        twice = group["seed"][group["seed"].duplicated()]
        if len(twice):
            raise SchemaError(f"seed {twice.iloc[0]} stands twice in one cell ({cell})")


def _mixed(runs: pd.DataFrame, config: pd.DataFrame, by: tuple[str, ...]) -> list[str]:
    """Keys in which runs that share the columns `by` differ."""
    varying = [str(key) for key in config if config[key].map(repr).nunique() > 1]
    text = config[varying].map(repr)
    mixed = {key for _, group in groups(runs, by) for key in varying if text.loc[list(group["run"]), key].nunique() > 1}
    return sorted(mixed)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:12]


def _inside(key: str) -> bool:
    return not any(key == name or key.startswith(name + ".") for name in OUTSIDE)


def _missing(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
