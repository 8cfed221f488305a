"""Laws of the figures: one source each, the same bytes twice, and nothing left out in silence."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from synthetic_store import Run, init_runs, training_runs, write_parquet, write_plan, write_study

from analysis import figures, plots, style
from analysis.reference import draw_reference, write_reference
from analysis.stats import power_law
from analysis.summary import exponent_text

ROOT = Path(__file__).parents[2]
SMOKE = (2, 4, 6)


def smoke(results: Path, *, training: bool = True, init: bool = True) -> Path:
    if init:
        write_study(results, init_runs(SMOKE, 1, "smoke"))
    if training:
        write_study(results, training_runs(SMOKE, 1, 40, "smoke"))
    return results


def run_main(results: Path, *arguments: str) -> int:
    return figures.main(["--results", str(results), "--scale", "smoke", *arguments])


def drawn(results: Path, name: str) -> Figure:
    """A figure as an object."""
    store = figures.Store(results, "smoke")
    stories, _ = store.together(figures.FIGURES[name])
    with style.applied():
        return figures.FIGURES[name].figure(stories)


def axes_of(figure: Figure) -> list[Axes]:
    return [ax for part in figure.subfigs for ax in part.axes]


def words(figure: Figure) -> str:
    """All text in a figure."""
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def test_one_seed_draws_every_figure_in_three_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smoke(tmp_path)
    assert run_main(tmp_path) == 0
    names = {name for name in figures.FIGURES if not name.endswith("_xavier")}
    found = {path.name for path in (tmp_path / "figures" / "smoke").iterdir()}
    assert found == {f"{name}.{end}" for name in names for end in ("png", "svg", "pdf")}
    out = capsys.readouterr().out
    assert os.path.relpath(tmp_path / "figures" / "smoke" / "headline.png") + " .svg .pdf" in out
    assert "depth_warmup: 12 runs of results/runs at smoke, commit abc1234\n" in out
    assert "depth_warmup_xavier: no runs at smoke, and no reference; skipped: headline_xavier" in out
    assert "(1 seed)" in out
    assert "nan" not in out


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_a_figure_drawn_again_in_another_process_has_the_same_bytes(tmp_path: Path) -> None:
    smoke(tmp_path)
    names = "headline,heatmap,outcome"
    assert run_main(tmp_path, "--only", names, "--out", str(tmp_path / "a")) == 0
    command = [sys.executable, "-m", "analysis.figures", "--results", str(tmp_path), "--scale", "smoke", "--only", names]
    environment = os.environ | {"PYTHONHASHSEED": "77", "SOURCE_DATE_EPOCH": "1"}
    subprocess.run([*command, "--out", str(tmp_path / "b")], check=True, cwd=ROOT, env=environment, capture_output=True)
    assert len(digests(tmp_path / "a" / "smoke")) == 9
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
    with pytest.raises(SystemExit) as stop:
        run_main(tmp_path, "--only", "headlin")
    assert stop.value.code == 2
    assert "no figure headlin; known are: init_profile" in capsys.readouterr().err


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
    assert "without the panels of init_xavier" in capsys.readouterr().out


def laptop(results: Path) -> Path:
    write_study(results, init_runs(SMOKE, 2))
    write_study(results, training_runs(SMOKE, 2, 40))
    return results


def test_a_figure_never_mixes_runs_and_reference(tmp_path: Path) -> None:
    laptop(tmp_path)
    for study in ("init_xavier", "depth_warmup"):
        write_reference(tmp_path, study)
    init = init_runs(SMOKE, 2)
    write_plan(tmp_path, [*init, replace(init[0], depth=9)], age=-10, tag="99999999")
    store = figures.Store(tmp_path, "laptop")
    stories, remark = store.together(figures.FIGURES["headline"])
    assert {story.study.source.kind for story in stories.values()} == {"reference"}
    assert "from the reference" in remark
    alone, _ = store.together(figures.FIGURES["loss"])
    assert alone["depth_warmup"].study.source.kind == "runs"


def test_the_reference_redraws_to_the_bytes_of_its_runs(tmp_path: Path) -> None:
    laptop(tmp_path)
    for study in ("init_xavier", "depth_warmup"):
        write_reference(tmp_path, study)
    figures.main(["--results", str(tmp_path), "--only", "headline,loss,collapse"])
    own = digests(tmp_path / "figures" / "laptop")
    paths = draw_reference(tmp_path, figures.terminal())
    kept = digests(tmp_path / "reference" / "figures")
    assert {path.name for path in paths} == set(kept)
    assert {name: kept[name] for name in own if name.endswith(".png")} == {k: v for k, v in own.items() if k.endswith(".png")}


def spoil(results: Path, run: Run, value: float) -> None:
    """Every gradient of a run becomes this value."""
    path = run.folder(results) / "layers.parquet"
    table = pq.read_table(path)
    for column in ("grad_stream", "grad_rel"):
        bad = pa.array(np.full(len(table), value), pa.float32())
        table = table.set_column(table.schema.get_field_index(column), column, bad)
    write_parquet(table, path)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_gradients_without_logarithm_are_counted_in_the_figure(tmp_path: Path, value: float) -> None:
    runs = training_runs(SMOKE, 1, 40, "smoke")
    write_study(tmp_path, runs)
    for run in runs:
        if run.norm == "post" and run.warmup == 0:
            spoil(tmp_path, run, value)
    assert "3 of 12 values 0 or not finite" in words(drawn(tmp_path, "headline"))
    for name in ("profile", "heatmap", "collapse"):
        assert "0 or not finite" in words(drawn(tmp_path, name))


def test_a_study_with_nothing_but_bad_gradients_still_draws(tmp_path: Path) -> None:
    runs = training_runs(SMOKE, 1, 40, "smoke")
    write_study(tmp_path, runs)
    for run in runs:
        spoil(tmp_path, run, np.nan)
    for name in ("headline", "profile", "heatmap", "collapse"):
        drawn(tmp_path, name).savefig(tmp_path / "x.png")


def test_an_extra_variant_and_a_missing_warmup_draw(tmp_path: Path) -> None:
    odd = [Run("odd", depth, 0, steps=40, scale="smoke") for depth in SMOKE]
    runs = [run for run in training_runs(SMOKE, 1, 40, "smoke") if not (run.norm == "pre" and run.warmup == 20)]
    write_study(tmp_path, [*runs, *odd])
    for name in ("headline", "heatmap", "outcome", "collapse", "loss"):
        assert "Odd-LN, no warmup" in words(drawn(tmp_path, name))


def test_a_diverged_run_is_counted_where_its_cell_is_drawn(tmp_path: Path) -> None:
    runs = training_runs(SMOKE, 1, 40, "smoke")
    lost = [replace(run, outcome="diverged", state="diverged") if run.norm == "post" else run for run in runs]
    write_study(tmp_path, lost)
    for name in ("headline", "outcome", "profile", "loss"):
        assert "1/1" in words(drawn(tmp_path, name))
    collapse = drawn(tmp_path, "collapse")
    assert any(len(line.get_xdata()) > 3 for line in axes_of(collapse)[0].lines)


@pytest.mark.parametrize("name", [name for name in figures.FIGURES if not name.endswith("_xavier")])
def test_every_axis_is_named_and_every_figure_states_its_setting(tmp_path: Path, name: str) -> None:
    smoke(tmp_path)
    figure = drawn(tmp_path, name)
    panels = [ax for ax in axes_of(figure) if ax.axison]
    assert any("[" in ax.get_ylabel() or "stream point" in ax.get_ylabel() for ax in panels)
    assert any(ax.get_xlabel() for ax in panels)
    text = words(figure)
    for part in ("embeddings of unit variance", "B=8 sequences of T=64", "d=64, 4 heads", "commit abc1234", "smoke"):
        assert part.replace(" ", "") in text.replace(" ", "").replace("\n", "")


def test_no_text_leaves_the_page(tmp_path: Path) -> None:
    smoke(tmp_path)
    for name in ("headline", "profile", "outcome", "heatmap"):
        figure = drawn(tmp_path, name)
        page = figure.bbox
        for text in figure.findobj(lambda artist: isinstance(artist, mpl.text.Text) and artist.get_visible()):
            if text.get_text().strip():
                box = text.get_window_extent()
                assert page.x0 - 1 <= box.x0, (name, text.get_text())
                assert box.x1 <= page.x1 + 1, (name, text.get_text())


def test_variants_differ_in_colour_and_line_and_warmups_in_marker(tmp_path: Path) -> None:
    smoke(tmp_path, init=False)
    story = figures.Store(tmp_path, "smoke").story("depth_warmup")
    assert story is not None
    looks = story.looks
    assert looks["pre", 0].linestyle != looks["post", 0].linestyle
    assert looks["pre", 0].color == "#0072b2"
    assert looks["pre", 0].marker != looks["pre", 20].marker
    assert len({look.color for look in looks.values()}) == 4
    assert len({look.label for look in looks.values()}) == 4


def test_two_variants_of_one_colour_and_label_are_still_told_apart(tmp_path: Path) -> None:
    same = {"norm.color": "#0072B2", "norm.label": "Pre-LN"}
    write_study(tmp_path, [Run("pre", 2, steps=30, scale="smoke"), Run("odd", 2, steps=30, scale="smoke", override=same)])
    story = figures.Store(tmp_path, "smoke").story("depth_warmup")
    assert story is not None
    assert len({look.color for look in story.looks.values()}) == 2
    assert len({look.label for look in story.looks.values()}) == 2


def test_the_exponent_in_the_headline_is_that_of_the_store(tmp_path: Path) -> None:
    runs = init_runs((12, 24, 48), 3, "smoke")
    write_study(tmp_path, runs)
    write_study(tmp_path, training_runs((12, 24, 48), 1, 40, "smoke"))
    story = figures.Store(tmp_path, "smoke").story("init_xavier")
    assert story is not None
    law = story.law[
        (story.law["variant"] == "pre") & (story.law["quantity"] == "grad_stream") & (story.law["place"] == "last")
    ]
    fit = power_law(law["depth"], law["value"], law["seed"])
    assert fit is not None
    expected = f"{fit.exponent.estimate:+.2f} ± {fit.exponent.half:.2f}".replace("-", "−")
    row = story.exponents.set_index(["variant", "quantity", "place"]).loc[("pre", "grad_stream", "last")]
    assert exponent_text(row, "") == expected
    assert expected in words(drawn(tmp_path, "headline"))


def test_guides_have_the_exponents_they_are_named_after() -> None:
    ax = Figure().add_subplot()
    plots.guides(ax, [6, 96], 2.0)
    found = [np.polyfit(np.log(line.get_xdata()), np.log(line.get_ydata()), 1)[0] for line in ax.lines]
    assert found == pytest.approx([0.0, -0.5, -1.0])
    assert [line.get_ydata()[0] for line in ax.lines] == pytest.approx([2.0] * 3)
