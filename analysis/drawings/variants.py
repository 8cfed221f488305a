"""A row per variant: depth laws at initialisation, and the loss on the way. Tables in, a figure out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import initial, tables
from analysis.cells import groups
from analysis.comparison import INIT, TRAIN
from analysis.drawings.exponents import DASHES, PANELS, Panel, mark
from analysis.drawings.layers import NORM
from analysis.laws import Estimate
from analysis.layout import Page
from analysis.load import Columns
from analysis.story import Story
from analysis.style import GUIDE, face, outcome_key

LOSS = Columns(("loss",), ())
ROW = 0.27  # inches
LABEL = 7.2  # points: whole pixels where the page is laid out, and where it is drawn
FURTHEST = 1.75  # |exponent| from which on a mark stands at the edge
APART = 0.3  # rows, between the outcomes of a cell
ABOVE = 0.45  # nats above the unigram entropy from which on a loss stands at the edge


def exponents_by_variant(story: Story) -> Figure:
    """A column per quantity: exponents of depth at initialisation."""
    init = story.part(INIT) or story
    found = {p: dict(initial.exponents(init.runs, init.study.layers, p.column, p.place)) for p in PANELS}
    depths, seeds = _extent(estimate for of_panel in found.values() for estimate in of_panel.values())
    lost = int((init.runs["outcome"] == "diverged").sum())
    notes = [
        f"value ~ L^exponent at initialisation (step 0), over {depths}, {seeds} seeds. Marks: mean over seeds of a slope "
        "each, by least squares on logarithms; bars: its 95 % interval over seeds. Hollow: no power law, points stray from "
        f"the line by more than a factor of {tables.STRAY}. Arrows: beyond ±{FURTHEST:g}. {NORM} Of two streams the variance "
        f"is of the one that branches read.{f' {lost} runs diverged.' if lost else ''}",
        init.note,
    ]
    page = Page(13.2, ROW * len(init.names) + 1.7, "Exponents of depth at initialisation, by variant", notes)
    axes = page.grid(1, len(PANELS), sharey=True)[0]
    for ax, panel in zip(axes, PANELS, strict=True):
        for y, name in enumerate(init.names):
            if name in found[panel]:
                mark(ax, y, init.looks[name], found[panel][name], FURTHEST)
        _column(ax, panel)
    _rows(axes, init)
    guides = [Line2D([], [], color=GUIDE, linestyle=dash, label=f"exponent {value:g}") for value, dash in DASHES.items()]
    return page.finish(guides)


def _extent(estimates: Iterable[Estimate]) -> tuple[str, str]:
    """The depths and the numbers of seeds fitted, in words."""
    fitted = [estimate for estimate in estimates if estimate.interval is not None]
    points = sorted({x for estimate in fitted for x in estimate.points})
    seeds = sorted({estimate.seeds for estimate in fitted})
    if not fitted:
        return "no depths", "no"
    return f"L = {points[0]:g} to {points[-1]:g}", " to ".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))


def _column(ax: Axes, panel: Panel) -> None:
    """Guides, and limits that hold them and the marks."""
    for guide in panel.guides:
        ax.axvline(guide, color=GUIDE, linestyle=DASHES[guide], linewidth=1.1, zorder=1)
    low, high = ax.get_xlim()
    ax.set_xlim(max(low, -FURTHEST) - 0.08, min(high, FURTHEST) + 0.08)
    ax.set_title(panel.title)
    ax.set_xlabel("exponent of L  [1]")


def _rows(axes: Sequence[Axes], story: Story) -> None:
    """From the top down, each label in its variant's colour, a line between families."""
    axes[0].set_yticks(range(len(story.names)), list(story.names.values()))
    axes[0].set_ylim(len(story.names) - 0.5, -0.5)
    axes[0].set_ylabel("variant")
    colors = [story.looks[name].color for name in story.names]
    for label, color in zip(axes[0].get_yticklabels(), colors, strict=True):
        label.set(color=color, fontsize=LABEL)
    for ax in axes:
        ax.tick_params(axis="y", length=0)
        for y in (y for y in range(1, len(colors)) if colors[y] != colors[y - 1]):
            ax.axhline(y - 0.5, color="#bbbbbb", linewidth=0.7, zorder=0.5)


