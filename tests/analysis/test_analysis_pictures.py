"""Laws of what a figure shows: everything named, counted and told apart."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inspected import axes_of, words
from matplotlib.figure import Figure
from synthetic_store import Run, write_parquet, write_study
from synthetic_studies import SMOKE, init_runs, smoke, training_runs

from analysis import figures, plots, style
from analysis.laws import exponent
from analysis.summary import exponent_text

NAMES = [name for name, entry in figures.FIGURES.items() if entry.needs in ("init_scaling", "depth_warmup")]


def drawn(results: Path, name: str) -> Figure:
    """A figure as an object."""
    store = figures.Store(results, "smoke")
    stories, _ = store.together(figures.FIGURES[name])
    with style.applied():
        return figures.FIGURES[name].figure(stories)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    """Every figure of a smoke store, rendered: one seed, three depths."""
    results = smoke(tmp_path_factory.mktemp("smoke"))
    found = {name: drawn(results, name) for name in NAMES}
    for figure in found.values():
        figure.draw_without_rendering()
    return found


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


def test_a_study_with_nothing_but_bad_gradients_still_draws(tmp_path: Path) -> None:
    runs = training_runs(SMOKE, 1, 40, "smoke")
    write_study(tmp_path, runs)
    for run in runs:
        spoil(tmp_path, run, np.nan)
    for name in ("headline", "heatmap"):
        drawn(tmp_path, name).draw_without_rendering()


def test_an_extra_variant_and_a_missing_warmup_draw(tmp_path: Path) -> None:
    odd = [Run("odd", depth, 0, steps=40, scale="smoke") for depth in SMOKE]
    runs = [run for run in training_runs(SMOKE, 1, 40, "smoke") if not (run.norm == "pre" and run.warmup == 20)]
    write_study(tmp_path, [*runs, *odd])
    for name in ("headline", "heatmap", "outcome"):
        assert "Odd-LN, no warmup" in words(drawn(tmp_path, name))


def test_a_diverged_run_is_counted_where_its_cell_is_drawn(tmp_path: Path) -> None:
    runs = training_runs(SMOKE, 1, 40, "smoke")
    lost = [replace(run, outcome="diverged", state="diverged") if run.norm == "post" else run for run in runs]
    write_study(tmp_path, lost)
    for name in ("headline", "outcome", "loss"):
        assert "1/1" in words(drawn(tmp_path, name))
    collapse = drawn(tmp_path, "collapse")
    assert any(len(line.get_xdata()) > 3 for line in axes_of(collapse)[0].lines)


@pytest.mark.parametrize("name", NAMES)
def test_every_axis_is_named_and_every_figure_states_its_setting(pictures: dict[str, Figure], name: str) -> None:
    figure = pictures[name]
    panels = [ax for ax in axes_of(figure) if ax.axison]
    assert any("[" in ax.get_ylabel() or "stream point" in ax.get_ylabel() for ax in panels)
    assert any(ax.get_xlabel() for ax in panels)
    text = words(figure)
    for part in ("embeddings of unit variance", "B=8 sequences of T=64", "d=64, 4 heads", "commit abc1234", "smoke"):
        assert part.replace(" ", "") in text.replace(" ", "").replace("\n", "")


@pytest.mark.parametrize("name", NAMES)
def test_no_text_leaves_the_page(pictures: dict[str, Figure], name: str) -> None:
    """Tick labels aside: those out of range have a place, and are not drawn."""
    page = pictures[name].bbox
    ticks = {id(text) for ax in axes_of(pictures[name]) for text in (*ax.get_xticklabels(), *ax.get_yticklabels())}
    for text in pictures[name].findobj(mpl.text.Text):
        if text.get_text().strip() and text.get_visible() and id(text) not in ticks:
            box = text.get_window_extent()
            assert page.x0 - 1 <= box.x0, text.get_text()
            assert box.x1 <= page.x1 + 1, text.get_text()


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
    story = figures.Store(tmp_path, "smoke").story("init_scaling")
    assert story is not None
    law = story.law[
        (story.law["variant"] == "pre") & (story.law["quantity"] == "grad_stream") & (story.law["place"] == "last")
    ]
    found = exponent(law["depth"], law["value"], law["seed"], fewest=3).interval
    assert found is not None
    expected = f"{found.estimate:+.2f} ± {found.half:.2f}".replace("-", "−")
    row = story.exponents.set_index(["variant", "quantity", "place"]).loc[("pre", "grad_stream", "last")]
    assert exponent_text(row, "") == expected
    assert expected in words(drawn(tmp_path, "headline"))


def test_guides_have_the_exponents_they_are_named_after() -> None:
    ax = Figure().add_subplot()
    plots.guides(ax, [6, 96], 2.0)
    found = [np.polyfit(np.log(line.get_xdata()), np.log(line.get_ydata()), 1)[0] for line in ax.lines]
    assert found == pytest.approx([0.0, -0.5, -1.0])
    assert [line.get_ydata()[0] for line in ax.lines] == pytest.approx([2.0] * 3)
