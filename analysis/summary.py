"""The numbers behind the figures as tables for the terminal."""

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from analysis import tables
from analysis.cells import groups
from analysis.laws import Estimate
from analysis.story import Story

SHORT = {("grad_stream", "first"): "first point", ("grad_stream", "last"): "last point", ("grad_rel", "first"): "first / last"}

NO_LAW = f"* no power law: the points stray from the line by more than a factor of {tables.STRAY}."


def fitted_numbers(story: Story) -> Table:
    """Exponents of the depth law over both ranges of depth: a row per step, series and outcome, a column per quantity."""
    table = _titled(story, "gradient norm ~ L^exponent")
    for name in ("step", "series", "outcome", "over"):
        table.add_column(name, no_wrap=True)
    for name in (*SHORT.values(), "n", "diverged"):
        table.add_column(name, justify="right", no_wrap=True)
    runs, unfitted = story.runs, 0
    for (step, variant, warmup, outcome), fit in groups(story.exponents, ["step", "variant", "warmup", "outcome"]):
        by_name = {(row["quantity"], row["place"]): row for _, row in fit.iterrows()}
        mine = runs.loc[(runs["variant"] == variant) & (runs["warmup"] == warmup), "outcome"]
        lost = f"{int((mine == 'diverged').sum())}/{len(mine)}"
        lead = (str(step), story.looks[variant, warmup].label, str(outcome))
        rows = []
        for suffix, over in (("", f"L ≥ {tables.FIT_FROM}"), ("_all", "all L")):
            numbers = [exponent_text(by_name[name], suffix) for name in SHORT]
            if set(numbers) != {"-"}:
                rows.append((*lead, over, *numbers, str(min(row["seeds" + suffix] for row in by_name.values())), lost))
        unfitted += not rows
        for row in rows:
            table.add_row(*row)
    table.caption = (
        "Exponent ± half its 95 % t interval over the n seeds fitted, a slope each. first / last: relative norm (grad_rel). "
        f"{NO_LAW} Not fitted for fewer than three depths: {unfitted} of the outcomes. Diverged: of all runs of the series."
    )
    return table


def outcome_counts(story: Story) -> Table:
    """How many runs of each cell trained, what became of the others, and between which steps they escaped."""
    table = _titled(story, "runs trained, by depth")
    table.caption = (
        "In brackets: the steps between which their smoothed loss left the unigram entropy (none: only the last updates did); "
        "then the outcomes of the others."
    )
    table.add_column("series", no_wrap=True)
    for depth in story.depths:
        table.add_column(f"L = {depth}")
    cells = {(cell["variant"], cell["warmup"], cell["depth"]): cell for _, cell in tables.fractions(story.runs).iterrows()}
    for name, look in story.looks.items():
        table.add_row(look.label, *(_cell(cells.get((*name, depth))) for depth in story.depths))
    return table


def _titled(story: Story, what: str) -> Table:
    source = story.study.source
    title = f"{source.study} at {source.scale}: {what}"
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")


def _cell(cell: pd.Series | None) -> str:
    if cell is None:
        return "-"
    first, last = cell["escape_first"], cell["escape_last"]
    escape = "" if pd.isna(first) else f" ({first})" if first == last else f" ({first}-{last})"
    rest = "".join(f"\n{cell[name]} {name}" for name in ("stuck", "unfinished", "diverged") if cell[name])
    return f"{cell['trained']}/{cell['seeds']}{escape}{rest}"


def exponent_text(fit: pd.Series, suffix: str) -> str:
    """'−0.50 ± 0.04', without interval where there is one seed; * where it is no power law; - where nothing was fitted."""
    exponent, low, high = (float(fit[name + suffix]) for name in ("exponent", "low", "high"))
    if not np.isfinite(exponent):
        return "-"
    number = f"{exponent:+.2f}".replace("-", "−") + ("" if fit["lawful" + suffix] else "*")
    return f"{number} ± {(high - low) / 2:.2f}" if np.isfinite(low) else f"{number} (1 seed)"


def absent(found: Estimate) -> str:
    """Why there is no number, in few words."""
    if found.seeds == 0 and (found.zeros or found.nonfinite):
        return f"{found.zeros} zeros" if found.zeros else f"{found.nonfinite} not finite"
    return found.reason.split(";")[0]


def estimate_text(found: Estimate) -> str:
    """'−0.50 ± 0.04', * where points stray from the law by more than a factor of STRAY; or why there is no number."""
    if found.interval is None:
        return found.reason
    star = "*" if found.stray > tables.STRAY else ""
    return f"{found.interval.estimate:+.2f}".replace("-", "−") + f"{star} ± {found.interval.half:.2f}"
