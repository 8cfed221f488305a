"""Values of a run's tables in which a quantity of the ledger comes out at a chosen number."""

from collections.abc import Callable
from functools import singledispatch

import numpy as np

from analysis.evidence import quantities
from analysis.evidence.curves import AXES, STREAM, Curve, Slope

Layers = dict[tuple[int, str], np.ndarray]  # (step, column) -> value_L, shape [L + 1]
Steps = dict[tuple[int, str], float]


@singledispatch
def plant(quantity: object, _value: float, _L: int) -> tuple[Layers, Steps]:
    raise TypeError(f"no synthetic {quantity!r}")


@plant.register
def _(quantity: quantities.Point, value: float, L: int):
    value_L = np.full(L + 1, 7.0 * L**2)  # what a wrong place would give
    value_L[{"first": 0, "middle": L // 2, "last": L, "first block": 0, "last block": L - 1}[quantity.place]] = value
    return {(quantity.step, quantity.column): value_L}, {}


@plant.register
def _(quantity: quantities.Growth, value: float, L: int):
    total = value * (1 if quantity.branches is None else quantity.branches * L)
    return {(quantity.step, quantity.column): 1 + total * np.linspace(0, 1, L + 1)}, {}


@plant.register
def _(quantity: quantities.OverBlocks, value: float, L: int):
    one = np.ones(L)
    thirds = np.concatenate([one[: L // 3] - value, one[L // 3 : L - L // 3], one[L - L // 3 :] + value])
    block_L = {
        quantities.mean_square: lambda: one * np.sqrt(value),
        quantities.log_mean: lambda: one * value,
        quantities.largest: lambda: one * value,
        quantities.contrast: lambda: thirds,
        quantities.share_in_use: lambda: (np.arange(L) < round(value * L)).astype(float),
        quantities.damping: lambda: one * np.sqrt(np.expm1(-2 * value)),
    }[quantity.how]()
    found = {(quantity.step, quantity.column): np.append(block_L, np.nan)}
    if quantity.over:
        found[quantity.step, quantity.over] = np.append(one, np.nan)
    return found, {}


@plant.register
def _(quantity: quantities.OfStep, value: float, _L: int):
    return {}, {(quantity.step, quantity.column): value}


@plant.register
def _(quantity: quantities.OfRun, value: float, _L: int):
    return {}, {(0, quantity.column): value}


@plant.register
def _(quantity: Slope, value: float, L: int):
    log_x = quantity.log_x
    return curve(quantity.curve, lambda x: x**value if log_x else np.exp(value * x), L), {}


@plant.register
def _(quantity: quantities.Difference, value: float, L: int):
    rest = -0.3
    return _both(plant(quantity.other, rest, L), plant(quantity.one, value + rest, L))


@plant.register
def _(quantity: quantities.Ratio, value: float, L: int):
    return _both(plant(quantity.other, 1.5, L), plant(quantity.one, 1.5 * value, L))


def _both(one: tuple[Layers, Steps], two: tuple[Layers, Steps]) -> tuple[Layers, Steps]:
    return one[0] | two[0], one[1] | two[1]


def curve(of: Curve, law: Callable[[np.ndarray], np.ndarray], L: int) -> Layers:
    """Columns in which y is this function of x; with `grown`, y less its value at point 0."""
    layer = np.arange(L + 1.0)
    axes = {"layer": layer, "number": layer + 1, "crossed": L - layer}
    x = axes.get(of.x, 1 + 0.5 * layer)
    inside = x > 0 if of.x in axes else np.ones(L + 1, bool)
    y = np.where(inside, law(np.where(inside, x, 1.0)), 0.0 if of.grown else 1.0) + (10.0 if of.grown else 0.0)
    found = {(of.step, of.y): np.append(y[:-1], y[-1] if of.y in STREAM else np.nan)}
    return found if of.x in AXES else found | {(of.step, of.x): x}
