"""Laws of the figures at initialisation: what is drawn is what the tables hold, and what is left out is said."""

from dataclasses import replace

import numpy as np
import pytest
from inspected import VOCAB, axes_of, drawn, lines, point, runs, told, words
from matplotlib.colors import to_hex
from synthetic_memory import Case
from synthetic_store import Run

from analysis import theory
from analysis.drawings.amplification import amplification
from analysis.drawings.exponents import exponents
from analysis.drawings.jacobian import jacobian
from analysis.drawings.theory import theory_over_data
from analysis.laws import exponent

DEPTHS = (12, 24, 48, 96)
COLORS = {"pre": "#0072b2", "post": "#d55e00"}


def law_case(run: Run, scatter: float = 0.0) -> Case:
    """Gradient at the first point L^0.25, at the last L^-0.5, of the last W_2 L^-1; stream variance L^1; Post-LN all L^0."""
    L, steep = run.depth, float(run.norm == "pre")
    noise = np.exp(scatter * np.random.default_rng([run.seed, L]).normal())
    gradient = point(L, noise * L ** (0.25 * steep), 0)
    gradient[L] = L ** (-0.5 * steep)
    w2, variance = point(L, L ** (-1.0 * steep), L - 1), point(L, L ** (1.0 * steep), L)
    return Case(run, {(0, "grad_stream"): gradient, (0, "grad_w2"): w2, (0, "stream_var"): variance}, {})


def marks(figure, panel: int, norm: str) -> list[float]:
    """Exponents drawn in a panel for a placement, from the top down."""
    found = [
        line for line in axes_of(figure)[panel].lines if line.get_marker() == "o" and to_hex(line.get_color()) == COLORS[norm]
    ]
    return [float(line.get_xdata()[0]) for line in sorted(found, key=lambda line: line.get_ydata()[0])]


def test_an_exponent_stands_where_its_law_is() -> None:
    figure = drawn(exponents, told("init_scaling", [law_case(run) for run in runs(*DEPTHS)]), None)
    assert [marks(figure, panel, "pre")[0] for panel in range(4)] == pytest.approx([0.25, -0.5, -1, 1])
    assert [marks(figure, panel, "post")[0] for panel in range(4)] == pytest.approx([0] * 4, abs=1e-12)


def test_a_bar_is_the_interval_of_a_slope_per_seed() -> None:
    cases = [law_case(run, scatter=0.2) for run in runs(*DEPTHS, norms=("pre",), seeds=4)]
    figure = drawn(exponents, told("init_scaling", cases), None)
    value = [case.layers[0, "grad_stream"][0] for case in cases]
    found = exponent([case.run.depth for case in cases], value, [case.run.seed for case in cases]).interval
    assert found is not None
    bar = axes_of(figure)[0].collections[0].get_segments()[0]
    assert sorted(bar[:, 0]) == pytest.approx([found.low, found.high])
    assert marks(figure, 0, "pre")[0] == pytest.approx(found.estimate)


def test_each_factor_has_a_row_and_xiongs_setting_is_the_last() -> None:
    varied = [replace(run, override={"study.factor": name, "model.ffn": ffn})
              for name, ffn in (("base", "gelu"), ("relu", "relu")) for run in runs(*DEPTHS)]  # fmt: skip
    xiong = told("xiong2020", [law_case(run) for run in runs(*DEPTHS, study="xiong2020")])
    figure = drawn(exponents, told("init_scaling", [law_case(run) for run in varied]), xiong)
    labels = [label.get_text().split("\n")[0] for label in axes_of(figure)[0].get_yticklabels()]
    assert labels == ["base", "relu", "Xiong et al.'s setting"]
    assert len(marks(figure, 1, "pre")) == 3
    assert "relu has ffn=relu" in words(figure).replace("\n   ", " ")


