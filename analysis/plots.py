"""Marks on one Axes from one table. Nothing here reads or writes a file, or computes a statistic."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis.cells import groups
from analysis.style import GUIDE, LINES, Look, face

Looks = dict[tuple[str, int], Look]
ABOVE = 10  # points: height of a line of text over a panel
HEAT = "viridis"  # colour map of the heat maps; it holds neither white nor grey
GUIDES: tuple[tuple[float, Any, str], ...] = (
    (0.0, "-", r"$O(1)$"),
    (-0.5, (0, (6, 2)), r"$O(L^{-1/2})$"),
    (-1.0, (0, (1, 1.5)), r"$O(L^{-1})$"),
)


def means(ax: Axes, table: pd.DataFrame, x: str, looks: Looks, *, bars: bool) -> None:
    """One line per cell and outcome through the means over seeds, with the interval as bars or as a band.

    table : from tables.across_seeds. Outcomes are told by the filling of the markers, which
    stand at every x with bars, and at five or so without.
    """
    by = ["variant", "warmup", "outcome"] + (["depth"] if x != "depth" else [])
    for name, group in groups(table, by):
        look = looks[name[0], name[1]]
        data = {c: group[c].to_numpy(float) for c in (x, "estimate", "low", "high")}
        style: dict[str, Any] = {"color": look.color, "marker": look.marker, "zorder": 3, **face(name[2])}
        style |= {
            "linestyle": look.linestyle,
            "markevery": slice(len(group) // 40, None, 1 if bars else max(1, (len(group) - 1) // 5)),
        }
        if not bars:
            style["markersize"] = 4
        ax.plot(data[x], data["estimate"], **style)
        if bars:
            ax.vlines(data[x], data["low"], data["high"], color=look.color, linewidth=1.1, zorder=2.9)
        else:
            ax.fill_between(data[x], data["low"], data["high"], color=look.color, alpha=0.18, linewidth=0, zorder=2)


def seeds(ax: Axes, table: pd.DataFrame, x: str, looks: Looks, *, dots: bool = False) -> None:
    """Single runs, faint, behind everything; a run is one line, or one dot."""
    for (variant, warmup), group in groups(table, ["variant", "warmup"]):
        look = looks[variant, warmup]
        if dots:
            ax.plot(group[x], group["value"], ".", color=look.color, alpha=0.35, markersize=4, zorder=1.5)
            continue
        xs, ys = _broken(group, x)
        ax.plot(xs, ys, color=look.color, linestyle="-", alpha=0.3, linewidth=0.6, zorder=1.5)


def _broken(table: pd.DataFrame, x: str) -> tuple[np.ndarray, np.ndarray]:
    """All runs as one line, broken between runs: one artist instead of hundreds."""
    ordered = table.sort_values(["run", x])
    xs, ys = ordered[x].to_numpy(float), ordered["value"].to_numpy(float)
    run = ordered["run"].cat.codes.to_numpy() if hasattr(ordered["run"], "cat") else pd.factorize(ordered["run"])[0]
    cut = np.flatnonzero(np.diff(run)) + 1
    return np.insert(xs, cut, np.nan), np.insert(ys, cut, np.nan)


def guides(ax: Axes, depths: list[int], anchor: float) -> None:
    """Grey lines of exponent 0, -1/2 and -1 through `anchor` at the smallest depth."""
    if not (np.isfinite(anchor) and anchor > 0):
        return
    at = np.array([min(depths), max(depths)], dtype=float)
    for exponent, dash, _ in GUIDES:
        ax.plot(at, anchor * (at / at[0]) ** exponent, color=GUIDE, linestyle=dash, linewidth=1.1, zorder=1)


def log_y(ax: Axes, values: pd.Series, *, decades: float = 1.5) -> None:
    """A logarithmic axis around the values, at least so many decades high."""
    shown = values[(values > 0) & np.isfinite(values)].to_numpy(float)
    ax.set_yscale("log")
    low, high = (np.log10(shown.min()), np.log10(shown.max())) if len(shown) else (-1.0, 0.0)
    pad = max(0.07 * (high - low), (decades - (high - low)) / 2, 0.08)
    ax.set_ylim(10 ** (low - pad), 10 ** (high + pad))
    _log_ticks(ax, high - low + 2 * pad)


def plain_y(ax: Axes) -> None:
    """At most six ticks, whatever the size: ticks that come with the final size would not be in the layout."""
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _log_ticks(ax: Axes, decades: float) -> None:
    """Powers of ten, and 2 and 5 times them where there are few."""
    few = decades < 2.5
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=9))
    if few:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    ax.yaxis.set_minor_locator(NullLocator())


def _short(value: float) -> str:
    """0.02 rather than 2e-2; powers of ten beyond three digits."""
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    power = int(np.floor(np.log10(value) + 1e-9))
    return rf"$\mathdefault{{{value / 10.0**power:.0f}\times10^{{{power}}}}}$"


APART = 1.7  # ratio of two depths whose names do not touch


def depth_axis(ax: Axes, depths: list[int]) -> None:
    """Depth on a logarithmic axis with a tick at each depth; from the deepest down, those are named that stand apart."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(depths))
    named: list[int] = []
    for depth in sorted(depths, reverse=True):
        if not named or named[-1] >= APART * depth:
            named.append(depth)
    ax.xaxis.set_major_formatter(FixedFormatter([str(d) if d in named else "" for d in depths]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(min(depths) / 1.15, max(depths) * 1.15)


def diverged(ax: Axes, runs: pd.DataFrame, looks: Looks) -> None:
    """A cross at the bottom for each cell with diverged runs, and how many of its runs they are."""
    place, heights = ax.get_xaxis_transform(), dict.fromkeys(runs["depth"], 0.04)
    for (depth, variant, warmup), cell in groups(runs, ["depth", "variant", "warmup"]):
        gone = int((cell["outcome"] == "diverged").sum())
        if gone:
            color, y = looks[variant, warmup].color, heights[depth]
            heights[depth] += 0.09
            ax.plot([depth], [y], "x", color=color, transform=place, markeredgewidth=1.8, clip_on=False, zorder=4)
            ax.text(depth, y, f"{gone}/{len(cell)}  ", color=color, transform=place, fontsize=7.5, ha="right", va="center",
                    zorder=4)  # fmt: skip


def heat(ax: Axes, table: pd.DataFrame, norm: LogNorm) -> QuadMesh:
    """`value` by step (horizontal, log of step + 1) and layer; white where it is 0 or not finite."""
    wide = table.pivot(index="layer", columns="step", values="value")
    step, value = wide.columns.to_numpy(float) + 1, wide.to_numpy(float)
    middle = np.sqrt(step[1:] * step[:-1])
    edges = np.concatenate([[step[0] / 1.2], middle, [step[-1] * 1.1]])
    ax.set_facecolor("white")
    ax.grid(False)
    shown = np.ma.masked_invalid(np.where(value > 0, value, np.nan))
    mesh = ax.pcolormesh(edges, np.arange(len(wide) + 1) - 0.5, shown, norm=norm, cmap=HEAT, rasterized=True)
    step_axis(ax, edges[0], edges[-1])
    ax.set_ylim(-0.5, len(wide) - 0.5)
    return mesh


def step_axis(ax: Axes, low: float, high: float) -> None:
    """Logarithm of step + 1, ticks at steps 0, 9, 99, ... named by their step."""
    ax.set_xscale("log")
    ticks = [t for t in (1, 2, 5, 11, 21, 51, 101, 201, 401, 1001, 2001, 4001, 10001, 100001) if low <= t <= high]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter([str(t - 1) for t in ticks]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(low, high)


def level(ax: Axes, y: float, text: str) -> None:
    """A named horizontal line; the name stands above its right end."""
    if np.isfinite(y):
        ax.axhline(y, color=GUIDE, linewidth=1, linestyle=(0, (4, 2)), zorder=1)
        ax.annotate(text, (1, y), xycoords=("axes fraction", "data"), xytext=(-2, 5), textcoords="offset points",
                    ha="right", va="bottom", fontsize=7.5, color="#666666")  # fmt: skip


def not_shown(ax: Axes, values: pd.Series, why: str = "0 or not finite") -> None:
    """Says at the bottom left how many of the values a logarithmic axis cannot show."""
    hidden = int((~(values.gt(0) & values.lt(np.inf))).sum())
    if hidden:
        text = f"{hidden} of {len(values)} values {why}"
        ax.text(0.02, 0.02, text, transform=ax.transAxes, fontsize=7, style="italic", color="#555555", va="bottom")


def above(ax: Axes, text: str, color: str, line: int) -> None:
    """A line of small text over the panel, counted from it."""
    ax.annotate(text, (0, 1), xycoords="axes fraction", xytext=(0, 3 + ABOVE * line), textcoords="offset points", color=color,
                fontsize=7.5, va="bottom", ha="left")  # fmt: skip


def apart(table: pd.DataFrame, looks: Looks) -> pd.DataFrame:
    """Depths moved sideways by series, so that marks of equal height stay visible."""
    order = {name: i - (len(looks) - 1) / 2 for i, name in enumerate(looks)}
    shift = [1.035 ** order[variant, warmup] for variant, warmup in zip(table["variant"], table["warmup"], strict=True)]
    return table.assign(depth=table["depth"] * np.array(shift))


def chord(ax: Axes, table: pd.DataFrame, x: str) -> None:
    """A dotted straight line from the first to the last point of the series that grows most."""
    ends = [group.sort_values(x).iloc[[0, -1]] for _, group in groups(table, ["variant", "warmup", "outcome"])]
    if ends:
        most = max(ends, key=lambda end: np.nan_to_num(end["estimate"].iloc[1] - end["estimate"].iloc[0], nan=-np.inf))
        ax.plot(most[x], most["estimate"], color=GUIDE, linestyle=":", linewidth=1.3, zorder=3.5)


def finals(ax: Axes, runs: pd.DataFrame, looks: Looks) -> None:
    """The final validation loss of each run as a diamond at its last step."""
    for (variant, warmup), group in groups(runs, ["variant", "warmup"]):
        ax.plot(group["train_steps"], group["final_val_loss"], "D", color=looks[variant, warmup].color, markersize=3.5,
                markeredgecolor="white", markeredgewidth=0.5, zorder=4, clip_on=False)  # fmt: skip


def lost(ax: Axes, table: pd.DataFrame, looks: Looks) -> None:
    """How many runs of each series diverged, at the top left."""
    y = 0.98
    for (variant, warmup), group in groups(table, ["variant", "warmup"]):
        total, gone = group["run"].nunique(), group.loc[group["outcome"] == "diverged", "run"].nunique()
        if gone:
            ax.text(0.03, y, f"× diverged {gone}/{total}", color=looks[variant, warmup].color, transform=ax.transAxes,
                    fontsize=7.5, va="top")  # fmt: skip
            y -= 0.09


def by_value(ax: Axes, single: pd.DataFrame, mean: pd.DataFrame, axes: tuple[str, str], colors: Mapping[Any, Any]) -> None:
    """Lines of single runs and of means over seeds, line style by outcome; diverged runs singly, since they have no mean.

    axes : the columns that give x and the colour. An interval is a band; where `mean` has none it is not drawn.
    """
    x, by = axes
    for (value, outcome), group in groups(single, [by, "outcome"]):
        own = outcome == "diverged"
        xs, ys = _broken(group, x)
        style = {"linewidth": 1.2, "alpha": 1.0, "linestyle": LINES[outcome]} if own else {"linewidth": 0.6, "alpha": 0.3}
        ax.plot(xs, ys, color=colors[value], zorder=1.5, **style)
    for (value, outcome), group in groups(mean, [by, "outcome"]):
        at = group[x].to_numpy(float)
        marker = "o" if x == "depth" else ""
        ax.plot(at, group["estimate"], marker=marker, color=colors[value], linestyle=LINES[outcome], markersize=4, zorder=3)
        if "low" in group:
            ax.fill_between(at, group["low"].to_numpy(float), group["high"].to_numpy(float), color=colors[value], alpha=0.15,
                            linewidth=0, zorder=2)  # fmt: skip
