"""Attention logits over a training at high rates, by placement and norm of queries and keys. Tables in, a figure out."""

import json
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots, tables
from analysis.cells import groups
from analysis.layout import Page
from analysis.load import Columns
from analysis.story import Story, averages
from analysis.style import OKABE_ITO, outcome_key

COLUMNS = Columns(("loss",), ("attn_logit_max", "attn_entropy"))
ROWS = {
    "attn_logit_max": "largest attention logit\nof all blocks  [1]",
    "attn_entropy": "attention entropy,\nmean over blocks  [nats]",
    "loss": "training loss\nper token  [nats]",
}


def logit_growth(story: Story) -> Figure:
    """A row per quantity, a column per rate and placement, a colour per norm of queries and keys."""
    cells = _cells(story)
    names = {norm: _name(story, norm) for norm in dict.fromkeys(cells["norm"])}
    columns = [key for key, _ in groups(cells, ["lr", "norm"])]
    colors = dict(zip(sorted(cells["qk"].unique(), key=lambda qk: (qk != "none", qk)), OKABE_ITO, strict=False))
    total = int(story.runs["train_steps"].max())
    uniform = _uniform(story)
    notes = [
        f"{averages(story, 'bands', True)} Entropy and loss (trailing mean over {tables.WINDOW} steps): plain means. Logits "
        "are after division by √K and after the norm of queries and keys, over all heads and pairs of tokens. Dashed grey: "
        "the entropy of causal attention that is flat; cross-entropy of the validation text under the training text's byte "
        "and byte-pair frequencies.",
        story.note,
    ]
    blocks = ", ".join(map(str, story.depths))
    page = Page(2.5 * len(columns) + 1.0, 6.2, f"Attention logits at high learning rates, L = {blocks} blocks", notes)
    axes = page.grid(len(ROWS), len(columns), sharex=True, sharey="row")
    for panels, (quantity, label) in zip(axes, ROWS.items(), strict=True):
        table = _table(story, quantity).merge(cells.drop(columns="variant"), on="run")
        mean = tables.across_seeds(table, "step", log=quantity == "attn_logit_max")
        mean = mean.merge(cells.drop(columns="run").drop_duplicates(), on="variant")
        for ax, (rate, norm) in zip(panels, columns, strict=True):
            own, line = (f[(f["lr"] == rate) & (f["norm"] == norm)] for f in (table, mean))
            own, line = (frame.assign(step=frame["step"] + 1) for frame in (own, line))  # as on plots.step_axis
            plots.by_value(ax, own, line, ("step", "qk"), colors)
            plots.step_axis(ax, 0.9, total * 1.1)
            plots.lost(ax, own, story.looks)
            _scale(ax, quantity, table["value"], story, uniform)
        panels[0].set_ylabel(label)
    for ax, (rate, norm) in zip(axes[0], columns, strict=True):
        ax.set_title(f"{names[norm]}\nrate {rate:g}", fontweight="bold")
    for ax in axes[-1]:
        ax.set_xlabel("step  [updates]")
    keys = [Line2D([], [], color=color, label=f"QK-norm: {qk}") for qk, color in colors.items()]
    met = [outcome_key(name, line=True) for name in tables.OUTCOMES if (story.runs["outcome"] == name).any()]
    return page.finish([*keys, *met], columns=8)


def _cells(story: Story) -> pd.DataFrame:
    """Of every run its variant, placement, rate and norm of queries and keys."""
    config = [json.loads(text) for text in story.runs["config"]]
    qk = [_qk(c["norm"]) for c in config]
    found = {"run": story.runs["run"], "variant": story.runs["variant"], "norm": [c["norm"]["name"] for c in config]}
    return pd.DataFrame(found | {"lr": [c["optim"]["lr"] for c in config], "qk": qk})


def _qk(norm: dict[str, Any]) -> str:
    kind, axis = norm.get("qk", "none"), norm.get("qk_axis", "head")
    return kind if axis == "head" else f"{kind}, {axis}"


def _name(story: Story, norm: str) -> str:
    """Label of a placement, without what its series are told apart by."""
    labels = {json.loads(text)["norm"]["label"] for text in story.runs["config"] if json.loads(text)["norm"]["name"] == norm}
    return " / ".join(sorted(labels))


def _table(story: Story, quantity: str) -> pd.DataFrame:
    """One row per run and step."""
    if quantity == "loss":
        return tables.losses(story.runs, story.study.steps)
    return tables.over_blocks(story.runs, story.study.layers, quantity, "max" if quantity == "attn_logit_max" else "mean")


def _uniform(story: Story) -> float:
    """Entropy of flat causal attention: the mean of ln t over the tokens t of a sequence."""
    tokens = json.loads(story.runs["config"].iloc[0])["train"]["context"]
    return float(np.log(np.arange(1, tokens + 1)).mean())


def _scale(ax: Axes, quantity: str, values: pd.Series, story: Story, uniform: float) -> None:
    if quantity == "attn_logit_max":
        plots.log_y(ax, values)
        plots.not_shown(ax, values)
        return
    plots.plain_y(ax)
    bytewise = {name: float(story.runs[name].median()) for name in ("unigram", "bigram")}
    for name, y in (bytewise if quantity == "loss" else {"flat": uniform}).items():
        plots.level(ax, y, name)
