"""Jacobian norms of the branches, for their own input and for the first point of the stream. Tables in, a figure out."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import laws, plots, tables
from analysis.cells import groups
from analysis.laws import Estimate
from analysis.layout import Page
from analysis.load import Columns
from analysis.stats import slope
from analysis.story import Story
from analysis.style import GUIDE, key
from analysis.summary import estimate_text

BRANCHES = {"attn": "attention", "ffn": "feed-forward"}
COLUMNS = Columns(("loss",), ("stream_var", *(f"jac_{branch}_{kind}" for branch in BRANCHES for kind in ("own", "first"))))
DASH = next(dash for exponent, dash, _ in plots.GUIDES if exponent == -0.5)
FROM = 12  # number of the block from which Jacobians for the first point are fitted: before, tokens still align
VARIES = 1.5  # largest over smallest x from which a slope is fitted


@dataclass(frozen=True)
class Kind:
    """A Jacobian and what it is drawn against. from_x : smaller x are not fitted."""

    name: str
    x: str
    words: str
    x_label: str
    y_label: str
    from_x: float


KINDS = (
    Kind(
        "own", "stream_var", "the variance", r"variance of the stream that enters the block, $\mathrm{Var}\,x_\ell$  [1]",
        r"$\|J^Tu\|/\|u\|$ for its own input  [1]", 0,
    ),
    Kind(
        "first", "number", "the number", "number i of the block (1 = first)",
        r"$\|Jv\|/\|v\|$ for the first point $x_0$  [1]", FROM,
    ),
)  # fmt: skip


def jacobian(story: Story) -> Figure:
    """A row per Jacobian, a column per branch, of the deepest network."""
    blocks = values(story)
    depth = int(blocks["depth"].max()) if len(blocks) else 0
    notes = [
        "J: derivative of the branch's output, the norm of a Pre-LN inside it; u, v: a Gaussian vector each, so a dot is "
        "one draw and scatters. Norms, not squared; the mean square of either is ‖J‖_F²/n. Dots: single seeds; lines: "
        "geometric mean over the seeds of each block. Numbers: exponent, fitted on logarithms for each seed (below over i ≥ "
        f"{FROM}), ± half the 95 % interval over seeds; * points stray from the line by more than a factor of "
        f"{tables.STRAY}. At initialisation (step 0).",
        story.note,
    ]
    page = Page(9.4, 7.6, f"Jacobian norms of the branches at initialisation, L = {depth} blocks", notes)
    axes = page.grid(len(KINDS), len(BRANCHES), sharey="row")
    for row, kind in zip(axes, KINDS, strict=True):
        for ax, branch in zip(row, BRANCHES, strict=True):
            _panel(ax, story, blocks.rename(columns={f"jac_{branch}_{kind.name}": "value"}), kind)
            ax.set_xlabel(kind.x_label)
        row[0].set_ylabel(kind.y_label)
        both = pd.concat([blocks[f"jac_{branch}_{kind.name}"] for branch in BRANCHES])
        for ax in row:
            plots.log_y(ax, both)
    for ax, words in zip(axes[0], BRANCHES.values(), strict=True):
        ax.set_title(f"{words} branch", pad=plots.ABOVE * len(story.looks) + 4, fontweight="bold")
    guide = Line2D([], [], color=GUIDE, linestyle=DASH, label="exponent -1/2")
    return page.finish([*(key(look) for look in story.looks.values()), guide])


def values(story: Story) -> pd.DataFrame:
    """One row per run and block of the deepest network at initialisation, with `number`, from 1."""
    layers = story.study.layers[story.study.layers["step"] == 0]
    layers = tables.attach(layers, story.runs, ["variant", "warmup", "depth", "seed", "outcome"])
    inside = (layers["depth"] == layers["depth"].max()) & (layers["layer"] < layers["depth"])
    return layers[inside & (layers["outcome"] != "diverged")].assign(number=lambda table: table["layer"] + 1)


def slopes(table: pd.DataFrame, kind: Kind) -> Estimate:
    """Exponent of `value` in x, a slope a seed; a seed with a value that has no logarithm is left out and counted."""
    fitted = table[table[kind.x] >= kind.from_x]
    if fitted.empty or fitted[kind.x].max() < VARIES * fitted[kind.x].min():
        reason = "nothing to fit" if fitted.empty else f"{kind.words} is constant"
        return replace(laws.mean_estimate([], [], log=False), reason=reason)
    found, stray = {}, 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for (seed,), points in groups(fitted, ["seed"]):
            x, y = (np.log(points[name].to_numpy(float)) for name in (kind.x, "value"))
            found[seed] = float(slope(x, y))
            stray = float(np.fmax(stray, np.exp(np.std(y - found[seed] * x))))
    return replace(laws.mean_estimate(list(found.values()), list(found), log=False), stray=stray)


def _panel(ax: Axes, story: Story, table: pd.DataFrame, kind: Kind) -> None:
    ax.set_xscale("log")
    for line, (name, group) in enumerate(groups(table, ["variant", "warmup"])):
        look = story.looks[name[0], name[1]]
        ax.plot(group[kind.x], group["value"], ".", color=look.color, alpha=0.3, markersize=3, zorder=1.5)
        means = [[_mean(part[column]) for column in (kind.x, "value")] for _, part in groups(group, ["layer"])]
        ax.plot(*np.array(means).T, color=look.color, linestyle=look.linestyle, zorder=3)
        plots.above(ax, f"{look.label}: {estimate_text(slopes(group, kind))}", look.color, line)
    _guide(ax, table, kind)
    plots.lost(ax, story.runs, story.looks)
    plots.not_shown(ax, table["value"])


def _guide(ax: Axes, table: pd.DataFrame, kind: Kind) -> None:
    """A grey line of exponent -1/2 through the smallest x of the series whose x varies."""
    spread = table.groupby(["variant", "warmup"])[kind.x].transform(lambda x: x.max() / x.min())
    fitted = (table[kind.x] >= kind.from_x) & (spread >= VARIES)
    shown = table[tables.drawable(table["value"]) & fitted]
    if len(shown):
        low, high = shown[kind.x].min(), shown[kind.x].max()
        start = _mean(shown.loc[shown[kind.x] <= VARIES * low, "value"])
        ax.plot([low, high], [start, start * (high / low) ** -0.5], color=GUIDE, linestyle=DASH, linewidth=1.2, zorder=2.5)


def _mean(values: pd.Series) -> float:
    """Geometric; NaN where a value has no logarithm."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(values.to_numpy(float))
    return float(np.exp(log.mean())) if np.isfinite(log).all() else float("nan")
