"""Rules that turn what was found into a verdict. A verdict is computed, never written by hand."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from analysis.laws import Comparison
from analysis.stats import Interval
from analysis.tables import STRAY

Word = Literal["holds", "refuted", "inconclusive", "not measured"]
FEWEST_RUNS = 5  # runs without a counterexample from which "every run" or "no run" holds


@dataclass(frozen=True)
class Finding:
    """What a measure found in the runs of a test.

    interval : of the number, None where `reason` says why there is none. count : (yes, all) of a share.
    law : a choice of law; then the interval is that of the parameter of `of_law`. span : of the x that were fitted.
    seeds : used, of `given`. zeros, nonfinite : values left out. stray : see laws.Estimate; NaN where no line was fitted.
    remark : what a reader of the number must know.
    """

    interval: Interval | None = None
    reason: str = ""
    seeds: int = 0
    given: int = 0
    zeros: int = 0
    nonfinite: int = 0
    stray: float = float("nan")
    law: Comparison | None = None
    of_law: str = ""
    span: float = float("nan")
    count: tuple[int, int] | None = None
    remark: str = ""


@dataclass(frozen=True)
class Verdict:
    word: Word
    reason: str = ""


class Rule(ABC):
    """Subclasses are frozen dataclasses; `str` gives the number that is predicted."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def judge(self, found: Finding) -> Verdict: ...


class OfNumber(Rule):
    """Holds where the whole interval lies inside a region, refuted where all of it lies outside."""

    @property
    @abstractmethod
    def region(self) -> tuple[float, float]:
        """Smallest and largest value that agree with the prediction."""

    def judge(self, found: Finding) -> Verdict:
        if found.interval is None:
            return Verdict("inconclusive", found.reason)
        low, high = float(found.interval.low), float(found.interval.high)
        if not math.isfinite(low + high):
            return Verdict("inconclusive", f"the interval is [{number_text(low)}, {number_text(high)}]")
        smallest, largest = self.region
        if high < smallest or low > largest:
            return Verdict("refuted")
        if smallest <= low and high <= largest:
            return Verdict("holds")
        edges = [number_text(edge) for edge in self.region if low <= edge <= high]
        return Verdict("inconclusive", f"the interval reaches over {' and '.join(edges)}")


@dataclass(frozen=True)
class Near(OfNumber):
    """Within the tolerance of the value. A slope that is near, but whose points stray from their line by more than
    tables.STRAY, is no law: inconclusive."""

    value: float
    tolerance: float

    def __str__(self) -> str:
        return f"{number_text(self.value)} ± {number_text(self.tolerance)}"

    @property
    def region(self) -> tuple[float, float]:
        return self.value - self.tolerance, self.value + self.tolerance

    def judge(self, found: Finding) -> Verdict:
        verdict = super().judge(found)
        if verdict.word == "holds" and found.stray >= STRAY:
            return Verdict("inconclusive", f"no law: points stray from their line by a factor of {number_text(found.stray)}")
        return verdict


@dataclass(frozen=True)
class Above(OfNumber):
    value: float

    def __str__(self) -> str:
        return f"above {number_text(self.value)}"

    @property
    def region(self) -> tuple[float, float]:
        return math.nextafter(self.value, math.inf), math.inf


@dataclass(frozen=True)
class AtMost(OfNumber):
    value: float

    def __str__(self) -> str:
        return f"at most {number_text(self.value)}"

    @property
    def region(self) -> tuple[float, float]:
        return -math.inf, self.value


