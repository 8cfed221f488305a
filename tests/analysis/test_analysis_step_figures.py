"""Laws of the figures over the steps and of trained models: what is drawn is what the tables hold, and losses are counted."""

from dataclasses import replace

import numpy as np
import pytest
from inspected import axes_of, drawn, lines, runs, told, words
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from synthetic_memory import Case
from synthetic_store import Run

from analysis import laws
from analysis.drawings import rate
from analysis.drawings.collapse import collapse_profile
from analysis.drawings.effective_depth import effective_depth
from analysis.drawings.rate import panels, rates

STEPS = (0, 5, 10, 20, 40, 59)
FALL = {"pre": 0.0, "post": -0.002}  # change of the rate per block in a step


def trained(*depths: int, **options: object) -> list[Run]:
    return runs(*depths, **({"study": "collapse", "steps": 60} | options))


def falling(run: Run, *, noise: float = 0.0) -> Case:
    """ln gradient changes by FALL x step per block crossed; tokens align as 10^-layer; norms' input grows by 1 % a step."""
    L = run.depth
    crossed, layer = L - np.arange(L + 1.0), np.arange(L + 1.0)
    steep = 1 + noise * np.random.default_rng([run.seed, L]).normal()
    block = np.append(np.ones(L), np.nan)
    layers = {}
    for step in STEPS:
        gradient = 0.1 * np.exp(steep * FALL[run.norm] * step * crossed)
        layers |= {
            (step, "grad_stream"): gradient, (step, "grad_rel"): gradient / 0.1, (step, "token_cosine"): 1 - 10.0**-layer,
            (step, "norm_std_attn"): block * (1 + 0.01 * step), (step, "norm_std_ffn"): block,
        }  # fmt: skip
    peak = run.config["optim"]["lr"]
    steps = {(step, "lr"): peak * min(1.0, (step + 1) / max(run.warmup, 1)) for step in range(60)}
    return Case(run, layers, steps)


def rate_at(story, step: int, norm: str) -> np.ndarray:
    table = rates(story, 12)
    return table[(table["step"] == step) & (table["variant"] == norm)]["value"].to_numpy()


def test_the_rate_is_negative_where_the_gradient_vanishes_towards_the_input() -> None:
    story = told("collapse", [falling(run) for run in trained(12)])
    assert rate_at(story, 40, "post") == pytest.approx([-0.08] * 3)
    assert rate_at(story, 40, "pre") == pytest.approx([0] * 3, abs=1e-12)


def panel_of(figure, title: str) -> Axes:
    return next(ax for ax in axes_of(figure) if ax.get_title().startswith(title))


def test_marks_and_bars_are_those_of_laws_rate() -> None:
    cases = [falling(run, noise=0.2) for run in trained(12, norms=("post",))]
    ax = panel_of(drawn(rate.rate, told("collapse", cases), None), "L = 12, at equal step")
    points = [
        (12 - layer, value, case.run.seed) for case in cases for layer, value in enumerate(case.layers[40, "grad_stream"])
    ]
    found = laws.rate(*zip(*points, strict=True)).interval
    assert found is not None
    line = next(line for line in ax.lines if len(line.get_xdata()) == len(STEPS))
    assert dict(zip(np.round(line.get_xdata() - 1), line.get_ydata(), strict=True))[40] == pytest.approx(found.estimate)
    bars = [segment for bar in ax.collections for segment in bar.get_segments()]
    assert any(sorted(bar[:, 1]) == pytest.approx([found.low, found.high]) for bar in bars)


def test_the_sum_of_rates_counts_updates_at_the_peak_rate() -> None:
    warm = trained(12, norms=("post",))
    varied = [replace(run, override={"study.factor": "base"}) for run in warm]
    varied += [replace(run, warmup=50, override={"study.factor": "warmup"}) for run in warm]
    story = told("collapse", [falling(run) for run in varied])
    second = list(panels(story, None))[1].series
    assert list(second) == ["no warmup", "warmup 50"]
    for name, expected in (("no warmup", [0, 5, 10, 20, 40, 59]), ("warmup 50", [0, 0.3, 1.1, 4.2, 16.4, 34.5])):
        x = second[name].drop_duplicates("step").sort_values("step")["x"]
        assert x.to_numpy() == pytest.approx(expected)


