"""Runs without a model, which end as the test asks: what a sweep's children do in the tests of sweeps.

A file ``behaviour.json`` in the results folder maps a seed to how its runs behave; the others complete.
As a program: a sweep of such runs in a process that can be killed (arguments: results, how many seeds, jobs at a time).
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from compose import config
from omegaconf import DictConfig

from experiments.record import RunWriter
from experiments.sweep import run_sweep

TARGET = "fake_runs:run"
PRELOAD = ("fake_runs",)
SMALL = ("model.depth=2", "train.steps=2", "schedule.warmup=0", "study.name=fake")


def jobs(results: Path, seeds: int, *overrides: str) -> list[DictConfig]:
    """Configs that differ in their seed."""
    first = config(*SMALL, f"results={results}", *overrides)
    cfgs = [first.copy() for _ in range(seeds)]
    for seed, cfg in enumerate(cfgs):
        cfg.seed = seed
    return cfgs


def sweep(cfgs: list[DictConfig], *overrides: str) -> int:
    return run_sweep(cfgs, list(overrides), target=TARGET, preload=PRELOAD)


def run(cfg: DictConfig) -> None:
    path = Path(cfg.results) / "behaviour.json"
    behaviour = json.loads(path.read_text()) if path.exists() else {}
    name = behaviour.get(str(cfg.seed), "complete")
    if name == "refuse":
        raise ValueError("before the record is open")
    if name == "return":
        return
    with RunWriter(
        cfg, {"pid": os.getpid(), "omp": os.environ.get("OMP_NUM_THREADS"), "torch": "torch" in sys.modules}
    ) as writer:
        writer.step({"step": 0, "loss": 5.0})
        BEHAVIOURS[name](Path(cfg.results))
        writer.finish("diverged" if name == "diverge" else "complete")


def _nothing(_: Path) -> None:
    """Complete."""


def _fail(_: Path) -> None:
    raise ValueError("as asked")


def _exhaust(_: Path) -> None:
    raise MemoryError


def _leave(_: Path) -> None:
    os._exit(7)


def _die(_: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _wait(results: Path) -> None:
    """Until the test says go."""
    deadline = time.monotonic() + 60
    while not (results / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


BEHAVIOURS: dict[str, Callable[[Path], None]] = {
    "complete": _nothing,
    "diverge": _nothing,
    "fail": _fail,
    "exhaust": _exhaust,
    "leave": _leave,
    "die": _die,
    "wait": _wait,
}

if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs ignore it, and so would a sweep in one
    sys.exit(sweep(jobs(Path(sys.argv[1]), int(sys.argv[2]), f"sweep.jobs={sys.argv[3]}", *sys.argv[4:])))
