"""How far noise on the weights moves the output, against the number of residual branches. Tables in, a figure out."""

import json
import textwrap
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import laws, plots, tables
from analysis.cells import groups
from analysis.layout import Page
from analysis.load import Columns
from analysis.meanfield.weights import kinds
from analysis.plots import Looks
from analysis.story import Story, averages
from analysis.style import GUIDE, key, outcome_key, siblings
from analysis.summary import estimate_text

COLUMNS = Columns(("loss", "amplification"), ())
LAWS = ("constant", "power", "exponential", "logarithmic")
WRAP = 62  # letters over a panel
VALUE = r"$\langle (F(W^*) - F(W))^2\rangle\,/\,\epsilon^2$  [1]"


def amplification(story: Story) -> Figure:
    """Both axes logarithmic, where a power is straight; then for each placement a plain y axis, where a logarithm is."""
    table, looks = values(story), siblings(story.runs)
    mean = tables.across_seeds(table, "depth", log=True)
    norms = sorted(table["norm"].unique())
    notes = [
        "Mean square over tokens and features of the change of F, what the readout reads, over ε² (a square), when the block "
        "matrices change from W to W + ε std(W) N(0, 1), at initialisation (step 0). "
        f"{averages(story, 'bars', True)} Numbers over the panels: left, exponent of N, fitted on logarithms for each seed "
        f"over L ≥ {tables.FIT_FROM}, ± half the 95 % interval over seeds; right, the law over all L ({', '.join(LAWS)}) that "
        f"leads every other by more than {laws.MARGIN} in AICc in all seeds.",
        story.note,
    ]
    page = Page(4.3 * (1 + len(norms)) + 0.6, 4.6, "Amplification of weight noise against depth, at initialisation", notes)
    axes = page.grid(1, 1 + len(norms))[0]
    _panel(axes[0], table, mean, looks)
    plots.log_y(axes[0], table["value"])
    plots.not_shown(axes[0], table["value"])
    _powers(axes[0], table, looks)
    for ax, norm in zip(axes[1:], norms, strict=True):
        own = table[table["norm"] == norm]
        _panel(ax, own, mean[mean["variant"].isin(own["variant"])], looks)
        plots.plain_y(ax)
        shown = own.loc[tables.drawable(own["value"]), "value"]
        ax.set_ylim(0, 1.1 * shown.max() if len(shown) else 1)  # single seeds; an interval may be longer
        _winners(ax, own, looks)
    axes[0].set_ylabel(f"amplification  {VALUE}")
    guide = Line2D([], [], color=GUIDE, linestyle=(0, (3, 1, 1, 1)), label="exponent 1")
    met = [outcome_key(name) for name in ("diverged",) if (table["outcome"] == name).any()]
    return page.finish([*(key(look) for look in looks.values()), guide, *met], columns=6)


def values(story: Story) -> pd.DataFrame:
    """One row per run: its amplification as `value`, and as `depth` its number N of residual branches."""
    steps = story.study.steps
    found = steps.loc[steps["step"] == 0].set_index("run")["amplification"].astype(float)
    runs = story.runs
    configs = [json.loads(config) for config in runs["config"]]
    branches = np.array([len(kinds(config)) for config in configs])
    norms = [config["norm"]["label"] for config in configs]
    value = found.reindex(runs["run"]).to_numpy()
    return runs.assign(value=value, blocks=runs["depth"], norm=norms, depth=runs["depth"] * branches)


def _panel(ax: Axes, table: pd.DataFrame, mean: pd.DataFrame, looks: Looks) -> None:
    plots.depth_axis(ax, sorted(table["depth"].unique()))
    plots.seeds(ax, plots.apart(table, looks), "depth", looks, dots=True)
    plots.means(ax, plots.apart(mean, looks), "depth", looks, bars=True)
    plots.diverged(ax, table, looks)
    ax.set_xlabel("residual branches N  [1]")


def _powers(ax: Axes, table: pd.DataFrame, looks: Looks) -> None:
    """Exponents of N over the panel, and a grey line of exponent 1 through the smallest N."""
    at = table.loc[tables.drawable(table["value"])]
    if len(at):
        low, high = at["depth"].min(), at["depth"].max()
        anchor = np.exp(np.log(at.loc[at["depth"] == low, "value"]).mean())
        ax.plot([low, high], [anchor, anchor * high / low], color=GUIDE, linestyle=(0, (3, 1, 1, 1)), linewidth=1.1, zorder=1)
    for line, (name, group) in enumerate(_measured(table)):
        found = laws.exponent(group["depth"], group["value"], group["seed"], from_x=_start(group))
        plots.above(ax, f"{looks[name].label}: {estimate_text(found)}", looks[name].color, line)


def _winners(ax: Axes, table: pd.DataFrame, looks: Looks) -> None:
    """Which law describes every seed, or why none is called."""
    for line, (name, group) in enumerate(_measured(table)):
        found = laws.compare(group["depth"], group["value"], group["seed"], laws=LAWS)
        said = found.winner or f"no law called: {found.reason}"
        plots.above(ax, "\n".join(textwrap.wrap(f"{looks[name].label}: {said}", WRAP)), looks[name].color, 2 * line)


def _measured(table: pd.DataFrame) -> Iterator[tuple[tuple[str, int], pd.DataFrame]]:
    """The runs of each series that have a value to fit."""
    for name, group in groups(table[table["outcome"] != "diverged"], ["variant", "warmup"]):
        yield (name[0], name[1]), group


def _start(table: pd.DataFrame) -> float:
    """N from which the exponent is fitted."""
    return float(table.loc[table["blocks"] >= tables.FIT_FROM, "depth"].min())
