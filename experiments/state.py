"""The files that say how far a run has come, written whole or not at all, and the lock a live run holds."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.config import ConfigError
from experiments.identity import config_difference, label, placement_code, run_folder, run_id, variant

SCHEMA = 1
RUN, LOCK, TRACEBACK = "run.json", ".lock", "traceback.txt"
TABLES = ("steps.parquet", "layers.parquet")
DONE = ("complete", "diverged")  # divergence is a result
BROKEN = ("failed", "killed", "oom")  # redone only when asked
OPEN = ("interrupted", "outdated", "missing")  # redone by any sweep
STATES = ("complete", "diverged", "running", *BROKEN, *OPEN)


class RunBusy(RuntimeError):  # noqa: N818  (a state, not a fault)
    """Another process is writing this run."""


@dataclass(frozen=True)
class RunState:
    """What a run's folder says. `record` is run.json, empty where there is none that can be read."""

    state: str
    folder: Path
    message: str = ""
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.state in DONE

    @property
    def recorded(self) -> str | None:
        """State in run.json, whether or not it still holds."""
        value = self.record.get("status", {}).get("state")
        return str(value) if value is not None else None

    @property
    def seconds(self) -> float | None:
        value = self.record.get("status", {}).get("seconds")
        return float(value) if value is not None else None

    @property
    def traceback(self) -> Path | None:
        path = self.folder / TRACEBACK
        return path if self.state in BROKEN and path.exists() else None


def read_state(folder: Path, *, holding: bool = False) -> RunState:
    """State of the run in a folder; "running" only while a process holds its lock, else it reads as interrupted. A done run
    of a placement whose class has changed since is "outdated".

    holding : this process holds the lock itself, so nobody else is running it.
    """
    alive = not holding and _held(folder)
    try:
        record = json.loads((folder / RUN).read_text(encoding="utf-8"))
        state, message = str(record["status"]["state"]), str(record["status"].get("message") or "")
    except FileNotFoundError:
        return RunState("running" if alive else "missing", folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{RUN} cannot be read: {type(error).__name__}: {error}"
        return RunState("running" if alive else "interrupted", folder, reason)
    if state not in (*DONE, *BROKEN) and alive:
        return RunState("running", folder, message, record)
    if state in DONE and (lost := [name for name in TABLES if not (folder / name).exists()]):
        return RunState("interrupted", folder, f"{', '.join(lost)} missing although {RUN} says {state}", record)
    if state in DONE and (changed := _changed_placement(record)):
        return RunState("outdated", folder, f"experiments/placements/{changed}.py has changed since", record)
    return RunState(state if state in (*DONE, *BROKEN) else "interrupted", folder, message, record)


def _changed_placement(record: dict[str, Any]) -> str:
    """Name of the placement, if the run was made with another class than the one that is there."""
    made = record.get("manifest", {}).get("placement_code")
    name = record.get("config", {}).get("norm", {}).get("placement", "")
    return str(name) if made and placement_code(name) not in ("", made) else ""


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name in its folder, fsync and rename: at any time it is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    entry = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; NumPy's scalars are plain numbers. NaN and infinities are kept, in Python's spelling."""
    write_atomic(path, (json.dumps(value, indent=1, default=lambda scalar: scalar.item()) + "\n").encode())


def make_folder(folder: Path) -> None:
    """Make a folder that files can be written to, or raise ConfigError."""
    probe = folder / f".probe.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror or error}: {error.filename}); "
            "free it, or choose another folder with results=FOLDER"
        ) from error


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0.5) -> Iterator[None]:
    """Hold the lock of a run. Waits `patience` seconds, since a reader may hold it for an instant; then raises RunBusy."""
    with (folder / LOCK).open("ab") as lock:
        deadline = time.monotonic() + patience
        while not _try(lock.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise RunBusy(f"{folder} is being written by another process; wait for it, or stop it")
            time.sleep(0.02)
        yield


def base_record(cfg: DictConfig, manifest: dict[str, Any]) -> dict[str, Any]:
    """Everything of run.json but its status."""
    folder = run_folder(cfg)
    return {
        "schema": SCHEMA,
        "run": folder.name,
        "study": cfg.study.name,
        "scale": cfg.scale.name,
        "variant": variant(cfg),
        "label": label(cfg),
        "id": run_id(cfg),
        "config": OmegaConf.to_container(cfg, resolve=True),
        "manifest": manifest,
    }


def record_end(cfg: DictConfig, state: str, message: str, traceback: str = "") -> None:
    """Write down how a run ended that could not do it itself; one that is done, alive or of another config is left alone."""
    folder = run_folder(cfg)
    make_folder(folder)
    with contextlib.suppress(RunBusy), locked(folder):
        found = read_state(folder, holding=True)
        if found.done or (found.record and config_difference(found.record.get("config", {}), cfg)):
            return
        record = found.record or base_record(cfg, {})
        record["status"] = {**record.get("status", {}), "state": state, "message": message}
        (folder / TRACEBACK).unlink(missing_ok=True)
        if traceback:
            write_atomic(folder / TRACEBACK, traceback.encode())
        write_json(folder / RUN, record)


def outcome(error: BaseException) -> tuple[str, str]:
    """State of a run that an exception ended, and the exception in one line."""
    message = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return "interrupted", message
    allocator = isinstance(error, RuntimeError) and ("out of memory" in message or "DefaultCPUAllocator" in message)
    names = {kind.__name__ for kind in type(error).__mro__}
    return "oom" if allocator or names & {"OutOfMemoryError", "MemoryError"} else "failed", message


def _held(folder: Path) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
