"""The tables of results/schema.json, and files read against them: what does not fit is refused, never read as whole."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = Path(__file__).parent.parent / "results" / "schema.json"
RUN_COLUMN = pa.field("run", pa.string())  # leads `steps` and `layers` where many runs share a file


class SchemaError(ValueError):
    """A file that is not what results/schema.json says. The message names the file, the column or key, and the remedy."""


@cache
def version() -> int:
    """Version of the schema; run.json names the one it was written for."""
    return int(read_json(SCHEMA, ("version",))["version"])


@cache
def neutral() -> dict[str, Any]:
    """Values, by dotted key, of the options that a run which lacks them was made with: those that came after it."""
    return dict(read_json(SCHEMA, ("neutral",))["neutral"])


@cache
def columns(table: str) -> dict[str, pa.DataType]:
    """Arrow type of each column of a table, in the schema's order."""
    known = read_json(SCHEMA, ("tables",))["tables"]
    if table not in known:
        raise SchemaError(f"{SCHEMA}: no table {table!r}; known are: {', '.join(known)}")
    return {name: pa.type_for_alias(column["dtype"]) for name, column in known[table]["columns"].items()}


def read_json(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """The object in a JSON file, with at least these keys."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise SchemaError(f"{path}: not readable as JSON ({error}); delete it and run the sweep again") from error
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise SchemaError(f"{path}: no key {', '.join(missing)}")
    return dict(value)


def read_table(path: Path, table: str, names: tuple[str, ...] | None = None, *, many: bool = False) -> pa.Table:
    """Columns of a parquet file that holds a table of the schema.

    names : columns to read; None = all of the schema, or where the file holds many runs, all that it has.
    many : the file holds many runs: a column `run` leads, and it is one of the reference's, which lack columns.
    Raises SchemaError if the file is cut short or damaged, a wanted column is missing, or any column is unknown or of
    another type. A file may lack columns that nobody asks for: older runs and the reference do.
    """
    wanted = columns(table) if names is None else {name: columns(table)[name] for name in names}
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check(path, file.schema_arrow, table, many)
            present = set(file.schema_arrow.names)
            if many and names is None:
                wanted = {name: kind for name, kind in wanted.items() if name in present}
            for name in wanted:
                if name not in present:
                    remedy = "make reference" if many else "delete its folder and run the sweep again"
                    raise SchemaError(f"{path}: column {name} is missing; the file is older than the schema: {remedy}")
            leading = [RUN_COLUMN.name] if many else []
            return file.read(columns=leading + list(wanted), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        message = str(error).splitlines()[0]
        raise SchemaError(f"{path}: cut short or damaged ({message}); delete its folder and run the sweep again") from error


def _check(path: Path, found: pa.Schema, table: str, many: bool) -> None:
    known = columns(table)
    if many:
        if not found.names or found.names[0] != RUN_COLUMN.name:
            raise SchemaError(f"{path}: column run is missing; it must lead")
        known = {RUN_COLUMN.name: RUN_COLUMN.type} | known
    for field in found:
        if field.name not in known:
            raise SchemaError(f"{path}: column {field.name} is not in results/schema.json, table {table}")
        if field.type != known[field.name]:
            raise SchemaError(f"{path}: column {field.name} is {field.type}, not {known[field.name]} as in the schema")
