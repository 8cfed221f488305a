"""Points of known laws with noise, and the number of an estimate."""

from collections.abc import Callable

import numpy as np

from analysis.laws import Estimate

Points = tuple[np.ndarray, np.ndarray, np.ndarray]
DEPTHS = (6, 12, 24, 48, 96)
NINE = (6, 9, 12, 18, 24, 36, 48, 68, 96)
TRUE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant": lambda x: 0 * x + 1,
    "power": lambda x: x**-0.5,
    "exponential": lambda x: np.exp(-0.02 * x),
    "logarithmic": lambda x: 0.5 + 2 * np.log(x),
}


def points(law: Callable[[np.ndarray], np.ndarray], x: tuple[float, ...], seeds: int, noise: float, draw: int = 0) -> Points:
    """The law times a factor of each seed and a scatter of each point, both log-normal."""
    rng = np.random.default_rng(draw)
    at, seed = np.tile(np.array(x, float), seeds), np.repeat(np.arange(seeds), len(x))
    return at, law(at) * np.exp(rng.normal(size=seeds)[seed] + noise * rng.normal(size=len(at))), seed


def number(found: Estimate) -> float:
    assert found.interval is not None, found.reason
    return float(found.interval.estimate)
