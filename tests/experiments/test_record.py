"""Laws of the record of a run: how it ends is its state, and a done run is never written over."""

import contextlib
import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig
from recorded import MANIFEST, broken, contents, finished, small

from experiments import state
from experiments.config import ConfigError
from experiments.identity import run_folder, run_name
from experiments.manifest import make_manifest
from experiments.record import RunDone, RunWriter
from experiments.state import RunBusy, read_state


@pytest.fixture
def cfg(tmp_path: Path) -> DictConfig:
    return small(tmp_path)


def test_a_finished_run_says_what_its_rows_say(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        assert read_state(writer.folder).state == "running"
        writer.step({"step": 0, "loss": 5.5})
        writer.step({"step": 1, "loss": 4.5})
        writer.step({"step": 2, "loss": math.nan})
        writer.finish("diverged", diverged_step=2, first_nonfinite_layer=1)
    found = read_state(writer.folder)
    assert (found.state, found.done, found.traceback) == ("diverged", True, None)
    assert found.record["run"] == run_name(cfg)
    assert found.record["config"]["model"]["depth"] == 3
    assert found.record["manifest"] == MANIFEST
    expected = {"step": 2, "loss": 4.5, "initial_loss": 5.5, "val_loss": None, "diverged_step": 2, "message": None}
    assert expected.items() <= found.record["status"].items()


def test_a_run_ends_once(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.finish("complete")
        with pytest.raises(RuntimeError, match="finished already"):
            writer.finish("complete")
        with pytest.raises(ValueError, match="state=trained is no way to finish"):
            writer.finish("trained")


def test_an_error_after_the_finish_leaves_the_result(cfg: DictConfig) -> None:
    with contextlib.suppress(ZeroDivisionError), RunWriter(cfg, MANIFEST) as writer:
        writer.finish("complete")
        raise ZeroDivisionError
    assert read_state(writer.folder).state == "complete"


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(3), "interrupted"),
        (MemoryError(), "oom"),
        (OutOfMemoryError("2 GiB"), "oom"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (ValueError("two\nlines"), "failed"),
    ],
)
def test_how_a_run_ends_is_its_state(cfg: DictConfig, error: BaseException, expected: str) -> None:
    with pytest.raises(type(error)):
        broken(cfg, error)
    found = read_state(run_folder(cfg))
    assert found.state == expected
    assert "\n" not in found.message
    assert (found.traceback is not None) == (expected in ("failed", "oom"))
    assert pq.read_table(found.folder / "steps.parquet")["loss"].to_pylist() == [5.0]
    if found.traceback:
        assert "raise error" in found.traceback.read_text()


def test_a_run_that_leaves_its_block_without_a_result_failed(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0})
    assert read_state(writer.folder).message == "RuntimeError: the run ended without finish()"


def test_a_done_run_is_written_over_only_when_asked(cfg: DictConfig) -> None:
    folder = finished(cfg)
    before = contents(folder)
    with pytest.raises(RunDone, match="is complete; delete that folder"), RunWriter(cfg, MANIFEST):
        pass
    assert contents(folder) == before
    with RunWriter(cfg, MANIFEST, replace=True) as writer:
        assert not (folder / "steps.parquet").exists()
        writer.finish("complete")
    assert contents(folder) != before


def test_tables_of_a_broken_run_never_stand_in_for_those_of_the_next(cfg: DictConfig) -> None:
    with pytest.raises(ValueError, match="x"):
        broken(cfg, ValueError("x"))
    (run_folder(cfg) / ".steps.parquet.1.tmp").touch()
    with RunWriter(cfg, MANIFEST) as writer:
        assert {path.name for path in writer.folder.iterdir()} == {"run.json", ".lock"}
        writer.finish("complete")
    assert pq.read_table(writer.folder / "steps.parquet").num_rows == 0


def test_a_folder_that_holds_another_config_is_refused_naming_the_keys(cfg: DictConfig) -> None:
    folder = finished(cfg)
    record = json.loads((folder / "run.json").read_text())
    record["config"]["optim"]["lr"], record["config"]["train"]["clip"] = 0.5, 1.0
    (folder / "run.json").write_text(json.dumps(record))
    before = contents(folder)
    with (
        pytest.raises(ConfigError, match=r"another config, which differs in optim\.lr, train\.clip;"),
        RunWriter(cfg, MANIFEST),
    ):
        pass
    assert contents(folder) == before


def test_a_store_of_another_schema_is_refused(cfg: DictConfig) -> None:
    folder = finished(cfg)
    (folder / "run.json").write_text((folder / "run.json").read_text().replace('"schema": 1', '"schema": 7'))
    with pytest.raises(ConfigError, match="has schema 7, this code writes 1"), RunWriter(cfg, MANIFEST):
        pass


def test_a_second_writer_is_told_that_the_run_is_busy(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        before = contents(writer.folder)
        with pytest.raises(RunBusy, match="being written by another process"), RunWriter(cfg, MANIFEST):
            pass
        assert contents(writer.folder) == before
        writer.finish("complete")


def test_results_that_cannot_be_written_are_a_clear_error_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for results in (tmp_path / "file", tmp_path / "file" / "below"):
        with (
            pytest.raises(ConfigError, match=r"cannot be written \(Not a directory.*results=FOLDER"),
            RunWriter(small(results), MANIFEST),
        ):
            pass


def test_a_full_disk_does_not_hide_why_the_run_failed(cfg: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    error = ValueError("the reason")
    with contextlib.suppress(ValueError), RunWriter(cfg, MANIFEST) as writer:
        monkeypatch.setattr(state.os, "fsync", full)
        raise error
    assert "has no record of this" in error.__notes__[0]
    assert read_state(writer.folder).state == "interrupted"


def test_a_manifest_names_commit_command_and_versions() -> None:
    found = make_manifest("make sweep")
    assert found["command"] == "make sweep"
    assert {"python", "torch", "numpy", "hydra-core"} <= found["versions"].keys()
    assert found["versions"]["numpy"] == np.__version__
    assert found["commit"] == "unknown" or len(found["commit"].rstrip("+")) >= 12
