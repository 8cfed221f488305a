"""The first picture: gradient norms at both ends of the network against depth, at three moments."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots, tables
from analysis.drawings.layers import NORM, RELATIVE
from analysis.layout import Page
from analysis.settings import init_name, joined
from analysis.story import Story, averages, moment_title
from analysis.style import GUIDE, face
from analysis.summary import NO_LAW, exponent_text

ROWS = {
    ("grad_stream", "first"): "first point\n" + r"$\|\partial\,\mathrm{loss}/\partial x_0\|$  [nats]",
    ("grad_stream", "last"): "last point\n" + r"$\|\partial\,\mathrm{loss}/\partial x_L\|$  [nats]",
    ("grad_rel", "first"): "first over last point\nrelative norm  [1]",
}


def headline(training: Story, init: Story | None) -> Figure:
    """A row per quantity; a column at initialisation from the init study, then early and late in training."""
    columns = [] if init is None else [(init, init.at[0])]
    columns += [(training, moment) for moment in training.at if moment.name != "init" or len(training.at) == 1]
    stories = [story for story in (init, training) if story is not None]
    notes = [
        f"{averages(training, 'bars', True).replace('Lines', 'Marks')} Series are set apart sideways. Numbers over "
        f"the panels: exponent of L, fitted on logarithms over {fitted_over(training)} for each seed of one outcome, "
        f"± half the 95 % t interval over seeds; {NO_LAW} Grey: exponents 0, -1/2, -1.",
        f"{NORM} {RELATIVE}",
        *(story.note for story in stories),
    ]
    page = Page(3.45 * len(columns) + 0.6, 8.8, f"Gradient norm against depth: {joined(training.runs['label'])}", notes)
    axes = page.grid(len(ROWS) + 1, len(columns), sharex="col", height_ratios=[0.1, 1, 1, 1])
    for column, (story, moment) in zip(axes.T, columns, strict=True):
        column[0].set_axis_off()
        title = f"{moment_title(moment)}\ninit {init_name(story.runs)}"
        column[0].text(0.5, 0, title, ha="center", va="bottom", transform=column[0].transAxes, fontsize=10, fontweight="bold")
        for ax, (quantity, place) in zip(column[1:], ROWS, strict=True):
            _panel(ax, story, moment, quantity, place)
        column[-1].set_xlabel("depth L  [blocks]")
    for ax, label in zip(axes[1:, 0], ROWS.values(), strict=True):
        ax.set_ylabel(label)
    lines = [Line2D([], [], color=GUIDE, linestyle=dash, label=label) for _, dash, label in plots.GUIDES]
    return page.finish([*training.keys(), *lines], columns=5)


def fitted_over(story: Story) -> str:
    """The depths of the fits in words."""
    return f"L ≥ {tables.FIT_FROM}" if enough(story) else "all L"


def enough(story: Story) -> bool:
    return sum(depth >= tables.FIT_FROM for depth in story.depths) >= 3


def _panel(ax: Axes, story: Story, moment: tables.Moment, quantity: str, place: str) -> None:
    law = story.law
    law = law[(law["step"] == moment.step) & (law["quantity"] == quantity) & (law["place"] == place)]
    mean = tables.across_seeds(law, "depth", log=True)
    plots.depth_axis(ax, story.depths)
    plots.log_y(ax, law["value"])
    plots.guides(ax, story.depths, _anchor(mean))
    plots.seeds(ax, plots.apart(law, story.looks), "depth", story.looks, dots=True)
    plots.means(ax, plots.apart(mean, story.looks), "depth", story.looks, bars=True)
    plots.diverged(ax, story.runs, story.looks)
    plots.not_shown(ax, law["value"])
    _exponents(ax, story, moment, quantity, place)


def _anchor(mean: pd.DataFrame) -> float:
    """Geometric mean of what is drawn at the smallest depth."""
    at = mean.loc[(mean["depth"] == mean["depth"].min()) & (mean["estimate"] > 0), "estimate"].to_numpy(float)
    return float(np.exp(np.log(at).mean())) if len(at) else float("nan")


def _exponents(ax: Axes, story: Story, moment: tables.Moment, quantity: str, place: str) -> None:
    """Fitted exponents above the panel, each behind its line and marker."""
    fits = story.exponents
    fits = fits[(fits["step"] == moment.step) & (fits["quantity"] == quantity) & (fits["place"] == place)]
    handles = []
    for _, fit in fits.iterrows():
        text = exponent_text(fit, "" if enough(story) else "_all")
        if text != "-":
            look = story.looks[fit["variant"], fit["warmup"]]
            style = {"color": look.color, "linestyle": look.linestyle, "marker": look.marker} | face(fit["outcome"])
            handles.append(Line2D([], [], label=text, **style))
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1.2, handlelength=2.6,
              borderpad=0.1, labelspacing=0.25)  # fmt: skip
