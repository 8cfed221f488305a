"""How fast the gradient falls from block to block over the first steps, and what changes that. Tables in, a figure out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import laws, plots, tables
from analysis.cells import groups
from analysis.drawings.layers import NORM
from analysis.layout import Page
from analysis.load import Columns
from analysis.stats import slope
from analysis.story import BASE, Story
from analysis.style import GUIDE, LINES, MARKERS, PALEST, face, linestyle, outcome_key, tinted, warmup_words

COLUMNS = Columns(("loss", "lr"), ("grad_stream", "norm_std_attn", "norm_std_ffn"))
OPTIMIZERS = (BASE, "eps", "radam", "sgd")
DRIVERS = (BASE, "qk_gain", "ffn_only", "frozen", "fp64")
WARMED = (BASE, "warmup")
AT = 48  # blocks at which optimizers and interventions are compared
APART = 1.06  # factor of x by which the series of a panel are set apart
LATE = 40  # step at which depths are compared
STEP, RATE = "step  [updates]", r"rate of $\ln\|\partial\,\mathrm{loss}/\partial x_\ell\|$  [1 / block]"
NORMS = {"norm_std_attn": "attention", "norm_std_ffn": "feed-forward"}


@dataclass(frozen=True)
class Panel:
    """Series by name, each with one row per run and x: columns variant, color, linestyle, seed, outcome, x, value."""

    title: str
    x_label: str
    series: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    log: bool = False  # of the value, which is then a ratio and not a rate
    of_step: bool = True  # x counts updates from 0

    @property
    def drawn(self) -> dict[str, pd.DataFrame]:
        """The series that have runs."""
        return {name: table for name, table in self.series.items() if len(table)}


def rates(story: Story | None, depth: int) -> pd.DataFrame:
    """Slope of ln grad_stream per block crossed from the end, a row per run of this depth and recorded step; NaN where a
    gradient has no logarithm."""
    if story is None or depth not in story.depths:
        return pd.DataFrame()
    layers, runs = _layers(story, depth)
    gradient = layers["grad_stream"].to_numpy(float).reshape(-1, depth + 1)
    log = np.log(np.where(np.isfinite(gradient) & (gradient > 0), gradient, np.nan))
    return _rows(layers, runs, slope(-np.arange(depth + 1.0), log))


def swelling(story: Story, depth: int, column: str) -> pd.DataFrame:
    """Geometric mean over blocks of the std of a norm's input, over that at step 0: a row per run and recorded step."""
    layers, runs = _layers(story, depth)
    std = layers[column].to_numpy(float).reshape(-1, depth + 1)[:, :depth]
    with np.errstate(divide="ignore", invalid="ignore"):
        table = _rows(layers, runs, np.exp(np.log(std).mean(axis=1)))
        start = table[table["step"] == 0].set_index("run")["value"]
        return table.assign(value=table["value"].to_numpy() / start.reindex(table["run"]).to_numpy())


