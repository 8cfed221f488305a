"""Laws of what a test reads: one source a claim, and only runs that belong together."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from synthetic_claims import BOTH, DEPTHS, END, INIT, init_runs, reference, rows, trained_runs
from synthetic_ledger import RATES, benefit_cases, memory, obeying_cases
from synthetic_store import INITIAL, write_parquet, write_plan, write_study

from analysis.claims import asked, evaluate, evaluated, needed
from analysis.evidence.counts import Outcomes
from analysis.evidence.measures import Exponent, Mean
from analysis.evidence.quantities import OverBlocks, Point, contrast, share_in_use
from analysis.evidence.record import LAST, AtLeast, UpTo
from analysis.evidence.sources import Sources
from analysis.evidence.verdicts import Never, Verdict
from analysis.ledger import entry


def test_a_claim_is_read_from_its_own_runs_where_all_of_them_are_done(tmp_path: Path) -> None:
    write_study(tmp_path, init_runs())
    write_study(tmp_path, trained_runs())
    reference(tmp_path, INIT, END)
    first, second = rows(tmp_path)
    assert first.data == second.data == "results/runs at laptop, commit abc1234"
    assert (first.runs, second.runs) == (12, 12)
    assert "Xavier-normal" in first.setting
    assert "AdamW" in second.setting


def test_sources_are_never_mixed_in_a_claim(tmp_path: Path) -> None:
    write_study(tmp_path, init_runs())
    reference(tmp_path, END)
    first, second = rows(tmp_path)
    assert second.data.startswith("the committed reference")
    assert first.verdict.word == "not measured"
    assert "init_scaling is not in the reference" in first.verdict.reason
    reference(tmp_path, INIT)
    kept = "the committed reference at laptop, commit abc1234"
    passed_over = "; not your own (12 of 12 runs of its newest plan done), since not all studies of this claim are done here"
    assert [row.data for row in rows(tmp_path)] == [kept + passed_over, kept]
    alone = entry.Claim("C1", "a claim", "a paper", (INIT,))
    assert rows(tmp_path, alone)[0].data.startswith("results/runs")


def test_a_study_that_exists_nowhere_does_not_keep_the_others_from_their_own_runs(tmp_path: Path) -> None:
    write_study(tmp_path, init_runs())
    first, second = rows(tmp_path)
    assert first.data.startswith("results/runs")
    assert second.verdict == Verdict("not measured", "no runs of depth_warmup at laptop")
    assert first.overall == f"{first.verdict.word} (1 of 2 not measured)"


def test_an_unfinished_plan_sends_the_whole_claim_to_the_reference(tmp_path: Path) -> None:
    write_study(tmp_path, init_runs())
    write_study(tmp_path, trained_runs()[:-1])
    write_plan(tmp_path, trained_runs(), tag="11111111")
    first, second = rows(tmp_path)
    assert first.data.startswith("results/runs")  # the reference has neither
    assert second.verdict.reason == "depth_warmup: 11 of 12 runs of its newest plan done, 1 missing"
    reference(tmp_path, INIT, END)
    assert {row.data.split(" at ")[0] for row in rows(tmp_path)} == {"the committed reference"}


def test_the_reference_of_another_scale_is_no_source(tmp_path: Path) -> None:
    reference(tmp_path, INIT)
    store = Sources(tmp_path, "smoke", partial(needed, claims=(BOTH,)))
    assert {row.verdict.word for row in evaluate(store, BOTH)} == {"not measured"}


def test_a_column_that_older_runs_lack_is_not_measured(tmp_path: Path) -> None:
    write_study(tmp_path, init_runs())
    test = replace(INIT, measure=Mean(Point("angular_distance", "first block")))
    (row,) = rows(tmp_path, entry.Claim("C1", "a claim", "a paper", (test,)))
    assert row.verdict.word == "not measured"
    assert row.verdict.reason.startswith("angular_distance has no value")
    test = replace(INIT, measure=Exponent(Point("grad_stream", "first", 7)))
    (row,) = rows(tmp_path, entry.Claim("C1", "a claim", "a paper", (test,)))
    assert row.verdict == Verdict("not measured", "step 7 was not recorded")


def test_a_reference_without_the_column_is_not_measured(tmp_path: Path) -> None:
    reference(tmp_path, INIT)
    path = tmp_path / "reference" / "init_scaling" / "layers.parquet"
    write_parquet(pq.read_table(path).drop_columns(["grad_stream"]), path)
    first, _ = rows(tmp_path)
    assert first.verdict.word == "not measured"
    assert first.verdict.reason.startswith("grad_stream is not in the tables")


def test_only_the_reference_is_read_where_that_is_asked(tmp_path: Path) -> None:
    write_study(tmp_path, init_runs())
    reference(tmp_path, INIT)
    alone = entry.Claim("C1", "a claim", "a paper", (INIT,))
    (own,), (kept,) = (evaluated(tmp_path, "laptop", (alone,), reference=only) for only in (False, True))
    assert own.data.startswith("results/runs")
    assert kept.data.startswith("the committed reference")


def test_a_test_is_judged_where_its_premise_holds_only() -> None:
    flat = replace(INIT, when="flat")
    after = replace(INIT, when="after", premise="flat")
    falling = replace(flat, rule=entry.law(-1))
    store = memory(INIT, obeying_cases(INIT))
    first, second = evaluate(store, entry.Claim("C1", "a claim", "a paper", (flat, after)))
    assert (first.verdict.word, second.verdict.word, second.overall) == ("holds", "holds", "holds")
    first, second = evaluate(store, entry.Claim("C1", "a claim", "a paper", (falling, after)))
    assert first.verdict.word == "refuted"
    assert second.verdict == Verdict("inconclusive", "its premise, flat, is refuted")
    assert second.measured
    assert second.overall == "inconclusive"  # of what was judged, not of the premise


def test_runs_that_differ_in_more_than_depth_and_seed_give_no_number(tmp_path: Path) -> None:
    mixed = [replace(run, override=run.override | {"train.batch": 4}) if run.depth == 96 else run for run in init_runs()]
    write_study(tmp_path, mixed)
    (row, _) = rows(tmp_path)
    assert row.verdict == Verdict("inconclusive", "the runs that fit differ in train.batch")
    assert row.measured == ""
    write_study(tmp_path, [*init_runs(), replace(init_runs()[0], override={"study.factor": "base", "probe.every": 3})])
    (row, _) = rows(tmp_path)
    assert row.verdict == Verdict("inconclusive", "seed 0 stands twice at L = 12")


def test_a_test_reads_the_runs_that_fit_and_names_those_it_leaves_out() -> None:
    found = obeying_cases(END, seeds=4)
    found = [replace(case, run=replace(case.run, outcome="stuck")) if case.run.seed == 3 else case for case in found]
    found += obeying_cases(replace(END, where=END.where | {"warmup": 150}), seeds=4)
    record = memory(END, found).record("depth_warmup", "runs")
    selection = record.select(END.where)
    assert len(selection.fitting) == 20
    assert set(selection.used["seed"]) == {0, 1, 2}
    assert len(record.select({"depth": AtLeast(48), "warmup": UpTo(0)}).fitting) == 8
    (row,) = evaluate(memory(END, found), entry.Claim("C1", "a claim", "a paper", (END,)))
    assert (row.found.seeds, row.runs, row.diverged) == (3, 20, 0)
    lost = [replace(case, run=replace(case.run, outcome="stuck")) if case.run.depth == 96 else case for case in found]
    (row,) = evaluate(memory(END, lost), entry.Claim("C1", "a claim", "a paper", (END,)))
    assert row.verdict.reason == "3 depths, needs 4"
    assert row.found.remark == "not used at L = 96: 4 stuck"


def test_few_deeper_seeds_do_not_displace_the_many() -> None:
    found = obeying_cases(INIT, depths=DEPTHS, seeds=10)
    deeper = obeying_cases(INIT, depths=(192,), seeds=3)
    (row,) = evaluate(memory(INIT, found + deeper), entry.Claim("C1", "a claim", "a paper", (INIT,)))
    assert (row.found.seeds, row.found.given) == (10, 10)
    assert row.found.remark.startswith("over L = 12 to 96 (4 depths)")


def test_shares_of_blocks_have_the_values_of_their_closed_forms() -> None:
    assert contrast(np.array([1.0, 9, 2])) == pytest.approx(1 / 3)
    assert contrast(np.array([2.0, 9, 9, 2])) == 0
    assert share_in_use(np.ones(7)) == pytest.approx(1)
    assert share_in_use(np.array([0.0, 0, 0, 5])) == pytest.approx(1 / 4)
    assert np.isnan(share_in_use(np.zeros(3)))
    assert OverBlocks(contrast, "layer_drop", LAST, "param_w2").reads.layers == {"layer_drop", "param_w2"}


def test_a_run_that_diverges_or_ends_above_its_start_counts_with_its_initial_loss() -> None:
    """Wortsman et al. 2023, section 2: one rate of three ends at 2, two do not end below the initial loss."""
    (claim,) = asked("C25b")
    test = claim.tests[0]
    found = []
    for case in benefit_cases(test, {"post": 0.0, "pre": 0.0}):
        rate = case.run.override["optim.lr"]
        if case.run.norm == "post" and case.run.warmup == 0 and rate != RATES[0]:
            bad = {"outcome": "diverged", "state": "diverged"} if rate == RATES[1] else {"outcome": "unfinished"}
            found.append(replace(case, run=replace(case.run, **bad), final=INITIAL + 3))
        else:  # with warmup every rate ends at 1.5
            found.append(case if case.run.warmup == 0 else replace(case, final=1.5))
    (row,) = evaluate(memory(test, found), replace(claim, tests=(test,)))
    assert row.found.interval.estimate == pytest.approx((2 + 2 * INITIAL) / 3 - 1.5, rel=1e-2)
    assert row.diverged == 12  # of two depths, three seeds, two rates
    few = [case for case in found if case.run.warmup == 0 or case.run.override["optim.lr"] != RATES[1]]
    (row,) = evaluate(memory(test, few), replace(claim, tests=(test,)))
    assert row.verdict == Verdict("inconclusive", "no seed has all 3 rates for post with warmup")


def test_a_share_is_of_all_runs_that_fit_diverged_ones_too() -> None:
    test = replace(END, measure=Outcomes("trained"), rule=Never(), where={"norm": "pre"})
    found = obeying_cases(END, depths=(12, 24))
    found = [replace(c, run=replace(c.run, outcome="diverged", state="diverged")) if c.run.depth == 24 else c for c in found]
    (row,) = evaluate(memory(END, found), entry.Claim("C1", "a claim", "a paper", (test,)))
    assert row.found.count == (3, 6)
    assert row.diverged == 3
    assert row.found.remark == "3 diverged, 3 trained"
    assert row.verdict.word == "refuted"
