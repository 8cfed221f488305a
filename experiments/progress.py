"""How far a sweep is: a live view in a terminal, one line a finished run elsewhere."""

import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiments.plan import Job
from experiments.pool import End
from experiments.state import BROKEN, DONE, RunState


class Progress:
    """View of the jobs of a sweep that are to be run, `skipped` others being done already.

    rate : seconds per unit of cost, from earlier runs; None until one has been seen.
    """

    def __init__(self, console: Console, jobs: Sequence[Job], skipped: int, size: int, rate: float | None) -> None:
        self._console, self._skipped, self._size = console, skipped, size
        self._waiting = {job.name: job for job in jobs}
        self._running: dict[str, tuple[Job, float]] = {}
        self._total = len(jobs)
        self._states: Counter[str] = Counter()
        self._seen = [0.0, 0.0]  # seconds and cost of the runs of this sweep that are done
        self._rate = rate
        self._live = Live(console=console, get_renderable=self._view, refresh_per_second=2) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def started(self, job: Job) -> None:
        self._running[job.name] = (self._waiting.pop(job.name), time.monotonic())

    def ended(self, end: End) -> None:
        self._running.pop(end.job.name)
        if end.state.done:
            self._seen[0] += end.seconds
            self._seen[1] += end.job.cost
        self._count(end.job, end.state, f"{end.seconds:.1f} s")

    def returned(self, job: Job) -> None:
        """A job that is to be started once more."""
        self._running.pop(job.name)
        self._waiting[job.name] = job

    def left(self, job: Job, state: RunState) -> None:
        """A job that another sweep has taken or finished meanwhile."""
        self._waiting.pop(job.name)
        self._count(job, state, "by another process")

    def _count(self, job: Job, state: RunState, remark: str) -> None:
        self._states[state.state] += 1
        line = f"[{sum(self._states.values())}/{self._total}] {state.state:<11} {job.name}  {remark}"
        reason = f"  {state.message}" if state.message and not state.done else ""
        self._console.print(line + reason, markup=False, highlight=False, soft_wrap=True)

    def _view(self) -> RenderableType:
        ended = sum(self._states.values())
        done = sum(self._states[state] for state in DONE)
        failed = sum(self._states[state] for state in BROKEN)
        counts = (
            f"{done} done, {len(self._running)} running, {failed} failed, {self._skipped} skipped, {len(self._waiting)} to go"
        )
        now = time.monotonic()
        jobs = [f"  {name}  {clock(now - began)}" for name, (_, began) in list(self._running.items())]
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(self._total, 1), completed=ended, width=40)
        head.add_row(bar, Text(f"{ended}/{self._total}  {self._remaining(now)}"))
        return Group(head, Text(counts), *map(Text, jobs))

    def _remaining(self, now: float) -> str:
        rate = self._seen[0] / self._seen[1] if self._seen[1] else self._rate
        if rate is None:
            return "time left is known after the first run"
        begun = [max(rate * job.cost - (now - began), 0.0) for job, began in list(self._running.values())]
        waiting = [rate * job.cost for job in list(self._waiting.values())]
        return f"about {clock(makespan([*begun, *waiting], self._size))} left"


def makespan(seconds: Sequence[float], size: int) -> float:
    """Time for jobs of these lengths on `size` workers, each taking the next in order as it falls free."""
    workers = [0.0] * size
    for duration in seconds:
        workers[workers.index(min(workers))] += duration
    return max(workers)


def clock(seconds: float) -> str:
    """A duration for people: 0:42, 12:05, 3:00:00; no less than a second."""
    minutes, rest = divmod(max(1, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
