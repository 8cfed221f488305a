"""Depth laws at initialisation: numbers and sentences from a store whose laws are known."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_store import Run, write_study
from synthetic_studies import init_runs

from analysis import depth_laws
from analysis.depth_laws import COLUMNS, QUANTITIES, Laws, laws_of
from analysis.load import load_study

STUDY = "init_scaling"


def laws(results: Path, runs: list[Run]) -> dict[str, Laws]:
    write_study(results, runs)
    study = load_study(results, STUDY, columns=COLUMNS)
    assert study is not None
    return {found.label: found for _, found in laws_of(study)}


def said(found: Laws) -> str:
    return "\n".join(found.sentences())


def test_exponents_are_those_of_the_runs(tmp_path: Path) -> None:
    found = laws(tmp_path, init_runs())
    first, last, *_ = QUANTITIES
    interval = found["Pre-LN"].exponent(last).interval
    assert interval is not None
    assert interval.low < -0.5 < interval.high
    assert interval.half < 0.2
    assert "the gradient at the last point falls with depth (L^−0." in said(found["Pre-LN"])
    assert "the gradient that reaches the first layer does not depend on depth" in said(found["Post-LN"])
    assert "the variance of the stream after the last block grows with depth" in said(found["Pre-LN"])
    assert found["Pre-LN"].exponent(first).points == (12, 18, 24, 36, 48, 68, 96)


def test_a_law_that_is_broken_changes_the_sentence(tmp_path: Path) -> None:
    runs = [replace(run, first_exponent=-1.0, noise=0.02) for run in init_runs()]
    assert "the gradient that reaches the first layer falls with depth (L^−" in said(laws(tmp_path, runs)["Post-LN"])


def test_an_interval_that_holds_0_and_a_law_is_no_law(tmp_path: Path) -> None:
    runs = [replace(run, noise=0.6) for run in init_runs(seeds=3)]
    assert "has no clear law" in said(laws(tmp_path, runs)["Post-LN"])


@pytest.mark.parametrize(
    ("depths", "seeds", "reason"), [((6, 12, 24), 5, "3 depths, needs 4"), ((6, 12, 24, 48), 2, "2 seeds, needs 3")]
)
def test_too_little_gives_a_reason_and_no_number(tmp_path: Path, depths: tuple[int, ...], seeds: int, reason: str) -> None:
    found = laws(tmp_path, init_runs(depths, seeds))["Pre-LN"]
    assert all(found.exponent(quantity).interval is None for quantity in QUANTITIES)
    assert f"has no law: {reason}" in said(found)


def test_few_deep_networks_are_fitted_over_all_depths(tmp_path: Path) -> None:
    found = laws(tmp_path, init_runs((4, 6, 8, 12)))["Pre-LN"]
    assert found.start == 0
    assert found.exponent(QUANTITIES[0]).points == (4, 6, 8, 12)


def test_the_command_prints_source_table_and_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path, init_runs())
    assert depth_laws.main([STUDY, "--results", str(tmp_path), "--words"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "90 runs of results/runs",
        "Pre-LN",
        "Post-LN",
        "L ≥ 12",
        "per block",
        "Xavier-normal",
        "Norms, not squared",
    ):
        assert words in printed


def test_a_study_without_runs_is_named_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert depth_laws.main([STUDY, "--results", str(tmp_path)]) == 1
    assert "make sweep STUDY=init_scaling" in capsys.readouterr().err
