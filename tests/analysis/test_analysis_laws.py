"""Laws are recovered, and chosen where the data tell them apart."""

from collections.abc import Callable
from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats as reference
from synthetic_laws import DEPTHS, NINE, TRUE, number, points

from analysis.laws import LAWS, Comparison, Estimate, compare, exponent, rate

ALL = (*LAWS, "logarithmic")


@pytest.mark.parametrize("factor", [1e-250, 1.0, 1e250])
def test_exact_laws_are_recovered(factor: float) -> None:
    value = {name: factor * law(np.tile(np.array(NINE, float), 3)) for name, law in TRUE.items()}
    x, _, seed = points(TRUE["power"], NINE, 3, 0)
    found = {name: compare(x, value[name], seed, laws=ALL) for name in ALL}
    assert {name: comparison.winner for name, comparison in found.items()} == {name: name for name in ALL}
    got = [number(found[name].estimates[name]) for name in ALL]
    assert got == pytest.approx([factor, -0.5, -0.02, 2 / (0.5 + 2 * np.log(6))], rel=1e-9)
    for name in ALL:
        assert found[name].estimates[name].stray == pytest.approx(1, abs=1e-9)
        assert found[name].estimates[name].interval.half == pytest.approx(0, abs=1e-9 * max(1, factor))
    assert number(exponent(x, value["power"], seed)) == pytest.approx(-0.5, rel=1e-9)
    assert number(rate(x, value["exponential"], seed)) == pytest.approx(-0.02, rel=1e-9)


