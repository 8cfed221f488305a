"""The anatomy of one block: its streams, norms, constants and branches as a diagram on a dark square page."""

from collections.abc import Collection, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from analysis.anatomy.formula import sentence
from analysis.anatomy.graph import read
from analysis.anatomy.ink import CYAN, FAINT, PAPER, WHITE, Ink, color, inks
from analysis.anatomy.plan import PAGE, plan

TOP, FOOT = 1.32, 0.95  # inches for the title, and for what stands below
WIDEST = PAGE - 0.8  # inches of a line of text
SWATCH, HIGH, ASIDE, SPACE, LOW = (
    0.26,
    0.11,
    0.09,
    0.42,
    0.24,
)  # inches: samples of the legend, to their words, between, height
LEGEND = {
    "stream0": "residual stream",
    "branch": "branch",
    "norm": "norm",
    "linear": "learnt matrix",
    "scale": "factor",
    "scores": "no parameters",
}


def anatomy(trace: Mapping[str, Any]) -> Figure:
    """Title, the block from its input down to its output, and what its shape is good for. trace: of experiments.ledger."""
    graph = read(trace)
    figure = Figure(figsize=(PAGE, PAGE), facecolor=PAPER)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, PAGE), ylim=(0, PAGE))
    ax.set_axis_off()
    _written(ax, PAGE - 0.45, f"The {trace['label']} transformer block", color=WHITE, fontsize=21, fontweight="bold")
    _written(ax, PAGE - 0.82, sentence(trace), color=CYAN, fontsize=12)
    _written(ax, PAGE - 1.09, size_words(trace), color=CYAN, fontsize=9.5)
    Ink(ax, plan(graph), FOOT, PAGE - TOP).draw()
    D = trace["size"]["width"]
    words = f"(B, T, D) in, (B, T, D) out, with D = {D}: a block keeps the shape, so any number of them can follow each other."
    _written(ax, 0.56, words, color=WHITE, fontsize=10)
    _legend(ax, {node.kind for node in graph.nodes.values()})
    return figure


def size_words(trace: Mapping[str, Any]) -> str:
    """The model's size, and which block this is where others differ."""
    size, parameters, depth = trace["size"], trace["parameters"], trace["size"]["depth"]
    alike = len(trace["alike"]) == depth
    which = f"each of {depth} blocks" if alike else f"block {trace['layer']} (of 0 to {depth - 1})"
    return (
        f"{trace['model']}, {which}: width D = {size['width']}, {size['n_head']} heads of {size['width'] // size['n_head']}, "
        f"{parameters['block']:,} of the model's {parameters['model']:,} parameters"
    )


def _written(ax: Axes, y: float, words: str, **look: Any) -> Text:
    """A line of text in the middle of the page, smaller where it would be too wide."""
    text = ax.text(PAGE / 2, y, words, ha="center", va="center", **look)
    width = _width(ax, text)
    if width > WIDEST:
        text.set_fontsize(look["fontsize"] * WIDEST / width)
    return text


def _width(ax: Axes, text: Text) -> float:
    """Inches."""
    return float(text.get_window_extent().transformed(ax.transData.inverted()).width)


def _legend(ax: Axes, kinds: Collection[str]) -> None:
    """What the colours of lines and boxes say, in one row at the foot."""
    entries = [(style, words) for style, words in LEGEND.items() if style in {"stream0", "branch", "scores", *kinds}]
    texts = [ax.text(0, LOW, words, color=FAINT, fontsize=8, va="center_baseline") for _, words in entries]
    widths = [SWATCH + ASIDE + _width(ax, text) for text in texts]
    x = (PAGE - sum(widths) - SPACE * (len(widths) - 1)) / 2
    for (style, _), text, width in zip(entries, texts, widths, strict=True):
        text.set_x(x + SWATCH + ASIDE)
        if style in {"stream0", "branch"}:
            thick = 2.4 if style == "stream0" else 1.3
            ax.add_line(Line2D([x, x + SWATCH], [LOW, LOW], color=color(style), linewidth=thick))
        else:
            face, edge = inks(style)
            corners = "round,pad=0,rounding_size=0.03"
            ax.add_patch(FancyBboxPatch((x, LOW - HIGH / 2), SWATCH, HIGH, corners, facecolor=face, edgecolor=edge))
        x += width + SPACE