def loss_by_variant(story: Story) -> Figure:
    """A column per depth: the loss after one and two thirds of the training, and at its end."""
    train = story.part(TRAIN) or story
    total = int(train.runs["train_steps"].max())
    steps = [total // 3, 2 * total // 3]
    unigram, bigram = (float(train.runs[name].median()) for name in ("unigram", "bigram"))
    edge = unigram + ABOVE
    notes = [
        f"Marks: validation loss after {total} steps, mean over the seeds of one outcome, filled by outcome; dots: single "
        f"seeds. Bars on the line: training loss (trailing mean over {tables.WINDOW} steps) at steps {steps[0]} and "
        f"{steps[1]}, of the same runs. Arrows: beyond {edge:.2f}. Dashed grey: cross-entropy of the validation text under "
        "the training text's byte and byte-pair frequencies.",
        train.note,
    ]
    page = Page(2.7 * len(train.depths) + 1.6, ROW * len(train.names) + 1.6, "Loss at equal steps, by variant", notes)
    axes = page.grid(1, len(train.depths), sharex=True, sharey=True)[0]
    curve = tables.smoothed(train.study.steps)
    early = tables.attach(curve[curve["step"].isin(steps)], train.runs, ["variant", "warmup", "depth", "outcome"])
    rank = {name: y for y, name in enumerate(train.names)}
    for ax, depth in zip(axes, train.depths, strict=True):
        for (variant, warmup), runs in groups(train.runs[train.runs["depth"] == depth], ["variant", "warmup"]):
            way = early[early["run"].isin(runs["run"])]
            _cell(Line(ax, rank[variant, warmup], train.looks[variant, warmup].color, edge), runs, way)
        for x, text in ((unigram, "unigram"), (bigram, "bigram")):
            ax.axvline(x, color=GUIDE, linewidth=1, linestyle=(0, (4, 2)), zorder=1)
            ax.text(x, 1, text, transform=ax.get_xaxis_transform(), fontsize=7, color="#666666", ha="center", va="bottom")
        ax.set_title(f"L = {depth} blocks", pad=14)
        ax.set_xlabel("loss per token  [nats]")
    least = min(bigram, float(train.runs["final_val_loss"].astype(float).min()))
    axes[0].set_xlim(least - 0.06, edge + 0.06)
    _rows(axes, train)
    return page.finish([outcome_key(name) for name in tables.OUTCOMES if (train.runs["outcome"] == name).any()])


@dataclass(frozen=True)
class Line:
    """A row of a panel. edge : x beyond which values stand at it."""

    ax: Axes
    y: float
    color: str
    edge: float

    def mark(self, x: float, marker: str, text: str = "", **look: Any) -> None:
        """A mark, and text on its left."""
        self.ax.plot([min(x, self.edge)], [self.y], marker, color=self.color, zorder=3, **look)
        self.ax.annotate(text, (min(x, self.edge), self.y), xytext=(-6, 0), textcoords="offset points", color=self.color,
                         fontsize=7, ha="right", va="center", zorder=3,
                         bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"})  # fmt: skip


def _cell(row: Line, runs: pd.DataFrame, way: pd.DataFrame) -> None:
    """One variant at one depth: a mark per outcome, one below the other, and the losses on the way to it."""
    found = list(groups(runs, ["outcome"]))
    for place, ((outcome,), mine) in enumerate(found):
        line = replace(row, y=row.y + APART * (place - (len(found) - 1) / 2))
        if outcome == "diverged":
            line.mark(line.edge, "x", f"{len(mine)}/{len(runs)}", markeredgewidth=1.8)
            continue
        final = mine["final_val_loss"].astype(float)
        early = [float(loss) for loss in way[way["outcome"] == outcome].groupby("step")["loss"].mean()]
        ends = [min(loss, line.edge) for loss in (float(final.mean()), *early)]
        line.ax.plot([min(ends), max(ends)], [line.y] * 2, color=line.color, linewidth=1.0, alpha=0.5, zorder=2)
        for loss in (loss for loss in early if loss <= line.edge):
            line.ax.plot([loss], [line.y], "|", color=line.color, markersize=7, zorder=2.5)
        if final.mean() > line.edge:
            line.mark(line.edge, ">", f"{final.mean():.3g}")
            continue
        line.ax.plot(final, [line.y] * len(final), ".", color=line.color, alpha=0.35, markersize=4, zorder=2.6)
        line.mark(float(final.mean()), "o", **face(str(outcome)))
