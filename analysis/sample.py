"""The points that a law is fitted to: which seeds over which x, whether they are enough, and in words what was left out."""

from collections import Counter
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats import Values

NAMED = 3  # places listed one by one in a remark


class Options(TypedDict, total=False):
    """Keywords of every fit; the defaults are Demand's."""

    from_x: float
    fewest: int
    fewest_seeds: int
    level: float
    noun: str


@dataclass(frozen=True)
class Demand:
    """What a fit asks of its points. noun : what x counts, in the plural."""

    from_x: float = 0  # smaller x are left out
    fewest: int = 4  # distinct x
    fewest_seeds: int = 3
    level: float = 0.95  # of the interval
    noun: str = "depths"

    def __post_init__(self) -> None:
        if self.fewest < 2 or self.fewest_seeds < 1:
            raise ValueError(f"fewest={self.fewest}, fewest_seeds={self.fewest_seeds}: a slope needs two x and one seed")


@dataclass(frozen=True)
class Bad:
    """Where a value is zero, or NaN, infinite or negative: x (or the seed), one entry a value."""

    zero: NDArray[np.generic]
    nonfinite: NDArray[np.generic]

    @classmethod
    def of(cls, value_P: Values, place_P: NDArray[np.generic], *, log: bool) -> "Bad":
        """Zero and negative values are bad only where the logarithm is taken."""
        return cls(place_P[(value_P == 0) & log], place_P[~np.isfinite(value_P) | ((value_P < 0) & log)])

    def words(self, noun: str) -> list[str]:
        """Counts and places, as '2 zeros at depths 48, 96'."""
        names = ("zero" if len(self.zero) == 1 else "zeros", "non-finite or negative")
        pairs = zip(names, (self.zero, self.nonfinite), strict=True)
        return [f"{len(at)} {name} at {_places(at, noun)}" for name, at in pairs if len(at)]


@dataclass(frozen=True)
class Sample:
    """The seeds that can be fitted over one set of x, and what was left out.

    x_X : ascending; empty without points. log_RX : shape [R, X], ln value of the seeds that can be fitted, of `given`.
    """

    x_X: Values
    log_RX: Values
    given: int
    bad: Bad
    remark: str

    @classmethod
    def of(cls, x_P: ArrayLike, value_P: ArrayLike, seed_P: ArrayLike, demand: Demand) -> "Sample":
        """All seeds share one set of x: the one that most points belong to; seeds with another, or a bad value, are left out.

        Raises ValueError where a seed has an x twice or an x is not finite.
        """
        x, value, seed = _sorted(x_P, value_P, seed_P, demand.from_x)
        bad = Bad.of(value, x, log=True)
        edges = np.flatnonzero(seed[1:] != seed[:-1]) + 1
        parts = list(zip(np.split(x, edges), np.split(value, edges), strict=True)) if len(x) else []
        common = _common([tuple(xs.tolist()) for xs, _ in parts])
        whole = [values for xs, values in parts if np.array_equal(xs, common)]
        value_RX = np.array(whole).reshape(len(whole), len(common))
        good_RX = value_RX[np.all(np.isfinite(value_RX) & (value_RX > 0), axis=1)]
        words = bad.words(demand.noun)
        if len(whole) < len(parts):
            words.append(f"{len(parts) - len(whole)} of other {demand.noun}")
        remark = left_out(len(parts) - len(good_RX), len(parts), words)
        return cls(np.array(common, dtype=np.float64), np.log(good_RX), len(parts), bad, remark)

    def lack(self, demand: Demand) -> str:
        """Why there are too few points or seeds; empty where there are enough."""
        if len(self.x_X) < demand.fewest:
            return f"{_counted(len(self.x_X), demand.noun)}, needs {demand.fewest}"
        return few_seeds(len(self.log_RX), demand.fewest_seeds, self.remark)


def few_seeds(seeds: int, needed: int, remark: str) -> str:
    """'1 seed, needs 3', with the remark on those left out; empty where there are enough."""
    if seeds >= needed:
        return ""
    return f"{_counted(seeds, 'seeds')}, needs {needed}" + (f"; {remark}" if remark else "")


def left_out(missing: int, given: int, words: list[str]) -> str:
    """'2 of 3 seeds left out: 2 zeros at depth 96'; empty where none is missing."""
    return f"{missing} of {_counted(given, 'seeds')} left out: {', '.join(words)}" if missing else ""


def _sorted(
    x_P: ArrayLike, value_P: ArrayLike, seed_P: ArrayLike, from_x: float
) -> tuple[Values, Values, NDArray[np.generic]]:
    """Points from from_x on, by seed, then x."""
    x, value, seed = np.asarray(x_P, dtype=np.float64), np.asarray(value_P, dtype=np.float64), np.asarray(seed_P)
    if not x.shape == value.shape == seed.shape == (x.size,):
        raise ValueError(f"x, value and seed have shapes {x.shape}, {value.shape}, {seed.shape}; pass one of each per point")
    if not np.all(np.isfinite(x)):
        raise ValueError(f"x = {x[~np.isfinite(x)][0]:g} is no place; leave such points out")
    kept = np.flatnonzero(x >= from_x)
    order = kept[np.lexsort((x[kept], seed[kept]))]
    x, value, seed = x[order], value[order], seed[order]
    twice = np.flatnonzero((x[1:] == x[:-1]) & (seed[1:] == seed[:-1]))
    if len(twice):
        raise ValueError(f"seed {seed[twice[0]]} has x = {x[twice[0]]:g} twice; pass one point per seed and x")
    return x, value, seed


def _common(sets: list[tuple[float, ...]]) -> tuple[float, ...]:
    """The set of x that most points belong to; of equals the larger, then the deeper."""
    count = Counter(sets)
    return max(count, key=lambda xs: (count[xs] * len(xs), len(xs), xs), default=())


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun.removesuffix('s') if number == 1 else noun}"


def _places(at: NDArray[np.generic], noun: str) -> str:
    places = [f"{place:g}" if isinstance(place, float) else str(place) for place in np.unique(at).tolist()]
    listed = ", ".join(places) if len(places) <= NAMED else f"{places[0]} to {places[-1]} ({len(places)})"
    return f"{noun.removesuffix('s') if len(places) == 1 else noun} {listed}"
