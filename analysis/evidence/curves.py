"""Values over the layers of one network, and their slope as one number per run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.evidence.quantities import Numbers, Quantity
from analysis.evidence.record import Reads, Selection
from analysis.stats import slope

STREAM = ("stream_var", "stream_rms", "token_cosine", "grad_stream", "grad_rel")  # at points 0 to L; others at blocks
AXES: dict[str, Callable[[pd.DataFrame], pd.Series]] = {  # x of a curve, where it is no column
    "layer": lambda table: table["layer"],
    "number": lambda table: table["layer"] + 1,  # of the block, from 1
    "crossed": lambda table: table["depth"] - table["layer"],  # blocks between the point and the end
}


@dataclass(frozen=True)
class Curve:
    """y against x over the layers of a run at one step.

    y : a column of `layers`; with `grown`, what it has more than at point 0. x : a column, or one of AXES.
    from_x : smaller layers, numbers or blocks crossed are left out.
    """

    y: str
    x: str = "crossed"
    step: int = 0
    from_x: float = 1
    grown: bool = False

    @property
    def reads(self) -> Reads:
        return Reads.of(layers=tuple({self.y, self.x} - set(AXES)), moments=(self.step,))

    def points(self, runs: Selection) -> pd.DataFrame:
        """Columns run, seed, x, y; one row per run and layer, from the input up."""
        names = tuple(name for name in dict.fromkeys((self.y, self.x)) if name not in AXES)
        table = runs.layers(names, self.step).sort_values(["run", "layer"])
        y = table[self.y].astype(float)
        if self.grown:
            first = table[table["layer"] == 0].set_index("run")[self.y].astype(float)
            y = y - first.reindex(table["run"]).to_numpy()
        x = AXES[self.x](table) if self.x in AXES else table[self.x]
        table = table.assign(y=y, x=x.astype(float))
        ends = table["depth"] if set(names) <= set(STREAM) else table["depth"] - 1
        inside = (table["layer"] <= ends) & ((table["x"] >= self.from_x) | (self.x not in AXES))
        return table.loc[inside, ["run", "seed", "x", "y"]]


@dataclass(frozen=True)
class Slope(Quantity):
    """Slope of ln y on ln x, the exponent of the curve of a run; with `log_x` false of ln y on x, its rate.

    part : "lower" or "upper" half of the range of the abscissa, to see whether the curve is straight; "all" of it.
    """

    curve: Curve
    log_x: bool = True
    part: str = "all"

    @property
    def reads(self) -> Reads:
        return self.curve.reads

    def of(self, runs: Selection) -> Numbers:
        found: dict[str, float] = {}
        zeros, broken, strays = 0, 0, []
        for run, points in self.curve.points(runs).groupby("run", sort=True, observed=True):
            x, y = (points[name].to_numpy(float) for name in ("x", "y"))
            if (y == 0).any():
                zeros, broken = zeros + int((y == 0).sum()), broken + 1
                continue
            x, y = _log(x) if self.log_x else x, _log(y)
            if self.part != "all" and np.isfinite(x).all():
                middle = (x.min() + x.max()) / 2
                kept = x <= middle if self.part == "lower" else x >= middle
                x, y = x[kept], y[kept]
            found[str(run)] = float(slope(x, y))
            strays.append(np.exp(np.std(y - found[str(run)] * x)))
        return Numbers(pd.Series(found, dtype=float), zeros, broken, float(max(strays, default=np.nan)))


def rate(y: str, step: int = 0) -> Slope:
    """Rate of y per block crossed from the end towards the input; negative where it vanishes on the way."""
    return Slope(Curve(y, "crossed", step, from_x=0), log_x=False)


def _log(value: np.ndarray) -> np.ndarray:
    """NaN where there is no logarithm."""
    return np.log(np.where((value > 0) & np.isfinite(value), value, np.nan))
