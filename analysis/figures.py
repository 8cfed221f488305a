"""Draws every figure from the store: ``python -m analysis.figures``. The only place that writes figures.

Each figure comes from one source: a study's own runs, or the reference.
"""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from analysis import drawings, freshness, style, tables, training
from analysis.cells import factor, told_apart
from analysis.headline import headline
from analysis.load import Study, load_reference, load_study
from analysis.plan import newest_plan
from analysis.schema import SchemaError, read_json
from analysis.story import Story
from analysis.style import FORMATS
from analysis.summary import fitted_numbers, outcome_counts

INIT = "init_scaling"
SINGLE = "single"  # what experiments calls runs of no study
TRAINING = {"depth_warmup": "", "depth_warmup_xavier": "_xavier"}  # study: ending of its figures' names
TABLE_WIDTH = 118  # characters
BASE = "base"  # the factor of runs in which nothing is varied
FEWEST = 3  # depths that a law is fitted to
Stories = dict[str, Story]


@dataclass(frozen=True)
class Entry:
    """A figure by name: `draw` takes the study `needs` and, if there is one, the study `wants` or None."""

    name: str
    draw: Callable[..., Figure]
    needs: str
    wants: str | None = None

    def figure(self, stories: Stories) -> Figure:
        """Draw it from the stories found."""
        more = () if self.wants is None else (stories.get(self.wants),)
        return self.draw(stories[self.needs], *more)


def of_init(study: str, start: str = "", end: str = "") -> list[Entry]:
    """Figures of a study that does not train."""
    both = partial(drawings.profile, quantities=("grad_stream", "grad_rel"))
    return [Entry(f"{start}profile{end}", both, study), Entry(f"{start}variance{end}", drawings.variance, study)]


def of_training(study: str, end: str) -> list[Entry]:
    """Figures of a study that trains; the headline has the init study beside it."""
    return [
        Entry("headline" + end, headline, study, INIT),
        Entry("profile" + end, partial(drawings.profile, quantities=("grad_stream",)), study),
        Entry("profile_relative" + end, partial(drawings.profile, quantities=("grad_rel",)), study),
        Entry("variance" + end, drawings.variance, study),
        Entry("loss" + end, training.loss, study),
        Entry("outcome" + end, training.outcome, study),
        Entry("heatmap" + end, training.heatmap, study),
        Entry("collapse" + end, training.collapse, study),
    ]


FIGURES = {
    entry.name: entry
    for entries in (of_init(INIT, start="init_"), *(of_training(study, end) for study, end in TRAINING.items()))
    for entry in entries
}


def of_users(results: Path, scale: str) -> dict[str, Entry]:
    """Figures of the other studies that were swept at this scale, named after them."""
    entries: list[Entry] = []
    for folder in sorted(results.glob(f"runs/*/{scale}")):
        study, plan = folder.parent.name, newest_plan(folder)
        if plan is None or not plan.finished or study in (INIT, SINGLE, *TRAINING):
            continue
        run = read_json(folder / plan.finished[0] / "run.json", ("config",))
        trains = run["config"]["train"]["steps"] > 1
        entries += of_training(study, f"_{study}") if trains else of_init(study, end=f"_{study}")
    return {entry.name: entry for entry in entries}


