"""Intervals and fits on arrays. Seeds are the unit: nothing here pools the points of different seeds."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats as distributions

Values = NDArray[np.float64]

BOOTSTRAP_FROM = 10  # seeds from which the percentile bootstrap covers as it should
RESAMPLES = 4000


@dataclass(frozen=True)
class Interval:
    """An estimate and its bounds, all of the unit of what was estimated; floats, or arrays of one shape."""

    estimate: Any
    low: Any
    high: Any

    @property
    def half(self) -> Any:
        """Half the width."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class PowerLaw:
    """Exponent of y ~ L^exponent: the mean of one slope per seed.

    seeds : seeds with a slope, of `given`. A seed is left out where it lacks a depth that most others have, or where a value
        is zero or not finite.
    stray : the factor by which the points of the worst seed stray from its line (root mean square, in logarithms); 1 is exact.
    """

    exponent: Interval
    seeds: int
    given: int
    depths: tuple[int, ...]
    stray: float


def mean_interval(value_R: ArrayLike, *, level: float = 0.95) -> Interval:
    """Mean over seeds with a Student-t interval, from ten seeds on with a percentile bootstrap.

    value_R : shape [R, ...], one value per seed, any unit; the interval carries the same unit. Pass logarithms of
        gradient norms: they spread over decades.
    Returns Interval(estimate, low, high); with R = 1 the bounds are NaN: one seed has no spread. A NaN makes all three NaN.
    Source: Student 1908. A percentile bootstrap covers far below its level at R = 3 to 5.
    """
    value = np.asarray(value_R, dtype=np.float64)
    seeds = len(value)
    if seeds == 0:
        raise ValueError("no seeds: an interval needs at least one value")
    with np.errstate(invalid="ignore"):
        mean = value.mean(axis=0)
        if seeds >= BOOTSTRAP_FROM:
            low, high = _bootstrap(value, level)
        elif seeds == 1:
            low = high = np.full_like(mean, np.nan)
        else:
            half = _student(level, seeds - 1) * value.std(axis=0, ddof=1) / np.sqrt(seeds)
            low, high = mean - half, mean + half
    return Interval(mean[()], low[()], high[()])


def geometric_mean_interval(value_R: ArrayLike, *, level: float = 0.95) -> Interval:
    """exp of mean_interval of the logarithm, for values of zero or more, shape [R, ...].

    One zero makes the estimate 0 and the bounds NaN; a NaN, an infinity or a value below zero makes all three NaN.
    """
    value = np.asarray(value_R, dtype=np.float64)
    bad = ~np.isfinite(value) | (value < 0)
    zero = value == 0
    log = np.log(np.where(zero | bad, 1.0, value))
    interval = mean_interval(log, level=level)
    some_bad, some_zero = bad.any(axis=0), zero.any(axis=0)
    estimate = np.where(some_bad, np.nan, np.where(some_zero, 0.0, np.exp(interval.estimate)))
    low, high = (np.where(some_bad | some_zero, np.nan, np.exp(bound)) for bound in (interval.low, interval.high))
    return Interval(estimate[()], low[()], high[()])


def fraction_interval(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Share of successes with its exact binomial interval: 0 of 3 is [0, .71].

    Source: Clopper and Pearson 1934.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} of {trials} is no fraction")
    tail = (1 - level) / 2
    low = distributions.beta.ppf(tail, successes, trials - successes + 1) if successes else 0.0
    high = distributions.beta.ppf(1 - tail, successes + 1, trials - successes) if successes < trials else 1.0
    return Interval(successes / trials, float(low), float(high))


def slope(x_P: ArrayLike, y_P: ArrayLike) -> float:
    """Least-squares slope of y on x; NaN for fewer than two distinct x."""
    x, y = np.asarray(x_P, dtype=np.float64), np.asarray(y_P, dtype=np.float64)
    x = x - x.mean()
    spread = float(x @ x)
    return float(x @ y) / spread if spread > 0 else float("nan")


def power_law(
    depth_P: ArrayLike, value_P: ArrayLike, seed_P: ArrayLike, *, from_depth: float = 0, level: float = 0.95
) -> PowerLaw | None:
    """Slope of ln value on ln depth, fitted per seed, with the interval of its mean over seeds.

    depth_P, value_P, seed_P : shape [P], one point per seed and depth; only depths >= from_depth count.
    All seeds are fitted over one set of depths: the one that most points belong to. None with fewer than three depths.
    """
    depth, value = np.asarray(depth_P, dtype=np.float64), np.asarray(value_P, dtype=np.float64)
    seed = np.asarray(seed_P)
    at = {s: (seed == s) & (depth >= from_depth) for s in np.unique(seed)}
    sets = {s: tuple(int(d) for d in np.sort(depth[mask])) for s, mask in at.items() if mask.any()}
    if not sets:
        return None
    sizes: dict[tuple[int, ...], int] = {}
    for depths in sets.values():
        sizes[depths] = sizes.get(depths, 0) + len(depths)
    common = max(sizes, key=lambda depths: (sizes[depths], len(depths), depths))
    if len(set(common)) < 3:
        return None
    slopes, strays = [], []
    for s, mask in at.items():
        if sets.get(s) == common and np.all(np.isfinite(value[mask]) & (value[mask] > 0)):
            x, y = np.log(depth[mask]), np.log(value[mask])
            slopes.append(slope(x, y))
            strays.append(np.std(y - slopes[-1] * x))
    exponent = mean_interval(slopes, level=level) if slopes else Interval(np.nan, np.nan, np.nan)
    return PowerLaw(exponent, len(slopes), len(sets), common, float(np.exp(max(strays, default=np.nan))))


@cache
def _student(level: float, freedom: int) -> float:
    return float(distributions.t.ppf((1 + level) / 2, freedom))


def _bootstrap(value: Values, level: float) -> tuple[Values, Values]:
    """Bounds of the mean; the resamples are the same at every call, so figures redraw to the same bytes."""
    seeds = len(value)
    weight = np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    mean = np.tensordot(weight, value, axes=1)
    tail = (1 - level) / 2
    low, high = np.quantile(mean, [tail, 1 - tail], axis=0)
    return low, high
