"""``python -m experiments.exact`` computes the exact checks and writes <results>/exact.json."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments import exact
from experiments.config import ConfigError
from experiments.manifest import make_manifest
from experiments.state import make_folder, write_json

FILE, SCHEMA = "exact.json", 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute and write. A check that does not hold is named and written down: it is a result. Exit code 1 if it cannot be
    written."""
    parser = argparse.ArgumentParser(prog="python -m experiments.exact", description=exact.__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help=f"folder that receives {FILE}")
    results = parser.parse_args(arguments).results
    try:
        make_folder(results)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    manifest, rows = make_manifest(), list(exact.checks())
    record = {"schema": SCHEMA, "commit": manifest["commit"], "versions": manifest["versions"]}
    write_json(results / FILE, record | {"checks": [asdict(row) for row in rows]})
    broken = [f"{row.id} {row.name}" for row in rows if not row.holds]
    print(f"{results / FILE}: {len(rows)} exact checks" + (f"; not as expected: {', '.join(broken)}" if broken else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
