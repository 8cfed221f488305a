"""Intervals and slopes on arrays. Seeds are the unit: nothing here pools the points of different seeds."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats as distributions

Values = NDArray[np.float64]

BOOTSTRAP_FROM = 30  # seeds; at ten a percentile bootstrap of the mean still covers 90 % for 95
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


def mean_interval(value_R: ArrayLike, *, level: float = 0.95) -> Interval:
    """Mean over seeds with a Student-t interval, from thirty seeds on with a percentile bootstrap.

    value_R : shape [R, ...], one value per seed, any unit; the interval carries the same unit. Pass logarithms of
        gradient norms: they spread over decades.
    Returns Interval(estimate, low, high); with R = 1 the bounds are NaN: one seed has no spread. A NaN makes all three NaN.
    Source: Student 1908. A percentile bootstrap covers 74 % for 95 at R = 3, and 90 % at 10.
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


def slope(x_P: ArrayLike, y_P: ArrayLike) -> Any:
    """Least-squares slope of y on x, a float; of y of shape [..., P] one slope each. NaN for fewer than two distinct x."""
    x, y = np.asarray(x_P, dtype=np.float64), np.asarray(y_P, dtype=np.float64)
    x = x - x.mean()
    spread = float(x @ x)
    return y @ x / spread if spread > 0 else np.full(y.shape[:-1], np.nan)[()]


@cache
def _student(level: float, freedom: int) -> float:
    return float(distributions.t.ppf((1 + level) / 2, freedom))


def _bootstrap(value: Values, level: float) -> tuple[Values, Values]:
    """Bounds of the mean; the resamples are the same at every call, so figures redraw to the same bytes."""
    mean = np.tensordot(_weights(len(value)), value, axes=1)
    tail = (1 - level) / 2
    low, high = np.quantile(mean, [tail, 1 - tail], axis=0)
    return low, high


@cache
def _weights(seeds: int) -> Values:
    """Share of each seed in each resample, shape [RESAMPLES, R]."""
    return np.random.default_rng(0).multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
