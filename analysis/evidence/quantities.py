"""One number per run, read from its tables: what a claim is about. Gradient norms are norms, not squared."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.evidence.record import Reads, Selection
from analysis.tables import at_place


@dataclass(frozen=True)
class Numbers:
    """of_run : one number per run, by its name; a run that lacks the record is left out.

    zeros : points of a curve that are zero (underflow), in `broken` runs, which have no number. stray : the factor by which
    the points of the worst run stray from its line; NaN where no line was fitted.
    """

    of_run: pd.Series
    zeros: int = 0
    broken: int = 0
    stray: float = float("nan")


class Quantity(ABC):
    """Subclasses are frozen dataclasses: declared in an entry, computed from the runs selected."""

    @property
    @abstractmethod
    def reads(self) -> Reads:
        """The columns and steps it needs."""

    @abstractmethod
    def of(self, runs: Selection) -> Numbers:
        """Raises MissingError or UnclearError where there are no numbers."""


@dataclass(frozen=True)
class Point(Quantity):
    """A column of `layers` at one of tables.PLACES."""

    column: str
    place: str
    step: int = 0

    @property
    def reads(self) -> Reads:
        return Reads.of(layers=(self.column,), moments=(self.step,))

    def of(self, runs: Selection) -> Numbers:
        table = runs.layers((self.column,), self.step)
        at = at_place(table, self.place)
        return Numbers(at.set_index("run")[self.column].astype(float))


@dataclass(frozen=True)
class Growth(Quantity):
    """A stream column at the last point minus the first; with `branches` a block, per branch."""

    column: str
    step: int = 0
    branches: int | None = None

    @property
    def reads(self) -> Reads:
        return Reads.of(layers=(self.column,), moments=(self.step,))

    def of(self, runs: Selection) -> Numbers:
        last, first = (Point(self.column, place, self.step).of(runs).of_run for place in ("last", "first"))
        depth = runs.used.set_index("run")["depth"].reindex(last.index)
        return Numbers((last - first) / (1 if self.branches is None else self.branches * depth))


@dataclass(frozen=True)
class OverBlocks(Quantity):
    """A number computed from the values of one block column, or of its ratio to a second, over all blocks of a run.

    how : value_L, shape [L], blocks from the input -> a number.
    """

    how: Callable[[np.ndarray], float]
    column: str
    step: int = 0
    over: str | None = None

    @property
    def reads(self) -> Reads:
        return Reads.of(layers=(self.column, *((self.over,) if self.over else ())), moments=(self.step,))

    def of(self, runs: Selection) -> Numbers:
        columns = (self.column, self.over) if self.over else (self.column,)
        table = runs.layers(columns, self.step)
        table = table[table["layer"] < table["depth"]].sort_values(["run", "layer"])
        value = table[self.column].astype(float) / (table[self.over].astype(float) if self.over else 1.0)
        return Numbers(value.groupby(table["run"], observed=True).agg(lambda value_L: self.how(value_L.to_numpy())))


def mean_square(value_L: np.ndarray) -> float:
    return float(np.mean(value_L**2))


def log_mean(value_L: np.ndarray) -> float:
    """Geometric mean; NaN where a value is not above zero."""
    return float(np.exp(np.mean(np.log(value_L)))) if np.all(value_L > 0) else float("nan")


def largest(value_L: np.ndarray) -> float:
    return float(np.max(value_L))


def contrast(value_L: np.ndarray) -> float:
    """(late - early) / (|late| + |early|) of the means over the last and the first third: 0 equal, 1/3 twice as large late."""
    third = max(1, len(value_L) // 3)
    early, late = float(np.mean(value_L[:third])), float(np.mean(value_L[-third:]))
    total = abs(late) + abs(early)
    return (late - early) / total if total > 0 else float("nan")


def share_in_use(value_L: np.ndarray) -> float:
    """(Σ|v|)² / (L Σv²), the participation ratio over L: 1 where all blocks count alike, 1/L where one does."""
    squares = float(np.sum(value_L**2))
    return float(np.sum(np.abs(value_L)) ** 2 / (len(value_L) * squares)) if squares > 0 else float("nan")


def damping(rms_L: np.ndarray) -> float:
    """Mean over blocks of -ln(1 + c) / 2, c = rms² the variance a branch adds to a stream of variance 1 (C19)."""
    return float(np.mean(-np.log1p(rms_L**2) / 2))


@dataclass(frozen=True)
class OfStep(Quantity):
    """A column of `steps`."""

    column: str
    step: int = 0

    @property
    def reads(self) -> Reads:
        return Reads.of(steps=(self.column,), moments=(self.step,))

    def of(self, runs: Selection) -> Numbers:
        return Numbers(runs.steps(self.column, self.step).astype(float))


@dataclass(frozen=True)
class OfRun(Quantity):
    """A column of `runs`."""

    column: str

    @property
    def reads(self) -> Reads:
        return Reads.of()

    def of(self, runs: Selection) -> Numbers:
        return Numbers(runs.used.set_index("run")[self.column].astype(float))


@dataclass(frozen=True)
class Pair(Quantity):
    """Two quantities of the same run, made into one."""

    one: Quantity
    other: Quantity

    @property
    def reads(self) -> Reads:
        return self.one.reads | self.other.reads

    def of(self, runs: Selection) -> Numbers:
        return _joined(self.one.of(runs), self.other.of(runs), self.how)

    @abstractmethod
    def how(self, one: pd.Series, other: pd.Series) -> pd.Series:
        """The quantity, from both by run."""


class Difference(Pair):
    """One quantity minus another."""

    def how(self, one: pd.Series, other: pd.Series) -> pd.Series:
        return one - other


class Ratio(Pair):
    """One quantity over another."""

    def how(self, one: pd.Series, other: pd.Series) -> pd.Series:
        return one / other


def _joined(a: Numbers, b: Numbers, how: Callable[[pd.Series, pd.Series], pd.Series]) -> Numbers:
    both = pd.concat([a.of_run.rename("a"), b.of_run.rename("b")], axis=1, join="inner")
    return Numbers(how(both["a"], both["b"]), a.zeros + b.zeros, a.broken + b.broken, max(a.stray, b.stray))
