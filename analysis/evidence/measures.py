"""How a test reduces its runs to a finding: an exponent in depth, a choice of law, a mean over seeds."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis import laws
from analysis.evidence.curves import Curve
from analysis.evidence.quantities import Numbers, Quantity
from analysis.evidence.record import Reads, Selection
from analysis.evidence.verdicts import Finding, number_text
from analysis.laws import LAWS, Comparison, Estimate
from analysis.stats import Interval, mean_interval
from analysis.tables import FIT_FROM

FEWEST_SEEDS, FEWEST_DEPTHS = 3, 4


class Measure(ABC):
    """Subclasses are frozen dataclasses. across : keys in which the runs of a test may differ, beside depth and seed."""

    across: tuple[str, ...] = ()

    @property
    @abstractmethod
    def reads(self) -> Reads: ...

    @abstractmethod
    def find(self, runs: Selection) -> Finding:
        """Raises MissingError or UnclearError where there is nothing to find."""


class OfQuantity(Measure):
    """A measure of one quantity."""

    of: Quantity

    @property
    def reads(self) -> Reads:
        return self.of.reads


@dataclass(frozen=True)
class Exponent(OfQuantity):
    """Exponent in depth, a slope per seed, over `fewest` depths or more."""

    of: Quantity
    from_depth: int = FIT_FROM
    fewest: int = FEWEST_DEPTHS

    def find(self, runs: Selection) -> Finding:
        points, numbers = _by_depth(runs, self.of, self.from_depth)
        found = laws.exponent(points["depth"], points["value"], points["seed"], fewest=self.fewest)
        return finding(found, numbers, _depths(found, runs))


@dataclass(frozen=True)
class DepthLaw(OfQuantity):
    """The law in depth that wins in all seeds, of `among`; the interval is that of the parameter of `law`."""

    of: Quantity
    law: str = "exponential"
    from_depth: int = FIT_FROM
    among: tuple[str, ...] = LAWS

    def find(self, runs: Selection) -> Finding:
        points, numbers = _by_depth(runs, self.of, self.from_depth)
        found = laws.compare(points["depth"], points["value"], points["seed"], laws=self.among)
        return _compared(found, self.law, numbers, _depths(found.estimates[self.law], runs))


@dataclass(frozen=True)
class LayerLaw(Measure):
    """The law inside the deepest network that wins in all seeds, of `among`; the interval is that of `law`'s parameter."""

    of: Curve
    law: str = "exponential"
    among: tuple[str, ...] = LAWS

    @property
    def reads(self) -> Reads:
        return self.of.reads

    def find(self, runs: Selection) -> Finding:
        deepest = runs.deepest()
        points = self.of.points(deepest)
        found = laws.compare(points["x"], points["y"], points["seed"], laws=self.among, noun="layers")
        return _compared(found, self.law, Numbers(points["y"]), f"inside L = {_depth(deepest)}")


@dataclass(frozen=True)
class Mean(OfQuantity):
    """Mean over the seeds of the deepest network; with `log` the geometric mean."""

    of: Quantity
    log: bool = False

    def find(self, runs: Selection) -> Finding:
        deepest = runs.deepest()
        numbers = self.of.of(deepest)
        seeds = deepest.used.set_index("run")["seed"].reindex(numbers.of_run.index)
        found = laws.mean_estimate(numbers.of_run, seeds, log=self.log)
        return finding(found, numbers, f"at L = {_depth(deepest)}")


@dataclass(frozen=True)
class Apart(OfQuantity):
    """Difference per seed, at the deepest network, between the runs with two values of a key."""

    of: Quantity
    key: str
    plus: object
    minus: object

    @property
    def across(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.key,)

    def find(self, runs: Selection) -> Finding:
        deepest = runs.deepest()
        numbers = self.of.of(deepest)
        table = deepest.used.set_index("run").reindex(numbers.of_run.index).assign(value=numbers.of_run)
        plus, minus = (table[table[self.key] == value].set_index("seed")["value"] for value in (self.plus, self.minus))
        seeds = plus.index.intersection(minus.index)
        found = laws.mean_estimate(plus[seeds] - minus[seeds], seeds, log=False)
        means = [f"{value} {number_text(float(part.mean()))}" for value, part in ((self.plus, plus), (self.minus, minus))]
        both = finding(found, numbers, f"at L = {_depth(deepest)}; means: {', '.join(means)}")
        return replace(both, given=int(deepest.used["seed"].nunique()))


