"""A study with everything that its figures share: outcomes, moments, looks, fits, and the notes under every figure."""

from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd
from matplotlib.lines import Line2D

from analysis import tables
from analysis.cells import check_cells, factor, told_apart
from analysis.load import Source, Study
from analysis.settings import changed, setting
from analysis.stats import BOOTSTRAP_FROM
from analysis.style import Look, key, looks, outcome_key, variant_names

SHOWN = 5  # depths beside each other in a row of panels
BASE = "base"  # the factor of runs in which nothing is varied


@dataclass(frozen=True)
class Story:
    """A study with what every figure of it needs; of one that varies factors its base cell, and beside it the `whole`."""

    study: Study
    whole: Study

    @classmethod
    def of(cls, whole: Study) -> "Story":
        """Of a study that varies nothing all runs."""
        study = whole.only(varied == BASE) if ((varied := factor(whole.runs)) == BASE).any() else whole
        return cls(_series(study), whole)

    @cached_property
    def factors(self) -> tuple[str, ...]:
        """What the study varies, the base first; empty where it varies nothing."""
        return tuple(sorted(set(factor(self.whole.runs)) - {""}, key=lambda name: (name != BASE, name)))

    def part(self, *names: str) -> "Story | None":
        """The runs of these factors together, or None where there are none."""
        kept = factor(self.whole.runs).isin(names)
        return Story(_series(self.whole.only(kept)), self.whole) if kept.any() else None

    @cached_property
    def changes(self) -> dict[str, str]:
        """Per factor that is not the base what differs from it: keys of the config with their values."""
        varied = factor(self.whole.runs)
        base = self.whole.runs[varied == BASE]
        return {name: changed(self.whole.runs[varied == name], base) for name in self.factors if name != BASE}

    @cached_property
    def runs(self) -> pd.DataFrame:
        check_cells(self.study.runs)
        return tables.outcomes(self.study)

    @cached_property
    def at(self) -> tuple[tables.Moment, ...]:
        return tables.moments(self.study)

    @cached_property
    def looks(self) -> dict[tuple[str, int], Look]:
        return looks(self.runs)

    @cached_property
    def names(self) -> dict[tuple[str, int], str]:
        """The series in the order of their families, with labels that name the warmup only where there are several."""
        several = self.runs["warmup"].nunique() > 1
        found = variant_names(self.runs)
        keys = sorted(self.looks, key=lambda key: (list(found).index(key[0]), key[1]))
        return {key: self.looks[key].label if several else found[key[0]] for key in keys}

    @cached_property
    def law(self) -> pd.DataFrame:
        return tables.depth_law(self.runs, self.study.layers, self.at)

    @cached_property
    def exponents(self) -> pd.DataFrame:
        return tables.exponents(self.law)

    @property
    def depths(self) -> list[int]:
        return sorted(int(depth) for depth in self.runs["depth"].unique())

    @property
    def some_depths(self) -> list[int]:
        """All depths, or every other one where there are many."""
        step = 1 if len(self.depths) <= SHOWN + 1 else 2
        return self.depths[::step]

    @property
    def trained(self) -> bool:
        return bool((self.runs["train_steps"] > 1).any())

    @property
    def note(self) -> str:
        return f"{_told(self.study.source)}: {setting(self.runs)}."

    def factors_note(self, *names: str) -> str:
        """Of the whole study: the setting of the base, and what these factors have instead."""
        found = [f"{name} has {self.changes[name]}" for name in names if name in self.changes]
        lead = f"{_told(self.whole.source)}" + (f", {BASE}" if found else "")
        return f"{lead}: {setting(self.runs)}." + (f" Against it {'; '.join(found)}." if found else "")

    def keys(self) -> list[Line2D]:
        """Legend entries of the series and of the outcomes that occur."""
        met = [name for name in tables.OUTCOMES if name != "init" and (self.runs["outcome"] == name).any()]
        return [key(look) for look in self.looks.values()] + [outcome_key(name) for name in met]


def _told(source: Source) -> str:
    return f"{source.study} ({source.scale}, {source.runs} runs, {source.origin})"


def _series(study: Study) -> Study:
    return replace(study, runs=told_apart(study.runs))


def moment_title(moment: tables.Moment) -> str:
    words = {"init": "at initialisation", "early": "early", "end": "last record"}[moment.name]
    return f"{words}: step {moment.step}"


def averages(story: Story, mark: str, log: bool) -> str:
    """How seeds are averaged, for the notes."""
    mean = "geometric mean" if log else "mean"
    few = "95 % Student-t interval" if story.runs.groupby(tables.CELL).size().max() < BOOTSTRAP_FROM else "95 % interval"
    alone = " (none where there is one seed)" if story.runs.groupby(tables.CELL).size().min() < 2 else ""
    return f"Lines: {mean} over the seeds of one outcome; {mark}: its {few}{alone}; faint: single seeds."
