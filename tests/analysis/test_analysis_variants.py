"""Laws of what compares variants: each in its own row or panel, outcomes and cells apart, and a table of the same numbers."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inspected import axes_of, drawn, lines, told, words
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from synthetic_memory import Case
from synthetic_store import STYLES, Run, write_study

from analysis import figures, style
from analysis.comparison import compare
from analysis.drawings.variant_layers import profile_by_variant, spread, variance_by_variant
from analysis.drawings.variants import exponents_by_variant, loss_by_variant
from analysis.store import Store
from analysis.story import Story

DEPTHS = (12, 24, 48, 96)
ORDER = ["Pre-LN", "Even-LN", "Post-LN", "Odd-LN"]  # by colour, then line style
LAST_W2 = {"pre": -0.5, "even": -1.0, "post": 0.0, "odd": 7.0}


def init_case(run: Run) -> Case:
    """Gradient of the last W_2 as LAST_W2 says, all others flat; the variance 1 + l, of Odd-LN exp(l)."""
    L, layer = run.depth, np.arange(run.depth + 1.0)
    w2 = np.append(np.full(L, 9.0), np.nan)
    w2[L - 1] = float(L) ** LAST_W2[run.norm]
    variance = np.exp(layer) if run.norm == "odd" else 1 + layer
    return Case(run, {(0, "grad_stream"): np.ones(L + 1), (0, "grad_w2"): w2, (0, "stream_var"): variance}, {})


def train_case(run: Run, final: float | None = None) -> Case:
    """The gradient is 1 at first, and at the end 10^-l."""
    layer = np.arange(run.depth + 1.0)
    gradient = {(0, "grad_stream"): np.ones(run.depth + 1), (299, "grad_stream"): 10.0**-layer}
    losses = {(step, "loss"): 5.5 - step / 100 for step in range(1, 300)}
    return Case(run, gradient | {(0, "grad_w2"): layer, (0, "stream_var"): layer}, losses, final)


def of(factor: str, *depths: int, seeds: int = 3, warmup: int = 0) -> list[Run]:
    """Runs of one part of the study, at Xavier."""
    steps = 300 if factor == "train" else 1
    return [
        Run(norm, L, warmup, seed, steps, study="variants", init="xavier", override={"study.factor": factor})
        for norm in STYLES for L in depths for seed in range(seeds)
    ]  # fmt: skip


def started() -> list[Case]:
    return [init_case(run) for run in of("init", *DEPTHS)]


def ended(change: Callable[[Run], Run] = lambda run: run) -> list[Case]:
    return [train_case(change(run)) for run in of("train", 12, 24, warmup=30)]


def story(cases: list[Case]) -> Story:
    return told("variants", cases)


def panel(figure, title: str) -> Axes:
    return next(ax for ax in axes_of(figure) if ax.get_title().startswith(title))


def test_an_exponent_stands_in_its_variants_row_and_an_extreme_one_at_the_edge() -> None:
    figure = drawn(exponents_by_variant, story(started() + ended()))
    ax = panel(figure, "gradient of the last block's")
    assert [label.get_text() for label in axes_of(figure)[0].get_yticklabels()] == ORDER
    found = {ORDER[round(line.get_ydata()[0])]: line.get_xdata()[0] for line in lines(ax, marker="o")}
    assert found == pytest.approx({"Pre-LN": -0.5, "Even-LN": -1.0, "Post-LN": 0.0})
    assert lines(ax, marker=">")[0].get_ydata()[0] == ORDER.index("Odd-LN")
    assert "+7.0" in words(ax)
    assert ax.get_xlim()[1] < 2


def test_the_fitted_depths_and_seeds_are_said() -> None:
    text = words(drawn(exponents_by_variant, story(started()))).replace("\n   ", " ")
    assert "over L = 12 to 96, 3 seeds" in text
    few = words(drawn(exponents_by_variant, story([init_case(run) for run in of("init", 12, 24)])))
    assert few.count("2 depths, needs 4") == 4 * len(STYLES)


def test_a_gradient_that_is_zero_by_its_formula_is_said_to_be_zero() -> None:
    cases = started()
    for case in cases:
        case.layers[0, "grad_w2"][:-1] *= case.run.norm != "odd"
    text = words(panel(drawn(exponents_by_variant, story(cases)), "gradient of the last block's"))
    assert "12 zeros" in text  # four depths, three seeds
    assert compare(story(cases)).rows[ORDER.index("Odd-LN")][5:6] == ("12 zeros",)


def test_every_variant_has_a_panel_of_its_variance_and_what_leaves_it_is_a_number() -> None:
    figure = drawn(variance_by_variant, story(started()))
    assert [ax.get_title() for ax in axes_of(figure) if ax.axison] == ORDER
    deepest = [line for line in panel(figure, "Pre-LN").lines if len(line.get_xdata()) == 97 and line.get_zorder() == 3]
    assert deepest[0].get_ydata() == pytest.approx(1 + np.arange(97.0))
    assert f"{np.exp(96):.0e}" in words(panel(figure, "Odd-LN"))
    assert "e+" not in words(panel(figure, "Pre-LN")).replace(ORDER[0], "")


def test_depths_of_a_panel_are_few_and_hold_both_ends() -> None:
    assert spread([12, 18, 24, 36, 48, 68, 96]) == [12, 24, 48, 96]
    assert spread([6, 12, 24]) == [6, 12, 24]


def test_a_profile_has_a_line_for_each_moment() -> None:
    ax = panel(drawn(profile_by_variant, story(ended())), "Post-LN")
    colored = [line for line in ax.lines if to_hex(line.get_color()) != "#c8c8c8" and line.get_linewidth() > 1]
    assert sorted(line.get_ydata()[-1] for line in colored) == pytest.approx([1e-24, 1.0])


def some_stuck(run: Run) -> Run:
    if run.norm == "post" and run.depth == 24:
        return replace(run, outcome="stuck" if run.seed else "trained")
    return replace(run, outcome="diverged", state="diverged") if run.norm == "odd" and run.depth == 24 and run.seed else run


def test_the_loss_is_averaged_over_the_seeds_of_one_outcome_and_diverged_runs_are_counted() -> None:
    ax = panel(drawn(loss_by_variant, story(ended(some_stuck))), "L = 24")
    rows: dict[str, list[float]] = {}
    for line in lines(ax, marker="o"):
        rows.setdefault(ORDER[round(line.get_ydata()[0])], []).append(float(line.get_xdata()[0]))
    assert {name: sorted(found) for name, found in rows.items()} == {
        "Pre-LN": pytest.approx([2.4]), "Even-LN": pytest.approx([2.4]), "Post-LN": pytest.approx([2.4, 3.26]),
        "Odd-LN": pytest.approx([2.4]),
    }  # fmt: skip
    assert "2/3" in words(ax)
    assert [round(line.get_ydata()[0]) for line in lines(ax, marker="x")] == [ORDER.index("Odd-LN")]


def test_losses_on_the_way_are_those_after_a_third_and_two_thirds() -> None:
    ax = panel(drawn(loss_by_variant, story(ended())), "L = 12")
    mean = {step: 5.5 - (step - 4.5) / 100 for step in (100, 200)}  # trailing mean over ten steps
    assert {round(float(line.get_xdata()[0]), 4) for line in lines(ax, marker="|")} == {round(mean[200], 4)}
    assert mean[100] > 3.26 + 0.45  # beyond the panel


def test_two_warmups_are_two_rows() -> None:
    both = ended() + [train_case(run) for run in of("train", 12, 24, warmup=0)]
    ax = axes_of(drawn(loss_by_variant, story(both)))[0]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[:2] == ["Pre-LN, no warmup", "Pre-LN, warmup 30"]
    assert len(labels) == 8


def test_the_table_holds_the_numbers_of_the_figures() -> None:
    table = compare(story(started() + ended(some_stuck)))
    rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(table.csv_text()))}
    assert list(rows) == ["pre", "even", "post", "odd"]
    assert float(rows["even"]["grad_w2_last_block_exponent"]) == pytest.approx(-1.0)
    counts = {key: rows["post"][f"{key}_L24"] for key in ("runs", "trained", "stuck", "unfinished", "diverged", "val_loss")}
    assert counts == {"runs": "3", "trained": "1", "stuck": "2", "unfinished": "0", "diverged": "0", "val_loss": "2.4"}
    cells = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert cells["Pre-LN"]["exponent, last W_2"] == "−0.50 ± 0.00"
    assert cells["Odd-LN"]["trained, L = 24"] == "1/3 2.40, 2 diverged"
    assert "| Post-LN |" in table.markdown_text()
    assert "variants (laptop, " in table.markdown_text()


def test_sizes_are_those_of_the_manifest() -> None:
    found = story(started())
    size = json.dumps({"parameters": 1234567, "flops_per_token": 2.5e6, "data": {"sha256": "0" * 64}})
    found.whole.runs["manifest"] = [size] * len(found.whole.runs)
    table = compare(found)
    assert table.rows[0][1:3] == ("1.23M", "2.50M")
    assert list(table.numbers["parameters_L12"]) == [1234567] * 4


def test_a_table_of_one_part_lacks_the_other() -> None:
    assert not any("trained" in head for head in compare(story(started())).heads)
    assert not any("exponent" in head for head in compare(story(ended())).heads)


def smoke(results: Path, *factors: str) -> None:
    made = [replace(run, scale="smoke", steps=40 if run.steps > 1 else 1) for f in factors for run in of(f, 12, 24, warmup=0)]
    write_study(results, made)


def test_figures_writes_and_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smoke(tmp_path, "init", "train")
    names = "variants,variants_exponents,variants_loss"
    assert figures.main(["--results", str(tmp_path), "--scale", "smoke", "--only", names]) == 0
    folder = tmp_path / "figures" / "smoke"
    assert {"variants.csv", "variants.md", "variants_loss.png"} <= {path.name for path in folder.iterdir()}
    out = capsys.readouterr().out
    assert "variants: the variants beside each other" in out
    assert "runs trained, by depth" not in out
    assert list(pd.read_csv(folder / "variants.csv")["variant"]) == ["pre", "even", "post", "odd"]


def test_a_figure_of_the_part_that_was_not_run_is_skipped_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smoke(tmp_path, "init")
    assert figures.main(["--results", str(tmp_path), "--scale", "smoke", "--only", "variants_variance,variants_loss"]) == 0
    out = capsys.readouterr().out
    assert "variants: runs without factor train; run the whole study; skipped: variants_loss" in out
    story_found = Store(tmp_path, "smoke").story("variants")
    assert story_found is not None
    assert story_found.part("train") is None


def many(count: int, color: str = "#0072B2") -> pd.DataFrame:
    """Runs of variants that share a colour, and of some a line style."""
    rows = [{"variant": f"v{i}", "label": f"V{i}", "color": color, "linestyle": ("-", "--", "-.", ":")[i % 4], "warmup": 0}
            for i in range(count)]  # fmt: skip
    return pd.DataFrame(rows)


def test_few_variants_of_one_colour_get_colours_and_many_keep_theirs_where_lines_differ() -> None:
    assert len(set(style.variant_colors(many(6)).values())) == 6
    looks = style.looks(many(9))
    assert [look.color for look in looks.values()][:4] == ["#0072b2"] * 4
    assert len({(look.color, look.linestyle) for look in looks.values()}) == 9


def test_a_substitute_is_nobodys_own_colour() -> None:
    own = pd.concat([many(2), many(1, "#D55E00").assign(variant="w")])
    assert style.variant_colors(own)["w"] == "#d55e00"
