"""The record of one run: two tables and run.json, written whole or not at all.

A value that was not measured is null; one that was measured and is not finite stays NaN or infinite.
"""

import contextlib
import math
import time
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from omegaconf import DictConfig

from experiments.config import ConfigError
from experiments.identity import config_difference, run_folder
from experiments.state import (
    BROKEN,
    DONE,
    RUN,
    SCHEMA,
    TABLES,
    TRACEBACK,
    base_record,
    locked,
    make_folder,
    outcome,
    read_state,
    write_atomic,
    write_json,
)
from experiments.table import Table


class RunDone(RuntimeError):  # noqa: N818  (a state, not a fault)
    """The run is complete or diverged; a done run is never written over unasked."""


class RunWriter:
    """Context manager that owns a run's folder: holds its lock, and leaves a state behind however the block ends.

    manifest : how the run is made: `make_manifest()` and what only the caller knows (device, data).
    replace : write over a run that is done.
    Raises RunBusy, RunDone, or ConfigError where the folder cannot be written or holds another config.
    """

    def __init__(self, cfg: DictConfig, manifest: Mapping[str, Any], *, replace: bool = False) -> None:
        self.folder = run_folder(cfg)
        self._cfg, self._replace = cfg, replace
        self._record = base_record(cfg, dict(manifest))
        self._steps = Table("steps")
        self._layers = Table("layers")
        self._points = int(cfg.model.depth) + 1
        self._began = time.monotonic()
        self._finished = False
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        make_folder(self.folder)
        with contextlib.ExitStack() as opening:
            opening.enter_context(locked(self.folder))
            self._refuse_other_config()
            self._write_status("running")
            for stale in (*TABLES, TRACEBACK):
                (self.folder / stale).unlink(missing_ok=True)
            for half in self.folder.glob(".*.tmp"):
                half.unlink(missing_ok=True)
            self._exit = opening.pop_all()
        self._began = time.monotonic()
        return self

    def made_with(self, **facts: Any) -> None:
        """Add to the manifest what is known only once the run is under way."""
        self._record["manifest"] |= facts

    def step(self, row: Mapping[str, float | int | None]) -> None:
        """Record a row of the table `steps`. Steps rise; a column that is left out, or None, is null."""
        step = row.get("step")
        if step is None:
            raise KeyError(f"a row of table steps needs its step; it has {', '.join(row)}")
        self._steps.add(int(step), {name: np.asarray([value]) for name, value in row.items() if value is not None})

    def layers(self, step: int, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Record a step of the table `layers`: arrays of L + 1 values, or of L, then null at point L; masked is null.

        A second call for the same step adds columns.
        """
        values = {name: self._at_points(name, value) for name, value in columns.items()}
        index = {"step": np.full(self._points, step), "layer": np.arange(self._points)}
        self._layers.add(step, {**index, **values})

    def finish(self, state: str, **status: Any) -> None:
        """Write the tables, then run.json; `state` is complete or diverged. `status` overrides what the rows say."""
        if state not in DONE:
            raise ValueError(f"state={state} is no way to finish; ways are: {', '.join(DONE)}")
        if self._finished:
            raise RuntimeError(f"{self.folder.name} is finished already; a run has one end")
        self._write(state, **status)
        self._finished = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._exit:
            if self._finished:
                return
            error = error or RuntimeError("the run ended without finish()")
            try:
                self._write_broken(error)
            except Exception as second:  # the disk may be what failed; what is on it reads as interrupted
                error.add_note(f"{self.folder} has no record of this: {second}")

    def _refuse_other_config(self) -> None:
        found = read_state(self.folder, holding=True)
        if not found.record:
            return
        if found.record.get("schema") != SCHEMA:
            raise ConfigError(f"{self.folder / RUN} has schema {found.record.get('schema')}, this code writes {SCHEMA}")
        if keys := config_difference(found.record.get("config", {}), self._cfg):
            raise ConfigError(f"{self.folder} holds another config, which differs in {', '.join(keys)}; move that folder away")
        if found.done and not self._replace:
            raise RunDone(f"{self.folder} is {found.state}; delete that folder to run it again")

    def _at_points(self, name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = np.ma.asarray(value)
        if array.shape not in ((self._points,), (self._points - 1,)):
            raise ValueError(
                f"{name} has shape {array.shape}; depth {self._points - 1} has {self._points} points, or one less"
            )
        null = np.ones(self._points, bool)
        null[: len(array)] = np.ma.getmaskarray(array)
        return np.ma.MaskedArray(np.resize(np.ma.getdata(array), self._points), mask=null)

    def _write_broken(self, error: BaseException) -> None:
        state, message = outcome(error)
        if state in BROKEN:
            text = "".join(traceback.format_exception(error))
            write_atomic(self.folder / TRACEBACK, text.encode())
        self._write(state, message=message)

    def _write(self, state: str, **status: Any) -> None:
        for table, name in zip((self._steps, self._layers), TABLES, strict=True):
            write_atomic(self.folder / name, table.parquet())
        self._write_status(state, **status)

    def _write_status(self, state: str, **status: Any) -> None:
        loss = [float(value) for value in self._steps.measured("loss")]
        seen: dict[str, Any] = {
            "state": state,
            "step": self._steps.last,
            "seconds": round(time.monotonic() - self._began, 3),
            "loss": next((value for value in reversed(loss) if math.isfinite(value)), None),
            "initial_loss": loss[0] if loss else None,
            "val_loss": None,
            "diverged_step": None,
            "first_nonfinite_layer": None,
            "message": None,
        }
        write_json(self.folder / RUN, {**self._record, "status": {**seen, **status}})