def test_without_enough_depths_or_seeds_the_reason_stands_in_place_of_a_number() -> None:
    few = drawn(exponents, told("init_scaling", [law_case(run) for run in runs(12, 24, 48)]), None)
    assert words(axes_of(few)[0]).count("3 depths, needs 4") == 2
    assert marks(few, 0, "pre") == []
    alone = drawn(exponents, told("init_scaling", [law_case(run) for run in runs(*DEPTHS, seeds=1)]), None)
    assert words(axes_of(alone)[0]).count("1 seed, needs 3") == 2


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_seed_without_a_logarithm_is_said_to_be_left_out(value: float) -> None:
    cases = [law_case(run) for run in runs(*DEPTHS, norms=("pre",), seeds=4)]
    cases[0].layers[0, "grad_stream"][0] = value
    figure = drawn(exponents, told("init_scaling", cases), None)
    assert "1 of 4 seeds left out" in words(axes_of(figure)[0])
    assert marks(figure, 0, "pre") == pytest.approx([0.25])


def test_what_is_no_power_law_is_hollow_and_diverged_runs_are_counted() -> None:
    cases = [law_case(run) for run in runs(*DEPTHS, norms=("pre",), seeds=4)]
    for case in cases:
        case.layers[0, "grad_stream"][0] *= 1000 if case.run.depth == 24 else 1
    cases[0] = replace(cases[0], run=replace(cases[0].run, state="diverged"))
    figure = drawn(exponents, told("init_scaling", cases), None)
    assert lines(axes_of(figure)[0], marker="o")[0].get_markerfacecolor() == "white"
    assert lines(axes_of(figure)[1], marker="o")[0].get_markerfacecolor() != "white"
    assert "1 runs diverged" in axes_of(figure)[0].get_yticklabels()[0].get_text()


def theory_case(run: Run, times: dict[str, float]) -> Case:
    """What the theory with token mixing says, each quantity times a factor."""
    said = predicted(run)
    values = {"stream_var": said.stream_var_N, "grad_stream": said.gradient_N, "token_cosine": said.token_cosine_N}
    return Case(run, {(0, name): values[name] * times.get(name, 1.0) for name in values}, {})


def predicted(run: Run) -> theory.Prediction:
    coherence = theory.data_coherence(run.config, first_cosine=0.1, vocab=VOCAB)
    return theory.predict_mixing(run.config, coherence=coherence)


def panels(times: dict[str, float], depth: int = 6) -> list[str]:
    """The text of each panel of the figure of the theory."""
    cases = [theory_case(run, times) for run in runs(depth)]
    for case in cases:
        case.layers[0, "token_cosine"][0] = 0.1
    return [words(ax) for ax in axes_of(drawn(theory_over_data, told("init_scaling", cases), None))]


def test_data_that_obey_the_theory_have_no_error_and_a_scale_of_the_gradient_is_free() -> None:
    variance, gradient, cosine = panels({"grad_stream": 3.0})
    for norm in ("Pre-LN", "Post-LN"):
        for panel in (variance, gradient, cosine):
            number = panel.split(f"{norm}: ")[1].split(" %")[0]
            assert float(number) < 1e-3


def test_a_variance_that_is_twice_the_theorys_is_said_to_be_off_by_a_factor_of_two() -> None:
    assert "Pre-LN: factor 2 |" in panels({"stream_var": 2.0})[0]


def test_the_theorys_lines_are_its_predictions() -> None:
    run = runs(6, norms=("post",), seeds=1)[0]
    cases = [theory_case(run, {"grad_stream": 3.0})]
    cases[0].layers[0, "token_cosine"][0] = 0.1
    gradient = axes_of(drawn(theory_over_data, told("init_scaling", cases), None))[1]
    thick = next(line for line in gradient.lines if line.get_linewidth() == 2.6)
    assert thick.get_ydata() == pytest.approx(3 * predicted(run).gradient_N, rel=1e-6)


def test_a_placement_that_the_theory_does_not_cover_is_drawn_and_says_so() -> None:
    odd = [Case(run, {(0, name): np.ones(7) for name in ("stream_var", "grad_stream", "token_cosine")}, {})
           for run in runs(6, norms=("odd",))]  # fmt: skip
    first = axes_of(drawn(theory_over_data, told("init_scaling", odd), None))[0]
    assert "Odd-LN: the theory covers the placements" in words(first)
    assert any(np.array_equal(line.get_ydata(), np.ones(7)) for line in first.lines)