def _layers(story: Story, depth: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    runs = story.runs[story.runs["depth"] == depth]
    layers = story.study.layers[story.study.layers["run"].isin(runs["run"])]
    return layers.sort_values(["run", "step", "layer"], ignore_index=True), runs


def _rows(layers: pd.DataFrame, runs: pd.DataFrame, value: np.ndarray) -> pd.DataFrame:
    """A row per run and step with its value; x is the step."""
    table = layers.loc[layers["layer"] == 0, ["run", "step"]].assign(value=value)
    table = tables.attach(table, runs, [*tables.CELL, "seed", "outcome"])
    return table.assign(x=table["step"], run=table["run"].astype(str))


def at_sum(table: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """x becomes the sum of the rates of the updates already made, over the largest rate of the run: updates at that rate."""
    steps = steps.sort_values(["run", "step"])
    rate = steps["lr"].astype(float).fillna(0)
    runs = rate.groupby(steps["run"], observed=True)
    made = steps.assign(x=(runs.cumsum() - rate) / runs.transform("max"), run=steps["run"].astype(str))
    return table.drop(columns="x").merge(made[["run", "step", "x"]], on=["run", "step"])


def panels(story: Story, width: Story | None) -> Iterator[Panel]:
    """What is compared."""
    deepest = max(story.depths)
    warmed = story.part(*WARMED) or story
    found = rates(warmed, deepest)
    yield Panel(f"L = {deepest}, at equal step", STEP, _by_warmup(found))
    summed = at_sum(found, warmed.study.steps)
    yield Panel(f"L = {deepest}, at equal sum of rates", "sum of rates / peak rate  [updates]", _by_warmup(summed))
    for title, names in (("optimizers", OPTIMIZERS), ("what may drive it", DRIVERS)):
        yield Panel(f"{title}, L = {AT}", STEP, {name: rates(story.part(name), AT) for name in names})
    if width is not None:
        yield from _of_width(width)
    depths = pd.concat([rates(warmed, depth) for depth in warmed.depths], ignore_index=True)
    late = depths[depths["step"] == LATE]
    yield Panel(f"depths, step {LATE}", "depth L  [blocks]", _by_warmup(late.assign(x=late["depth"])), of_step=False)
    swollen = {name: swelling(story, deepest, column) for column, name in NORMS.items()}
    yield Panel(f"norms' input, L = {deepest}, {warmup_words(int(story.runs['warmup'].min()))}", STEP, swollen, log=True)


def _by_warmup(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {warmup_words(int(warmup)): part for (warmup,), part in groups(table, ["warmup"])}


def _of_width(story: Story) -> Iterator[Panel]:
    """A panel per warmup, a series per width."""
    depth = max(story.depths)
    widths = story.runs.set_index("run")["config"].map(lambda config: json.loads(config)["model"]["width"])
    table = rates(story, depth)
    table = table.assign(width=widths.reindex(table["run"]).to_numpy())
    for (warmup,), part in groups(table, ["warmup"]):
        series = {f"d = {width}": own for (width,), own in groups(part, ["width"])}
        yield Panel(f"width, L = {depth}, {warmup_words(int(warmup))}", STEP, series)


def rate(story: Story, width: Story | None) -> Figure:
    """A panel per comparison: means over seeds of the rate per block, with intervals."""
    shown = list(panels(story, width))
    notes = [
        "Rate: slope of the logarithm of the gradient's norm per block, on the way from the end to the input, by least "
        "squares over all stream points of a run, whether or not it falls exponentially; negative: it vanishes. Norms' "
        "input: std of what a block's norms divide by, geometric mean over blocks, over that at step 0. Marks: mean over "
        "the seeds of one outcome, that at the end of the run (geometric for the std); bars: its 95 % Student-t interval "
        "(none where there is one seed). Marks and tints tell the series of a panel apart, colour and line the placement. "
        f"{NORM}",
        story.factors_note(*OPTIMIZERS, *DRIVERS, *WARMED),
        *([] if width is None else [width.note]),
    ]
    page = Page(14.6, 7.6, "How fast the gradient falls from block to block in the first steps", notes)
    axes = page.grid(2, -(-len(shown) // 2)).ravel()
    for ax, panel in zip(axes, shown, strict=False):
        _panel(ax, panel)
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    single = pd.concat([table["value"] for panel in shown if not panel.log for table in panel.drawn.values()]).dropna()
    low, high = (single.min(), single.max()) if len(single) else (-1.0, 1.0)
    for ax, panel in zip(axes, shown, strict=False):
        if not panel.log:  # around single runs: an interval of two seeds may be many times as long
            ax.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    return page.finish(_keys(pd.concat([table for panel in shown for table in panel.drawn.values()])), columns=8)


def _panel(ax: Axes, panel: Panel) -> None:
    """The series one after another, set apart sideways; a legend of their marks over the panel."""
    keys = []
    for index, (name, table) in enumerate(panel.drawn.items()):
        share, marker = PALEST * index / len(panel.drawn), MARKERS[index % len(MARKERS)]
        at = (table["x"] + 1 if panel.of_step else table["x"]) * APART**index
        for (_, outcome), part in groups(table.assign(x=at), ["variant", "outcome"]):
            color, line = tinted(part["color"].iloc[0], share), linestyle(part["linestyle"].iloc[0])
            _line(ax, part, {"color": color, "linestyle": line, "marker": marker, **face(outcome)}, log=panel.log)
        keys.append(Line2D([], [], color=tinted("#444444", share), linestyle="", marker=marker, label=name))
    ax.set_title(panel.title, pad=20, fontweight="bold")
    ax.legend(handles=keys, loc="lower center", bbox_to_anchor=(0.5, 0.985), ncols=5, handletextpad=0, columnspacing=0.6,
              fontsize=7.5)  # fmt: skip
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel("std over that at step 0  [1]" if panel.log else RATE)
    ax.text(0.02, 0.02, _left_out(panel), transform=ax.transAxes, fontsize=7, style="italic", color="#555555", va="bottom")
    _axes(ax, panel)


def _left_out(panel: Panel) -> str:
    """How many values and runs are not in the means; empty where all are."""
    if not panel.drawn:
        return "not run"
    every = pd.concat(panel.drawn.values())
    bad, runs = int((~np.isfinite(every["value"])).sum()), every["run"].nunique()
    lost = every.loc[every["outcome"] == "diverged", "run"].nunique()
    words = [f"{bad} of {len(every)} values left out: 0 or not finite on the way"] if bad else []
    return "\n".join([*words, *([f"{lost} of {runs} runs diverged, each a line"] if lost else [])])


def _axes(ax: Axes, panel: Panel) -> None:
    """Steps on the logarithm of step + 1, depths on their own; a ratio on a logarithmic axis."""
    every = pd.concat(panel.drawn.values()) if panel.drawn else pd.DataFrame({"x": [1.0], "value": [1.0]})
    if panel.of_step:
        plots.step_axis(ax, 0.9, 1.15 * (float(every["x"].max()) + 1))
    else:
        plots.depth_axis(ax, sorted(every["x"].unique()))
    if panel.log:
        plots.log_y(ax, every["value"], decades=0.5)
    else:
        ax.axhline(0, color=GUIDE, linewidth=1, zorder=1)
        plots.plain_y(ax)


def _line(ax: Axes, table: pd.DataFrame, look: dict[str, Any], *, log: bool) -> None:
    """Means over seeds at each x with their intervals; a diverged run is a line of its own."""
    if (table["outcome"] == "diverged").all():
        for _, run in groups(table, ["run"]):
            ax.plot(run["x"], run["value"], color=look["color"], linestyle=LINES["diverged"], linewidth=1.2, zorder=2)
        return
    parts = [(float(x), part) for (x,), part in groups(table, ["x"])]
    found = [(x, laws.mean_estimate(part["value"], part["seed"], log=log, fewest_seeds=1).interval) for x, part in parts]
    marks = [(x, interval) for x, interval in found if interval is not None]
    ax.plot([x for x, _ in marks], [interval.estimate for _, interval in marks], markersize=4.5, zorder=3, **look)
    for x, interval in marks:
        ax.vlines(x, interval.low, interval.high, color=look["color"], linewidth=1.0, alpha=0.7, zorder=2.5)


def _keys(table: pd.DataFrame) -> list[Line2D]:
    """Placements by colour and line, outcomes by filling."""
    names = table.assign(label=[label.split(",")[0] for label in table["label"]])
    keys = [
        Line2D([], [], color=color, linestyle=linestyle(line), label=label)
        for (label, color, line), _ in groups(names, ["label", "color", "linestyle"])
    ]
    return keys + [outcome_key(name) for name in tables.OUTCOMES if (table["outcome"] == name).any()]
