"""A study with everything that its figures share: outcomes, moments, looks, fits, and the notes under every figure."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from matplotlib.lines import Line2D

from analysis import tables
from analysis.cells import check_cells
from analysis.load import Study
from analysis.settings import setting
from analysis.style import Look, key, looks, outcome_key

SHOWN = 5  # depths beside each other in a row of panels


@dataclass(frozen=True)
class Story:
    """A study with what every figure of it needs."""

    study: Study

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
        source = self.study.source
        return f"{source.study} ({source.scale}, {source.runs} runs, {source.origin}): {setting(self.runs)}."

    def keys(self) -> list[Line2D]:
        """Legend entries of the series and of the outcomes that occur."""
        met = [name for name in tables.OUTCOMES if name != "init" and (self.runs["outcome"] == name).any()]
        return [key(look) for look in self.looks.values()] + [outcome_key(name) for name in met]


def moment_title(moment: tables.Moment) -> str:
    words = {"init": "at initialisation", "early": "early", "end": "last record"}[moment.name]
    return f"{words}: step {moment.step}"


def averages(story: Story, mark: str, log: bool) -> str:
    """How seeds are averaged, for the notes."""
    mean = "geometric mean" if log else "mean"
    few = "95 % Student-t interval" if story.runs.groupby(tables.CELL).size().max() < 10 else "95 % interval"
    alone = " (none where there is one seed)" if story.runs.groupby(tables.CELL).size().min() < 2 else ""
    return f"Lines: {mean} over the seeds of one outcome; {mark}: its {few}{alone}; faint: single seeds."
