"""Figures over the layers: gradient profiles and the stream's variance. Tables in, a figure out."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots, tables
from analysis.layout import Page
from analysis.story import Story, averages, moment_title
from analysis.style import GUIDE

NORM = "Norms are Frobenius norms (not squared) over the whole batch, of the mean loss per token, before clipping."
RELATIVE = "Relative norm: ‖∂loss/∂x_l‖ √Var(x_l) over the same at the last point L, so that a change of scale drops out."
NAMES = {
    "grad_stream": r"$\|\partial\,\mathrm{loss}/\partial x_\ell\|$  [nats]",
    "grad_rel": "relative gradient norm  [1]",
    "stream_var": r"stream variance $\mathrm{Var}\,x_\ell$  [1]",
}


def profile(story: Story, quantities: tuple[str, ...]) -> Figure:
    """A quantity over the layers: a row per quantity and moment, a column per depth."""
    rows = [(quantity, moment) for quantity in quantities for moment in story.at]
    depths = story.some_depths
    title = "Gradient norm over the layers" if quantities[0] == "grad_stream" else "Relative gradient norm over the layers"
    notes = [f"{NORM} {RELATIVE}" if "grad_rel" in quantities else NORM, averages(story, "bands", True), story.note]
    page = Page(2.5 * len(depths) + 0.6, 2.35 * len(rows) + 1.0, title, notes)
    axes = page.grid(len(rows), len(depths), sharey="row")
    for row_axes, (quantity, moment) in zip(axes, rows, strict=True):
        table = tables.profile(story.runs, story.study.layers, quantity, moment.step)
        table = table[table["depth"].isin(depths)]
        mean = tables.across_seeds(table, "layer", log=True)
        for ax, depth in zip(row_axes, depths, strict=True):
            part = table[table["depth"] == depth]
            plots.log_y(ax, table["value"])
            _layers(ax, story, part, mean[mean["depth"] == depth], depth)
            plots.not_shown(ax, part["value"])
        row_axes[0].set_ylabel(f"{moment_title(moment)}\n{NAMES[quantity]}")
    column_titles(axes, depths)
    return page.finish(story.keys())


def variance(story: Story) -> Figure:
    """Variance of the stream over the layers on plain axes, beside a straight line."""
    depths = story.some_depths
    notes = ["Dotted: straight line from the first to the last point of the series that grows most.",
             averages(story, "bands", True), story.note]  # fmt: skip
    height = 2.35 * len(story.at) + 1.0
    page = Page(2.5 * len(depths) + 0.6, height, "Variance of the residual stream over the layers", notes)
    axes = page.grid(len(story.at), len(depths))
    for row_axes, moment in zip(axes, story.at, strict=True):
        table = tables.profile(story.runs, story.study.layers, "stream_var", moment.step)
        mean = tables.across_seeds(table, "layer", log=True)
        for ax, depth in zip(row_axes, depths, strict=True):
            part = mean[mean["depth"] == depth]
            _layers(ax, story, table[table["depth"] == depth], part, depth)
            plots.chord(ax, part, "layer")
            ax.set_ylim(bottom=0)
            plots.plain_y(ax)
        row_axes[0].set_ylabel(f"{moment_title(moment)}\n{NAMES['stream_var']}")
    column_titles(axes, depths)
    straight = Line2D([], [], color=GUIDE, linestyle=":", label="straight line (growth linear in the layer)")
    return page.finish([*story.keys(), straight])


def _layers(ax: Axes, story: Story, single: pd.DataFrame, mean: pd.DataFrame, depth: int) -> None:
    plots.seeds(ax, single, "layer", story.looks)
    plots.means(ax, mean, "layer", story.looks, bars=False)
    plots.lost(ax, single, story.looks)
    ax.set_xlim(-0.03 * depth, 1.03 * depth)
    ax.set_xticks([0, depth // 2, depth])


def column_titles(axes: np.ndarray, depths: list[int]) -> None:
    for ax, depth in zip(axes[0], depths, strict=True):
        ax.set_title(f"L = {depth} blocks")
    for ax in axes[-1]:
        ax.set_xlabel(r"stream point $\ell$ (0 = embedding)")
