"""Which layers a trained model uses: layer drop, angular distance and update ratio per block. Tables in, a figure out."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import laws, plots, tables
from analysis.cells import groups
from analysis.evidence.quantities import contrast, share_in_use
from analysis.layout import Page
from analysis.load import Columns
from analysis.story import Story
from analysis.style import GUIDE, depth_colors, outcome_key
from analysis.summary import estimate_text

COLUMNS = Columns(("loss",), ("layer_drop", "angular_distance", "update_w2", "param_w2"))
MEASURES = (contrast, share_in_use)
LINEAR = 1e-3  # nats: below it the axis of the layer drop is linear


@dataclass(frozen=True)
class Row:
    """A block column, or its ratio to a second. log : on a logarithmic axis, with geometric means."""

    label: str
    column: str
    over: str | None = None
    log: bool = True

    def of(self, story: Story, step: int) -> pd.DataFrame:
        """One row per run and block, with `place`, its share of the way through the network."""
        table = tables.profile(story.runs, story.study.layers, self.column, step)
        if self.over is not None:
            under = tables.profile(story.runs, story.study.layers, self.over, step)["value"]
            table = table.assign(value=table["value"] / under)
        table = table[table["layer"] < table["depth"]]
        return table.assign(place=(table["layer"] + 0.5) / table["depth"])


ROWS = (
    Row("layer drop: loss without the\nblock minus with it  [nats]", "layer_drop", log=False),
    Row("angular distance between\ninput and output  [1]", "angular_distance"),
    Row("update ratio of $W_2$\n" + r"$\|\Delta W_2\|/\|W_2\|$  [1]", "update_w2", "param_w2"),
)


def effective_depth(story: Story) -> Figure:
    """A row per quantity, a column per series, a colour per depth."""
    step, colors = story.at[-1].step, depth_colors(story.depths)
    notes = [
        "Lines: geometric mean over the seeds of one outcome, of the layer drop plain mean; faint: single seeds. The layer "
        f"drop's axis is linear between ±{LINEAR:g} nats. Loss and angle are of a fixed held-out batch. Angular distance: "
        "arccos of the cosine over π, averaged over tokens. Update: norm of the change of W_2 in the last recorded update, "
        "over its norm. Numbers, of the deepest network: late against early, (late - early)/(|late| + |early|) of the means "
        "over the last and the first third of the blocks, 0 = equal; in use, (Σ|v|)²/(L Σv²), 1 = all blocks alike; ± half "
        "the 95 % interval over seeds.",
        story.note,
    ]
    title = f"Which blocks are in use after training (step {step})"
    page = Page(max(8.6, 4.6 * len(story.looks) + 0.9), 2.45 * len(ROWS) + 1.2, title, notes)
    axes = page.grid(len(ROWS), len(story.looks), sharey="row")
    for panels, row in zip(axes, ROWS, strict=True):
        table = row.of(story, step)
        mean = tables.across_seeds(table, "place", log=row.log)
        mean = mean.drop(columns=["low", "high"])  # their bands would hide one another
        for ax, (variant, warmup) in zip(panels, story.looks, strict=True):
            own, average = (frame[(frame["variant"] == variant) & (frame["warmup"] == warmup)] for frame in (table, mean))
            plots.by_value(ax, own, average, ("place", "depth"), colors)
            _scale(ax, row, table["value"])
            plots.lost(ax, own, story.looks)
            _numbers(ax, own)
        panels[0].set_ylabel(row.label)
    for ax, look in zip(axes[0], story.looks.values(), strict=True):
        ax.set_title(look.label, fontweight="bold", pad=2 * plots.ABOVE + 4)
    for ax in axes[-1]:
        ax.set_xlabel("block, as a share of the depth  [1]")
    met = [name for name in tables.OUTCOMES if (story.runs["outcome"] == name).any()]
    keys = [Line2D([], [], color=color, label=f"L = {depth}") for depth, color in colors.items()]
    return page.finish([*keys, *(outcome_key(name, line=True) for name in met)], columns=8)


def _scale(ax: Axes, row: Row, values: pd.Series) -> None:
    if row.log:
        plots.log_y(ax, values)
        plots.not_shown(ax, values)
        return
    ax.set_yscale("symlog", linthresh=LINEAR)
    ax.axhline(0, color=GUIDE, linewidth=1, zorder=1)


def _numbers(ax: Axes, table: pd.DataFrame) -> None:
    """Contrast of late and early blocks, and share in use, of the deepest network: one value a seed."""
    depth = table["depth"].max()
    deepest = table[(table["depth"] == depth) & (table["outcome"] != "diverged")].sort_values(["run", "layer"])
    for line, ((outcome,), runs) in enumerate(groups(deepest, ["outcome"])):
        values = {seed: part["value"].to_numpy(float) for (seed,), part in groups(runs, ["seed"])}
        late, used = (laws.mean_estimate([how(v) for v in values.values()], list(values), log=False) for how in MEASURES)
        words = f"L = {depth}, {outcome}: late against early {estimate_text(late)}; in use {estimate_text(used)}"
        plots.above(ax, words, "#444444", line)
