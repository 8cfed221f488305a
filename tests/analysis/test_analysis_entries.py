"""Laws of the ledger's entries: a verdict follows the data, for every test of every claim."""

import pytest
from synthetic_claims import judged
from synthetic_ledger import breaking, obeying

from analysis.ledger import CLAIMS, entry

ENTRIES = [pytest.param(claim, test, id=f"{claim.id}: {test.when}") for claim in CLAIMS for test in claim.tests]


@pytest.mark.parametrize(("claim", "test"), ENTRIES)
def test_an_entry_holds_where_its_prediction_is_true(claim: entry.Claim, test: entry.Test) -> None:
    row = judged(obeying(test), claim, test)
    assert row.verdict.word == "holds", (row.verdict, row.measured)


@pytest.mark.parametrize(("claim", "test"), ENTRIES)
def test_an_entry_is_refuted_where_its_prediction_is_false(claim: entry.Claim, test: entry.Test) -> None:
    for store in breaking(test):
        row = judged(store, claim, test)
        assert row.verdict.word == "refuted", (row.verdict, row.measured)
