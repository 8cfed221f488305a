"""Laws of a sweep that is killed, interrupted or met by another: nothing done is lost, nothing is left running."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fake_runs
import pytest
from omegaconf import DictConfig

from experiments.config import CONF
from experiments.identity import run_folder
from experiments.state import read_state

TESTS = Path(__file__).parents[1]
PATIENCE = 90  # seconds; a busy disk can hold up an fsync for many
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@contextmanager
def sweeping(results: Path, seeds: int, *overrides: str) -> Iterator[subprocess.Popen[str]]:
    """A sweep in a process of its own, two jobs at a time."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(CONF.parent)])}
    command = [sys.executable, "-m", "fake_runs", str(results), str(seeds), "2", *overrides]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    printed, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, printed


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"did not happen in {PATIENCE} s"
        time.sleep(0.02)


def states(cfgs: list[DictConfig]) -> list[str]:
    return [read_state(run_folder(cfg)).state for cfg in cfgs]


def pid(cfg: DictConfig) -> int:
    return int(read_state(run_folder(cfg)).record["manifest"]["pid"])


def behave(results: Path, **seeds: str) -> None:
    (results / "behaviour.json").write_text(json.dumps({name.removeprefix("s"): value for name, value in seeds.items()}))


def running(cfgs: list[DictConfig]) -> bool:
    """All are running and have said in which process."""
    found = [read_state(run_folder(cfg)) for cfg in cfgs]
    return all(state.state == "running" and state.record for state in found)


def descendants(ancestor: int) -> set[int]:
    """Every live process below one, however deep."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(path.parent.name)] = int(fields[1])
    found, front = set(), {ancestor}
    while front:
        front = {child for child, parent in parents.items() if parent in front}
        found |= front
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that are neither gone nor waiting to be reaped."""
    found = set()
    for number in pids:
        try:
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(number)
        except OSError:
            continue
    return found


def contents(cfgs: list[DictConfig]) -> dict[str, tuple[bytes, int, int]]:
    files = [path for cfg in cfgs for path in sorted(run_folder(cfg).iterdir())]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


def test_a_killed_job_leaves_the_others_running_and_is_reported(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, 4)
    behave(tmp_path, s0="wait", s1="wait")
    with sweeping(tmp_path, 4) as process:
        until(lambda: running(cfgs[:2]))
        os.kill(pid(cfgs[0]), signal.SIGKILL)
        until(lambda: states(cfgs) == ["killed", "running", "complete", "complete"])
        (tmp_path / "go").touch()
        code, printed = finish(process)
    assert code == 1
    assert states(cfgs) == ["killed", "complete", "complete", "complete"]
    assert f"killed      {run_folder(cfgs[0]).name}: ended by SIGKILL" in printed
    with sweeping(tmp_path, 4, "sweep.retry=true") as process:
        assert finish(process)[0] == 0
    assert states(cfgs) == ["complete"] * 4


def test_no_process_outlives_a_killed_sweep_and_done_runs_are_untouched(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, 5)
    behave(tmp_path, s2="wait", s3="wait")
    with sweeping(tmp_path, 5) as process:
        until(lambda: running(cfgs[2:4]) and states(cfgs[:2]) == ["complete"] * 2)
        family = descendants(process.pid)
        assert {pid(cfgs[2]), pid(cfgs[3])} < family
        before = contents(cfgs[:2])
        process.kill()
        until(lambda: not alive(family))
    assert states(cfgs) == ["complete", "complete", "interrupted", "interrupted", "missing"]
    (tmp_path / "go").touch()
    with sweeping(tmp_path, 5) as process:
        code, printed = finish(process)
    assert code == 0
    assert "5 runs, 3 to do (2 complete, 2 interrupted)" in printed
    assert states(cfgs) == ["complete"] * 5
    assert contents(cfgs[:2]) == before


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.killpg),  # as a terminal does: to the children too
        pytest.param(signal.SIGHUP, os.killpg, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, os.killpg, marks=pytest.mark.slow),  # to the server too
        pytest.param(signal.SIGTERM, os.kill, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_leaves_nothing_broken(tmp_path: Path, number: signal.Signals, send: Callable[[int, int], None]) -> None:
    cfgs = fake_runs.jobs(tmp_path, 4)
    behave(tmp_path, s1="wait", s2="wait")
    with sweeping(tmp_path, 4) as process:
        until(lambda: running(cfgs[1:3]))
        family = descendants(process.pid)
        send(process.pid, number)
        code, printed = finish(process)
        until(lambda: not alive(family))
    assert code == 128 + number
    assert "Traceback" not in printed
    assert f"stopped by {number.name}; done runs are kept, the same command continues" in printed
    assert states(cfgs) == ["complete", "interrupted", "interrupted", "missing"]
    assert read_state(run_folder(cfgs[1])).message in ("KeyboardInterrupt: SIGTERM", "")
    (tmp_path / "go").touch()
    with sweeping(tmp_path, 4) as process:
        assert finish(process)[0] == 0
    assert states(cfgs) == ["complete"] * 4


def test_two_sweeps_at_once_run_each_job_once(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, 4)
    behave(tmp_path, s0="wait", s1="wait")
    with sweeping(tmp_path, 4) as first:
        until(lambda: running(cfgs[:2]))
        with sweeping(tmp_path, 4) as second:
            code, printed = finish(second)
        assert code == 0
        assert "2 runs are held by another process and were left to it" in printed
        assert states(cfgs) == ["running", "running", "complete", "complete"]
        before = contents(cfgs[2:])
        (tmp_path / "go").touch()
        code, printed = finish(first)
    assert code == 0
    assert printed.count("by another process") == 2
    assert states(cfgs) == ["complete"] * 4
    assert contents(cfgs[2:]) == before


@pytest.mark.slow
def test_a_killed_server_takes_its_runs_with_it_and_the_sweep_goes_on(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, 4)
    behave(tmp_path, s0="wait", s1="wait")
    with sweeping(tmp_path, 4) as process:
        until(lambda: running(cfgs[:2]))
        [server] = {parent_of(pid(cfg)) for cfg in cfgs[:2]}
        os.kill(server, signal.SIGKILL)
        code, _ = finish(process)
    assert code == 1
    assert states(cfgs) == ["killed", "killed", "complete", "complete"]


def parent_of(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_real_sweep_completes_and_answers_a_second_time_at_once(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "experiments.train",
        "-m",
        "norm=pre,post",
        "data=random",
        "model.depth=2",
        "model.width=16",
    ]
    command += ["train.steps=3", "schedule.warmup=0", "study.name=real", f"results={tmp_path}"]
    first = subprocess.run(command, cwd=CONF.parent, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stderr) == (0, "")
    assert "2 complete of 2 runs" in first.stdout
    began = time.monotonic()
    second = subprocess.run(command, cwd=CONF.parent, capture_output=True, text=True, check=False)
    assert second.returncode == 0
    assert "nothing to do" in second.stdout
    assert time.monotonic() - began < 5
