"""Exponents in depth at initialisation, by what the init study varies and by placement. Tables in, a figure out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import initial, tables
from analysis.drawings.layers import NORM
from analysis.laws import Estimate
from analysis.layout import Page
from analysis.load import Columns
from analysis.plots import GUIDES
from analysis.settings import changed
from analysis.story import BASE, Story
from analysis.style import GUIDE, Look
from analysis.summary import absent

COLUMNS = Columns(("loss",), ("grad_stream", "grad_w2", "stream_var"))
SPACING = 0.3  # of the marks of a row, in rows
DASHES: dict[float, Any] = {exponent: dash for exponent, dash, _ in GUIDES} | {1.0: (0, (3, 1, 1, 1))}


@dataclass(frozen=True)
class Panel:
    """A column of `layers` at one of tables.PLACES. guides : exponents to compare with."""

    title: str
    column: str
    place: str
    guides: tuple[float, ...]


LOSS, FALLING = r"\|\partial\,\mathrm{loss}/\partial ", (0, -0.5, -1)
PANELS = (
    Panel("gradient at the first point\n" + rf"${LOSS}x_0\|$", "grad_stream", "first", FALLING),
    Panel("gradient at the last point\n" + rf"${LOSS}x_L\|$", "grad_stream", "last", FALLING),
    Panel("gradient of the last block's $W_2$\n" + rf"${LOSS}W_2\|$", "grad_w2", "last block", FALLING),
    Panel("stream variance at the last point\n" + r"$\mathrm{Var}\,x_L$ (a square)", "stream_var", "last", (0, 1)),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Runs that differ in placement, depth and seed only."""

    name: str
    story: Story

    def exponents(self, panel: Panel) -> Iterator[tuple[Look, Estimate]]:
        """Of each series, over the depths from FIT_FROM, or over all where too few lie there."""
        for name, found in initial.exponents(self.story.runs, self.story.study.layers, panel.column, panel.place):
            yield self.story.looks[name], found

    @property
    def label(self) -> str:
        """Its name, the depths fitted and the seeds; of several series the most."""
        found = [estimate for _, estimate in self.exponents(PANELS[0])]
        points = max((estimate.points for estimate in found), key=len, default=())
        seeds = max((estimate.seeds for estimate in found), default=0)
        lost = int((self.story.runs["outcome"] == "diverged").sum())
        words = [f"L = {points[0]:g} to {points[-1]:g}, {seeds} seeds"] if points else []
        return "\n".join([self.name, *words, *([f"{lost} runs diverged"] if lost else [])])


def exponents(init: Story, xiong: Story | None) -> Figure:
    """A column per quantity, a row per factor, a mark per placement."""
    names = init.factors or ("",)
    parts = [(name or init.study.source.study, init.part(name)) for name in names]
    rows = [Row(name, part) for name, part in parts if part is not None]
    rows += [] if xiong is None else [Row("Xiong et al.'s setting", xiong)]
    notes = [
        "value ~ L^exponent at initialisation (step 0). Marks: mean over seeds of a slope each, by least squares on "
        "logarithms; bars: its 95 % interval over seeds. Hollow: no power law, points stray from the line by more than a "
        f"factor of {tables.STRAY}. A seed is left out where a value has no logarithm or a depth is missing. {NORM}",
        init.factors_note(*names),
        *([] if xiong is None else [f"{xiong.note} Against {BASE}: {changed(xiong.runs, init.runs)}."]),
    ]
    page = Page(13.2, 0.56 * len(rows) + 1.9, "Exponents of depth at initialisation", notes)
    axes = page.grid(1, len(PANELS), sharey=True)[0]
    for ax, panel in zip(axes, PANELS, strict=True):
        _panel(ax, panel, rows)
    axes[0].set_yticks(range(len(rows)), [row.label for row in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    axes[0].set_ylabel("factor  [depths fitted, seeds]")
    looks = {look.label: look for row in rows for look in row.story.looks.values()}
    keys = [Line2D([], [], color=look.color, marker=look.marker, label=look.label) for look in looks.values()]
    guides = [Line2D([], [], color=GUIDE, linestyle=dash, label=f"exponent {value:g}") for value, dash in DASHES.items()]
    return page.finish([*keys, *guides], columns=6)


def _panel(ax: Axes, panel: Panel, rows: list[Row]) -> None:
    """Exponents to the right, rows from the top down; why there is none stands in its place."""
    for guide in panel.guides:
        ax.axvline(guide, color=GUIDE, linestyle=DASHES[guide], linewidth=1.1, zorder=1)
    for y in np.arange(len(rows) - 1) + 0.5:
        ax.axhline(y, color="#dddddd", linewidth=0.7, zorder=0.5)
    for y, row in enumerate(rows):
        marks = list(row.exponents(panel))
        for (look, found), at in zip(marks, _apart(y, len(marks)), strict=True):
            mark(ax, at, look, found)
    ax.set_title(panel.title)
    ax.set_xlabel("exponent of L  [1]")
    ax.grid(axis="y", visible=False)


def mark(ax: Axes, y: float, look: Look, found: Estimate, edge: float = np.inf) -> None:
    """An exponent with its interval, and how many seeds it is without; or why there is none. Beyond ±edge stands an arrow."""
    small: dict[str, Any] = {"color": look.color, "fontsize": 7, "va": "center", "transform": ax.get_yaxis_transform()}
    if found.interval is None:
        ax.text(0.03, y, absent(found), **small)
        return
    value = float(found.interval.estimate)
    fill = "white" if found.stray > tables.STRAY else look.color
    if abs(value) > edge:
        marker, side = (">", "right") if value > 0 else ("<", "left")
        ax.plot([np.sign(value) * edge], [y], marker, color=look.color, markerfacecolor=fill, zorder=3)
        ax.annotate(f"{value:+.1f}".replace("-", "−"), (np.sign(value) * edge, y), xytext=(-6 if value > 0 else 6, 0),
                    textcoords="offset points", color=look.color, fontsize=7, ha=side, va="center")  # fmt: skip
        return
    low, high = np.clip([found.interval.low, found.interval.high], -edge, edge)
    ax.hlines(y, low, high, color=look.color, linewidth=1.6, zorder=2.9)
    ax.plot([value], [y], look.marker, color=look.color, markerfacecolor=fill, zorder=3)
    if found.seeds < found.given:
        ax.text(0.98, y, f"{found.given - found.seeds} of {found.given} seeds left out", ha="right", **small)


def _apart(row: int, count: int) -> np.ndarray:
    """Heights of a row's marks."""
    return row + (np.arange(count) - (count - 1) / 2) * SPACING