def amplified(run: Run, value: float | None = None) -> Case:
    """Post-LN: proportional to L; Pre-LN: 1 + ln L; a little scatter."""
    ideal = run.depth if run.norm == "post" else 1 + np.log(run.depth)
    noise = np.exp(0.01 * np.random.default_rng([run.seed, run.depth]).normal())
    return Case(run, {}, {(0, "amplification"): ideal * noise if value is None else value})


NINE = (6, 9, 12, 18, 24, 36, 48, 68, 96)


def test_amplification_is_drawn_against_branches_with_its_exponent_and_its_law() -> None:
    figure = drawn(amplification, told("amplification", [amplified(run) for run in runs(*NINE, study="amplification")]))
    both, post, pre = axes_of(figure)
    assert {int(tick) for tick in both.xaxis.get_major_locator().locs} == {2 * L for L in NINE}
    found = float(words(both).split("Post-LN: ")[1].split(" ")[0])
    assert found == pytest.approx(1, abs=0.02)
    assert "Post-LN: power" in words(post)
    assert "Pre-LN: logarithmic" in words(pre)


def test_a_feed_forward_stack_has_one_branch_a_block() -> None:
    only = [replace(run, override={"model.branches": ["ffn"]}) for run in runs(*NINE, study="amplification")]
    figure = drawn(amplification, told("amplification", [amplified(run) for run in only]))
    assert {int(tick) for tick in axes_of(figure)[0].xaxis.get_major_locator().locs} == set(NINE)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_amplifications_without_logarithm_are_counted(value: float) -> None:
    cases = [
        amplified(run, value if run.depth == 24 and run.norm == "post" else None) for run in runs(*NINE, study="amplification")
    ]
    figure = drawn(amplification, told("amplification", cases))
    assert "3 of 54 values 0 or not finite" in words(axes_of(figure)[0])
    assert "no law called" in words(axes_of(figure)[1])


def branches(run: Run) -> Case:
    """Pre-LN: own Jacobians as Var^-1/2 (attention) and Var^-1 (feed-forward), those for x_0 flat; Post-LN: Var = 1."""
    L = run.depth
    variance = 1 + np.arange(L + 1.0) * (run.seed + 1) if run.norm == "pre" else np.ones(L + 1)
    block = np.append(np.ones(L), np.nan)
    values = {"stream_var": variance, "jac_attn_own": block * variance**-0.5, "jac_ffn_own": block / variance,
              "jac_attn_first": 2 * block, "jac_ffn_first": 3 * block}  # fmt: skip
    return Case(run, {(0, name): value for name, value in values.items()}, {})


def test_jacobian_exponents_are_those_of_each_seeds_own_variance() -> None:
    figure = drawn(jacobian, told("branch_jacobian", [branches(run) for run in runs(24, study="branch_jacobian")]))
    own, own_ffn, first, _ = [words(ax) for ax in axes_of(figure)]
    assert "Pre-LN: −0.50 ± 0.00" in own
    assert "Pre-LN: −1.00 ± 0.00" in own_ffn
    assert "Pre-LN: +0.00 ± 0.00" in first.replace("−0.00", "+0.00")
    assert "Post-LN: the variance is constant" in own


def test_jacobians_of_zero_are_counted_and_their_seed_is_not_fitted() -> None:
    cases = [branches(run) for run in runs(24, seeds=4, study="branch_jacobian")]
    cases[0].layers[0, "jac_attn_own"][3] = 0.0
    figure = drawn(jacobian, told("branch_jacobian", cases))
    assert "1 of 192 values 0 or not finite" in words(axes_of(figure)[0])
    assert "Pre-LN: −0.50 ± 0.00" in words(axes_of(figure)[0])


def test_settings_in_the_notes_are_those_of_the_runs() -> None:
    figure = drawn(jacobian, told("branch_jacobian", [branches(run) for run in runs(24, study="branch_jacobian")]))
    text = words(figure).replace("\n   ", " ")
    assert "branch_jacobian (laptop, 6 runs, commit abc1234): init Xavier-normal" in text
    assert "L = 24 blocks" in text
