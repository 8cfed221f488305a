"""What an entry of the ledger is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.evidence.counts import OfChecks
from analysis.evidence.measures import Measure
from analysis.evidence.verdicts import Near, Rule


@dataclass(frozen=True)
class Test:
    """What a claim predicts in one regime, and how that is measured.

    when : the regime, so that "holds only when: <when>" reads well; no two tests of a claim share it.
    where : config key (or norm, factor, depth, warmup, outcome) -> the values of the runs that are read; see Record.select.
    quantity : in words; of a gradient it says norm or squared norm. figure : one of the gallery's that draws the study; that
        of the ledger draws every test.
    premise : `when` of the claim's test that must hold for this one to be judged.
    """

    when: str
    study: str
    quantity: str
    unit: str
    prediction: str
    measure: Measure | OfChecks
    rule: Rule
    where: Mapping[str, Any] = field(default_factory=dict)
    figure: str = "claims"
    premise: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement as it is commonly made, with the paper and place it is (said to be) in, and its tests.

    The verdict on it leaves out tests that are premises of others.
    """

    id: str
    statement: str
    source: str
    tests: tuple[Test, ...]
    whole: bool = False  # the tests are parts of one statement, not regimes

    @property
    def premises(self) -> frozenset[str]:
        """`when` of the tests that are premises."""
        return frozenset(test.premise for test in self.tests if test.premise)

    @property
    def studies(self) -> frozenset[str]:
        return frozenset(test.study for test in self.tests)


def law(exponent: float) -> Near:
    """An exponent told from its neighbours: the candidates 0, -1/2, -1 lie 1/2 apart, and the tolerance is half of that."""
    return Near(exponent, 0.25)


def theorem(exponent: float) -> Near:
    """An exponent in the setting it was derived in, where only finite size may bend it."""
    return Near(exponent, 0.1)
