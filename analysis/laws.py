"""Laws of a positive value in depth or layer index, fitted per seed by least squares on ln(value), never pooled.

constant     value = c
power        value = c x^exponent
exponential  value = c exp(rate x)
logarithmic  value = a + b ln x
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from analysis.sample import Bad, Demand, Options, Sample, few_seeds, left_out
from analysis.stats import Interval, Values, geometric_mean_interval, mean_interval, slope

LAWS = ("constant", "power", "exponential")
MARGIN = 4  # AICc by which the winner leads every other law in every seed
CONSTANT_FROM = 9  # points below which the constant's lead is mostly AICc's small-sample term: 20 at five points
EXACT = 1e-12  # misfit in ln(value) below which a law is exact: rounding


@dataclass(frozen=True)
class Estimate:
    """A parameter over seeds, or why there is none.

    interval : None where `reason` says why. Where one seed is enough (fewest_seeds=1) its bounds are NaN.
    seeds : seeds fitted, of `given`. A seed is left out where its x are not those that most points belong to, or where one
        of its values has no logarithm; `remark` says how many and where.
    points : the x of the fit, ascending; empty where they are too few.
    zeros, nonfinite : values that are 0 (underflow); values that are NaN, infinite or negative. Counted, never used.
    stray : the factor by which the points of the worst seed stray from its line (root mean square, in logarithms); 1 is exact,
        NaN not fitted. A mean of one value a seed has none: 1.
    """

    interval: Interval | None
    seeds: int
    given: int
    points: tuple[float, ...]
    reason: str
    zeros: int
    nonfinite: int
    stray: float
    remark: str = ""


@dataclass(frozen=True)
class Comparison:
    """Which law describes every seed, or why none is called.

    winner : the law that leads every other by more than MARGIN in AICc in all seeds; None: inconclusive, for `reason`.
    margin_R : per law, shape [R], AICc above that of the seed's best law; empty where nothing could be compared.
    estimates : per law its parameter: the exponent; the rate per unit of x; the constant, in the value's unit; of logarithmic
        b over the law's value at the smallest x.
    """

    winner: str | None
    reason: str
    margin_R: Mapping[str, Values]
    estimates: Mapping[str, Estimate]


@dataclass(frozen=True)
class _Law:
    """fit : x_X, ln value_RX -> parameter_R and misfit_R, the root mean square residual of ln value."""

    fit: Callable[[Values, Values], tuple[Values, Values]]
    parameters: int  # sigma is one of them
    log_x: bool = False
    log_parameter: bool = False


def exponent(x_P: ArrayLike, value_P: ArrayLike, seed_P: ArrayLike, **options: Unpack[Options]) -> Estimate:
    """Slope of ln value on ln x: the mean of one slope per seed.

    x_P, value_P, seed_P : shape [P], one point per seed and x, in any order. All seeds are fitted over one set of x: the one
        that most points belong to.
    Raises ValueError where a seed has an x twice, an x is not finite or a fitted x is not above zero.
    """
    demand = Demand(**options)
    return _fitted("power", Sample.of(x_P, value_P, seed_P, demand), demand)[0]


def rate(x_P: ArrayLike, value_P: ArrayLike, seed_P: ArrayLike, **options: Unpack[Options]) -> Estimate:
    """Slope of ln value on x, per unit of x; points and errors as of `exponent`, but x may be zero."""
    demand = Demand(**options)
    return _fitted("exponential", Sample.of(x_P, value_P, seed_P, demand), demand)[0]


def compare(
    x_P: ArrayLike, value_P: ArrayLike, seed_P: ArrayLike, *, laws: Sequence[str] = LAWS, **options: Unpack[Options]
) -> Comparison:
    """Laws by AICc = n ln(RSS/n) + 2k + 2k(k+1)/(n-k-1) of each seed: Gaussian errors on ln value, sigma among the k.

    Points and errors as of `exponent`. Needs five x: with fewer, AICc of a law with a slope is infinite. The points of a seed
    count as independent; neighbouring layers of one network are not, which makes margins over layers too large.
    The constant is nested in the others and leads by the difference of the penalties at most: below MARGIN from eleven points
    on, and stronger than the data at few. So it can win at nine or ten points only, where no seed shows a slope; that a value
    does not depend on x is better read from the interval of the exponent.
    Source: Hurvich and Tsai 1989, Biometrika 76, 297.
    """
    unknown = [law for law in laws if law not in _LAW]
    if unknown or len(set(laws)) < 2:
        raise ValueError(f"laws={tuple(laws)} is no comparison; name two or more of {', '.join(_LAW)}")
    demand = Demand(**options)
    sample = Sample.of(x_P, value_P, seed_P, demand)
    points = len(sample.x_X)
    enough = replace(demand, fewest=max(demand.fewest, *(_LAW[law].parameters + 2 for law in laws)))
    reason = sample.lack(enough)
    fits = {law: _fitted(law, sample, demand) for law in laws}
    estimates = {law: estimate for law, (estimate, _) in fits.items()}
    if points < enough.fewest or not len(sample.log_RX):
        return Comparison(None, reason, {law: np.empty(0) for law in laws}, estimates)
    aicc = {
        law: 2 * points * np.log(np.maximum(misfit_R, EXACT)) + _penalty(law, points) for law, (_, misfit_R) in fits.items()
    }
    best_R = np.min(list(aicc.values()), axis=0)
    margin_R = {law: aicc_R - best_R for law, aicc_R in aicc.items()}
    winner, why = _winner(margin_R, points, demand.noun)
    return Comparison(None if reason else winner, reason or why, margin_R, estimates)


def mean_estimate(value_P: ArrayLike, seed_P: ArrayLike, *, log: bool, fewest_seeds: int = 3) -> Estimate:
    """Mean over seeds of one value a seed, shape [P]; with `log` the geometric mean. Both in the value's unit.

    A seed whose value is not finite is left out and counted; with `log` also one whose value is zero or negative.
    Raises ValueError where a seed stands twice.
    """
    value, seed = np.asarray(value_P, dtype=np.float64), np.asarray(seed_P)
    order = np.argsort(seed, kind="stable")
    value, seed = value[order], seed[order]
    if twice := seed[1:][seed[1:] == seed[:-1]].tolist():
        raise ValueError(f"seed {twice[0]} stands twice; pass one value per seed")
    bad = Bad.of(value, seed, log=log)
    kept = value[np.isfinite(value) & ((value > 0) | (not log))]
    remark = left_out(len(value) - len(kept), len(value), bad.words("seeds"))
    reason = few_seeds(len(kept), fewest_seeds, remark)
    interval = None if reason else geometric_mean_interval(kept) if log else mean_interval(kept)
    counts = (len(bad.zero), len(bad.nonfinite))
    return Estimate(interval, len(kept), len(value), (), reason, *counts, 1.0, remark)


def _fitted(name: str, sample: Sample, demand: Demand) -> tuple[Estimate, Values]:
    """The law's parameter over seeds, and the misfit_R of each seed; no misfit where nothing was fitted."""
    law, reason = _LAW[name], sample.lack(demand)
    points: tuple[float, ...] = ()
    interval, parameter_R, misfit_R = None, np.empty(0), np.empty(0)
    if len(sample.x_X) >= demand.fewest:
        if law.log_x and sample.x_X[0] <= 0:
            raise ValueError(f"x = {sample.x_X[0]:g} has no logarithm for the {name} law; pass from_x or count from 1")
        points = tuple(sample.x_X.tolist())
        parameter_R, misfit_R = law.fit(sample.x_X, sample.log_RX)
    if not reason:
        interval = mean_interval(parameter_R, level=demand.level)
        if law.log_parameter:
            interval = Interval(*np.exp([interval.estimate, interval.low, interval.high]))
    stray = float(np.exp(misfit_R.max())) if len(misfit_R) else float("nan")
    counts = (len(sample.bad.zero), len(sample.bad.nonfinite))
    return Estimate(interval, len(misfit_R), sample.given, points, reason, *counts, stray, sample.remark), misfit_R


