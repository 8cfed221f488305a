"""The variants of a study beside each other, as a table: size, exponents at initialisation, and what trains at which depth."""

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table

from analysis import initial, markdown, tables
from analysis.cells import groups
from analysis.initial import QUANTITIES
from analysis.load import Columns
from analysis.story import Story
from analysis.style import variant_names, warmup_words
from analysis.summary import absent, estimate_text

COLUMNS = Columns(("loss",), ("grad_stream", "grad_w2", "stream_var"))
INIT, TRAIN = "init", "train"  # factors of a study that compares variants
SIZES = {"parameters": "size", "flops_per_token": "FLOPs"}
NOT_TRAINED = ("stuck", "unfinished", "diverged")
LEGEND = (
    "Size: learnable entries. FLOPs: per token, 6 for each weight of a matrix and 12 T D for each attention; norms are left "
    "out. Exponents of L at initialisation: of norms, not squared (stream variance: a square), ± half the 95 % interval over "
    f"seeds, a slope each; * no power law: points stray from the line by more than a factor of {tables.STRAY}. Trained: runs "
    f"that end below the unigram entropy by {tables.MARGIN:g} nats, of all, with their mean validation loss in nats; then "
    "what became of the others."
)


@dataclass(frozen=True)
class Comparison:
    """numbers : one row per variant, as in the CSV. heads, rows : the same in words. notes : settings of the runs."""

    study: str
    numbers: pd.DataFrame
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def csv_text(self) -> str:
        return str(self.numbers.to_csv(index=False, lineterminator="\n", float_format="%.6g"))

    def markdown_text(self) -> str:
        notes = "\n".join(f"* {markdown.line(note)}" for note in self.notes)
        parts = (f"# {self.study}: the variants beside each other", markdown.table(self.heads, self.rows), LEGEND, notes)
        return "\n\n".join(parts) + "\n"

    def terminal_table(self) -> Table:
        title = f"{self.study}: the variants beside each other"
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left", padding=0)
        for place, head in enumerate(self.heads):
            table.add_column("\n".join(head.split(", ")), justify="left" if place == 0 else "right")
        for row in self.rows:
            table.add_row(*(cell.replace(" ± ", "±").replace(", ", "\n").replace("unfinished", "unfin.") for cell in row))
        table.caption = "\n".join((LEGEND, *self.notes))
        return table


def compare(story: Story) -> Comparison:
    """One row per variant of a study with the factors INIT and TRAIN; what a study without one of them lacks is left out."""
    init, train = story.part(INIT), story.part(TRAIN)
    parts = [part for part in (init, train) if part is not None] or [story]
    runs = pd.concat([part.runs for part in parts], ignore_index=True)
    columns = [_sizes(runs), *([_exponents(init)] if init else []), *(_trained(train) if train else [])]
    names = variant_names(runs)
    found = {name: {key: n for column in columns for key, n in column.numbers.get(name, {}).items()} for name in names}
    numbers = [{"variant": name, "label": label} | found[name] for name, label in names.items()]
    rows = [(label, *(cell for column in columns for cell in column.cells(name))) for name, label in names.items()]
    heads = ("variant", *(head for column in columns for head in column.heads))
    return Comparison(story.study.source.study, pd.DataFrame(numbers), heads, tuple(rows), tuple(p.note for p in parts))


@dataclass(frozen=True)
class Part:
    """Some columns of the table: their heads, and by variant the numbers and the words."""

    heads: tuple[str, ...]
    numbers: dict[str, dict[str, Any]]
    words: dict[str, tuple[str, ...]]

    def cells(self, variant: str) -> tuple[str, ...]:
        return self.words.get(variant, ("-",) * len(self.heads))


def _sizes(runs: pd.DataFrame) -> Part:
    """Parameters and FLOPs at the smallest depth that every variant has."""
    shared = set.intersection(*(set(group["depth"]) for _, group in groups(runs, ["variant"])))
    depth = min(shared or set(runs["depth"]))
    first = runs[runs["depth"] == depth].drop_duplicates("variant").set_index("variant")
    found = {str(name): json.loads(text) for name, text in first["manifest"].items()}
    numbers = {name: {f"{key}_L{depth}": manifest.get(key) for key in SIZES} for name, manifest in found.items()}
    words = {name: tuple(_short(value) for value in row.values()) for name, row in numbers.items()}
    return Part(tuple(f"{head}, L = {depth}" for head in SIZES.values()), numbers, words)


def _short(value: float | None) -> str:
    """636k, 4.25M"""
    if value is None:
        return "-"
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.0f}k"


def _exponents(init: Story) -> Part:
    numbers: dict[str, dict[str, Any]] = {}
    words: dict[str, tuple[str, ...]] = {}
    for quantity in QUANTITIES:
        lead = f"{quantity.column}_{quantity.place.replace(' ', '_')}"
        for (name, _), found in initial.exponents(init.runs, init.study.layers, quantity.column, quantity.place):
            interval = found.interval
            values = [None] * 3 if interval is None else [interval.estimate, interval.low, interval.high]
            row = dict(zip((f"{lead}_exponent", f"{lead}_low", f"{lead}_high"), values, strict=True))
            numbers.setdefault(name, {}).update(row | {f"{lead}_seeds": found.seeds, f"{lead}_stray": found.stray})
            words[name] = (*words.get(name, ()), absent(found) if interval is None else estimate_text(found))
    return Part(tuple(f"exponent, {quantity.name}" for quantity in QUANTITIES), numbers, words)


def _trained(train: Story) -> list[Part]:
    """How many runs trained at each depth, and their mean loss; a column per warmup where there are several."""
    warmups = sorted(int(warmup) for warmup in train.runs["warmup"].unique())
    found = []
    for depth in train.depths:
        for warmup in warmups:
            runs = train.runs[(train.runs["depth"] == depth) & (train.runs["warmup"] == warmup)]
            end = f"_L{depth}" + (f"_w{warmup}" if len(warmups) > 1 else "")
            head = f"trained, L = {depth}" + (f", {warmup_words(warmup)}" if len(warmups) > 1 else "")
            numbers = {str(name): _counts(group, end) for (name,), group in groups(runs, ["variant"])}
            found.append(Part((head,), numbers, {name: (_outcome(row, end),) for name, row in numbers.items()}))
    return found


def _counts(runs: pd.DataFrame, end: str) -> dict[str, Any]:
    trained = runs[runs["outcome"] == "trained"]
    counts = {f"{name}{end}": int((runs["outcome"] == name).sum()) for name in ("trained", *NOT_TRAINED)}
    loss = float(trained["final_val_loss"].astype(float).mean()) if len(trained) else None
    return {f"runs{end}": len(runs)} | counts | {f"val_loss{end}": loss}


def _outcome(row: dict[str, Any], end: str) -> str:
    """'2/3 2.61, 1 stuck'"""
    loss = row[f"val_loss{end}"]
    lead = f"{row[f'trained{end}']}/{row[f'runs{end}']}" + ("" if loss is None else f" {loss:.2f}")
    return ", ".join([lead, *(f"{row[name + end]} {name}" for name in NOT_TRAINED if row[name + end])])
