"""How figures look: fonts, a colour-blind palette, and what a line or marker says. Saved files hold no date."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.cells import groups

# Okabe and Ito 2008: told apart with any of the common colour-vision deficiencies. Used where two variants share a colour.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
GUIDE = "#9a9a9a"
MARKERS = ("o", "^", "s", "D", "v", "P")  # by warmup: none first
DASHES = ("-", "--", "-.", ":")
TINT = 0.45  # share of white in the colour of runs with warmup
PALEST = 0.7  # share that no tint reaches where there are many
FILLS = {"trained": "full", "init": "full", "stuck": "none", "unfinished": "left", "diverged": "none"}
LINES: dict[str, Any] = {
    "trained": "-", "init": "-", "stuck": (0, (4, 1.5)), "unfinished": (0, (1, 1.2)), "diverged": (0, (5, 1, 1, 1)),
}  # fmt: skip
FORMATS: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

RC = {
    "figure.dpi": 100, "savefig.dpi": 140, "svg.hashsalt": "depth", "svg.fonttype": "path", "pdf.fonttype": 3,
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 9.5, "axes.labelsize": 9, "legend.fontsize": 8,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "figure.titlesize": 12, "figure.titleweight": "bold",
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#ececec", "grid.linewidth": 0.7, "legend.frameon": False, "lines.linewidth": 1.6, "lines.markersize": 5.5,
    "xtick.major.width": 0.8, "ytick.major.width": 0.8, "ytick.minor.size": 0, "xtick.minor.size": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How one series (a variant with one warmup) is drawn."""

    label: str
    color: str
    linestyle: Any
    marker: str


@contextmanager
def applied() -> Iterator[None]:
    """Figures made inside have the suite's style, whatever the user's own matplotlib settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        sns.set_theme(style="ticks", rc=RC)
        yield


def looks(runs: pd.DataFrame) -> dict[tuple[str, int], Look]:
    """Look of every (variant, warmup) of a study; label, colour and line style of a variant come from its config."""
    warmups = sorted(runs["warmup"].unique())
    trained = any(warmups)
    names, colors = variant_names(runs), variant_colors(runs)
    out: dict[tuple[str, int], Look] = {}
    for (variant,), group in groups(runs, ["variant"]):
        dashes = linestyle(group["linestyle"].iloc[0])
        for warmup in sorted(group["warmup"].unique()):
            index = warmups.index(warmup)
            label = f"{names[variant]}, {warmup_words(int(warmup))}" if trained else names[variant]
            tone = colors[variant] if index == 0 else tinted(colors[variant])
            out[str(variant), int(warmup)] = Look(label, tone, dashes, MARKERS[index % len(MARKERS)])
    return out


def variant_names(runs: pd.DataFrame) -> dict[str, str]:
    """Label of every variant, with the variant in brackets where two share one; by family: colour, then line style."""
    first = runs.drop_duplicates("variant").set_index("variant")
    twice = first["label"].duplicated(keep=False)
    order = {to_hex(color): place for place, color in enumerate(OKABE_ITO)}

    def family(variant: str) -> tuple[int, int, str]:
        color, line = to_hex(first["color"][variant]), str(first["linestyle"][variant])
        return order.get(color, len(order)), DASHES.index(line) if line in DASHES else len(DASHES), variant

    found = sorted(map(str, first.index), key=family)
    return {name: f"{first['label'][name]} ({name})" if twice[name] else str(first["label"][name]) for name in found}


def variant_colors(runs: pd.DataFrame) -> dict[str, str]:
    """Colour of every variant: its own, but where another has it already one of the palette that none has, if there is one.

    More variants than the palette has colours keep theirs where their lines differ.
    """
    first = {str(variant): group.iloc[0] for (variant,), group in groups(runs, ["variant"])}
    own = {variant: to_hex(row["color"]) for variant, row in first.items()}
    free = [color for color in map(to_hex, OKABE_ITO) if color not in own.values()]
    crowded = len(own) > len(OKABE_ITO)
    found: dict[str, str] = {}
    used: set[tuple[str, str]] = set()
    for variant, color in own.items():
        look = (color, str(first[variant]["linestyle"]) if crowded else "")
        found[variant] = free.pop(0) if look in used and free else color
        used.add(look)
    return found


def siblings(runs: pd.DataFrame) -> dict[tuple[str, int], Look]:
    """Looks for a study in which every variant was swept over one more key: a variant keeps its colour and line style, and its
    values differ in tint and marker. Labels as of `looks`."""
    out: dict[tuple[str, int], Look] = {}
    found = looks(runs)
    for _, group in groups(runs, ["color"]):
        names = sorted({*zip(group["variant"], group["warmup"], strict=True)})
        color = to_hex(group["color"].iloc[0])
        for index, name in enumerate(names):
            tint = tinted(color, PALEST * index / len(names))
            out[name] = replace(found[name], color=tint, marker=MARKERS[index % len(MARKERS)])
    return out


def warmup_words(warmup: int) -> str:
    return f"warmup {warmup}" if warmup else "no warmup"


def tinted(color: str, share: float = TINT) -> str:
    """The colour mixed with this share of white."""
    red, green, blue = (part * (1 - share) + share for part in to_rgb(color))
    return to_hex((red, green, blue))


def depth_colors(depths: list[int]) -> dict[int, Any]:
    """A sequential colour per depth, darker for deeper."""
    return dict(zip(depths, sns.color_palette("flare", len(depths)), strict=True))


def key(look: Look) -> Line2D:
    """Legend entry of a series."""
    return Line2D([], [], color=look.color, linestyle=look.linestyle, marker=look.marker, label=look.label)


def outcome_key(outcome: str, *, line: bool = False) -> Line2D:
    """Legend entry of an outcome: grey, since only the filling speaks, or the line style where `line`."""
    words = {"init": "at initialisation", "diverged": "diverged (n / runs)"}.get(outcome, outcome)
    if line:
        return Line2D([], [], color="#444444", linestyle=LINES[outcome], label=words.split(" (")[0])
    marker = "x" if outcome == "diverged" else "o"
    return Line2D([], [], color="#444444", linestyle="", marker=marker, label=words, **face(outcome))


def face(outcome: str) -> dict[str, Any]:
    """Marker filling of an outcome: full = trained, hollow = stuck, half = unfinished."""
    return {"fillstyle": FILLS[outcome], "markerfacecoloralt": "white", "markeredgewidth": 1.3}


def save(figure: Figure, stem: Path, formats: tuple[str, ...] = tuple(FORMATS)) -> list[Path]:
    """Write a figure in each format; the same figure gives the same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for extension in formats:
        path = stem.with_name(f"{stem.name}.{extension}")
        figure.savefig(path, metadata=FORMATS[extension])
        paths.append(path)
    return paths


def linestyle(text: str) -> Any:
    return ast.literal_eval(text) if text.startswith("(") else text
