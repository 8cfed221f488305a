"""``python -m analysis.anatomy results/ledger/pre-gpt2.json`` draws a block from its trace, without torch."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from analysis import style
from analysis.anatomy.page import anatomy
from analysis.schema import SchemaError, read_json

SCHEMA = 1  # of a trace
KEYS = (
    *("schema", "model", "label", "equation", "size", "layer", "alike", "parameters"),
    *("streams", "branches", "steps", "edges", "outputs"),
)
FORMATS = ("png", "svg")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a trace cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m analysis.anatomy", description="Draw blocks from their traces.")
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="JSON files that experiments.ledger wrote")
    parser.add_argument("--out", type=Path, default=None, help="folder; default figures/ beside the trace's folder")
    arguments = parser.parse_args(argv)
    try:
        for path in arguments.traces:
            paths = draw(path, arguments.out or path.parent.parent / "figures")
            print(os.path.relpath(paths[0]), *(other.suffix for other in paths[1:]))
    except SchemaError as error:
        Console(stderr=True).print(f"error: {error}", soft_wrap=True, markup=False)
        return 1
    return 0


def draw(path: Path, out: Path) -> list[Path]:
    """Write the picture of one trace, named after it. SchemaError if it is none."""
    trace = read(path)
    with style.applied():
        return style.save(anatomy(trace), out / f"anatomy-{path.stem}", FORMATS)


def read(path: Path) -> Mapping[str, Any]:
    """A trace of experiments.ledger."""
    trace = read_json(path, KEYS)
    if trace["schema"] != SCHEMA:
        raise SchemaError(f"{path}: trace of schema {trace['schema']}, not {SCHEMA}; write it anew with make ledger")
    return trace


if __name__ == "__main__":
    sys.exit(main())
