"""What a test of a claim reads: the runs of a study that fit, all from one source, and their values at one step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.cells import OUTSIDE, groups, options
from analysis.load import Study
from analysis.tables import attach, outcomes

LAST = -1  # the last recorded step of a run
ALIAS = {"norm": "norm.name", "factor": "study.factor", "depth": "model.depth", "warmup": "schedule.warmup"}
FREE = (*OUTSIDE, "model.depth", "probe")  # keys in which the runs of one law may differ


class MissingError(Exception):
    """Nothing was measured; the text says why."""


class UnclearError(Exception):
    """Runs were measured, but there is no number; the text says why."""


@dataclass(frozen=True)
class AtLeast:
    """Values of a key from this one on."""

    value: float

    def __str__(self) -> str:
        return f"at least {self.value:g}"


@dataclass(frozen=True)
class UpTo:
    """Values of a key up to this one."""

    value: float

    def __str__(self) -> str:
        return f"up to {self.value:g}"


@dataclass(frozen=True)
class Reads:
    """Columns of `layers` and `steps`, and the steps at which they are read; LAST is the last."""

    layers: frozenset[str]
    steps: frozenset[str]
    moments: frozenset[int]

    @classmethod
    def of(cls, *, layers: Iterable[str] = (), steps: Iterable[str] = (), moments: Iterable[int] = ()) -> "Reads":
        return cls(frozenset(layers), frozenset(steps), frozenset(moments))

    def __or__(self, other: "Reads") -> "Reads":
        return Reads(self.layers | other.layers, self.steps | other.steps, self.moments | other.moments)


@dataclass(frozen=True)
class Selection:
    """Runs of one study. fitting : all that fit, whatever became of them. used : those whose values are read."""

    record: "Record"
    fitting: pd.DataFrame
    used: pd.DataFrame

    @property
    def diverged(self) -> int:
        return int((self.fitting["outcome"] == "diverged").sum())

    @property
    def lost(self) -> str:
        """The depths at which no run is used, in words; empty where there is none."""
        rest = self.fitting[~self.fitting["depth"].isin(self.used["depth"])]
        words = [f"L = {depth}: {outcome_counts(group)}" for (depth,), group in groups(rest, ["depth"])]
        return f"not used at {'; '.join(words)}" if words else ""

    def deepest(self) -> "Selection":
        """The runs of the largest depth. Raises UnclearError where none of these is used."""
        depth = self.fitting["depth"].max()
        fitting, used = (runs[runs["depth"] == depth] for runs in (self.fitting, self.used))
        if used.empty:
            raise UnclearError(f"no run at L = {depth} is used: {outcome_counts(fitting)}")
        return Selection(self.record, fitting, used)

    def layers(self, names: tuple[str, ...], step: int) -> pd.DataFrame:
        """Rows of `layers` at a step, with depth and seed: columns run, layer, names, depth, seed."""
        table = self._recorded(self.record.study.layers, names)
        last = table.groupby("run", observed=True)["step"].transform("max") if step == LAST else step
        table = table[table["step"] == last]
        if table.empty:
            raise MissingError(f"step {step} was not recorded")
        return table[["run", "layer", *names, "depth", "seed"]]

    def steps(self, name: str, step: int) -> pd.Series:
        """A column of `steps` at a step, one value per run; LAST is the last step at which any run has one."""
        table = self._recorded(self.record.study.steps, (name,))
        table = table[table["step"] == (table.loc[table[name].notna(), "step"].max() if step == LAST else step)]
        if table.empty:
            raise MissingError(f"step {step} was not recorded")
        return table.set_index("run")[name]

    def _recorded(self, table: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
        """The rows of the runs used. Raises UnclearError without runs, MissingError where a column was never recorded."""
        if self.used.empty:
            raise UnclearError(f"no run is used: {outcome_counts(self.fitting)}")
        if absent := [name for name in names if name not in table]:
            raise MissingError(f"{', '.join(absent)} is not in the tables, which are older than the probe")
        table = table[table["run"].isin(self.used["run"])]
        if empty := [name for name in names if table[name].isna().all()]:
            raise MissingError(f"{', '.join(empty)} has no value: not recorded, or nowhere finite")
        return attach(table, self.used, ["depth", "seed"])


class Record:
    """A study with the outcome and the config of each run. origin : its source, scale and commit in words."""

    def __init__(self, study: Study, origin: str) -> None:
        self.study, self.origin = study, origin
        self.runs = outcomes(study).reset_index(drop=True)
        self._config = options(self.runs)

    def values(self, key: str) -> pd.Series:
        """A key of the config or a column of `runs`, by run; None where a run lacks it."""
        if key in self.runs and key not in ALIAS:
            return pd.Series(self.runs[key].to_list(), self.runs.index, dtype=object)
        name = ALIAS.get(key, key)
        return pd.Series([config.get(name) for config in self._config], self.runs.index, dtype=object)

    def select(self, where: Mapping[str, Any], across: tuple[str, ...] = ()) -> Selection:
        """The runs that fit. across : keys in which they may differ; each value is a series of its own.

        where : key -> value, tuple of values, AtLeast or UpTo; `outcome` selects the runs used among those that fit.
        Raises MissingError where no run fits, UnclearError where runs of one series differ in anything else than depth and
        seed, or share them.
        """
        fits = pd.Series(True, self.runs.index)
        for key, wanted in where.items():
            if key != "outcome":
                fits &= _fits(self.values(key), wanted)
        runs = self.runs[fits].assign(**{key: self.values(key)[fits] for key in across if key not in self.runs})
        if runs.empty:
            raise MissingError(f"no run of {self.study.source.study} has {_words(where)}")
        self._check_alike(runs, across)
        used = runs[runs["outcome"] != "diverged"]
        if "outcome" in where:
            used = used[used["outcome"] == where["outcome"]]
        return Selection(self, runs, used)

    def _check_alike(self, runs: pd.DataFrame, across: tuple[str, ...]) -> None:
        for _, group in groups(runs, across) if across else [((), runs)]:
            configs = [self._config[row] for row in group.index]
            keys = sorted({key for config in configs for key in config if not _under(key, FREE)})
            mixed = [key for key in keys if len({repr(config[key]) for config in configs if key in config}) > 1]
            if mixed:
                raise UnclearError(f"the runs that fit differ in {', '.join(mixed)}")
            twice = group[group.duplicated(["depth", "seed"])]
            if len(twice):
                raise UnclearError(f"seed {twice['seed'].iloc[0]} stands twice at L = {twice['depth'].iloc[0]}")


def outcome_counts(runs: pd.DataFrame) -> str:
    """'3 stuck, 1 diverged'."""
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(runs["outcome"].value_counts().items()))


def _fits(values: pd.Series, wanted: Any) -> pd.Series:
    if isinstance(wanted, AtLeast):
        return values.map(lambda value: value is not None and value >= wanted.value)
    if isinstance(wanted, UpTo):
        return values.map(lambda value: value is not None and value <= wanted.value)
    return values.isin(wanted if isinstance(wanted, tuple) else (wanted,))


def _under(key: str, names: tuple[str, ...]) -> bool:
    return any(key == name or key.startswith(name + ".") for name in names)


def _words(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in where.items() if key != "outcome") or "any config"
