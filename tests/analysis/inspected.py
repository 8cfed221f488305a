"""What a test can see of a figure, and studies in memory to draw it from."""

import json
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from synthetic_memory import Case, study
from synthetic_store import Run

from analysis import style
from analysis.story import Story

VOCAB = 256


def axes_of(figure: Figure) -> list[Axes]:
    return [ax for part in figure.subfigs for ax in part.axes]


def words(figure: Figure | Axes) -> str:
    """All text in a figure or a panel."""
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def drawn(draw: Callable[..., Figure], *stories: Any) -> Figure:
    with style.applied():
        return draw(*stories)


def lines(ax: Axes, **look: Any) -> list[Line2D]:
    """Lines whose getters give these values, as marker="o"."""
    return [line for line in ax.lines if all(getattr(line, f"get_{name}")() == value for name, value in look.items())]


def told(name: str, cases: list[Case]) -> Story:
    """The story of a study in memory."""
    found = study(name, cases)
    found.runs["manifest"] = [json.dumps({"data": {"sha256": "0" * 64, "vocab": VOCAB}})] * len(found.runs)
    return Story.of(found)


def runs(*depths: int, norms: tuple[str, ...] = ("pre", "post"), seeds: int = 3, **options: Any) -> list[Run]:
    """Runs without training, at Xavier."""
    given = {"study": "init_scaling", "init": "xavier", "steps": 1} | options
    return [Run(norm, L, 0, seed, **given) for norm in norms for L in depths for seed in range(seeds)]


def point(L: int, value: float, place: int) -> np.ndarray:
    """value_L with a value at one point and what a wrong place would give elsewhere."""
    value_L = np.full(L + 1, 7.0 * L**2)
    value_L[place] = value
    return value_L
