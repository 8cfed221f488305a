"""Exponents of depth at initialisation: of what, and over which depths."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from analysis import laws
from analysis.cells import groups
from analysis.laws import Estimate
from analysis.tables import FIT_FROM, at_place, profile

DEPTHS = 4  # that a law is fitted to


@dataclass(frozen=True)
class Quantity:
    """A value per run: a column of `layers` at one of tables.PLACES."""

    name: str
    sentence: str
    column: str
    place: str

    def of(self, layers: pd.DataFrame) -> pd.DataFrame:
        """The rows of `layers`, with their run's depth, that hold it."""
        return at_place(layers, self.place)


QUANTITIES = (
    Quantity("gradient, first point", "the gradient that reaches the first layer", "grad_stream", "first"),
    Quantity("gradient, last point", "the gradient at the last point", "grad_stream", "last"),
    Quantity("last W_2", "the gradient of the last feed-forward matrix", "grad_w2", "last block"),
    Quantity("stream variance", "the variance of the stream after the last block", "stream_var", "last"),
)


def start(depth: pd.Series) -> int:
    """Blocks from which exponents are fitted: FIT_FROM, or all where there are fewer than DEPTHS from there on."""
    depths = depth.unique()
    return FIT_FROM if (depths >= FIT_FROM).sum() >= DEPTHS else 0


def exponent(table: pd.DataFrame, column: str = "value") -> Estimate:
    """Exponent of depth of a column; one row per run, columns depth and seed."""
    return laws.exponent(table["depth"], table[column], table["seed"], from_x=start(table["depth"]), fewest=DEPTHS)


def exponents(runs: pd.DataFrame, layers: pd.DataFrame, column: str, place: str) -> Iterator[tuple[tuple[str, int], Estimate]]:
    """Of every (variant, warmup), over the runs that did not diverge."""
    table = profile(runs, layers, column, 0)
    for (variant, warmup), group in groups(at_place(table[table["outcome"] != "diverged"], place), ["variant", "warmup"]):
        yield (str(variant), int(warmup)), exponent(group)
