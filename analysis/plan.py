"""The plans of a study's folder: which runs a command asked for, and how they stand."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from analysis.schema import SchemaError, read_json

FINISHED = ("complete", "diverged")  # divergence is a result


@dataclass(frozen=True)
class Plan:
    """The newest command of a study and the state of each of its runs; a run without a folder is `missing`."""

    path: Path
    states: dict[str, str]

    @property
    def finished(self) -> list[str]:
        return [run for run, state in self.states.items() if state in FINISHED]

    @property
    def done(self) -> bool:
        return len(self.finished) == len(self.states) > 0

    def __str__(self) -> str:
        counts = Counter(state for state in self.states.values() if state not in FINISHED)
        rest = ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
        return f"{len(self.finished)} of {len(self.states)} runs of its newest plan done" + (f", {rest}" if rest else "")


def newest_plan(folder: Path) -> Plan | None:
    """The plan written last in a folder of runs, with its runs' states; None where there is none."""
    paths = sorted(folder.glob("plan-*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    if not paths:
        return None
    runs = read_json(paths[-1], ("schema", "study", "scale", "runs"))["runs"]
    return Plan(paths[-1], {run: _state(folder / run / "run.json") for run in runs})


def _state(path: Path) -> str:
    if not path.exists():
        return "missing"
    status = read_json(path, ("status",))["status"]
    if not isinstance(status, dict) or "state" not in status:
        raise SchemaError(f"{path}: no key status.state")
    return str(status["state"])
