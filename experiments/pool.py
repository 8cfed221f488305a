"""Runs in processes of their own: one that dies ends neither the sweep nor another run, and none outlives the sweep.

Children are forked from a server that has torch loaded; the parent never loads it.
"""

import gc
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.config import PACKAGE, Config
from experiments.plan import Job
from experiments.state import BROKEN, RunBusy, RunState, outcome, read_state, record_end

PRELOAD = ("torch", "torch._dynamo", "hydra", "experiments.pool", "experiments.run")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
HEAP = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")  # glibc's; other allocators ignore them
KEPT = 2**29  # bytes: activations freed after a step stay with the process, instead of being mapped anew in the next
BUSY = 75  # exit code of a child whose run another process holds: EX_TEMPFAIL of sysexits.h
SERVER_DIED = 255  # exit code that multiprocessing reports where the server cannot
GRACE = 10.0  # seconds in which an interrupted child writes down what it has
CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class End:
    """How a job ended, and after how many seconds. `missing`: its process ended before it could begin."""

    job: Job
    state: RunState
    seconds: float


@dataclass(frozen=True)
class Child:
    jobs: Sequence[Job]  # run one after the other
    process: ForkServerProcess
    began: float = field(default_factory=time.monotonic)


class Pool:
    """At most `size` processes at a time, each calling `target` ("module:function") with the configs of its jobs in turn."""

    def __init__(self, target: str, size: int, threads: int, preload: Sequence[str] = PRELOAD) -> None:
        self.size = size
        self.children: list[Child] = []
        self._target = target
        self._oom_kills = oom_kills()
        os.environ.update(dict.fromkeys(THREADS, str(threads)))
        for key in HEAP:  # a user's own value stands
            os.environ.setdefault(key, str(KEPT))
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        with_package = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(with_package).split(os.pathsep)))

    @property
    def free(self) -> bool:
        return len(self.children) < self.size

    def start(self, jobs: Sequence[Job]) -> None:
        plain = [OmegaConf.to_container(job.cfg, resolve=True) for job in jobs]
        process = self._context.Process(target=_child, args=(self._target, plain), name=jobs[0].name)
        process.start()
        self.children.append(Child(jobs, process))

    def wait(self, timeout: float) -> None:
        """Until a child ends, or for this many seconds."""
        wait([child.process.sentinel for child in self.children], timeout)

    def ended(self) -> list[End]:
        """Jobs that have ended since the last call."""
        ready = wait([child.process.sentinel for child in self.children], 0)
        gone = [child for child in self.children if child.process.sentinel in ready]
        self.children = [child for child in self.children if child not in gone]
        return [end for child in gone for end in self._judged(child)]

    def stop(self) -> None:
        """Interrupt every child; what does not end within the grace is killed. Either way its run reads as interrupted."""
        for child in self.children:
            child.process.terminate()
        deadline = time.monotonic() + GRACE
        for child in self.children:
            child.process.join(max(0.0, deadline - time.monotonic()))
            if child.process.is_alive():
                child.process.kill()
                child.process.join()
        self.children = []

    def _judged(self, child: Child) -> Iterator[End]:
        """The end of every job of a child that is gone; what ended it counts against the first job without an end."""
        child.process.join()
        code, seconds = child.process.exitcode or 0, time.monotonic() - child.began
        for n, job in enumerate(child.jobs, start=1):
            found = job.state()
            yield End(job, self._judge(child, job, code), seconds if len(child.jobs) == 1 else found.seconds or 0.0)
            if not found.done and found.state not in BROKEN and code != BUSY:
                yield from (End(rest, rest.state(), rest.state().seconds or 0.0) for rest in child.jobs[n:])
                return

    def _judge(self, child: Child, job: Job, code: int) -> RunState:
        found = job.state()
        if code == SERVER_DIED and found.state == "running":
            _kill(child, job)
            record_end(job.cfg, "killed", "the server that started it died")
        elif code == BUSY and not found.done:
            return replace(found, state="running", message="held by another process")
        elif code < 0 and not found.done:
            state = self._killed_as(-code)
            record_end(job.cfg, state, f"ended by {_signal_name(-code)}" + (", out of memory" if state == "oom" else ""))
        elif not found.done and found.state not in BROKEN and found.recorded != "interrupted":
            record_end(job.cfg, "failed", f"ended with exit code {code} and without a result")
        return job.state()

    def _killed_as(self, number: int) -> str:
        if number == signal.SIGKILL and oom_kills() > self._oom_kills:
            self._oom_kills += 1
            return "oom"
        return "killed"


def oom_kills() -> int:
    """How many processes of this control group the kernel has killed for memory; 0 where it does not say."""
    for path in _memory_files():
        try:
            words = path.read_text().split()
            return int(words[words.index("oom_kill") + 1])
        except (OSError, ValueError, IndexError):
            continue
    return 0


def _memory_files() -> Iterator[Path]:
    v1, v2 = CGROUP / "memory", CGROUP
    lines = MEMBERSHIP.read_text().splitlines() if MEMBERSHIP.exists() else []
    for _, controllers, inside in (line.split(":", 2) for line in lines):
        if not controllers:
            yield v2 / inside.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            yield v1 / inside.lstrip("/") / "memory.oom_control"
    yield v2 / "memory.events"
    yield v1 / "memory.oom_control"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kill(child: Child, job: Job) -> None:
    """Kill a child whose server is gone, and wait until it has let go of its run."""
    if child.process.pid:
        os.kill(child.process.pid, signal.SIGKILL)
    deadline = time.monotonic() + GRACE
    while read_state(job.folder).state == "running" and time.monotonic() < deadline:
        time.sleep(0.02)


def _child(target: str, plains: Sequence[dict[str, Any]]) -> None:
    gc.freeze()  # what the server has loaded lives as long as the process: a third of building a deep model went into it
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; the parent decides
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    codes = [_call(target, plain) for plain in plains]
    sys.exit(max(codes))


def _call(target: str, plain: dict[str, Any]) -> int:
    """Run one job; an exit code. What ends the process, as an interrupt, is recorded and raised again."""
    cfg = OmegaConf.merge(OmegaConf.structured(Config), plain)
    if not isinstance(cfg, DictConfig):
        raise TypeError(f"a config is a mapping, not {type(cfg).__name__}")
    try:
        module, _, function = target.partition(":")
        getattr(importlib.import_module(module), function)(cfg)
    except RunBusy:
        return BUSY
    except Exception as error:
        _record(cfg, error)
        return 1
    except BaseException as error:
        _record(cfg, error)
        sys.exit(1)
    return 0


def _record(cfg: DictConfig, error: BaseException) -> None:
    """Write down an error that came before the run's own record was open."""
    state, message = outcome(error)
    found = Job(cfg).state()
    if (found.recorded, found.message) != (state, message):
        record_end(cfg, state, message, "".join(traceback.format_exception(error)) if state in BROKEN else "")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _interrupt(number: int, _: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt(_signal_name(number))
