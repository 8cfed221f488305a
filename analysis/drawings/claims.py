"""The evaluated ledger on one page: every test with its number beside what was predicted, and its verdict."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from analysis.evidence.rows import Row, sources
from analysis.evidence.verdicts import OfNumber, number_text
from analysis.layout import Page
from analysis.style import GUIDE

COLUMNS = 3  # of the page
MARKS = {  # verdict: letter and colour
    "holds": ("H", "#009E73"),
    "refuted": ("R", "#D55E00"),
    "inconclusive": ("?", "#B8860B"),
    "not measured": ("–", "#8a8a8a"),
}
SPAN = 1.5  # of the strip: numbers from -SPAN to SPAN
GUIDES = {-1.0: "−1", -0.5: "−½", 0.0: "0", 1.0: "1"}
SHORT = {"exponential": "exp.", "logarithmic": "log.", "constant": "const."}
SLOPES = ("exponent", "ln per block")  # units that are drawn on the strip
WIDE, LETTERS = 88, 54  # letters of a claim and of a test in a line
TEXT, STRIP, NUMBER, MARK = 0.0, 0.472, 0.708, 0.985  # places in a column of the page, as shares of its width
STRIP_WIDTH = 0.22
SMALL = 6.4  # points


@dataclass(frozen=True)
class Block:
    """A claim with its tests, each as wrapped text."""

    rows: tuple[Row, ...]

    @property
    def statement(self) -> list[str]:
        claim = self.rows[0].claim
        return textwrap.wrap(f"{claim.id}  {claim.statement}", WIDE, subsequent_indent="       ")

    @property
    def tests(self) -> list[tuple[Row, list[str]]]:
        return [(row, textwrap.wrap(row.test.when, LETTERS, subsequent_indent="  ")) for row in self.rows]

    @property
    def height(self) -> float:
        """In lines, with the overall verdict and the space below."""
        return len(self.statement) + 1 + sum(len(lines) for _, lines in self.tests) + 0.8


def claims(rows: Sequence[Row]) -> Figure:
    """A block per claim: its statement, the overall verdict, and a line per test."""
    blocks = [Block(tuple(group)) for _, group in groupby(rows, key=lambda row: row.claim.id)]
    columns = _columns(blocks)
    height = max(sum(block.height for block in column) for column in columns) + 2
    notes = [
        "Strips: exponents, and changes of the logarithm per block. Mark and bar: the mean over seeds with its 95 % "
        f"interval; an arrow: beyond ±{SPAN:g}. Grey box: the numbers that agree with the claim; without a box a law must "
        "win by AICc: its name, or none, stands before the number. Other quantities stand as numbers only; ×: runs "
        "diverged. Norms are Frobenius norms, not squared, where a test does not say otherwise. Setting, unit and seeds of "
        "every test: claims.md.",
        "Read from: " + "; ".join(sources(rows)) + ".",
    ]
    page = Page(17.5, 0.128 * height + 0.9, "The ledger of claims", notes)
    axes = page.grid(1, COLUMNS)[0]
    for ax, column in zip(axes, columns, strict=True):
        ax.set(xlim=(0, 1), ylim=(height, 0))
        ax.set_axis_off()
        _column(ax, column)
    return page.finish([_key(word, rows) for word in MARKS])


def _key(word: str, rows: Sequence[Row]) -> Line2D:
    """Legend entry of a verdict, with how many tests have it."""
    letter, color = MARKS[word]
    count = sum(row.verdict.word == word for row in rows)
    label = f"{letter}  {word}: {count} of {len(rows)} tests"
    return Line2D([], [], linestyle="", marker="s", markersize=9, color=color, label=label)


def _columns(blocks: list[Block]) -> list[list[Block]]:
    """In order, of about equal height."""
    end = np.cumsum([block.height for block in blocks])
    middle = end - np.array([block.height for block in blocks]) / 2
    place = np.minimum((middle / end[-1] * COLUMNS).astype(int), COLUMNS - 1) if len(blocks) else np.array([], int)
    return [[block for block, at in zip(blocks, place, strict=True) if at == column] for column in range(COLUMNS)]


def _column(ax: Axes, blocks: list[Block]) -> None:
    """Blocks from the top down, a unit of y a line."""
    for value, name in GUIDES.items():
        ax.text(_place(value), 0.3, name, fontsize=SMALL, ha="center", va="center", color="#666666")
    y = 1.5
    for block in blocks:
        for line in block.statement:
            ax.text(TEXT, y, line, fontsize=SMALL + 0.6, fontweight="bold", va="center")
            y += 1
        word = block.rows[0].overall.split(":")[0].split(" (")[0]
        color = MARKS.get(word, ("", "#444444"))[1]
        ax.text(0.02, y, word, fontsize=SMALL, fontstyle="italic", color=color, va="center")
        y += 1
        for row, lines in block.tests:
            for offset, line in enumerate(lines):
                ax.text(0.02, y + offset, line, fontsize=SMALL, va="center", color="#222222")
            _test(ax, row, y)
            y += len(lines)
        y += 0.8


def _place(value: float) -> float:
    """Where a number stands on the strip; beyond SPAN at its end."""
    return STRIP + STRIP_WIDTH * (float(np.clip(value, -SPAN, SPAN)) + SPAN) / (2 * SPAN)


def _test(ax: Axes, row: Row, y: float) -> None:
    """Strip, number and mark of a test in the line at y."""
    letter, color = MARKS[row.verdict.word]
    ax.text(MARK, y, letter, fontsize=SMALL, fontweight="bold", color="white", ha="center", va="center",
            bbox={"boxstyle": "square,pad=0.1", "facecolor": color, "edgecolor": "none"})  # fmt: skip
    ax.text(NUMBER, y, _number(row), fontsize=SMALL - 0.4, va="center", color="#222222")
    if not row.test.unit.startswith(SLOPES):
        return
    for guide in GUIDES:
        ax.plot([_place(guide)] * 2, [y - 0.5, y + 0.5], color="#d5d5d5", linewidth=0.6, zorder=0.5)
    if isinstance(row.test.rule, OfNumber):
        low, high = (_place(edge) for edge in row.test.rule.region)
        ax.add_patch(Rectangle((low, y - 0.36), high - low, 0.72, facecolor=GUIDE, alpha=0.35, linewidth=0, zorder=1))
    interval = row.found.interval
    if interval is None or not np.isfinite(interval.estimate):
        return
    bounds = [_place(edge) for edge in (interval.low, interval.high) if np.isfinite(edge)]
    ax.plot(bounds, [y] * len(bounds), color=color, linewidth=1.5, zorder=2, solid_capstyle="butt")
    marker = "<" if interval.estimate < -SPAN else ">" if interval.estimate > SPAN else "o"
    ax.plot([_place(interval.estimate)], [y], marker, color=color, markersize=3.6, zorder=3)


def _number(row: Row) -> str:
    """Count of a share, winner of a choice of law, number with its interval, diverged runs; empty where nothing was found."""
    found, parts = row.found, []
    if found.count is not None:
        parts.append(f"{found.count[0]} of {found.count[1]}")
    elif (interval := found.interval) is not None:
        if found.law is not None:
            parts.append(f"{SHORT.get(found.law.winner or '', found.law.winner or 'no law')}:")
        low, high = number_text(interval.low), number_text(interval.high)
        parts.append(f"{number_text(interval.estimate)} [{low}, {high}]")
    return " ".join(parts) + (f"  × {row.diverged}/{row.runs}" if row.diverged else "")