class Store:
    """The studies of a results folder, each read at most once from each of its sources."""

    def __init__(self, results: Path, scale: str, *, partial: bool = False, reference: bool = False) -> None:
        self.results, self.scale, self.partial, self.reference = results, scale, partial, reference
        self._own: dict[str, Story | None] = {}
        self._kept: dict[str, Story | None] = {}

    def story(self, study: str) -> Story | None:
        """A study from its own runs where they are done, else from the reference."""
        if self.reference:
            return self.kept(study)
        if study not in self._own:
            own = load_study(self.results, study, self.scale, partial=self.partial, columns=tables.DRAWN)
            self._own[study] = _story(own)
        return self._own[study]

    def kept(self, study: str) -> Story | None:
        """A study from the reference."""
        if study not in self._kept:
            self._kept[study] = _story(load_reference(self.results, study, self.scale, columns=tables.DRAWN))
        return self._kept[study]

    def why_not(self, study: str) -> str:
        """Why a study has no tables."""
        plan = newest_plan(self.results / "runs" / study / self.scale)
        if plan is None:
            return f"no runs at {self.scale}, and no reference"
        return f"{plan}; finish it with make sweep, or with make sweep RETRY=1 where runs failed; and no reference"

    def together(self, entry: Entry) -> tuple[Stories, str]:
        """What an entry draws, all of one source, and a remark where that costs something."""
        main = self.story(entry.needs)
        if main is None:
            return {}, ""
        if entry.wants is None:
            return {entry.needs: main}, ""
        side = self.story(entry.wants)
        if side is not None and side.study.source.kind == main.study.source.kind:
            return {entry.needs: main, entry.wants: side}, ""
        both = {study: self.kept(study) for study in (entry.needs, entry.wants)}
        whole = {study: story for study, story in both.items() if story is not None}
        if side is not None and len(whole) == 2:
            return whole, f"from the reference, since {main.study.source.study} and {entry.wants} are not both run here"
        return {
            entry.needs: main
        }, f"without the panels of {entry.wants}, which has no {main.study.source.kind} at {self.scale}"


def _story(study: Study | None) -> Story | None:
    """A study as its general figures show it: of one that varies factors, the base cell."""
    if study is None:
        return None
    varied = factor(study.runs)
    if (varied == BASE).any():
        study = study.only(varied == BASE)
    return Story(replace(study, runs=told_apart(study.runs)))


@dataclass
class Drawing:
    """What was drawn: files, the stories they show, and the figures without data, by study."""

    paths: list[Path]
    stories: dict[tuple[str, str], Story]
    skipped: dict[str, list[str]]


def draw(
    store: Store, out: Path, entries: list[Entry], console: Console, formats: tuple[str, ...] = tuple(FORMATS)
) -> Drawing:
    """Draw the figures into `out`, saying each one's path."""
    drawing = Drawing([], {}, {})
    for entry in entries:
        name = entry.name
        stories, remark = store.together(entry)
        if not stories:
            drawing.skipped.setdefault(entry.needs, []).append(name)
            continue
        with style.applied():
            paths = style.save(entry.figure(stories), out / name, formats)
        drawing.paths += paths
        drawing.stories |= {(story.study.source.kind, study): story for study, story in stories.items()}
        shown = " ".join([os.path.relpath(paths[0]), *(path.suffix for path in paths[1:])])
        console.print(shown + (f"  ({remark})" if remark else ""), soft_wrap=True, highlight=False)
    return drawing


def tell(store: Store, drawing: Drawing, console: Console) -> None:
    """The source of every study drawn, what was left out, and the fitted numbers."""
    for story in drawing.stories.values():
        console.print(str(story.study.source), soft_wrap=True, highlight=False)
    for study, names in drawing.skipped.items():
        console.print(f"{study}: {store.why_not(study)}; skipped: {', '.join(names)}", soft_wrap=True, highlight=False)
    for story in drawing.stories.values():
        if story.trained:
            console.print(outcome_counts(story))
        if len(story.depths) >= FEWEST:
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
        now = freshness.digest(arguments.results, arguments.scale, {entry.needs for entry in entries})
        if arguments.if_new and freshness.is_fresh(out, now):
            console.print(f"figures in {os.path.relpath(out)} are up to date", highlight=False, soft_wrap=True)
            return 0
        drawing = draw(store, out, entries, console)
        tell(store, drawing, console)
        if not (arguments.only or arguments.partial) and drawing.paths:
            freshness.keep(out, now, {path.stem for path in drawing.paths})
    except SchemaError as error:
        errors.print(f"error: {error}", soft_wrap=True, markup=False)
        return 1
    if not drawing.paths:
        errors.print(f"error: nothing to draw in {arguments.results} at {arguments.scale}; run: make sweep", soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
