"""The first steps of training: gradients over the layers and over depth, step by step. Tables in, a figure out."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots, tables
from analysis.drawings.layers import NAMES, NORM, RELATIVE
from analysis.layout import Page
from analysis.load import Columns
from analysis.story import Story
from analysis.style import outcome_key

COLUMNS = Columns(("loss", "lr"), ("grad_stream", "grad_rel", "token_cosine", "norm_std_attn", "norm_std_ffn"))
STEPS = (0, 5, 10, 20, 40)
ROWS = {name: NAMES[name] for name in ("grad_stream", "grad_rel")} | {"token_distance": "1 - token cosine  [1]"}
ROUNDING = 1e-6  # of 1 - cosine
FIRST = r"$\|\partial\,\mathrm{loss}/\partial x_0\|$  [nats]"


def collapse_profile(story: Story) -> Figure:
    """A column per series; a row per quantity over the layers of the deepest network, and one of the first point over L."""
    runs, layers = story.runs, story.study.layers
    apart = 1 - layers["token_cosine"].astype(float)
    layers = layers.assign(token_distance=apart.where(apart >= ROUNDING))
    depth = max(d for d in story.depths if runs.loc[runs["depth"] == d, "variant"].nunique() == runs["variant"].nunique())
    steps = [step for step in STEPS if (layers["step"] == step).any()]
    colors = dict(zip(steps, sns.color_palette("flare", len(steps)), strict=True))
    notes = [
        "Lines: geometric mean over the seeds of one outcome, that at the end of the run; faint: single seeds. 1 - token "
        f"cosine, of two tokens of a sequence: 0 = all tokens alike; below {ROUNDING:g} it is rounding of float32. Grey: "
        f"exponents 0, -1/2, -1. {NORM} {RELATIVE}",
        story.note,
    ]
    title = f"The first {max(steps)} updates: over the layers at L = {depth} blocks, and the first point over L"
    page = Page(max(8.6, 4.4 * len(story.looks) + 0.9), 2.1 * (len(ROWS) + 1) + 1.2, title, notes)
    axes = page.grid(len(ROWS) + 1, len(story.looks))
    for row, (quantity, label) in zip(axes[:-1], ROWS.items(), strict=True):
        table = _steps(runs[runs["depth"] == depth], layers, quantity, steps)
        _row(row, story, table, "layer", colors)
        row[0].set_ylabel(label)
        for ax in row:
            ax.set(xlim=(-0.03 * depth, 1.03 * depth), xticks=[0, depth // 2, depth])
            ax.set_xlabel(r"stream point $\ell$ (0 = embedding)")
    table = _steps(runs, layers, "grad_stream", steps)
    _row(axes[-1], story, table[table["layer"] == 0], "depth", colors)
    axes[-1, 0].set_ylabel(f"first point\n{FIRST}")
    for ax, look in zip(axes[0], story.looks.values(), strict=True):
        ax.set_title(look.label, fontweight="bold")
    keys = [Line2D([], [], color=color, label=f"step {step}") for step, color in colors.items()]
    met = [name for name in tables.OUTCOMES if (runs["outcome"] == name).any()]
    return page.finish([*keys, *(outcome_key(name, line=True) for name in met)], columns=8)


def _steps(runs: pd.DataFrame, layers: pd.DataFrame, quantity: str, steps: list[int]) -> pd.DataFrame:
    """One row per run, layer and step."""
    layers = layers[layers["run"].isin(runs["run"])]
    parts = [tables.profile(runs, layers, quantity, step).assign(step=step, quantity=quantity) for step in steps]
    return pd.concat(parts, ignore_index=True)


def _row(axes: np.ndarray, story: Story, table: pd.DataFrame, x: str, colors: dict[int, Any]) -> None:
    """One panel per series, on one scale. Without bands: those of a row of steps hide one another."""
    parts = [tables.across_seeds(part, x, log=True).assign(step=step) for step, part in table.groupby("step")]
    mean = pd.concat(parts, ignore_index=True).drop(columns=["low", "high"])
    for ax, (variant, warmup) in zip(axes, story.looks, strict=True):
        own, average = (frame[(frame["variant"] == variant) & (frame["warmup"] == warmup)] for frame in (table, mean))
        if x == "depth":
            plots.depth_axis(ax, story.depths)
            plots.guides(ax, story.depths, _anchor(own))
            ax.set_xlabel("depth L  [blocks]")
        plots.by_value(ax, own, average, (x, "step"), colors)
        plots.log_y(ax, table["value"])
        plots.lost(ax, own, story.looks)
        small = (own["quantity"] == "token_distance").any()
        plots.not_shown(ax, own["value"], f"below {ROUNDING:g} or not finite" if small else "0 or not finite")


def _anchor(table: pd.DataFrame) -> float:
    """Geometric mean at the smallest depth at step 0; NaN without one."""
    start = table[(table["step"] == 0) & tables.drawable(table["value"])]
    return float(np.exp(np.log(start.loc[start["depth"] == start["depth"].min(), "value"]).mean()))
