"""The studies of a results folder as figures are drawn from them: their own runs or the reference, never both."""

from dataclasses import replace
from pathlib import Path

from analysis.gallery import Entry, Stories, columns
from analysis.load import Study, load_reference, load_study
from analysis.plan import newest_plan
from analysis.story import Story


class Store:
    """Each study is read at most once from each of its sources."""

    def __init__(self, results: Path, scale: str, *, partial: bool = False, reference: bool = False) -> None:
        self.results, self.scale, self.partial, self.reference = results, scale, partial, reference
        self._own: dict[str, Story | None] = {}
        self._kept: dict[str, Story | None] = {}

    def story(self, study: str) -> Story | None:
        """A study from its own runs where they are done, else from the reference."""
        if self.reference:
            return self.kept(study)
        if study not in self._own:
            wanted = replace(columns(study), if_there=True)
            self._own[study] = _story(load_study(self.results, study, self.scale, partial=self.partial, columns=wanted))
        return self._own[study]

    def kept(self, study: str) -> Story | None:
        """A study from the reference."""
        if study not in self._kept:
            wanted = replace(columns(study), if_there=True)
            self._kept[study] = _story(load_reference(self.results, study, self.scale, columns=wanted))
        return self._kept[study]

    def why_not(self, entry: Entry) -> str:
        """Why a figure has nothing to draw."""
        study, story = entry.needs, self.story(entry.needs)
        if story is not None:
            if absent := _lacking(entry, story):
                return f"{story.whole.source.kind} without {', '.join(absent)}, older than the probe; run it again"
            return f"{story.whole.source.kind} without factor {', '.join(_left_out(entry, story))}; run the whole study"
        plan = newest_plan(self.results / "runs" / study / self.scale)
        if plan is None:
            return f"no runs at {self.scale}, and no reference"
        return f"{plan}; finish it with make sweep, or with make sweep RETRY=1 where runs failed; and no reference"

    def together(self, entry: Entry) -> tuple[Stories, str]:
        """What an entry draws, all of one source, and a remark where that costs something.

        The reference is taken where it has more of the studies that are wanted.
        """
        main = self._with_columns(entry, self.story(entry.needs))
        if main is None or _left_out(entry, main):
            return {}, ""
        kind = main.whole.source.kind
        found = {study: self._with_columns(entry, self.story(study)) for study in entry.wants}
        own = {entry.needs: main} | {
            study: story for study, story in found.items() if story is not None and story.whole.source.kind == kind
        }
        if not (lacking := [study for study in entry.studies if study not in own]):
            return own, ""
        kept = {study: self._with_columns(entry, self.kept(study)) for study in entry.studies}
        whole = {study: story for study, story in kept.items() if story is not None}
        if entry.needs in whole and len(whole) > len(own):
            return whole, f"from the reference, since {entry.needs} and {', '.join(lacking)} are not all run here"
        return own, f"without the panels of {', '.join(lacking)}, not among the {kind} at {self.scale}"

    def _with_columns(self, entry: Entry, story: Story | None) -> Story | None:
        return story if story is not None and not _lacking(entry, story) else None


def _lacking(entry: Entry, story: Story) -> list[str]:
    """The columns of an entry that a study's tables do not have."""
    tables = ((entry.columns.steps, story.whole.steps), (entry.columns.layers, story.whole.layers))
    return [name for names, table in tables for name in names or () if name not in table]


def _left_out(entry: Entry, story: Story) -> list[str]:
    """The factors of an entry that its study does not have."""
    return [name for name in entry.factors if name not in story.factors]


def _story(study: Study | None) -> Story | None:
    return None if study is None else Story.of(study)
