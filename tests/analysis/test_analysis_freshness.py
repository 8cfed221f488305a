"""Figures are redrawn exactly when what they show has changed."""

import json
from pathlib import Path

import pytest
from synthetic_studies import smoke

from analysis import figures


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Draws at smoke scale; returns whether anything was written."""
    smoke(tmp_path)
    some = {name: figures.FIGURES[name] for name in ("init_variance", "outcome")}
    monkeypatch.setattr(figures, "FIGURES", some)

    def draw(*arguments: str) -> bool:
        folder = tmp_path / "figures" / "smoke"
        before = {path: path.stat().st_mtime_ns for path in folder.glob("*")}
        assert figures.main(["--results", str(tmp_path), "--scale", "smoke", *arguments]) == 0
        return before != {path: path.stat().st_mtime_ns for path in folder.glob("*")}

    return draw


def test_unchanged_results_are_not_drawn_again_unless_asked(drawn, capsys: pytest.CaptureFixture[str]) -> None:
    assert drawn("--if-new")
    assert not drawn("--if-new")
    assert "figures/smoke are up to date" in capsys.readouterr().out
    assert drawn()


def test_a_run_that_changed_is_drawn(drawn, tmp_path: Path) -> None:
    assert drawn("--if-new")
    record = next(tmp_path.glob("runs/depth_warmup/smoke/*/run.json"))
    record.write_text(json.dumps(json.loads(record.read_text()) | {"label": "renamed"}))
    assert drawn("--if-new")


def test_a_figure_that_is_gone_is_drawn(drawn, tmp_path: Path) -> None:
    assert drawn("--if-new")
    (tmp_path / "figures" / "smoke" / "outcome.svg").unlink()
    assert drawn("--if-new")
    assert (tmp_path / "figures" / "smoke" / "outcome.svg").exists()


@pytest.mark.slow
def test_the_ledgers_picture_is_drawn_again_for_another_study_or_other_exact_checks(drawn, tmp_path: Path) -> None:
    assert drawn("--if-new")
    (tmp_path / "exact.json").write_text("{}")
    assert drawn("--if-new")
    assert not drawn("--if-new")
    other = tmp_path / "reference" / "final_norm"
    other.mkdir(parents=True)
    (other / "runs.parquet").write_bytes(b"")
    assert drawn("--if-new")