def _penalty(law: str, points: int) -> float:
    k = _LAW[law].parameters
    return 2 * k + 2 * k * (k + 1) / (points - k - 1)


def _winner(margin_R: Mapping[str, Values], points: int, noun: str) -> tuple[str | None, str]:
    """The law that wins in all seeds, or None and why."""
    laws = list(margin_R)
    best_R = np.argmin(list(margin_R.values()), axis=0)
    if len(won := {laws[i]: int((best_R == i).sum()) for i in np.unique(best_R)}) > 1:
        return None, "seeds disagree: " + ", ".join(f"{law} is best in {seeds}" for law, seeds in won.items())
    best = laws[best_R[0]]
    lead = {law: float(margin.min()) for law, margin in margin_R.items() if law != best}
    rival = min(lead, key=lambda law: lead[law])
    if lead[rival] <= MARGIN:
        return None, f"{best} leads {rival} by {lead[rival]:.1f} in AICc in the closest seed, needs more than {MARGIN}"
    if best == "constant" and points < CONSTANT_FROM:
        return None, f"constant leads by AICc's penalty for few points: {points} {noun}, needs {CONSTANT_FROM}"
    return best, ""


def _constant(_: Values, log_RX: Values) -> tuple[Values, Values]:
    return log_RX.mean(axis=1), log_RX.std(axis=1)


def _exponential(x_X: Values, log_RX: Values) -> tuple[Values, Values]:
    rate_R = slope(x_X, log_RX)
    return rate_R, (log_RX - rate_R[:, None] * x_X).std(axis=1)


def _power(x_X: Values, log_RX: Values) -> tuple[Values, Values]:
    return _exponential(np.log(x_X), log_RX)


def _logarithmic(x_X: Values, log_RX: Values) -> tuple[Values, Values]:
    """value = c (1 + (exp(t) - 1) u), u the share of ln x from the smallest x to the largest: above zero for every t."""
    span = np.log(x_X[-1] / x_X[0])
    share_X = np.log(x_X / x_X[0]) / span
    with np.errstate(divide="ignore"):
        left_X, right_X = np.log1p(-share_X), np.log(share_X)
    found = [_growth(left_X, right_X, log_X) for log_X in log_RX]
    growth_R, misfit_R = np.array(found).reshape(-1, 2).T
    return np.expm1(growth_R) / span, misfit_R


def _growth(left_X: Values, right_X: Values, log_X: Values) -> tuple[float, float]:
    """t of one seed and its misfit; c is the one that leaves residuals of mean zero."""

    def residual(t: Values) -> Values:
        rest = log_X - np.logaddexp(left_X, right_X + t)
        return rest - rest.mean()

    def jacobian(t: Values) -> Values:
        weight = np.exp(right_X + t - np.logaddexp(left_X, right_X + t))
        return (weight.mean() - weight)[:, None]

    start = log_X[-1] - log_X[0]
    fit = least_squares(residual, start, jacobian, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return float(fit.x[0]), float(np.std(fit.fun))


_LAW = {
    "constant": _Law(_constant, 2, log_parameter=True),
    "power": _Law(_power, 3, log_x=True),
    "exponential": _Law(_exponential, 3),
    "logarithmic": _Law(_logarithmic, 3, log_x=True),
}
