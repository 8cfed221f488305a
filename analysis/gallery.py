"""The figures by name, the studies that each is drawn from, and the columns that it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis import comparison
from analysis.comparison import Comparison
from analysis.drawings import (
    amplification,
    claims,
    collapse,
    effective_depth,
    exponents,
    jacobian,
    layers,
    logits,
    rate,
    theory,
    training,
    variant_layers,
    variants,
)
from analysis.drawings.headline import headline
from analysis.load import Columns
from analysis.plan import newest_plan
from analysis.schema import read_json
from analysis.story import Story
from analysis.tables import DRAWN

INIT = "init_scaling"
SINGLE = "single"  # what experiments calls runs of no study
TRAINING = {"depth_warmup": "", "depth_warmup_xavier": "_xavier"}  # study: ending of its figures' names
NOTHING = Columns((), ())
Stories = dict[str, Story]


@dataclass(frozen=True)
class Entry:
    """A figure by name: `draw` takes the study it needs and then each that it wants, or None where that is missing.

    columns : what it reads of each of its studies. factors : of the study it needs, without which there is nothing to draw.
    """

    name: str
    draw: Callable[..., Any]
    needs: str
    wants: tuple[str, ...] = ()
    columns: Columns = DRAWN
    factors: tuple[str, ...] = ()

    @property
    def studies(self) -> tuple[str, ...]:
        return (self.needs, *self.wants)

    def figure(self, stories: Stories) -> Figure:
        """Draw it from the stories found."""
        drawn: Figure = self.draw(stories[self.needs], *(stories.get(study) for study in self.wants))
        return drawn


@dataclass(frozen=True)
class Ledger(Entry):
    """The picture of the evaluated ledger, which finds its studies itself: `draw` takes the rows."""

    needs: str = "claims"
    columns: Columns = NOTHING

    @property
    def studies(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Tabled(Entry):
    """A table by name: `draw` takes the study."""

    def table(self, stories: Stories) -> Comparison:
        made: Comparison = self.draw(stories[self.needs])
        return made


def of_init(study: str, start: str = "", end: str = "") -> list[Entry]:
    """Figures of a study that does not train."""
    both = partial(layers.profile, quantities=("grad_stream", "grad_rel"))
    return [Entry(f"{start}profile{end}", both, study), Entry(f"{start}variance{end}", layers.variance, study)]


def of_training(study: str, end: str) -> list[Entry]:
    """Figures of a study that trains; the headline has the init study beside it."""
    return [
        Entry("headline" + end, headline, study, (INIT,)),
        Entry("profile" + end, partial(layers.profile, quantities=("grad_stream",)), study),
        Entry("profile_relative" + end, partial(layers.profile, quantities=("grad_rel",)), study),
        Entry("variance" + end, layers.variance, study),
        Entry("loss" + end, training.loss, study),
        Entry("outcome" + end, training.outcome, study),
        Entry("heatmap" + end, training.heatmap, study),
        Entry("collapse" + end, training.collapse, study),
    ]


def of_variants(study: str) -> list[Entry]:
    """Figures of the study that compares all variants, at initialisation and in a short training, and a table of it."""
    init, train = (comparison.INIT,), (comparison.TRAIN,)
    return [
        Entry(f"{study}_exponents", variants.exponents_by_variant, study, (), exponents.COLUMNS, init),
        Entry(f"{study}_variance", variant_layers.variance_by_variant, study, (), variant_layers.VARIANCE, init),
        Entry(f"{study}_loss", variants.loss_by_variant, study, (), variants.LOSS, train),
        Entry(f"{study}_profile", variant_layers.profile_by_variant, study, (), variant_layers.PROFILE, train),
        Tabled(study, comparison.compare, study, (), comparison.COLUMNS),
    ]


def of_laws() -> list[Entry]:
    """Figures of the laws in depth, of the theory, and of the studies made for one claim each."""
    return [
        Entry("exponents", exponents.exponents, INIT, ("xiong2020",), exponents.COLUMNS),
        Entry("theory", theory.theory_over_data, INIT, ("xiong2020",), theory.COLUMNS),
        Entry("amplification", amplification.amplification, "amplification", (), amplification.COLUMNS),
        Entry("jacobian", jacobian.jacobian, "branch_jacobian", (), jacobian.COLUMNS),
        Entry("collapse_profile", collapse.collapse_profile, "collapse", (), collapse.COLUMNS),
        Entry("rate", rate.rate, "collapse", ("width",), rate.COLUMNS),
        Entry("effective_depth", effective_depth.effective_depth, "effective_depth", (), effective_depth.COLUMNS),
        Entry("logit_growth", logits.logit_growth, "logit_growth", (), logits.COLUMNS),
        *of_variants("variants"),
        Ledger("claims", claims.claims),
    ]


FIGURES = {
    entry.name: entry
    for entries in (of_init(INIT, start="init_"), *(of_training(study, end) for study, end in TRAINING.items()), of_laws())
    for entry in entries
}


def columns(study: str) -> Columns:
    """What the figures of a study read of it, all together; the reference must hold it."""
    asked = [entry.columns for entry in FIGURES.values() if study in entry.studies] or [DRAWN]
    of_steps = dict.fromkeys(name for found in asked for name in found.steps or ())
    of_layers = dict.fromkeys(name for found in asked for name in found.layers or ())
    return Columns(tuple(of_steps), tuple(of_layers))


def of_users(results: Path, scale: str) -> dict[str, Entry]:
    """Figures of the other studies that were swept at this scale, named after them."""
    entries: list[Entry] = []
    known = {study for entry in FIGURES.values() for study in entry.studies}
    for folder in sorted(results.glob(f"runs/*/{scale}")):
        study, plan = folder.parent.name, newest_plan(folder)
        if plan is None or not plan.finished or study == SINGLE or study in known:
            continue
        run = read_json(folder / plan.finished[0] / "run.json", ("config",))
        trains = run["config"]["train"]["steps"] > 1
        entries += of_training(study, f"_{study}") if trains else of_init(study, end=f"_{study}")
    return {entry.name: entry for entry in entries}
