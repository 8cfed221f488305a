"""Laws of the ledger's entries: what is missing or broken in their data is said and counted."""

import re

import numpy as np
import pytest
from synthetic_claims import judged
from synthetic_ledger import memory, obeying_cases, outcome_cases, spoiled
from synthetic_memory import Memory

from analysis.claims import needed, reads
from analysis.evidence.counts import OfChecks, Outcomes, WarmupBenefit
from analysis.evidence.curves import Slope
from analysis.evidence.measures import DepthLaw, Exponent, LayerLaw, Mean, Outside
from analysis.evidence.sources import EXACT
from analysis.evidence.verdicts import OfRuns
from analysis.gallery import FIGURES
from analysis.ledger import CLAIMS, entry
from analysis.schema import columns


def kind(test: entry.Test) -> tuple:
    """Entries of one kind differ in columns, steps and regimes only."""
    of_what = getattr(test.measure, "of", None)
    return type(test.measure), type(of_what), getattr(of_what, "how", None), type(test.rule), test.study == "init_width768"


KINDS = list({kind(test): (claim, test) for claim in CLAIMS for test in claim.tests}.values())


def of(*kinds: type, but: tuple[type, ...] = ()) -> list:
    """One entry of each kind that the ledger has, of these measures."""
    found = [(claim, test) for claim, test in KINDS if isinstance(test.measure, kinds or object)]
    kept = [(claim, test) for claim, test in found if not isinstance(test.measure, (*but, OfChecks))]
    return [pytest.param(claim, test, id=f"{claim.id}: {test.when}") for claim, test in kept]


@pytest.mark.parametrize(("claim", "test"), [(claim, test) for claim in CLAIMS for test in claim.tests[:1]])
def test_without_its_study_an_entry_is_not_measured(claim: entry.Claim, test: entry.Test) -> None:
    row = judged(Memory(), claim, test)
    assert row.verdict.word == "not measured"
    assert ("no exact checks" if test.study == EXACT else f"no runs of {test.study}") in row.verdict.reason
    assert row.measured == ""


@pytest.mark.parametrize(("claim", "test"), of(but=(Outcomes,)))
def test_two_seeds_give_no_number(claim: entry.Claim, test: entry.Test) -> None:
    row = judged(memory(test, obeying_cases(test, seeds=2)), claim, test)
    assert row.verdict.word == "inconclusive"
    assert "2 seeds, needs 3" in row.verdict.reason
    assert row.found.interval is None


@pytest.mark.parametrize(("claim", "test"), of(Exponent, DepthLaw))
def test_few_depths_give_no_number(claim: entry.Claim, test: entry.Test) -> None:
    found = [case for case in obeying_cases(test) if case.run.depth in (12, 24, 192)]
    row = judged(memory(test, found), claim, test)
    assert row.verdict.word == "inconclusive"
    assert re.match(r"[23] depths, needs [345]", row.verdict.reason)
    assert row.measured == ""


@pytest.mark.parametrize(("claim", "test"), [p for p in of(Outcomes) if isinstance(p.values[1].rule, OfRuns)])
def test_four_runs_prove_nothing_universal(claim: entry.Claim, test: entry.Test) -> None:
    found = obeying_cases(test)[:4]
    row = judged(memory(test, found), claim, test)
    assert row.verdict.word == "inconclusive"
    assert row.verdict.reason == "4 runs, needs 5"
    assert row.measured == {0: "0 of 4: 0.00 [0.00, 0.60]", 4: "4 of 4: 1.00 [0.40, 1.00]"}[row.found.count[0]]


@pytest.mark.parametrize(("claim", "test"), of(but=(Outcomes, WarmupBenefit)))
def test_diverged_runs_have_no_number_and_are_counted(claim: entry.Claim, test: entry.Test) -> None:
    row = judged(memory(test, outcome_cases(test, lambda _: "diverged")), claim, test)
    assert row.verdict.word == "inconclusive"
    assert f"{row.runs} diverged" in row.verdict.reason or "used" in row.verdict.reason
    assert row.diverged == row.runs > 0
    assert row.measured == ""


@pytest.mark.parametrize(("claim", "test"), of(but=(Outcomes, WarmupBenefit)))
def test_a_seed_that_is_not_finite_is_left_out_and_counted(claim: entry.Claim, test: entry.Test) -> None:
    whole = judged(memory(test, obeying_cases(test, seeds=4)), claim, test)
    row = judged(memory(test, spoiled(obeying_cases(test, seeds=4), 3, np.nan)), claim, test)
    if row.test.unit != "nats":  # the final loss is a column of runs, which spoiling leaves
        assert (whole.found.seeds, row.found.seeds, row.found.given) == (4, 3, 4)
        assert row.found.nonfinite > 0
        assert whole.found.nonfinite == 0
    assert row.verdict.word == "holds"


def takes_logarithms(test: entry.Test) -> bool:
    measure = test.measure
    return isinstance(measure, Exponent | DepthLaw | LayerLaw) or (isinstance(measure, Mean) and isinstance(measure.of, Slope))


@pytest.mark.parametrize(("claim", "test"), [p for p in of(but=(Outcomes, Outside)) if takes_logarithms(p.values[1])])
def test_a_seed_that_underflows_is_left_out_and_counted(claim: entry.Claim, test: entry.Test) -> None:
    row = judged(memory(test, spoiled(obeying_cases(test, seeds=4), 3, 0.0)), claim, test)
    assert row.verdict.word == "holds"
    assert (row.found.seeds, row.found.given) == (3, 4)
    assert row.found.zeros > 0
    assert "zero" in row.found.remark


def test_no_two_claims_share_an_id_and_no_two_tests_of_one_a_regime() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert len({test.when for test in claim.tests}) == len(claim.tests), claim.id
    assert {re.sub("[a-z]$", "", claim.id) for claim in CLAIMS} == {f"C{i}" for i in range(1, 27)}


def test_a_premise_is_another_test_of_its_claim() -> None:
    for claim in CLAIMS:
        assert claim.premises <= {test.when for test in claim.tests if not test.premise}, claim.id


def test_a_law_is_judged_by_its_own_parameter() -> None:
    tests = [test for claim in CLAIMS for test in claim.tests if isinstance(test.measure, DepthLaw | LayerLaw)]
    for test in tests:
        assert test.measure.law == test.rule.name
        assert test.measure.law in test.measure.among
    assert len(tests) > 10


def test_figures_draw_the_study_and_gradients_say_whether_they_are_norms() -> None:
    for claim in CLAIMS:
        for test in claim.tests:
            assert test.figure == "claims" or test.study in FIGURES[test.figure].studies, (claim.id, test.when)
            if not isinstance(test.measure, OfChecks) and any(name.startswith("grad") for name in test.measure.reads.layers):
                assert "norm" in test.quantity, test.quantity


def test_what_is_read_is_in_the_schema() -> None:
    for study in {test.study for claim in CLAIMS for test in claim.tests} - {EXACT}:
        assert set(needed(study).layers or ()) <= set(columns("layers"))
        assert set(needed(study).steps or ()) <= set(columns("steps"))
    assert reads("collapse").moments == {0, 2, 5, 10, 20, 40, 45}
    assert "loss" in (needed("depth_warmup").steps or ())
