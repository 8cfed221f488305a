"""Findings from whole runs and from the exact checks: how many do what, and how much the rate matters."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import numpy as np

from analysis import laws
from analysis.evidence.measures import Measure, finding
from analysis.evidence.quantities import Numbers
from analysis.evidence.record import MissingError, Reads, Selection, UnclearError, outcome_counts
from analysis.evidence.verdicts import Finding
from analysis.stats import Interval, fraction_interval


@dataclass(frozen=True)
class Outcomes(Measure):
    """Share of all runs that fit with an outcome, with its exact interval. across : see Measure."""

    outcome: str
    across: tuple[str, ...] = ()

    @property
    def reads(self) -> Reads:
        return Reads.of()

    def find(self, runs: Selection) -> Finding:
        yes, count = int((runs.fitting["outcome"] == self.outcome).sum()), len(runs.fitting)
        seeds = runs.fitting["seed"].nunique()
        remark = outcome_counts(runs.fitting)
        return Finding(fraction_interval(yes, count), seeds=seeds, given=seeds, count=(yes, count), remark=remark)


@dataclass(frozen=True)
class WarmupBenefit(Measure):
    """Learning-rate sensitivity without warmup minus that with it, per seed; of two placements, the first minus the second.

    Sensitivity: mean over rates of min(loss, initial loss) minus the smallest loss; a diverged run counts with its initial
    loss. The smallest is taken over both warmups, so it drops out: of its own, a cell that never trains would look
    insensitive. Source: Wortsman et al. 2023, arXiv:2309.14322, section 2.
    """

    norms: tuple[str, ...]
    across = ("norm", "warmup", "optim.lr")

    @property
    def reads(self) -> Reads:
        return Reads.of()

    def find(self, runs: Selection) -> Finding:
        fitting = runs.fitting[runs.fitting["depth"] == runs.fitting["depth"].max()]
        initial, final = (fitting[name].astype(float) for name in ("initial_loss", "final_val_loss"))
        loss = np.where((fitting["outcome"] != "diverged") & (final < initial), final, initial)
        table = fitting.assign(loss=loss, warm=fitting["warmup"] > 0)
        rates = table["optim.lr"].nunique()
        of_cell = table.groupby(["seed", "norm", "warm"])["loss"].agg(["mean", "count"])
        of_cell = of_cell[of_cell["count"] == rates]
        wide = of_cell["mean"].unstack(["norm", "warm"])
        cells = [(norm, warm) for norm in self.norms for warm in (False, True)]
        if lacking := [cell for cell in cells if cell not in wide]:
            raise UnclearError(
                f"no seed has all {rates} rates for {lacking[0][0]} {'with' if lacking[0][1] else 'without'} warmup"
            )
        signs = (1, -1, -1, 1)[: len(cells)]
        benefit = sum(sign * wide[cell] for sign, cell in zip(signs, cells, strict=True)).dropna()
        found = laws.mean_estimate(benefit, benefit.index, log=False)
        return finding(found, Numbers(benefit), f"at L = {fitting['depth'].max()}, {rates} rates")


class OfChecks(ABC):
    """A measure of the exact checks of one claim: no seeds, no runs."""

    id: str
    names: tuple[str, ...]  # patterns of the checks' names

    def chosen(self, checks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The checks that fit. Raises MissingError where there are none."""
        found = [c for c in checks if c["id"] == self.id and any(fnmatch(c["name"], name) for name in self.names)]
        if not found:
            raise MissingError(f"no exact check {self.id} {', '.join(self.names)}")
        return found

    @abstractmethod
    def find(self, checks: Sequence[dict[str, Any]]) -> Finding: ...


@dataclass(frozen=True)
class Checks(OfChecks):
    """How many of the checks are within their tolerance of what they expect."""

    id: str
    names: tuple[str, ...] = ("*",)

    def find(self, checks: Sequence[dict[str, Any]]) -> Finding:
        chosen = self.chosen(checks)
        wrong = [c for c in chosen if not abs(c["measured"] - c["expected"]) <= c["tolerance"]]
        words = [f"{c['name']}: {c['measured']:.6g}, expected {c['expected']:.6g}" for c in wrong]
        return Finding(count=(len(chosen) - len(wrong), len(chosen)), remark="; ".join(words))


@dataclass(frozen=True)
class Checked(OfChecks):
    """Mean of what the checks measured, in `unit`s; the interval is their range."""

    id: str
    names: tuple[str, ...]
    unit: float = 1.0

    def find(self, checks: Sequence[dict[str, Any]]) -> Finding:
        value = np.array([c["measured"] for c in self.chosen(checks)], dtype=float) / self.unit
        interval = Interval(float(value.mean()), float(value.min()), float(value.max()))
        return Finding(interval, remark=f"range over {len(value)} of the exact checks")