def test_the_interval_is_that_of_one_slope_a_seed() -> None:
    x, value, seed = points(TRUE["power"], DEPTHS, 4, 0.3)
    for fit, axis in ((exponent, np.log(x)), (rate, x)):
        slopes = [reference.linregress(axis[seed == s], np.log(value[seed == s])).slope for s in range(4)]
        expected = reference.ttest_1samp(slopes, 0.0).confidence_interval(0.95)
        found = fit(x, value, seed).interval
        assert found is not None
        assert astuple(found) == pytest.approx((np.mean(slopes), expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(("fit", "truth"), [(exponent, -0.5), (rate, 0.02)])
def test_intervals_cover_about_as_often_as_they_say(seeds: int, fit: Callable[..., Estimate], truth: float) -> None:
    trials, says = 400, 0.95
    law = (lambda x: x**truth) if fit is exponent else (lambda x: np.exp(truth * x))
    found = [fit(*points(law, DEPTHS, seeds, 0.1, draw)).interval for draw in range(trials)]
    covered = np.mean([interval is not None and interval.low <= truth <= interval.high for interval in found])
    assert covered == pytest.approx(says, abs=3 * np.sqrt(says * (1 - says) / trials))


def test_aicc_is_that_of_a_gaussian_likelihood() -> None:
    x, value, seed = points(TRUE["power"], NINE, 3, 0.1)
    found = compare(x, value, seed)
    for s in range(3):
        at, log = x[seed == s], np.log(value[seed == s])
        rest = {"constant": log - log.mean()}
        for name, axis in (("power", np.log(at)), ("exponential", at)):
            line = reference.linregress(axis, log)
            rest[name] = log - line.intercept - line.slope * axis
        aicc = {}
        for name, r in rest.items():
            k = 2 if name == "constant" else 3
            likelihood = reference.norm.logpdf(r, scale=np.sqrt(np.mean(r**2))).sum()
            aicc[name] = 2 * k - 2 * likelihood + 2 * k * (k + 1) / (9 - k - 1)
        for name in LAWS:
            assert found.margin_R[name][s] == pytest.approx(aicc[name] - min(aicc.values()), abs=1e-8)


def winners(law: str, x: tuple[float, ...], seeds: int, noise: float, trials: int = 100) -> list[str | None]:
    return [compare(*points(TRUE[law], x, seeds, noise, draw)).winner for draw in range(trials)]


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("law", ["power", "exponential"])
def test_nine_depths_with_little_noise_tell_the_laws_apart(law: str, seeds: int) -> None:
    assert winners(law, NINE, seeds, 0.03).count(law) >= 99


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_noise_makes_no_wrong_winner(law: str, noise: float) -> None:
    assert sum(winner not in (law, None) for winner in winners(law, NINE, 3, noise)) <= 1


@pytest.mark.parametrize("law", LAWS)
def test_five_depths_with_noise_are_inconclusive(law: str) -> None:
    assert winners(law, DEPTHS, 3, 0.15).count(None) >= 98


def level(x: tuple[float, ...]) -> Comparison:
    """Of points that alternate around a constant, so that no seed shows a slope."""
    up_and_down = np.tile([1.1, 0.9, 1.1, 0.9, 1.0, 0.9, 1.1, 0.9, 1.1, 1.0, 1.0, 1.0], 9)[: len(x)]
    return compare(np.tile(x, 3), np.tile(up_and_down, 3), np.repeat([0, 1, 2], len(x)))


def test_a_constant_wins_only_where_its_fewer_parameters_tell() -> None:
    assert level(NINE).winner == "constant"
    few = level(DEPTHS)
    assert (few.winner, few.reason) == (None, "constant leads by AICc's penalty for few points: 5 depths, needs 9")
    many = level(tuple(range(1, 98)))
    assert many.winner is None
    assert "constant leads" in many.reason
    assert "needs more than 4" in many.reason


def test_rounding_is_no_slope() -> None:
    x, _, seed = points(TRUE["constant"], NINE, 3, 0)
    found = compare(x, (1 + x * 2.5e-16) / 3, seed)
    assert found.winner == "constant"


def test_five_depths_never_hide_a_clear_slope_behind_a_constant() -> None:
    """AICc alone calls a constant here, though each seed's slope is six standard errors from zero."""
    x, _, seed = points(TRUE["power"], DEPTHS, 3, 0)
    scatter = 0.1 * np.tile([1.0, -2.0, 0.0, 2.0, -1.0], 3)  # orthogonal to every line in ln x
    found = compare(x, x**-0.5 * np.exp(scatter), seed)
    line = reference.linregress(np.log(x[:5]), -0.5 * np.log(x[:5]) + scatter[:5])
    assert line.slope / line.stderr < -5
    assert min(found.margin_R["power"]) > 4 > max(found.margin_R["constant"])
    assert found.winner is None
    assert number(found.estimates["power"]) == pytest.approx(-0.5)


def test_laws_that_are_nearly_equal_are_inconclusive() -> None:
    """Over the last tenth of a range a power law is an exponential."""
    found = compare(*points(TRUE["power"], tuple(range(90, 99)), 3, 1e-3), laws=("power", "exponential"))
    assert found.winner is None
    assert "disagree" in found.reason or "needs more than 4" in found.reason


def test_seeds_that_disagree_have_no_winner() -> None:
    x, value, seed = points(TRUE["power"], NINE, 3, 0)
    value[seed == 1] = TRUE["exponential"](x[seed == 1])
    found = compare(x, value, seed)
    assert (found.winner, found.reason) == (None, "seeds disagree: power is best in 2, exponential is best in 1")
    assert found.margin_R["power"][1] > 4 > found.margin_R["power"][0] == 0


def test_a_rate_per_block_is_told_from_a_power_of_the_layer() -> None:
    """Down to values that float32 squares to zero."""
    layers = tuple(range(97))
    x, value, seed = points(lambda x: np.exp(-0.5 * x), layers, 3, 0.2)
    found = compare(x, value, seed, from_x=1, noun="layers")
    assert found.winner == "exponential"
    assert number(found.estimates["exponential"]) == pytest.approx(-0.5, abs=0.01)
    assert number(rate(x, value, seed)) == pytest.approx(-0.5, abs=0.01)
    with pytest.raises(ValueError, match="x = 0 has no logarithm for the power law"):
        compare(x, value, seed)


def test_points_in_any_order_and_any_unit_say_the_same() -> None:
    x, value, seed = points(TRUE["logarithmic"], NINE, 11, 0.2)
    order = np.random.default_rng(1).permutation(len(x))
    found = compare(x, value, seed, laws=ALL)
    shuffled = compare(x[order], value[order], seed[order], laws=ALL)
    scaled = compare(x, 1e-20 * value, seed, laws=ALL)
    for name in ALL:
        assert astuple(found.estimates[name]) == astuple(shuffled.estimates[name])
        np.testing.assert_array_equal(found.margin_R[name], shuffled.margin_R[name])
        np.testing.assert_allclose(found.margin_R[name], scaled.margin_R[name], atol=1e-8)
        unit = 1e-20 if name == "constant" else 1.0
        assert number(scaled.estimates[name]) == pytest.approx(unit * number(found.estimates[name]), rel=1e-8)
        assert scaled.estimates[name].stray == pytest.approx(found.estimates[name].stray, rel=1e-9)


def test_stray_is_the_factor_around_the_line_of_the_worst_seed() -> None:
    x, value, seed = points(TRUE["power"], DEPTHS[:4], 3, 0)
    value[seed == 1] *= [2.0, 0.5, 0.5, 2.0]  # a factor of 2, orthogonal to the line in ln x
    found = exponent(x, value, seed)
    assert (number(found), found.stray) == pytest.approx((-0.5, 2))
