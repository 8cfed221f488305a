"""Where every study stands: ``python -m experiments.status`` counts its runs by state and says why some broke."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.config import SINGLE
from experiments.plan import newest_plan
from experiments.state import BROKEN, OPEN, RUN, RunState, read_state

HEADINGS = {"complete": "done"}
COLUMNS = ("complete", "running", "diverged", *BROKEN, *OPEN)
ALWAYS = ("complete", "running", "failed", "missing")  # shown even where none is


@dataclass(frozen=True)
class Standing:
    """The runs of one study at one scale: those of its newest plan, or all there are where it has none or is no study."""

    study: str
    scale: str
    states: list[RunState]

    @property
    def counts(self) -> Counter[str]:
        return Counter(state.state for state in self.states)

    @property
    def broken(self) -> list[RunState]:
        """Runs with something to say: broken ones, and records that cannot be read."""
        return [state for state in self.states if state.state in BROKEN or (state.state == "interrupted" and not state.record)]


def standings(results: Path) -> list[Standing]:
    """One standing for each study and scale that has a plan or a run."""
    found = []
    for folder in sorted(path for path in results.glob("runs/*/*") if path.is_dir()):
        plan = newest_plan(folder) if folder.parent.name != SINGLE else None
        runs = plan.states().values() if plan else map(read_state, sorted({path.parent for path in folder.glob(f"*/{RUN}")}))
        if states := list(runs):
            found.append(Standing(folder.parent.name, folder.name, states))
    return found


def show(found: Sequence[Standing], console: Console) -> None:
    """Print the table, and below it what broke and where its traceback is."""
    total = sum((standing.counts for standing in found), Counter[str]())
    shown = [name for name in COLUMNS if name in ALWAYS or total[name]]
    table = Table("study", "scale", "runs", box=SIMPLE_HEAD, pad_edge=False)
    for name in shown:
        table.add_column(HEADINGS.get(name, name), justify="right", no_wrap=True)
    for standing in found:
        counts = [str(standing.counts[name]) for name in shown]
        table.add_row(Text(standing.study), Text(standing.scale), str(len(standing.states)), *counts)
    console.print(table)
    for state in (state for standing in found for state in standing.broken):
        lines = [f"{state.state}: {os.path.relpath(state.folder)}", f"    {state.message}"]
        lines += [f"    {os.path.relpath(state.traceback)}"] if state.traceback else []
        say(console, "\n".join(lines))
    if any(total[name] for name in BROKEN):
        say(console, "to redo them: make sweep RETRY=1, or sweep.retry=true")


def say(console: Console, text: str) -> None:
    """Print text as it is, not wrapped: paths stay whole."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Show where the studies in a results folder stand."""
    parser = argparse.ArgumentParser(prog="python -m experiments.status", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder that holds runs/")
    results = parser.parse_args(arguments).results
    console = Console()
    if found := standings(results):
        show(found, console)
    else:
        say(console, f"no runs in {results / 'runs'}; start with: make quick, or make sweep")
    return 0


if __name__ == "__main__":
    sys.exit(main())
