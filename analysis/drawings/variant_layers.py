"""A small panel per variant over the layers: the stream's variance, and the gradient's profile. Tables in, a figure out."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots, tables
from analysis.comparison import INIT, TRAIN
from analysis.drawings.layers import NAMES, NORM
from analysis.layout import Page
from analysis.load import Columns
from analysis.story import Story, moment_title
from analysis.style import GUIDE, depth_colors, outcome_key

VARIANCE = Columns(("loss",), ("stream_var",))
PROFILE = Columns(("loss",), ("grad_stream",))
ACROSS = 6  # panels beside each other
SHOWN = 4  # depths in a panel
CAP = 1e3  # variance that the panels reach to
Panels = dict[tuple[str, int], Axes]


def variance_by_variant(story: Story) -> Figure:
    """Variance of the stream at initialisation, a line per depth."""
    init = story.part(INIT) or story
    depths = spread(init.depths)
    deepest, colors = depths[-1], depth_colors(depths)
    notes = [
        "Stream point 0: after the embedding. Lines: geometric mean over seeds; faint: single seeds. Of two streams it is of "
        "the one that branches read. Dotted: 1 + 2l, growth by 1 a branch. In italics: the value at the last point, where it "
        "is beyond the panel.",
        init.note,
    ]
    page = _page(init, "Variance of the residual stream over the layers at initialisation (step 0), by variant", notes)
    table = tables.profile(init.runs, init.study.layers, "stream_var", 0)
    table = table[table["depth"].isin(depths)]
    mean = tables.across_seeds(table, "layer", log=True).drop(columns=["low", "high"])
    panels = _panels(page, init, deepest)
    for name, ax in panels.items():
        own, line = _of(name, table, mean)
        ax.plot(np.arange(deepest + 1), 1 + 2 * np.arange(deepest + 1), color=GUIDE, linewidth=1, linestyle=":", zorder=1)
        plots.by_value(ax, own, line, ("layer", "depth"), colors)
        plots.log_y(ax, table["value"].clip(upper=CAP))
        plots.lost(ax, own, init.looks)
        end = line.loc[(line["depth"] == deepest) & (line["layer"] == deepest), "estimate"]
        if len(end) and not end.iloc[0] <= ax.get_ylim()[1]:
            text = f"{end.iloc[0]:.0e}"
            ax.text(0.97, 0.05, text, transform=ax.transAxes, fontsize=7.5, ha="right", style="italic", color="#444444")
    _label(init, panels, NAMES["stream_var"])
    keys = [Line2D([], [], color=color, label=f"L = {depth}") for depth, color in colors.items()]
    return page.finish([*keys, Line2D([], [], color=GUIDE, linestyle=":", label="1 + 2l")], columns=8)


def profile_by_variant(story: Story) -> Figure:
    """Gradient norm over the layers of the deepest network, a line per moment of the training."""
    train = story.part(TRAIN) or story
    depth = train.depths[-1]
    colors = dict(zip((m.step for m in train.at), sns.color_palette("flare", len(train.at)), strict=True))
    parts = [tables.profile(train.runs, train.study.layers, "grad_stream", step).assign(step=step) for step in colors]
    table = pd.concat(parts, ignore_index=True)
    table = table[table["depth"] == depth]
    means = [tables.across_seeds(part, "layer", log=True).assign(step=step) for step, part in table.groupby("step")]
    mean = pd.concat(means, ignore_index=True).drop(columns=["low", "high"])
    first = next(iter(train.names))
    notes = [
        "Stream point 0: after the embedding. Lines: geometric mean over the seeds of one outcome, that at the end of the "
        f"run; faint: single seeds. {NORM} Grey: {train.names[first]}, the same steps.",
        train.note,
    ]
    page = _page(train, f"Gradient norm over the layers at L = {depth} blocks, by variant", notes)
    panels = _panels(page, train, depth)
    for name, ax in panels.items():
        own, line = _of(name, table, mean)
        for _, grey in _of(first, mean)[0].groupby("step"):
            ax.plot(grey["layer"], grey["estimate"], color="#c8c8c8", linewidth=1.0, zorder=1)
        plots.by_value(ax, own, line, ("layer", "step"), colors)
        plots.log_y(ax, table["value"])
        plots.lost(ax, own, train.looks)
        plots.not_shown(ax, own["value"])
    _label(train, panels, NAMES["grad_stream"])
    keys = [Line2D([], [], color=colors[m.step], label=moment_title(m)) for m in train.at]
    deepest = train.runs[train.runs["depth"] == depth]
    met = [outcome_key(name, line=True) for name in tables.OUTCOMES if (deepest["outcome"] == name).any()]
    return page.finish([*keys, *met], columns=8)


def spread(depths: list[int]) -> list[int]:
    """At most SHOWN depths, about evenly among those there are, the first and the last always."""
    if len(depths) <= SHOWN:
        return depths
    return [depths[round(place)] for place in np.linspace(0, len(depths) - 1, SHOWN)]


def _page(story: Story, title: str, notes: Sequence[str]) -> Page:
    count = len(story.names)
    rows, across = -(-count // ACROSS), min(ACROSS, count)
    return Page(max(2.15 * across + 0.7, 7.0), 1.85 * rows + 1.1, title, notes)


def _panels(page: Page, story: Story, depth: int) -> Panels:
    """One per series, families together; on one scale."""
    count = len(story.names)
    rows, across = -(-count // ACROSS), min(ACROSS, count)
    axes = page.grid(rows, across, sharex=True, sharey=True).ravel()
    for ax in axes[count:]:
        ax.set_axis_off()
    axes[0].set_xlim(-0.03 * depth, 1.03 * depth)
    axes[0].set_xticks([0, depth // 2, depth])
    return dict(zip(story.names, axes[:count], strict=True))


def _label(story: Story, panels: Panels, quantity: str) -> None:
    for name, ax in panels.items():
        ax.set_title(story.names[name], color=story.looks[name].color, fontweight="bold")
        ax.tick_params(labelbottom=True)
    every = list(panels.values())
    for ax in every[-ACROSS:]:
        ax.set_xlabel(r"stream point $\ell$")
    for ax in every[::ACROSS]:
        ax.set_ylabel(quantity.replace("  [", "\n["))


def _of(name: tuple[str, int], *frames: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of one series."""
    return [frame[(frame["variant"] == name[0]) & (frame["warmup"] == name[1])] for frame in frames]