@dataclass(frozen=True)
class Outside(Measure):
    """How far the mean over seeds of a column's square lies outside two straight lines in the layer, at worst over all points
    but the first of the deepest network, as a share of the line; negative inside.

    lower, upper : slopes of the lines, which are 1 at the first point. Each bound of the interval is the worst of all points.
    """

    column: str
    lower: float
    upper: float
    step: int = 0

    @property
    def reads(self) -> Reads:
        return Reads.of(layers=(self.column,), moments=(self.step,))

    def find(self, runs: Selection) -> Finding:
        deepest = runs.deepest()
        table = deepest.layers((self.column,), self.step)
        wide = table.pivot(index="seed", columns="layer", values=self.column).drop(columns=0)
        layer_L, value_RL = wide.columns.to_numpy(), wide.to_numpy(float) ** 2
        finite = np.isfinite(value_RL)
        whole_RL = value_RL[finite.all(axis=1)]
        if len(whole_RL) < FEWEST_SEEDS:
            reason = f"{len(whole_RL)} seeds, needs {FEWEST_SEEDS}"
            return Finding(reason=reason, given=len(value_RL), nonfinite=int((~finite).sum()))
        mean = mean_interval(whole_RL)
        lower, upper = (1 + line * layer_L for line in (self.lower, self.upper))
        below = {name: 1 - getattr(mean, name) / lower for name in ("estimate", "low", "high")}
        above = {name: getattr(mean, name) / upper - 1 for name in ("estimate", "low", "high")}
        worst = Interval(
            float(np.max([below["estimate"], above["estimate"]])),
            float(np.max([below["high"], above["low"]])),
            float(np.max([below["low"], above["high"]])),
        )
        at = layer_L[np.argmax(np.maximum(below["estimate"], above["estimate"]))]
        remark = f"inside L = {_depth(deepest)}, worst at l = {at}"
        return Finding(worst, seeds=len(whole_RL), given=len(value_RL), nonfinite=int((~finite).sum()), remark=remark)


def _by_depth(runs: Selection, of: Quantity, from_depth: int) -> tuple[pd.DataFrame, Numbers]:
    """One row per run of the depths that are fitted: columns depth, seed, value."""
    numbers = of.of(runs)
    points = runs.used.set_index("run")[["depth", "seed"]].reindex(numbers.of_run.index).assign(value=numbers.of_run)
    points = points[points["depth"] >= from_depth]
    return points[points["depth"].isin(_shared_depths(points))], numbers


def _shared_depths(points: pd.DataFrame) -> set[int]:
    """The depths of one seed such that depths times the seeds that have them all is largest: few seeds may go deeper."""
    sets = [frozenset(group) for _, group in points.groupby("seed")["depth"]]
    return set(max(sets, key=lambda s: (len(s) * sum(s <= other for other in sets), len(s), sorted(s)), default=()))


def _depth(runs: Selection) -> int:
    return int(runs.used["depth"].iloc[0])


def _depths(found: Estimate, runs: Selection) -> str:
    """The depths fitted, and those that are not."""
    if not found.points:
        return runs.lost
    depths = [f"{depth:g}" for depth in found.points]
    words = f"over L = {depths[0]} to {depths[-1]} ({len(depths)} depths)"
    return "; ".join(part for part in (words, runs.lost) if part)


def _compared(found: Comparison, law: str, numbers: Numbers, remark: str) -> Finding:
    of_law = finding(found.estimates[law], numbers, remark)
    return replace(of_law, law=found, of_law=law, reason=of_law.reason or found.reason)


def finding(found: Estimate, numbers: Numbers, remark: str) -> Finding:
    """An estimate over seeds with what was left out on the way."""
    span = found.points[-1] - found.points[0] if found.points else float("nan")
    broken = f"{numbers.zeros} zeros in {numbers.broken} run{'s' if numbers.broken > 1 else ''}" if numbers.broken else ""
    return Finding(
        found.interval,
        found.reason,
        found.seeds,
        found.given + numbers.broken,
        found.zeros + numbers.zeros,
        found.nonfinite,
        found.stray if np.isnan(numbers.stray) else numbers.stray,
        span=span,
        remark="; ".join(part for part in (remark, found.remark, broken) if part),
    )