def test_every_factor_is_a_series_of_its_panel_and_one_that_was_not_run_is_none() -> None:
    names = ("base", "eps", "sgd", "frozen")
    varied = [replace(run, override={"study.factor": name}) for name in names for run in trained(48, norms=("post",), seeds=1)]
    found = {panel.title: list(panel.drawn) for panel in panels(told("collapse", [falling(run) for run in varied]), None)}
    assert found["optimizers, L = 48"] == ["base", "eps", "sgd"]
    assert found["what may drive it, L = 48"] == ["base", "frozen"]


def test_widths_are_series_and_their_panel_is_left_out_without_the_study() -> None:
    story = told("collapse", [falling(run) for run in trained(12, seeds=1)])
    wide = [
        replace(run, study="width", override={"model.width": width}) for width in (64, 128) for run in trained(24, seeds=2)
    ]
    assert not any(panel.title.startswith("width") for panel in panels(story, None))
    panel = next(p for p in panels(story, told("width", [falling(run) for run in wide])) if p.title.startswith("width"))
    assert list(panel.series) == ["d = 64", "d = 128"]
    assert {len(table["run"].unique()) for table in panel.series.values()} == {4}


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_rate_over_a_gradient_without_logarithm_is_left_out_and_counted(value: float) -> None:
    cases = [falling(run) for run in trained(12, norms=("post",))]
    cases[0].layers[59, "grad_stream"][3] = value
    ax = panel_of(drawn(rate.rate, told("collapse", cases), None), "L = 12, at equal step")
    assert "1 of 18 values left out" in words(ax)
    line = next(line for line in ax.lines if len(line.get_xdata()) == len(STEPS))
    assert line.get_ydata()[-1] == pytest.approx(-0.118)


def test_a_diverged_run_is_a_line_of_its_own_and_counted() -> None:
    cases = [falling(run) for run in trained(12, norms=("post",))]
    cases[0] = replace(cases[0], run=replace(cases[0].run, state="diverged"))
    ax = panel_of(drawn(rate.rate, told("collapse", cases), None), "L = 12, at equal step")
    assert "1 of 3 runs diverged" in words(ax)
    assert sum(line.get_marker() == "None" and line.get_linewidth() == 1.2 for line in ax.lines) == 1


def test_runs_of_different_outcomes_are_not_averaged() -> None:
    cases = [falling(run) for run in trained(12, norms=("post",), seeds=4)]
    cases = [replace(case, run=replace(case.run, outcome="stuck" if case.run.seed < 2 else "trained")) for case in cases]
    ax = panel_of(drawn(rate.rate, told("collapse", cases), None), "L = 12, at equal step")
    assert sorted(line.get_fillstyle() for line in lines(ax, marker="o") if len(line.get_xdata()) > 1) == ["full", "none"]


def test_the_norms_input_is_over_that_at_step_0() -> None:
    story = told("collapse", [falling(run) for run in trained(12, norms=("post",))])
    series = list(panels(story, None))[-1].series
    at = {name: table[table["step"] == 40]["value"].to_numpy() for name, table in series.items()}
    assert at["attention"] == pytest.approx([1.4] * 3)
    assert at["feed-forward"] == pytest.approx([1.0] * 3)


def profile(cases: list[Case]) -> list[Axes]:
    """Panels of the figure: columns Post-LN, Pre-LN; rows gradient, relative, 1 - cosine, first point."""
    return axes_of(drawn(collapse_profile, told("collapse", cases)))


def test_a_profile_is_the_geometric_mean_over_seeds_at_its_step() -> None:
    cases = [falling(run, noise=0.3) for run in trained(12)]
    ax = profile(cases)[0]
    values = np.array([case.layers[40, "grad_stream"] for case in cases if case.run.norm == "post"])
    means = [line for line in ax.lines if len(line.get_ydata()) == 13]
    assert means[-1].get_ydata() == pytest.approx(np.exp(np.log(values).mean(axis=0)))
    assert len(means) == 5


