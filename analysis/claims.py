"""Evaluates the ledger: ``python -m analysis.claims`` (make claims). Writes <results>/claims.csv and claims.md.

A claim is read from its studies' own runs or from the reference, never from both; see sources.Sources.kind.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from pathlib import Path

from rich.console import Console

from analysis.evidence.counts import OfChecks
from analysis.evidence.measures import Measure
from analysis.evidence.record import MissingError, Reads, UnclearError
from analysis.evidence.rows import Row, csv_text, markdown_text, sources, terminal_table
from analysis.evidence.sources import EXACT, Kind, Sources
from analysis.evidence.verdicts import Verdict, overall
from analysis.ledger import CLAIMS, Claim, Test
from analysis.load import Columns
from analysis.schema import SchemaError
from analysis.settings import setting

OUTCOME = ("loss",)  # what outcomes are read from
TABLE_WIDTH = 150  # characters, where the output is a file


def reads(study: str, claims: Iterable[Claim] = CLAIMS) -> Reads:
    """Columns of a study that the tests of these claims read, and the steps at which; evidence.LAST is the last."""
    tests = (test for claim in claims for test in claim.tests if test.study == study)
    measures = (test.measure for test in tests if isinstance(test.measure, Measure))
    return reduce(or_, (measure.reads for measure in measures), Reads.of())


def needed(study: str, claims: Iterable[Claim] = CLAIMS) -> Columns:
    """The same as columns to load or keep."""
    found = reads(study, claims)
    return Columns(tuple(sorted(found.steps.union(OUTCOME))), tuple(sorted(found.layers)))


def evaluated(results: Path, scale: str, claims: Sequence[Claim] = CLAIMS, *, reference: bool = False) -> list[Row]:
    """The rows of these claims, in their order. reference : read nothing but the reference.

    Raises SchemaError for a file that does not fit the schema or is cut short.
    """
    store = Sources(results, scale, partial(needed, claims=claims), reference=reference)
    return [row for claim in claims for row in evaluate(store, claim)]


def evaluate(store: Sources, claim: Claim) -> list[Row]:
    """One row per test, all from one source, each with the verdict on the whole claim."""
    kind = store.kind(claim.studies)
    rows = [_row(store, kind, claim, test) for test in claim.tests]
    by_when = {row.test.when: row.verdict for row in rows}
    rows = [_premised(row, by_when) for row in rows]
    judged = [(row.test.when, row.verdict) for row in rows if row.test.when not in claim.premises]
    return [replace(row, overall=overall(judged, whole=claim.whole)) for row in rows]


def _premised(row: Row, by_when: Mapping[str, Verdict]) -> Row:
    """The row, without a verdict where its premise does not hold."""
    premise = by_when.get(row.test.premise)
    if premise is None or premise.word == "holds" or row.verdict.word == "not measured":
        return row
    return replace(row, verdict=Verdict("inconclusive", f"its premise, {row.test.premise}, is {premise.word}"))


def _row(store: Sources, kind: Kind, claim: Claim, test: Test) -> Row:
    try:
        if isinstance(test.measure, OfChecks):
            return _of_checks(store, kind, Row(claim, test, Verdict("not measured")), test.measure)
        return _of_runs(store, kind, Row(claim, test, Verdict("not measured")), test.measure)
    except MissingError as missing:
        return Row(claim, test, Verdict("not measured", str(missing)))
    except UnclearError as unclear:
        return Row(claim, test, Verdict("inconclusive", str(unclear)))


def _of_checks(store: Sources, kind: Kind, row: Row, measure: OfChecks) -> Row:
    checks, data = store.checks(kind)
    found = measure.find(checks)
    return replace(row, verdict=row.test.rule.judge(found), found=found, data=data, setting="exact checks in float64")


def _of_runs(store: Sources, kind: Kind, row: Row, measure: Measure) -> Row:
    """The row of a test that reads runs; what was selected is named even where it gives no number."""
    record = store.record(row.test.study, kind)
    runs = record.select(row.test.where, measure.across)
    words = setting(runs.fitting)
    row = replace(row, setting=words, data=record.origin, runs=len(runs.fitting), diverged=runs.diverged)
    try:
        found = measure.find(runs)
    except UnclearError as unclear:
        return replace(row, verdict=Verdict("inconclusive", str(unclear)))
    return replace(row, verdict=row.test.rule.judge(found), found=found)


def write(results: Path, rows: Sequence[Row]) -> list[Path]:
    """Replace <results>/claims.csv and claims.md, each in one step."""
    paths = []
    for name, text in (("claims.csv", csv_text(rows)), ("claims.md", markdown_text(rows))):
        path = results / name
        partial_path = path.with_name(f".{name}.{os.getpid()}")
        partial_path.write_text(text, encoding="utf-8", newline="")
        os.replace(partial_path, path)
        paths.append(path)
    return paths


def asked(only: str) -> list[Claim]:
    """The claims with these ids, comma-separated, or all; C2 stands for C2a, C2b... Raises SchemaError for an unknown id."""
    wanted = [name for name in only.split(",") if name]
    names = {claim.id: {claim.id, re.sub(r"[a-z]$", "", claim.id)} for claim in CLAIMS}
    if unknown := [name for name in wanted if not any(name in known for known in names.values())]:
        raise SchemaError(f"no claim {', '.join(unknown)}; known are: {', '.join(names)}")
    return [claim for claim in CLAIMS if not wanted or names[claim.id] & set(wanted)]


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 if anything was measured."""
    parser = argparse.ArgumentParser(prog="python -m analysis.claims", description="Evaluate the ledger of claims.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder with runs/ and reference/")
    parser.add_argument("--scale", default="laptop", help="laptop, smoke or gpu")
    parser.add_argument("--only", default="", help="ids of claims, comma-separated: these are shown and no file is written")
    arguments = parser.parse_args(argv)
    console, errors = Console(), Console(stderr=True)
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    try:
        rows = evaluated(arguments.results, arguments.scale, asked(arguments.only))
    except SchemaError as error:
        errors.print(f"error: {error}", soft_wrap=True, markup=False)
        return 1
    console.print(terminal_table(rows))
    for line in sources(rows):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    measured = {row.test.study for row in rows if row.verdict.word != "not measured"}
    if not measured or (measured == {EXACT} and not arguments.only):
        errors.print(
            f"error: nothing measured in {arguments.results} at {arguments.scale}; run: make sweep",
            soft_wrap=True,
            markup=False,
        )
        return 1
    if not arguments.only:
        for path in write(arguments.results, rows):
            console.print(os.path.relpath(path), soft_wrap=True, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
