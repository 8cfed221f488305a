"""Where the studies of a claim are read from: their own runs or the reference, never both."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from analysis.evidence.record import MissingError, Record
from analysis.load import Columns, load_reference, load_study
from analysis.plan import Plan, newest_plan
from analysis.schema import SchemaError, read_json

EXACT = "exact"  # the exact checks, asked for like a study
Kind = Literal["runs", "reference"]


class Sources:
    """The studies of a results folder at one scale, each read at most once from each of its sources.

    columns : what to read of a study, by its name. reference : read nothing but the reference.
    """

    def __init__(self, results: Path, scale: str, columns: Callable[[str], Columns], *, reference: bool = False) -> None:
        self.results, self.scale, self.reference, self._columns = results, scale, reference, columns
        self._plan = cache(self._read_plan)
        self._kept = cache(self._read_kept)
        self.record = cache(self._read_record)

    def kind(self, studies: Iterable[str]) -> Kind:
        """Where all of these are read from.

        Their own runs where each that exists, here or in the reference, is done here; also where the reference has none.
        """
        if self.reference:
            return "reference"
        known = [study for study in studies if self._begun(study) or self._kept(study)]
        done = all(self._done(study) for study in known)
        return "runs" if known and (done or not any(self._kept(study) for study in known)) else "reference"

    def checks(self, kind: Kind) -> tuple[list[dict[str, Any]], str]:
        """The exact checks as their file has them, and where they come from. Raises MissingError where there are none."""
        path, place = self._exact(kind), "results/exact.json" if kind == "runs" else _place(kind)
        if not path.exists():
            raise MissingError(f"no exact checks in {place}")
        body = read_json(path, ("schema", "commit", "checks"))
        return body["checks"], f"{place}, commit {body['commit']}"

    def _read_record(self, study: str, kind: Kind) -> Record:
        """Raises MissingError where this source does not have the study."""
        if not (self._done(study) if kind == "runs" else self._kept(study)):
            raise MissingError(self._why_not(study, kind))
        load = load_study if kind == "runs" else load_reference
        found = load(self.results, study, self.scale, columns=replace(self._columns(study), if_there=True))
        if found is None or found.source.kind != kind:
            raise SchemaError(f"{study}: {_place(kind)} changed while they were read; evaluate again")
        source = found.source
        return Record(found, f"{_place(kind)} at {source.scale}, {source.origin}{self._passed_over(study, kind)}")

    def _passed_over(self, study: str, kind: Kind) -> str:
        """What a reader of the reference should know of runs of their own."""
        plan = self._plan(study)
        if kind == "runs" or self.reference or plan is None:
            return ""
        return f"; not your own ({plan}), since not all studies of this claim are done here"

    def _why_not(self, study: str, kind: Kind) -> str:
        plan = self._plan(study)
        if plan is None and not self._kept(study):
            return f"no runs of {study} at {self.scale}"
        if kind == "reference" and plan is not None and plan.done:
            return f"{study} is not in the reference, from which this claim is read: not all its studies are run here"
        return f"{study}: {plan or 'not run here, while the other studies of this claim are'}"

    def _folder(self, study: str) -> Path:
        return self.results / "runs" / study / self.scale

    def _exact(self, kind: Kind) -> Path:
        return (self.results if kind == "runs" else self.results / "reference") / "exact.json"

    def _begun(self, study: str) -> bool:
        return self._exact("runs").exists() if study == EXACT else self._plan(study) is not None

    def _done(self, study: str) -> bool:
        plan = self._plan(study)
        return self._exact("runs").exists() if study == EXACT else plan is not None and plan.done

    def _read_plan(self, study: str) -> Plan | None:
        return newest_plan(self._folder(study))

    def _read_kept(self, study: str) -> bool:
        if study == EXACT:
            return self._exact("reference").exists()
        return load_reference(self.results, study, self.scale, columns=Columns((), ())) is not None


def _place(kind: Kind) -> str:
    return "results/runs" if kind == "runs" else "the committed reference"