def test_steps_have_colours_from_light_to_dark() -> None:
    ax = profile([falling(run) for run in trained(12)])[0]
    means = [line for line in ax.lines if len(line.get_ydata()) == 13]
    light = [sum(int(to_hex(line.get_color())[i : i + 2], 16) for i in (1, 3, 5)) for line in means]
    assert light == sorted(light, reverse=True)


def test_cosines_within_rounding_of_one_are_counted_and_not_drawn() -> None:
    ax = profile([falling(run) for run in trained(12)])[4]
    assert min(np.nanmin(line.get_ydata()) for line in ax.lines) >= 1e-6
    assert "90 of 195 values below 1e-06" in words(ax)


def test_the_first_point_is_drawn_over_depth() -> None:
    ax = profile([falling(run) for run in trained(6, 12, 24)])[6]
    last = [line for line in lines(ax, marker="o") if len(line.get_xdata()) == 3][-1]
    assert list(last.get_xdata()) == [6, 12, 24]
    assert last.get_ydata() == pytest.approx(0.1 * np.exp(-0.08 * np.array([6, 12, 24])))


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_profiles_with_gradients_without_logarithm_count_them_and_draw_no_line_through_them(value: float) -> None:
    cases = [falling(run) for run in trained(12)]
    for case in cases:
        case.layers[40, "grad_stream"][:3] = value
    ax = profile(cases)[0]
    assert "9 of 195 values 0 or not finite" in words(ax)
    low, high = ax.get_ylim()
    assert 1e-3 < low < high < 1


def test_diverged_runs_are_drawn_singly_and_counted_in_the_profile() -> None:
    cases = [falling(run) for run in trained(12)]
    cases = [replace(case, run=replace(case.run, state="diverged")) if case.run.seed == 0 else case for case in cases]
    ax = profile(cases)[0]
    assert "× diverged 1/3" in words(ax)
    dash = [line for line in ax.lines if line.get_linewidth() == 1.2 and line.get_linestyle() == "--"]
    assert len(dash) == 5


def used(run: Run) -> Case:
    """Layer drop from .1 down to -.1 over the blocks, angle 1/4 everywhere, update ratio 1/100; step 0 says otherwise."""
    L = run.depth
    block = np.append(np.ones(L), np.nan)
    end = {"layer_drop": np.append(np.linspace(0.1, -0.1, L), np.nan), "angular_distance": 0.25 * block,
           "update_w2": 0.02 * block, "param_w2": 2 * block}  # fmt: skip
    return Case(run, {(59, name): value for name, value in end.items()} | {(0, name): 9 * block for name in end}, {})


def test_effective_depth_is_drawn_at_the_last_record_over_the_share_of_the_depth() -> None:
    story = told("effective_depth", [used(run) for run in trained(6, 12, study="effective_depth")])
    figure = drawn(effective_depth, story)
    drop, _, angle, _, update, _ = axes_of(figure)
    deep = [line for line in drop.lines if len(line.get_xdata()) == 12][-1]
    assert deep.get_xdata() == pytest.approx((np.arange(12) + 0.5) / 12)
    assert deep.get_ydata() == pytest.approx(np.linspace(0.1, -0.1, 12))
    assert drop.get_ylim()[0] < -0.1
    assert [line for line in angle.lines if len(line.get_xdata()) == 12][-1].get_ydata() == pytest.approx([0.25] * 12)
    assert [line for line in update.lines if len(line.get_xdata()) == 12][-1].get_ydata() == pytest.approx([0.01] * 12)
    assert "(step 59)" in words(figure)
    assert "late against early +0.00 ± 0.00; in use +1.00 ± 0.00" in words(angle)
    assert "late against early −1.00 ± 0.00" in words(drop)


def test_effective_depth_counts_zeros_and_diverged_runs() -> None:
    cases = [used(run) for run in trained(12, study="effective_depth")]
    cases[0].layers[59, "update_w2"][0] = 0.0
    cases[-1] = replace(cases[-1], run=replace(cases[-1].run, state="diverged"))
    panels_of = axes_of(drawn(effective_depth, told("effective_depth", cases)))
    assert "1 of 72 values 0 or not finite" in words(panels_of[4]) + words(panels_of[5])
    assert "× diverged 1/3" in words(panels_of[0]) + words(panels_of[1])
    assert "2 seeds, needs 3" in words(panels_of[0]) + words(panels_of[1])
