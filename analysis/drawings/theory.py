"""Mean-field theory over what was measured at initialisation, layer by layer. Tables in, a figure out."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots, tables, theory
from analysis.cells import groups
from analysis.drawings.layers import NAMES, NORM
from analysis.layout import Page
from analysis.load import Columns
from analysis.meanfield.gains import Coherence
from analysis.meanfield.weights import UncoveredError
from analysis.settings import changed
from analysis.story import BASE, Story, averages
from analysis.style import GUIDE, Look, key
from analysis.theory import Deviation, Prediction

COLUMNS = Columns(("loss",), ("stream_var", "grad_stream", "token_cosine"))
SHOWN = (BASE, "ffn_only", "gpt2_scaled")  # factors
SETTING = "setting of Xiong et al. 2020"
ROWS = {name: NAMES[name] for name in ("stream_var", "grad_stream")} | {"token_cosine": "token cosine  [1]"}
LARGE = 0.25  # of ln: from here on an error is given as a factor
SHADE = 0.5  # of a series' colour that is left in the lines of the theory
LINES: dict[str, dict[str, Any]] = {
    "with token mixing": {"linewidth": 2.6, "linestyle": (0, (2.5, 1.2))},
    "of a typical token": {"linewidth": 1.0, "linestyle": "-"},
}


@dataclass(frozen=True)
class Theory:
    """What one theory says of a quantity, shape [N]; of gradients scaled to what was measured. error : where it predicts."""

    value_N: np.ndarray
    error: Deviation | None


@dataclass(frozen=True)
class Series:
    """One placement at one depth: its layers at initialisation, and the theories of it by name, or why there are none."""

    look: Look
    layers: pd.DataFrame
    coherence: Coherence
    predicted: dict[str, Prediction]
    reason: str = ""

    def theories(self, column: str) -> dict[str, Theory]:
        """Beside the mean over seeds: geometric, but plain for the cosine."""
        wide = self.layers.pivot(index="run", columns="layer", values=column).to_numpy(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            measured_N = wide.mean(axis=0) if column == "token_cosine" else np.exp(np.log(wide).mean(axis=0))
        return {name: self._theory(prediction, column, measured_N) for name, prediction in self.predicted.items()}

    def _theory(self, prediction: Prediction, column: str, measured_N: np.ndarray) -> Theory:
        if column == "token_cosine" and np.isnan(prediction.token_cosine_N).all():
            return Theory(np.full(len(measured_N), self.coherence.stream), None)  # what it holds fixed
        name = {"stream_var": "stream_var_N", "grad_stream": "gradient_N", "token_cosine": "token_cosine_N"}[column]
        value_N = getattr(prediction, name)
        error = theory.relative_error(value_N, measured_N, free_scale=column == "grad_stream")
        return Theory(value_N * error.scale, error)


def series_of(story: Story, depth: int) -> Iterator[Series]:
    """The series of a study at this depth."""
    runs = story.runs[(story.runs["depth"] == depth) & (story.runs["outcome"] != "diverged")]
    first = story.study.layers[story.study.layers["step"] == 0]
    for name, group in groups(runs, ["variant", "warmup"]):
        layers = first[first["run"].isin(group["run"])]
        layers = layers.assign(run=layers["run"].astype(str))
        config, vocab = (json.loads(group[key].iloc[0]) for key in ("config", "manifest"))
        cosine = float(layers.loc[layers["layer"] == 0, "token_cosine"].mean())
        coherence = theory.data_coherence(config, first_cosine=cosine, vocab=vocab["data"]["vocab"])
        predicted, reason = {}, ""
        try:
            both = (theory.predict_mixing, theory.predict)
            predicted = {key: predict(config, coherence=coherence) for key, predict in zip(LINES, both, strict=True)}
        except UncoveredError as uncovered:
            reason = str(uncovered)
        yield Series(story.looks[name[0], name[1]], layers, coherence, predicted, reason)


def theory_over_data(init: Story, xiong: Story | None) -> Figure:
    """A column per factor, and one for the setting of Xiong et al.; a row per quantity."""
    depth, parts = _alike(init, xiong)
    title = f"Mean-field theory over what was measured at initialisation (step 0), L = {depth} blocks"
    page = Page(max(8.6, 3.4 * len(parts) + 0.6), 8.4, title, _notes(init, parts))
    axes = page.grid(len(ROWS), len(parts), sharex=True, sharey="row")
    looks: dict[str, Look] = {}
    for column, (name, part) in zip(axes.T, parts.items(), strict=True):
        found = list(series_of(part, depth))
        looks |= {series.look.label: series.look for series in found}
        for ax, quantity in zip(column, ROWS, strict=True):
            _panel(ax, part, found, quantity, depth)
        column[0].set_title(name, pad=plots.ABOVE * len(found) + 4, fontweight="bold")
        column[-1].set_xlabel(r"stream point $\ell$ (0 = embedding)")
    for ax, label in zip(axes[:, 0], ROWS.values(), strict=True):
        ax.set_ylabel(label)
    _scales(axes, parts, depth)
    if SETTING in parts:
        _published(axes[0, -1], axes[1, -1], parts[SETTING], depth)
    dark = [Line2D([], [], color="#333333", label=f"theory {name}", **line) for name, line in LINES.items()]
    return page.finish([*(key(look) for look in looks.values()), *dark])


def _notes(init: Story, parts: dict[str, Story]) -> list[str]:
    """What each theory leaves out, how the errors are meant, and the settings."""
    notes = [
        f"{averages(init, 'bands', True)} The token cosine, of two tokens of a sequence, has a plain mean. Theory: infinite "
        "width, flat attention weights. With token mixing: covariances of all pairs of tokens; it leaves out uneven "
        "attention weights, gradients through queries and keys, and what is of order depth/width. Of a typical token: the "
        "first point's cosine held throughout; it leaves out that attention aligns tokens and gradients, and that early "
        "tokens average over fewer. Gradients are predicted up to a factor, which is fitted. Numbers: root mean square over "
        "the points of ln(theory / measured), with token mixing | of a typical token, as a percentage or a factor; left "
        f"out: points where one of the two is 0. {NORM}",
        init.factors_note(*parts),
    ]
    if SETTING in parts:
        xiong = parts[SETTING]
        notes.append(
            f"{xiong.note} Against {init.study.source.study}: {changed(xiong.runs, init.runs)}. Grey: lemma 2 of the paper, "
            "1 + l/2 and 1 + 3l/2 (Pre-LN), and the factor (2/3)^((L-l)/2) of its appendix F (Post-LN)."
        )
    return notes


def _alike(init: Story, xiong: Story | None) -> tuple[int, dict[str, Story]]:
    """The deepest depth that most of the parts have, and the parts that have it, by the title of their column."""
    names = [name for name in SHOWN if name in init.factors] or [""]
    parts = {name or init.study.source.study: part for name in names if (part := init.part(name)) is not None}
    parts |= {} if xiong is None else {SETTING: xiong}
    depth = max(init.depths, key=lambda depth: (sum(depth in part.depths for part in parts.values()), depth))
    return depth, {name: part for name, part in parts.items() if depth in part.depths}


def _panel(ax: Axes, story: Story, found: list[Series], quantity: str, depth: int) -> None:
    table = tables.profile(story.runs, story.study.layers, quantity, 0)
    table = table[table["depth"] == depth]
    mean = tables.across_seeds(table, "layer", log=quantity != "token_cosine")
    plots.seeds(ax, table, "layer", story.looks)
    plots.means(ax, mean, "layer", story.looks, bars=False)
    for place, series in enumerate(found):
        theories = series.theories(quantity)
        red, green, blue = (SHADE * part for part in to_rgb(series.look.color))
        dark = to_hex((red, green, blue))
        for name, said in theories.items():
            ax.plot(np.arange(len(said.value_N)), said.value_N, color=dark, zorder=4, **LINES[name])
        text = " | ".join(_error_text(said.error) for said in theories.values() if said.error is not None)
        plots.above(ax, f"{series.look.label}: {series.reason or text}", dark, place)
    ax.set_xticks([0, depth // 2, depth])


def _scales(axes: np.ndarray, parts: dict[str, Story], depth: int) -> None:
    """Logarithmic for variance and gradient, around what was measured; plain for the cosine."""
    for row, quantity in zip(axes, ROWS, strict=True):
        tables_of = (tables.profile(part.runs, part.study.layers, quantity, 0) for part in parts.values())
        values = pd.concat([table.loc[table["depth"] == depth, "value"] for table in tables_of])
        if quantity == "token_cosine":
            plots.plain_y(row[0])
            continue
        for ax in row:
            plots.log_y(ax, values)
        for ax, part in zip(row, parts.values(), strict=True):
            table = tables.profile(part.runs, part.study.layers, quantity, 0)
            plots.not_shown(ax, table.loc[table["depth"] == depth, "value"])


def _published(variance: Axes, gradient: Axes, story: Story, depth: int) -> None:
    """What the paper of the setting states, in grey: bounds of E||x||²/d under Pre-LN, the factor of Post-LN's gradient."""
    layer = np.arange(depth + 1)
    for slope in (0.5, 1.5):
        _grey(variance, layer, 1 + slope * layer, rf"$1+{3 if slope > 1 else ''}\ell/2$", above=slope > 1)
    table = tables.profile(story.runs, story.study.layers, "grad_stream", 0)
    last = table[(table["variant"] == "post") & (table["depth"] == depth) & (table["layer"] == depth)]
    end = np.exp(np.log(last["value"]).mean()) if len(last) else np.nan
    _grey(gradient, layer, end * (2 / 3) ** ((depth - layer) / 2), r"$(2/3)^{(L-\ell)/2}$", above=True)


def _grey(ax: Axes, layer: np.ndarray, value: np.ndarray, name: str, *, above: bool) -> None:
    """A published law, named on its upper left or its lower right."""
    ax.plot(layer, value, color=GUIDE, linestyle=(0, (1, 1.2)), linewidth=1.4, zorder=3.5)
    inside = np.flatnonzero(value > ax.get_ylim()[0])
    if len(inside):
        at = inside[0] if inside[0] > 0 else inside[-1] // 3
        shift, side = ((-3, 6), "right") if above else ((4, -11), "left")
        ax.annotate(name, (layer[at], value[at]), xytext=shift, textcoords="offset points", ha=side, fontsize=7.5,
                    color="#666666")  # fmt: skip


def _error_text(error: Deviation) -> str:
    """4 %, or from LARGE on a factor; how many points have no logarithm."""
    if np.isnan(error.rms):
        return "none"
    lost = f" ({error.left_out} left out)" if error.left_out else ""
    return (f"{100 * error.rms:.2g} %" if error.rms < LARGE else f"factor {np.exp(error.rms):.2g}") + lost
