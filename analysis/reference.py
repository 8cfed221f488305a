"""Writes the committed reference from finished runs: ``python -m analysis.reference`` (make reference).

All seeds and all recorded steps, the columns that figures and claims read. The ledger and the figures beside it are made from
these tables.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from analysis import claims, figures, gallery, schema
from analysis.evidence.sources import EXACT
from analysis.ledger import CLAIMS
from analysis.load import Columns, load_study, run_table
from analysis.plan import Plan, newest_plan
from analysis.schema import SchemaError, read_table

SCALE = "laptop"  # the one scale that has a reference
PICTURES = (  # that the texts show, and the table of variants
    *("headline", "claims", "exponents", "theory", "collapse_profile", "rate"),
    *("variants", "variants_exponents", "variants_loss", "logit_growth"),
)
DRAWN = {study for entry in gallery.FIGURES.values() for study in entry.studies}
JUDGED = {study for claim in CLAIMS for study in claim.studies} - {EXACT}
STUDIES = tuple(sorted(DRAWN | JUDGED))


def kept(study: str) -> Columns:
    """The columns of a study that a figure or a claim reads."""
    drawn, judged = gallery.columns(study) if study in DRAWN else Columns((), ()), claims.needed(study)
    steps, layers = (
        tuple(name for name in schema.columns(table) if name in {*(one or ()), *(other or ())} - {"step", "layer"})
        for table, one, other in (("steps", drawn.steps, judged.steps), ("layers", drawn.layers, judged.layers))
    )
    return Columns(steps, layers)


def write_reference(results: Path, study: str, scale: str = SCALE) -> Path:
    """Write results/reference/<study>/{runs,steps,layers}.parquet and return the folder.

    Raises SchemaError unless the newest plan is done and its files are whole. Each file is replaced in one step.
    """
    if scale != SCALE:
        raise SchemaError(f"scale={scale}: the reference is made at scale={SCALE} only")
    source = results / "runs" / study / scale
    plan = newest_plan(source)
    if plan is None or not plan.done:
        raise SchemaError(f"{source}: {plan or 'no plan'}; finish it first: make sweep STUDY={study}")
    columns = kept(study)
    load_study(results, study, scale, columns=columns)  # raises where a run is not whole
    folder = results / "reference" / study
    folder.mkdir(parents=True, exist_ok=True)
    _write(run_table(source, sorted(plan.finished)), folder / "runs.parquet")
    _write(_joined(source, plan, "steps", ("step", *(columns.steps or ()))), folder / "steps.parquet")
    _write(_joined(source, plan, "layers", ("step", "layer", *(columns.layers or ()))), folder / "layers.parquet")
    return folder


def _joined(source: Path, plan: Plan, table: str, names: tuple[str, ...]) -> pa.Table:
    """One table of all runs in Arrow, where null (not measured) and NaN (not finite) stay apart."""
    parts = []
    for run in sorted(plan.finished):
        part = read_table(source / run / f"{table}.parquet", table, names)
        parts.append(part.add_column(0, schema.RUN_COLUMN, pa.array([run] * len(part), pa.string())))
    return pa.concat_tables(parts).combine_chunks()


def _write(table: pa.Table, path: Path) -> None:
    """Replace a parquet file by one that is whole: written beside it, synced, renamed."""
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    try:
        with os.fdopen(handle, "wb") as file:
            pq.write_table(
                table, file, compression="zstd", compression_level=19, write_page_checksum=True,
                use_dictionary=texts, column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
            )  # fmt: skip
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def keep_checks(results: Path) -> list[Path]:
    """Copy the exact checks, where they were made here, beside the tables."""
    source, target = results / "exact.json", results / "reference" / "exact.json"
    if not source.exists():
        return []
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    return [target]


def draw_reference(results: Path, console: Console) -> list[Path]:
    """Draw the pictures of results/reference/figures from the tables beside them."""
    store = figures.Store(results, SCALE, reference=True)
    shown = [entry for name, entry in figures.FIGURES.items() if name in PICTURES]
    return figures.draw(store, results / "reference" / "figures", shown, console, ("png",)).paths


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 if every study asked for was written."""
    parser = argparse.ArgumentParser(prog="python -m analysis.reference", description="Write results/reference.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder with runs/ and reference/")
    parser.add_argument("--study", action="append", choices=STUDIES, help="default: every study whose plan is done")
    arguments = parser.parse_args(argv)
    console, errors = figures.terminal(), Console(stderr=True)
    done = [study for study in STUDIES if (plan := newest_plan(arguments.results / "runs" / study / SCALE)) and plan.done]
    studies = arguments.study or done
    try:
        for study in studies:
            folder = write_reference(arguments.results, study)
            size = sum(path.stat().st_size for path in folder.glob("*.parquet")) / 1e6
            console.print(f"{os.path.relpath(folder)}: {size:.2f} MB", soft_wrap=True)
        for path in keep_checks(arguments.results):
            console.print(os.path.relpath(path), soft_wrap=True)
    except SchemaError as error:
        errors.print(f"error: {error}", soft_wrap=True, markup=False)
        return 1
    if not studies:
        errors.print(f"error: no study of {arguments.results} is done at {SCALE}; run: make sweep", soft_wrap=True)
        return 1
    claims.write(arguments.results / "reference", claims.evaluated(arguments.results, SCALE, reference=True))
    draw_reference(arguments.results, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
