"""The numbers behind the figures as tables for the terminal."""

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from analysis import tables
from analysis.style import warmup_words
from analysis.story import Story


def fitted_numbers(story: Story) -> Table:
    """Exponents of the depth law, one row per quantity, moment, series and outcome, over both ranges of depth."""
    title = f"{story.study.source.study} at {story.study.source.scale}: value ~ L^exponent"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    table.caption = "± half the 95 % t interval over seeds; -: fewer than three depths, or zeros"
    for name in ("quantity", "step", "series", "outcome"):
        table.add_column(name)
    for name in (f"L ≥ {tables.FIT_FROM}", "seeds", "all L", "seeds", "diverged"):
        table.add_column(name, justify="right", no_wrap=True)
    fits = story.exponents
    for _, fit in fits.sort_values(["step", "quantity", "place"], kind="stable").iterrows():
        look = story.looks[fit["variant"], fit["warmup"]]
        lost = story.runs[(story.runs["variant"] == fit["variant"]) & (story.runs["warmup"] == fit["warmup"])]["outcome"]
        table.add_row(
            f"{fit['quantity']}, {fit['place']} point", str(fit["step"]), look.label, str(fit["outcome"]),
            exponent_text(fit, ""), str(fit["seeds"]), exponent_text(fit, "_all"), str(fit["seeds_all"]),
            f"{int((lost == 'diverged').sum())}/{len(lost)}",
        )  # fmt: skip
    return table


def outcome_counts(story: Story) -> Table:
    """Outcomes per cell with the steps between which its seeds escaped."""
    title = f"{story.study.source.study} at {story.study.source.scale}: outcomes"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("variant", "warmup", "L", "trained", "stuck", "unfinished", "diverged", "runs", "escape step"):
        table.add_column(name, justify="left" if name in ("variant", "warmup") else "right")
    for _, cell in tables.fractions(story.runs).iterrows():
        first, last = cell["escape_first"], cell["escape_last"]
        escape = "-" if pd.isna(first) else f"{first}" if first == last else f"{first} to {last}"
        counts = [str(cell[name]) for name in ("trained", "stuck", "unfinished", "diverged")]
        table.add_row(
            cell["label"], warmup_words(int(cell["warmup"])), str(cell["depth"]), *counts, str(cell["seeds"]), escape
        )
    return table


def exponent_text(fit: pd.Series, suffix: str) -> str:
    """'−0.50 ± 0.04', without interval where there is one seed; - where nothing was fitted."""
    exponent, low, high = (float(fit[name + suffix]) for name in ("exponent", "low", "high"))
    if not np.isfinite(exponent):
        return "-"
    number = f"{exponent:+.2f}".replace("-", "−")
    return f"{number} ± {(high - low) / 2:.2f}" if np.isfinite(low) else f"{number} (1 seed)"
