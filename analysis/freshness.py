"""Whether the figures at hand were drawn from the results at hand, so that a finished sweep need not redraw them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from analysis.plan import newest_plan
from analysis.style import FORMATS

STAMP = ".drawn-from"  # beside the figures: the digest of what they show


def digest(results: Path, scale: str, studies: Iterable[str]) -> str:
    """SHA-256 over the newest plans and the states of their runs, the reference, the exact checks, and the code that draws."""
    found = hashlib.sha256()
    for study in sorted(set(studies)):
        folder = results / "runs" / study / scale
        plan = newest_plan(folder)
        for run in sorted(plan.states) if plan else ():
            found.update(f"{study} {run} {_stamp(folder / run / 'run.json')}\n".encode())
        for path in sorted((results / "reference" / study).glob("*.parquet")):
            found.update(f"{path.name} {_stamp(path)}\n".encode())
    for path in (results / "exact.json", results / "reference" / "exact.json"):
        found.update(f"{path.name} {_stamp(path)}\n".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def is_fresh(out: Path, now: str) -> bool:
    """True where `out` holds figures drawn from what has this digest, in every format."""
    stamp = out / STAMP
    if not stamp.exists():
        return False
    recorded, *names = stamp.read_text(encoding="utf-8").split()
    return recorded == now and all((out / f"{name}.{kind}").exists() for name in names for kind in FORMATS)


def keep(out: Path, now: str, names: Iterable[str]) -> None:
    """Note what the figures of these names were drawn from."""
    (out / STAMP).write_text(" ".join([now, *sorted(names)]) + "\n", encoding="utf-8")


def _stamp(path: Path) -> str:
    stat = path.stat() if path.exists() else None
    return f"{stat.st_size} {stat.st_mtime_ns}" if stat else "missing"
