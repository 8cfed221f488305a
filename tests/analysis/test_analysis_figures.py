"""Laws of the figures: one source each, the same bytes twice, and nothing left out in silence."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest
from synthetic_store import Run, write_plan, write_study
from synthetic_studies import SMOKE, init_runs, smoke, training_runs

from analysis import figures, reference
from analysis.reference import draw_reference, write_reference

ROOT = Path(__file__).parents[2]


def run_main(results: Path, *arguments: str) -> int:
    return figures.main(["--results", str(results), "--scale", "smoke", *arguments])


def test_the_command_writes_three_formats_and_says_what_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smoke(tmp_path)
    assert run_main(tmp_path, "--only", "init_variance,outcome,outcome_xavier") == 0
    folder = tmp_path / "figures" / "smoke"
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{end}" for name in ("init_variance", "outcome") for end in ("png", "svg", "pdf")
    }
    out = capsys.readouterr().out
    assert os.path.relpath(folder / "outcome.png") + " .svg .pdf" in out
    assert "depth_warmup: 12 runs of results/runs at smoke, commit abc1234\n" in out
    assert "depth_warmup_xavier: no runs at smoke, and no reference; skipped: outcome_xavier" in out
    assert "(1 seed)" in out
    assert "nan" not in out


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_a_figure_drawn_again_in_another_process_has_the_same_bytes(tmp_path: Path) -> None:
    smoke(tmp_path)
    names = "headline,heatmap,exponents,theory"
    assert run_main(tmp_path, "--only", names, "--out", str(tmp_path / "a")) == 0
    command = [sys.executable, "-m", "analysis.figures", "--results", str(tmp_path), "--scale", "smoke", "--only", names]
    environment = os.environ | {"PYTHONHASHSEED": "77", "SOURCE_DATE_EPOCH": "1"}
    subprocess.run([*command, "--out", str(tmp_path / "b")], check=True, cwd=ROOT, env=environment, capture_output=True)
    assert len(digests(tmp_path / "a" / "smoke")) == 12
    assert digests(tmp_path / "a" / "smoke") == digests(tmp_path / "b" / "smoke")


def test_figures_hold_no_date(tmp_path: Path) -> None:
    smoke(tmp_path)
    run_main(tmp_path, "--only", "init_variance")
    for end in ("png", "svg", "pdf"):
        body = (tmp_path / "figures" / "smoke" / f"init_variance.{end}").read_bytes()
        assert not any(word in body for word in (b"CreationDate", b"<dc:date>", b"tIME"))


def test_the_users_own_matplotlib_settings_neither_change_a_figure_nor_are_changed(tmp_path: Path) -> None:
    smoke(tmp_path, training=False)
    run_main(tmp_path, "--only", "init_variance", "--out", str(tmp_path / "a"))
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        run_main(tmp_path, "--only", "init_variance", "--out", str(tmp_path / "b"))
        assert mpl.rcParams["font.size"] == 30
    assert digests(tmp_path / "a" / "smoke") == digests(tmp_path / "b" / "smoke")


def test_an_empty_store_ends_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(tmp_path) == 1
    assert "make sweep" in capsys.readouterr().err


def test_a_broken_file_ends_with_its_name_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = init_runs(SMOKE, 1, "smoke")
    write_study(tmp_path, runs)
    (runs[0].folder(tmp_path) / "layers.parquet").write_bytes(b"PAR1")
    assert run_main(tmp_path) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert f"{runs[0].name}/layers.parquet" in error


def test_an_unknown_figure_is_refused_with_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(tmp_path, "--only", "headlin") == 1
    assert "no figure headlin; known are: init_profile" in capsys.readouterr().err


def test_a_users_own_studies_are_drawn_under_their_names(tmp_path: Path) -> None:
    write_study(tmp_path, [replace(run, study="mine") for run in training_runs(SMOKE, 1, 40, "smoke")])
    write_study(tmp_path, [replace(run, study="start") for run in init_runs(SMOKE, 1, "smoke")])
    names = ("outcome_mine", "profile_start", "variance_start")
    assert run_main(tmp_path, "--only", ",".join(names)) == 0
    assert {path.stem for path in (tmp_path / "figures" / "smoke").glob("*.png")} == set(names)
    assert run_main(tmp_path, "--only", "loss_start") == 1


def test_a_sweep_over_another_option_is_drawn(tmp_path: Path) -> None:
    runs = [replace(run, study="rates", override={"optim.lr": lr}) for run in training_runs(SMOKE, 1, 40, "smoke")
            for lr in (1e-3, 4e-3)]  # fmt: skip
    write_study(tmp_path, runs)
    assert run_main(tmp_path, "--only", "headline_rates,heatmap_rates,loss_rates") == 0


def test_an_undone_plan_is_skipped_with_its_count_or_drawn_as_partial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smoke(tmp_path, init=False)
    runs = training_runs(SMOKE, 1, 40, "smoke")
    write_plan(tmp_path, [*runs, Run("pre", 7, steps=40, scale="smoke")], age=-10, tag="99999999")
    assert run_main(tmp_path, "--only", "outcome") == 1
    assert "12 of 13 runs of its newest plan done, 1 missing" in capsys.readouterr().out
    assert run_main(tmp_path, "--only", "outcome", "--partial") == 0
    assert "12 runs of results/runs at smoke, commit abc1234; 1 incomplete left out" in capsys.readouterr().out


def test_without_the_init_study_the_headline_says_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smoke(tmp_path, init=False)
    assert run_main(tmp_path, "--only", "headline") == 0
    assert "without the panels of init_scaling" in capsys.readouterr().out


def laptop(results: Path) -> Path:
    write_study(results, init_runs(SMOKE, 2))
    write_study(results, training_runs(SMOKE, 2, 40))
    return results


def test_a_figure_never_mixes_runs_and_reference(tmp_path: Path) -> None:
    laptop(tmp_path)
    for study in ("init_scaling", "depth_warmup"):
        write_reference(tmp_path, study)
    init = init_runs(SMOKE, 2)
    write_plan(tmp_path, [*init, replace(init[0], depth=9)], age=-10, tag="99999999")
    store = figures.Store(tmp_path, "laptop")
    stories, remark = store.together(figures.FIGURES["headline"])
    assert {story.study.source.kind for story in stories.values()} == {"reference"}
    assert "from the reference" in remark
    alone, _ = store.together(figures.FIGURES["loss"])
    assert alone["depth_warmup"].study.source.kind == "runs"


def test_the_reference_redraws_to_the_bytes_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop(tmp_path)
    for study in ("init_scaling", "depth_warmup"):
        write_reference(tmp_path, study)
    some = {name: figures.FIGURES[name] for name in ("headline", "outcome")}
    monkeypatch.setattr(figures, "FIGURES", some)
    monkeypatch.setattr(reference, "PICTURES", tuple(some))
    figures.draw(figures.Store(tmp_path, "laptop"), tmp_path / "own", list(some.values()), figures.terminal(), ("png",))
    paths = draw_reference(tmp_path, figures.terminal())
    kept = digests(tmp_path / "reference" / "figures")
    assert {path.name for path in paths} == set(kept) == {"headline.png", "outcome.png"}
    assert kept == digests(tmp_path / "own")
