"""Laws of the rules: a verdict is the place of an interval, a winner, or a count, and nothing else."""

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis.evidence.verdicts import (
    Above,
    Always,
    AtMost,
    Exact,
    Finding,
    Law,
    Near,
    Never,
    Rule,
    Verdict,
    number_text,
    overall,
)
from analysis.laws import Comparison
from analysis.stats import Interval


def between(low: float, high: float, **more: float) -> Finding:
    return Finding(Interval((low + high) / 2, low, high), **more)


@pytest.mark.parametrize(
    ("rule", "low", "high", "word"),
    [
        (Near(-1, 0.25), -1.2, -0.8, "holds"),
        (Near(-1, 0.25), -1.25, -0.75, "holds"),
        (Near(-1, 0.25), -1.26, -1.0, "inconclusive"),
        (Near(-1, 0.25), -1.0, -0.74, "inconclusive"),
        (Near(-1, 0.25), -2.0, 0.0, "inconclusive"),
        (Near(-1, 0.25), -0.74, 0.1, "refuted"),
        (Near(-1, 0.25), -3.0, -1.26, "refuted"),
        (Near(0, 0.25), 0.0, 0.0, "holds"),
        (Above(0), 0.01, 1.0, "holds"),
        (Above(0), -0.01, 1.0, "inconclusive"),
        (Above(0), 0.0, 1.0, "inconclusive"),
        (Above(0), -1.0, 0.0, "refuted"),
        (AtMost(0), -1.0, 0.0, "holds"),
        (AtMost(0), -1.0, 0.01, "inconclusive"),
        (AtMost(0), 0.01, 1.0, "refuted"),
    ],
)
def test_the_whole_interval_decides(rule: Rule, low: float, high: float, word: str) -> None:
    verdict = rule.judge(between(low, high))
    assert verdict.word == word
    assert bool(verdict.reason) == (word == "inconclusive")


def test_the_reason_names_the_edge_that_is_crossed() -> None:
    assert Near(-1, 0.25).judge(between(-1.0, -0.5)).reason == "the interval reaches over −0.75"
    assert Near(-1, 0.25).judge(between(-1.5, -0.5)).reason == "the interval reaches over −1.25 and −0.75"


@pytest.mark.parametrize("rule", [Near(0, 1), Above(0), AtMost(0), Law("power", 1), Always(), Never(), Exact()])
def test_without_a_number_the_reason_is_passed_on(rule: Rule) -> None:
    assert rule.judge(Finding(reason="2 depths, needs 4")) == Verdict("inconclusive", "2 depths, needs 4")


@pytest.mark.parametrize("rule", [Near(0, 1), Above(0), AtMost(0)])
@pytest.mark.parametrize("bounds", [(math.nan, math.nan), (-math.inf, math.inf), (0.0, math.inf)])
def test_an_interval_without_bounds_decides_nothing(rule: Rule, bounds: tuple[float, float]) -> None:
    assert rule.judge(between(*bounds)).word == "inconclusive"


def test_points_far_from_their_line_are_no_law_but_can_refute_one() -> None:
    assert Near(0, 0.25).judge(between(-0.1, 0.1, stray=2.9)).word == "holds"
    assert Near(0, 0.25).judge(between(-0.1, 0.1, stray=3.0)).word == "inconclusive"
    assert "a factor of 5.00" in Near(0, 0.25).judge(between(-0.1, 0.1, stray=5)).reason
    assert Near(0, 0.25).judge(between(1, 2, stray=5)).word == "refuted"


@pytest.mark.parametrize(
    ("winner", "low", "high", "word"),
    [
        ("exponential", -0.2, -0.1, "holds"),
        ("exponential", -0.2, 0.1, "inconclusive"),
        ("exponential", -0.2, -0.02, "inconclusive"),  # tenfold over a span of 90 is .0256 a block
        ("exponential", -0.02, -0.01, "refuted"),
        ("exponential", 0.1, 0.2, "refuted"),
        ("power", -0.2, -0.1, "refuted"),
        ("constant", -0.1, 0.1, "refuted"),
        (None, -0.2, -0.1, "inconclusive"),
        (None, -0.02, 0.01, "refuted"),
        (None, 0.1, 0.2, "refuted"),
    ],
)
def test_a_law_needs_the_winner_the_sign_and_the_size(winner: str | None, low: float, high: float, word: str) -> None:
    law = Comparison(winner, "" if winner else "power leads exponential by 1.0", {}, {})
    found = Finding(Interval((low + high) / 2, low, high), law=law, of_law="exponential", span=90)
    verdict = Law("exponential", -1).judge(found)
    assert verdict.word == word
    assert bool(verdict.reason) == (word != "holds")


