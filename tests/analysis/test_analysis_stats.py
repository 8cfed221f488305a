"""Laws of the intervals and fits."""

import numpy as np
import pytest
from scipy import stats as reference

from analysis.stats import fraction_interval, geometric_mean_interval, mean_interval, slope


def test_the_interval_of_few_seeds_is_students() -> None:
    value = np.array([1.0, 2.5, 2.0, 4.0])
    expected = reference.ttest_1samp(value, 0.0).confidence_interval(0.95)
    found = mean_interval(value)
    assert found.estimate == pytest.approx(value.mean(), rel=1e-14)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_t_interval_covers_the_mean_as_often_as_it_says(seeds: int) -> None:
    trials = 20_000
    value_RN = np.random.default_rng(seeds).normal(3.0, 2.0, size=(seeds, trials))
    found = mean_interval(value_RN)
    covered = np.mean((found.low <= 3.0) & (found.high >= 3.0))
    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / trials))


def test_a_bootstrap_of_three_seeds_would_cover_far_too_little() -> None:
    """Why few seeds get Student's interval: over three values a percentile bootstrap covers about three times in four."""
    value_RN = np.random.default_rng(0).normal(size=(3, 4000))
    draws = np.stack(np.meshgrid(*[[0, 1, 2]] * 3), axis=-1).reshape(-1, 3)  # all 27 resamples, equally likely
    low, high = np.quantile(value_RN[draws].mean(axis=1), [0.025, 0.975], axis=0)
    assert np.mean((low <= 0) & (high >= 0)) < 0.8


def test_from_thirty_seeds_on_the_bootstrap_covers_nearly_as_it_says_and_repeats_itself() -> None:
    value_RN = np.random.default_rng(1).normal(size=(30, 2000))
    found = mean_interval(value_RN)
    assert np.mean((found.low <= 0) & (found.high >= 0)) == pytest.approx(0.94, abs=0.02)
    again = mean_interval(value_RN)
    np.testing.assert_array_equal(found.low, again.low)
    centred = mean_interval(np.arange(31.0))
    standard_error = np.std(np.arange(31.0)) / np.sqrt(31)
    assert centred.half == pytest.approx(1.96 * standard_error, rel=0.05)


def test_one_seed_has_an_estimate_and_no_spread() -> None:
    found = mean_interval([2.0])
    assert found.estimate == 2.0
    assert np.isnan([found.low, found.high]).all()


def test_no_seeds_are_an_error() -> None:
    with pytest.raises(ValueError, match="no seeds"):
        mean_interval([])


@pytest.mark.parametrize("seeds", [1, 4, 11])
def test_intervals_of_many_positions_equal_those_of_each(seeds: int) -> None:
    value_RX = np.random.default_rng(2).normal(size=(seeds, 6))
    together = mean_interval(value_RX)
    for x in range(6):
        alone = mean_interval(value_RX[:, x])
        for bound in ("estimate", "low", "high"):
            np.testing.assert_allclose(getattr(together, bound)[x], getattr(alone, bound), rtol=1e-12)


def test_the_geometric_mean_is_that_of_the_logarithms_at_any_magnitude() -> None:
    value = np.array([1e-30, 1e-28, 1e-26])
    found = geometric_mean_interval(value)
    logs = mean_interval(np.log(value))
    assert (found.estimate, found.low, found.high) == pytest.approx(
        tuple(np.exp([logs.estimate, logs.low, logs.high])), rel=1e-9
    )
    assert found.estimate == pytest.approx(1e-28, rel=1e-9)


@pytest.mark.parametrize(("bad", "estimate"), [(0.0, 0.0), (np.nan, np.nan), (np.inf, np.nan), (-1.0, np.nan)])
def test_a_value_without_logarithm_is_never_dropped(bad: float, estimate: float) -> None:
    found = geometric_mean_interval([1.0, 2.0, bad])
    np.testing.assert_equal(found.estimate, estimate)
    assert np.isnan([found.low, found.high]).all()


def test_a_bad_value_spoils_only_its_own_position() -> None:
    found = geometric_mean_interval([[1.0, np.nan], [4.0, 1.0]])
    assert found.estimate[0] == pytest.approx(2.0)
    assert np.isnan(found.estimate[1])


@pytest.mark.parametrize("trials", [1, 3, 5, 20])
def test_the_interval_of_no_success_has_a_closed_form(trials: int) -> None:
    bound = 1 - 0.025 ** (1 / trials)
    none, every = fraction_interval(0, trials), fraction_interval(trials, trials)
    assert (none.estimate, none.low, none.high) == pytest.approx((0, 0, bound))
    assert (every.estimate, every.low, every.high) == pytest.approx((1, 1 - bound, 1))


def test_zero_of_three_is_up_to_seventy_one_percent() -> None:
    assert fraction_interval(0, 3).high == pytest.approx(0.7076, abs=1e-4)


@pytest.mark.parametrize(("successes", "trials"), [(1, 3), (2, 5), (7, 10)])
def test_fractions_have_the_exact_binomial_interval(successes: int, trials: int) -> None:
    expected = reference.binomtest(successes, trials).proportion_ci(0.95, method="exact")
    found = fraction_interval(successes, trials)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_impossible_fractions_are_an_error(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="no fraction"):
        fraction_interval(successes, trials)


def test_the_slope_is_least_squares() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=9), rng.normal(size=9)
    assert slope(x, y) == pytest.approx(reference.linregress(x, y).slope, rel=1e-12)
    assert np.isnan(slope([1.0, 1.0], [0.0, 2.0]))


def test_slopes_of_many_rows_are_those_of_each() -> None:
    rng = np.random.default_rng(5)
    x, y_RP = rng.normal(size=9), rng.normal(size=(4, 9))
    assert slope(x, y_RP) == pytest.approx([reference.linregress(x, y).slope for y in y_RP], rel=1e-12)
    assert np.isnan(slope([1.0, 1.0], y_RP[:, :2])).tolist() == [True] * 4