@dataclass(frozen=True)
class Law(Rule):
    """Holds where this law wins in all seeds and its change is of this sign and size, refuted where another wins.

    sign : of the parameter, +1 or -1. fold : factor by which an exponential at least changes over the range of the fit, or it
    does not vanish (or explode); None for other laws. An interval wholly of the other sign, or below that factor, refutes,
    whoever wins.
    """

    name: str
    sign: int
    fold: float | None = 10.0

    def __str__(self) -> str:
        return "wins in AICc" + (f", at least {self.fold:g}-fold" if self.fold else "")

    def judge(self, found: Finding) -> Verdict:
        if found.law is None or found.interval is None:
            return Verdict("inconclusive", found.reason)
        low, high = sorted((self.sign * float(found.interval.low), self.sign * float(found.interval.high)))
        least = math.log(self.fold) / found.span if self.fold else 0.0
        moves, other = ("grows", "falls") if self.sign > 0 else ("falls", "grows")
        if high < 0:
            return Verdict("refuted", f"it {other}")
        if high < least:
            factor = number_text(math.exp(high * found.span))
            return Verdict("refuted", f"on average it {moves} by at most a factor of {factor}")
        return self._of_winner(found, low, least)

    def _of_winner(self, found: Finding, low: float, least: float) -> Verdict:
        winner = found.law.winner if found.law else None
        if found.law and winner is None:
            return Verdict("inconclusive", found.law.reason)
        if winner != self.name:
            return Verdict("refuted", f"{winner} wins in all seeds")
        if low <= least:
            return Verdict("inconclusive", f"a rate of {number_text(least)} is not excluded")
        if found.stray >= STRAY:
            return Verdict("inconclusive", f"it wins, but points stray from it by a factor of {number_text(found.stray)}")
        return Verdict("holds")


class OfRuns(Rule):
    """A universal claim about runs: one counterexample refutes; none among fewer than FEWEST_RUNS is inconclusive."""

    @abstractmethod
    def against(self, yes: int, runs: int) -> int:
        """Counterexamples."""

    def judge(self, found: Finding) -> Verdict:
        if found.count is None:
            return Verdict("inconclusive", found.reason)
        against, runs = self.against(*found.count), found.count[1]
        if against:
            return Verdict("refuted", f"{against} of {runs} runs against it")
        if runs < FEWEST_RUNS:
            return Verdict("inconclusive", f"{runs} run{'' if runs == 1 else 's'}, needs {FEWEST_RUNS}")
        return Verdict("holds")


@dataclass(frozen=True)
class Always(OfRuns):
    def __str__(self) -> str:
        return "every run"

    def against(self, yes: int, runs: int) -> int:
        return runs - yes


@dataclass(frozen=True)
class Never(OfRuns):
    def __str__(self) -> str:
        return "no run"

    def against(self, yes: int, runs: int) -> int:  # noqa: ARG002
        return yes


@dataclass(frozen=True)
class Exact(Rule):
    """Holds where every exact check is within its own tolerance."""

    def __str__(self) -> str:
        return "exactly"

    def judge(self, found: Finding) -> Verdict:
        if found.count is None:
            return Verdict("inconclusive", found.reason)
        yes, checks = found.count
        return Verdict("holds") if yes == checks else Verdict("refuted", f"{checks - yes} of {checks} checks against it")


def overall(tests: Sequence[tuple[str, Verdict]], *, whole: bool = False) -> str:
    """The verdict on a claim from (when, verdict) of each of its tests; those without an answer are mentioned only.

    whole : the tests are parts of one statement, which holds where all do and is refuted where one is.
    """
    words = [verdict.word for _, verdict in tests]
    if whole:
        return next(word for word in ("refuted", "inconclusive", "not measured", "holds") if word in words)
    whens = {word: [when for when, verdict in tests if verdict.word == word] for word in get_args(Word)}
    word = next((word for word in get_args(Word) if whens[word]), "not measured")
    if whens["holds"] and whens["refuted"]:
        only = "" if whens["inconclusive"] else "only "  # what is open may hold too
        word = f"holds {only}when: {'; '.join(whens['holds'])}"
    open_words = [other for other in ("inconclusive", "not measured") if whens[other] and other != word]
    rest = ", ".join(f"{len(whens[other])} of {len(tests)} {other}" for other in open_words)
    return f"{word} ({rest})" if rest else word


def number_text(number: float) -> str:
    """Two decimals, three for small numbers, three digits for large ones; with a true minus."""
    places = 2 if number == 0 or abs(number) >= 0.1 else 3
    rounded = f"{number:.{places}f}" if abs(number) < 1000 else f"{number:.3g}"
    return rounded.replace("-", "−")
