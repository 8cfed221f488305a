"""Draws every figure from the store: ``python -m analysis.figures``. The only place that writes figures.

Each figure comes from one source: a study's own runs, or the reference.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from analysis import freshness, style
from analysis.claims import evaluated
from analysis.comparison import Comparison
from analysis.gallery import FIGURES, INIT, TRAINING, Entry, Ledger, Tabled, of_users
from analysis.ledger import CLAIMS
from analysis.schema import SchemaError
from analysis.store import Store
from analysis.story import Story
from analysis.style import FORMATS
from analysis.summary import fitted_numbers, outcome_counts

__all__ = ["FIGURES", "INIT", "TRAINING", "Entry", "Store", "draw", "main", "terminal"]

TABLE_WIDTH = 118  # characters
FEWEST = 3  # depths that a law is fitted to


@dataclass
class Drawing:
    """What was drawn: files, the stories they show, the figures without data, by the reason, and tables."""

    paths: list[Path]
    stories: dict[tuple[str, str], Story]
    skipped: dict[str, list[str]]
    tables: list[Comparison]


def draw(
    store: Store, out: Path, entries: list[Entry], console: Console, formats: tuple[str, ...] = tuple(FORMATS)
) -> Drawing:
    """Draw the figures into `out`, saying each one's path."""
    drawing = Drawing([], {}, {}, [])
    for entry in entries:
        name = entry.name
        stories, remark = store.together(entry)
        rows = evaluated(store.results, store.scale, reference=store.reference) if isinstance(entry, Ledger) else []
        if not stories and all(row.verdict.word == "not measured" for row in rows):
            drawing.skipped.setdefault(f"{entry.needs}: {store.why_not(entry)}", []).append(name)
            continue
        if isinstance(entry, Tabled):
            drawing.tables.append(entry.table(stories))
            paths = write(drawing.tables[-1], out / name)
        else:
            with style.applied():
                paths = style.save(entry.draw(rows) if rows else entry.figure(stories), out / name, formats)
            drawing.paths += paths
        drawing.stories |= {(story.study.source.kind, study): story for study, story in stories.items()}
        shown = " ".join([os.path.relpath(paths[0]), *(path.suffix for path in paths[1:])])
        console.print(shown + (f"  ({remark})" if remark else ""), soft_wrap=True, highlight=False)
    return drawing


def write(table: Comparison, stem: Path) -> list[Path]:
    """The table as CSV and as Markdown."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for extension, text in (("csv", table.csv_text()), ("md", table.markdown_text())):
        path = stem.with_name(f"{stem.name}.{extension}")
        path.write_text(text, encoding="utf-8", newline="")
        paths.append(path)
    return paths


def tell(drawing: Drawing, console: Console) -> None:
    """The source of every study drawn, what was left out, and the fitted numbers: of a study with a table of its own that."""
    for story in drawing.stories.values():
        console.print(str(story.whole.source), soft_wrap=True, highlight=False)
    for reason, names in drawing.skipped.items():
        console.print(f"{reason}; skipped: {', '.join(names)}", soft_wrap=True, highlight=False)
    for table in drawing.tables:
        console.print(table.terminal_table())
    compared = {entry.needs for entry in FIGURES.values() if isinstance(entry, Tabled)}
    for story in (story for (_, study), story in drawing.stories.items() if study not in compared):
        if story.trained:
            console.print(outcome_counts(story))
        if len(story.depths) >= FEWEST and {"grad_stream", "grad_rel"} <= {*story.study.layers}:
            console.print(fitted_numbers(story))


def terminal() -> Console:
    """Standard output, wide enough for the tables where it is a file."""
    console = Console()
    return console if console.is_terminal else Console(width=TABLE_WIDTH)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m analysis.figures", description="Draw the figures from the store.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder with runs/ and reference/")
    parser.add_argument("--scale", default="laptop", help="laptop, smoke or gpu")
    parser.add_argument("--out", type=Path, default=None, help="folder for <scale>/<figure>.png; default <results>/figures")
    parser.add_argument("--only", default="", help="names of figures, comma-separated")
    parser.add_argument("--if-new", action="store_true", help="draw nothing where the figures are up to date")
    parser.add_argument("--partial", action="store_true", help="draw the finished runs of a plan that is not done")
    return parser.parse_args(argv)


def _asked(arguments: argparse.Namespace) -> list[Entry]:
    """The figures that --only names, or all. Raises SchemaError for a name that none has."""
    known = FIGURES | of_users(arguments.results, arguments.scale)
    names = [name for name in arguments.only.split(",") if name] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SchemaError(f"no figure {', '.join(unknown)}; known are: {', '.join(known)}")
    return [known[name] for name in names]


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 if anything was drawn."""
    arguments = _arguments(argv)
    console, errors = terminal(), Console(stderr=True)
    store = Store(arguments.results, arguments.scale, partial=arguments.partial)
    out = (arguments.out or arguments.results / "figures") / arguments.scale
    try:
        entries = _asked(arguments)
        studies = {study for entry in entries for study in entry.studies} | {
            study for claim in CLAIMS for study in claim.studies
        }
        now = freshness.digest(arguments.results, arguments.scale, studies)
        if arguments.if_new and freshness.is_fresh(out, now):
            console.print(f"figures in {os.path.relpath(out)} are up to date", highlight=False, soft_wrap=True)
            return 0
        drawing = draw(store, out, entries, console)
        tell(drawing, console)
        if not (arguments.only or arguments.partial) and drawing.paths:
            freshness.keep(out, now, {path.stem for path in drawing.paths})
    except SchemaError as error:
        errors.print(f"error: {error}", soft_wrap=True, markup=False)
        return 1
    if not (drawing.paths or drawing.tables):
        errors.print(f"error: nothing to draw in {arguments.results} at {arguments.scale}; run: make sweep", soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
