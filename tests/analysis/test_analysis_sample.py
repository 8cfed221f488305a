"""Which seeds and points a law is fitted to; what is left out is counted and named, and too little gives a reason."""

import numpy as np
import pytest
from synthetic_laws import DEPTHS, NINE, TRUE, number, points

from analysis.laws import compare, exponent, mean_estimate, rate
from analysis.stats import geometric_mean_interval, mean_interval


@pytest.mark.parametrize(
    ("depths", "seeds", "noun", "reason"),
    [
        ((6, 12), 3, "depths", "2 depths, needs 4"),
        ((6,), 3, "layers", "1 layer, needs 4"),
        ((), 3, "depths", "0 depths, needs 4"),
        (DEPTHS, 1, "depths", "1 seed, needs 3"),
        (DEPTHS, 2, "depths", "2 seeds, needs 3"),
    ],
)
def test_too_little_gives_a_reason_and_no_number(depths: tuple[float, ...], seeds: int, noun: str, reason: str) -> None:
    given = points(TRUE["power"], depths, seeds, 0)
    for found in (exponent(*given, noun=noun), rate(*given, noun=noun)):
        assert (found.interval, found.reason) == (None, reason)
        assert found.given == (seeds if depths else 0)
        assert found.points == (depths if len(depths) >= 4 else ())
    whole = compare(*given, noun=noun)
    assert whole.winner is None
    assert whole.reason == reason.replace("needs 4", "needs 5")
    assert all(estimate.interval is None for estimate in whole.estimates.values())


BAD = [
    (0.0, "1 zero"),
    (np.nan, "1 non-finite or negative"),
    (np.inf, "1 non-finite or negative"),
    (-1.0, "1 non-finite or negative"),
]


@pytest.mark.parametrize(("bad", "named"), BAD)
def test_a_seed_with_a_value_without_logarithm_is_left_out_counted_and_named(bad: float, named: str) -> None:
    x, value, seed = points(TRUE["power"], DEPTHS, 4, 0.1)
    value[(seed == 1) & (x == 96)] = bad
    found, without = exponent(x, value, seed), exponent(x[seed != 1], value[seed != 1], seed[seed != 1])
    assert found.interval == without.interval
    assert (found.seeds, found.given, without.given) == (3, 4, 3)
    assert (found.zeros, found.nonfinite) == ((1, 0) if bad == 0 else (0, 1))
    assert found.remark == f"1 of 4 seeds left out: {named} at depth 96"
    assert (found.reason, without.remark) == ("", "")
    assert len(compare(x, value, seed).margin_R["power"]) == 3


def test_zeros_in_all_seeds_leave_no_number() -> None:
    x, value, seed = points(TRUE["power"], DEPTHS, 3, 0)
    value[x >= 48] = 0
    value[0] = np.nan
    for found in (exponent(x, value, seed), compare(x, value, seed).estimates["constant"]):
        assert (found.interval, found.seeds, found.given, found.zeros, found.nonfinite) == (None, 0, 3, 6, 1)
        left = "3 of 3 seeds left out: 6 zeros at depths 48, 96, 1 non-finite or negative at depth 6"
        assert found.reason == f"0 seeds, needs 3; {left}"
        assert np.isnan(found.stray)
    whole = compare(x, value, seed)
    assert (whole.winner, whole.reason) == (None, found.reason)
    assert [margin.size for margin in whole.margin_R.values()] == [0, 0, 0]


def test_many_places_are_named_by_their_ends() -> None:
    x, value, seed = points(TRUE["exponential"], tuple(range(97)), 1, 0)
    value[x < 40] = 0
    assert "40 zeros at layers 0 to 39 (40)" in rate(x, value, seed, noun="layers").reason


def test_values_below_from_x_are_neither_fitted_nor_counted() -> None:
    x, value, seed = points(TRUE["power"], NINE, 3, 0)
    value[x < 12] = 0
    found = exponent(x, value, seed, from_x=12)
    assert (number(found), found.zeros, found.points) == (pytest.approx(-0.5), 0, NINE[2:])


def test_all_seeds_are_fitted_over_the_depths_that_most_points_have() -> None:
    x, value, seed = points(TRUE["power"], DEPTHS, 4, 0.1)
    lacks, more = (seed == 1) & (x == 96), (seed == 2) & (x == 6)
    found = exponent(x[~lacks], value[~lacks], seed[~lacks])
    assert found.interval == exponent(x[seed != 1], value[seed != 1], seed[seed != 1]).interval
    assert (found.seeds, found.given, found.points) == (3, 4, DEPTHS)
    assert found.remark == "1 of 4 seeds left out: 1 of other depths"
    only = (x > 6) | more  # all but seed 2 lack depth 6
    assert exponent(x[only], value[only], seed[only]).points == DEPTHS[1:]


def test_one_seed_has_an_exponent_without_bounds_where_one_is_enough() -> None:
    found = exponent(*points(TRUE["power"], DEPTHS[:3], 1, 0), fewest=3, fewest_seeds=1)
    assert number(found) == pytest.approx(-0.5)
    assert np.isnan([found.interval.low, found.interval.high]).all()


def test_impossible_points_are_errors() -> None:
    x, value, seed = points(TRUE["power"], DEPTHS, 3, 0)
    with pytest.raises(ValueError, match="seed 2 has x = 96 twice"):
        exponent(np.append(x, 96), np.append(value, 1), np.append(seed, 2))
    with pytest.raises(ValueError, match="x = nan"):
        rate(np.where(x == 6, np.nan, x), value, seed)
    with pytest.raises(ValueError, match=r"shapes \(15,\), \(14,\)"):
        rate(x, value[1:], seed)
    with pytest.raises(ValueError, match="fewest=1"):
        rate(x, value, seed, fewest=1)
    for laws in (("power",), ("power", "power"), ("power", "cubic")):
        with pytest.raises(ValueError, match="is no comparison; name two or more of constant, power"):
            compare(x, value, seed, laws=laws)


def test_a_mean_over_seeds_is_arithmetic_or_geometric() -> None:
    value, seed = np.array([4.0, 1.0, 3.0, 2.0]), np.array([7, 0, 5, 2])
    assert mean_estimate(value, seed, log=False).interval == mean_interval([1.0, 2.0, 3.0, 4.0])
    assert mean_estimate(value, seed, log=True).interval == geometric_mean_interval([1.0, 2.0, 3.0, 4.0])
    assert mean_estimate(value[:2], seed[:2], log=False).reason == "2 seeds, needs 3"
    assert number(mean_estimate(value[:2], seed[:2], log=False, fewest_seeds=2)) == 2.5
    with pytest.raises(ValueError, match="seed 3 stands twice"):
        mean_estimate([1.0, 2.0], [3, 3], log=False)


def test_a_zero_is_a_number_but_has_no_logarithm() -> None:
    value, seed = [0.0, 1.0, 2.0, np.nan, -3.0], [0, 1, 2, 3, 4]
    plain, log = (mean_estimate(value, seed, log=log) for log in (False, True))
    assert (number(plain), plain.seeds, plain.zeros, plain.nonfinite) == (0.0, 4, 0, 1)
    assert (log.interval, log.seeds, log.given, log.zeros, log.nonfinite) == (None, 2, 5, 1, 2)
    assert log.reason == "2 seeds, needs 3; 3 of 5 seeds left out: 1 zero at seed 0, 2 non-finite or negative at seeds 3, 4"
