"""The runs of a command on this machine's cores: collect, skip what is done, run the rest, say what broke."""

import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from omegaconf import DictConfig
from rich.console import Console

from experiments.config import cores
from experiments.plan import Job, collect, cost, finished_plan, make_plan
from experiments.pool import PRELOAD, Pool
from experiments.progress import Progress, clock, makespan
from experiments.state import BROKEN, OPEN, STATES, RunState, make_folder, read_state

__all__ = ["finished_plan", "run_sweep"]

TARGET = "experiments.run:run"
NOMINAL = 1.5e-10  # seconds per unit of cost on one core, where no run of the study has been seen
BATCH = 10  # runs without training that share a process
TICK = 0.25  # seconds between two looks for a signal
Prepare = Callable[[list[DictConfig]], None]


def run_sweep(
    cfgs: Sequence[DictConfig],
    overrides: Sequence[str],
    *,
    prepare: Prepare | None = None,
    target: str = TARGET,
    preload: Sequence[str] = PRELOAD,
) -> int:
    """Run every job that is not done, each in a process of its own; the exit code says whether all could be.

    overrides : the command, as given; names the plan.
    prepare : called once with the configs that are to be run, before any starts but after the server of their processes is
        set up; raises ConfigError to stop.
    Returns 0, 1 while a run is failed, killed, oom or interrupted, or 128 + n after signal n.
    """
    console = Console(highlight=False, soft_wrap=True, markup=False)
    task = survey(cfgs)
    console.print(_opening(task))
    if cfgs[0].sweep.dry:
        _list(console, task)
        return 0
    make_folder(task.folder)
    pool = Pool(target, task.size, max(cfg.threads for cfg in cfgs), preload)
    if prepare and task.todo:
        prepare([job.cfg for job in task.todo])
    make_plan(overrides, task.jobs).write()
    stopped = 0
    if task.todo:
        with Progress(console, task.todo, len(task.jobs) - len(task.todo), task.size, task.rate) as progress:
            stopped = _run(pool, deque(task.todo), progress, cfgs[0].sweep.retry)
    return _closing(console, task.jobs, stopped)


@dataclass(frozen=True)
class Task:
    """What a command asks for, and what of it is there."""

    jobs: list[Job]
    states: dict[str, RunState]
    todo: list[Job]  # long ones first
    size: int  # jobs at a time
    rate: float | None  # seconds per unit of cost in earlier runs
    asked: int
    dropped: int  # by study.seeds

    @property
    def folder(self) -> Path:
        return self.jobs[0].folder.parent


def survey(cfgs: Sequence[DictConfig]) -> Task:
    """Valid jobs and their states; ConfigError, before anything is written, if one cannot be run."""
    jobs, dropped = collect(cfgs)
    sweep = cfgs[0].sweep
    states = {job.name: job.state() for job in jobs}
    todo = sorted((job for job in jobs if _wanted(states[job.name], sweep.retry)), key=lambda job: -job.cost)
    size = sweep.jobs or max(1, cores() // cfgs[0].threads)
    asked = sum(cfg.study.draws for cfg in cfgs)
    return Task(jobs, states, todo, size, measured_rate(jobs[0].folder.parent), asked, dropped)


class Signals:
    """While open, SIGINT, SIGTERM and SIGHUP are noted in `number` instead of ending the process."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.number = number


def _run(pool: Pool, todo: deque[Job], progress: Progress, retry: bool) -> int:
    """Keep the pool full until nothing is left; the number of the signal that stopped it, or 0."""
    with Signals() as signals:
        try:
            while (todo or pool.children) and not signals.number:
                while todo and pool.free and not signals.number:
                    batch = []
                    for job in _next_batch(todo):
                        if _wanted(state := job.state(), retry):  # another sweep may have taken it meanwhile
                            batch.append(job)
                            progress.started(job)
                        else:
                            progress.left(job, state)
                    if batch:
                        pool.start(batch)
                pool.wait(TICK)
                if not signals.number:  # a signal to the whole group ends children that are not to blame
                    for end in pool.ended():
                        if end.state.state == "missing":
                            todo.appendleft(end.job)
                            progress.returned(end.job)
                        else:
                            progress.ended(end)
        finally:
            pool.stop()
        return signals.number


def _next_batch(todo: deque[Job]) -> list[Job]:
    """Takes the next job from the queue, with up to BATCH - 1 that follow it where all only measure an initialisation:
    such runs take about as long as what they load."""
    batch = [todo.popleft()]
    while todo and len(batch) < BATCH and not any(job.cfg.train.steps for job in (batch[0], todo[0])):
        batch.append(todo.popleft())
    return batch


def measured_rate(folder: Path) -> float | None:
    """Seconds per unit of cost over the done runs of a study's folder; None where there is none."""
    seconds = total = 0.0
    for path in folder.glob("*/run.json"):
        state = read_state(path.parent)
        if state.done and state.seconds:
            seconds += state.seconds
            total += cost(state.record["config"])
    return seconds / total if total else None


def _wanted(state: RunState, retry: bool) -> bool:
    return state.state in OPEN or (retry and state.state in BROKEN)


def _opening(task: Task) -> str:
    counts = Counter(state.state for state in task.states.values())
    words = [f"{counts[state]} {state}" for state in STATES if counts[state] and state != "missing"]
    if again := task.asked - task.dropped - len(task.jobs):
        words.append(f"{again} asked for twice")
    if task.dropped:
        words.append(f"{task.dropped} more left out by study.seeds")
    because = sorted({state.message for state in task.states.values() if state.state == "outdated"})
    told = f"{task.folder}: {len(task.jobs)} runs, {len(task.todo)} to do" + (f" ({', '.join(words)})" if words else "")
    return "\n".join([told, *(f"  outdated: {reason}" for reason in because)])


def _list(console: Console, task: Task) -> None:
    rate, wanted = task.rate or NOMINAL, {job.name for job in task.todo}
    for job in sorted(task.jobs, key=lambda job: -job.cost):
        about = f"  about {clock(job.cost * rate)}" if job.name in wanted else ""
        console.print(f"  {task.states[job.name].state:<11} {job.name}{about}")
    source = "from the done runs of this study" if task.rate else "at a nominal rate, as no run of this study is done"
    total = makespan([job.cost * rate for job in task.todo], task.size)
    console.print(f"about {clock(total)} in all, {task.size} at a time, {source}; nothing was run")


def _closing(console: Console, jobs: Sequence[Job], stopped: int) -> int:
    """Say how every job stands and what to do about those that are not done; the exit code."""
    states = {job.name: job.state() for job in jobs}
    counts = Counter(state.state for state in states.values())
    console.print(", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) + f" of {len(jobs)} runs")
    if stopped:
        console.print(f"stopped by {signal.Signals(stopped).name}; done runs are kept, the same command continues")
        return 128 + stopped
    if counts["running"]:
        console.print(f"{counts['running']} runs are held by another process and were left to it")
    broken = {name: state for name, state in states.items() if state.state in BROKEN}
    for name, state in broken.items():
        where = f"; see {state.traceback}" if state.traceback else ""
        console.print(f"  {state.state:<11} {name}: {state.message}{where}")
    if broken:
        console.print("to redo them: make sweep RETRY=1, or sweep.retry=true")
    if open_runs := sum(counts[state] for state in OPEN):
        console.print(f"{open_runs} runs were interrupted; the same command continues them")
    return 1 if broken or open_runs else 0