@pytest.mark.parametrize(
    ("rule", "yes", "runs", "word", "reason"),
    [
        (Never(), 0, 21, "holds", ""),
        (Never(), 0, 5, "holds", ""),
        (Never(), 0, 4, "inconclusive", "4 runs, needs 5"),
        (Never(), 0, 1, "inconclusive", "1 run, needs 5"),
        (Never(), 1, 21, "refuted", "1 of 21 runs against it"),
        (Never(), 1, 1, "refuted", "1 of 1 runs against it"),
        (Always(), 21, 21, "holds", ""),
        (Always(), 3, 3, "inconclusive", "3 runs, needs 5"),
        (Always(), 20, 21, "refuted", "1 of 21 runs against it"),
        (Always(), 0, 2, "refuted", "2 of 2 runs against it"),
        (Exact(), 3, 3, "holds", ""),
        (Exact(), 2, 3, "refuted", "1 of 3 checks against it"),
    ],
)
def test_one_counterexample_refutes_and_few_runs_prove_nothing(
    rule: Rule, yes: int, runs: int, word: str, reason: str
) -> None:
    assert rule.judge(Finding(count=(yes, runs))) == Verdict(word, reason)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["refuted", "refuted"], "refuted"),
        (["holds", "refuted"], "holds only when: a"),
        (["refuted", "holds", "holds"], "holds only when: b; c"),
        (["holds", "inconclusive"], "holds (1 of 2 inconclusive)"),
        (["refuted", "not measured", "not measured"], "refuted (2 of 3 not measured)"),
        (
            ["holds", "refuted", "inconclusive", "not measured"],
            "holds when: a (1 of 4 inconclusive, 1 of 4 not measured)",
        ),
        (["inconclusive", "inconclusive"], "inconclusive"),
        (["inconclusive", "not measured"], "inconclusive (1 of 2 not measured)"),
        (["not measured"], "not measured"),
        ([], "not measured"),
    ],
)
def test_open_tests_are_mentioned_and_never_decide(words: list[str], expected: str) -> None:
    assert overall([(when, Verdict(word)) for when, word in zip("abcd", words, strict=False)]) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "inconclusive"], "inconclusive"),
        (["holds", "not measured"], "not measured"),
        (["inconclusive", "refuted", "holds"], "refuted"),
    ],
)
def test_parts_of_one_statement_stand_or_fall_together(words: list[str], expected: str) -> None:
    assert overall([("part", Verdict(word)) for word in words], whole=True) == expected


def test_a_winner_whose_points_stray_is_called_nothing() -> None:
    comparison = Comparison("exponential", "", {}, {})
    found = Finding(Interval(-0.2, -0.25, -0.15), law=comparison, span=90, stray=2.9)
    assert Law("exponential", -1).judge(found).word == "holds"
    verdict = Law("exponential", -1).judge(replace(found, stray=4.0))
    assert verdict == Verdict("inconclusive", "it wins, but points stray from it by a factor of 4.00")


def test_numbers_keep_as_many_digits_as_a_reader_wants() -> None:
    values = (-0.5, 0.0, 12.345, -0.0123, 1e-7, 48000.0, np.float64(1.005))
    assert [number_text(v) for v in values] == ["−0.50", "0.00", "12.35", "−0.012", "0.000", "4.8e+04", "1.00"]


def test_rules_say_what_they_predict() -> None:
    assert [str(r) for r in (Near(-0.5, 0.25), Above(0), AtMost(10), Law("exponential", -1), Always(), Never(), Exact())] == [
        "−0.50 ± 0.25", "above 0.00", "at most 10.00", "wins in AICc, at least 10-fold", "every run", "no run", "exactly",
    ]  # fmt: skip
