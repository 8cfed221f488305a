"""Laws of the record of a run: what is written survives, and what is half-written is never read."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments import state
from experiments.config import CONF, ConfigError, register
from experiments.identity import run_folder, run_name
from experiments.manifest import make_manifest
from experiments.record import RunDone, RunWriter
from experiments.state import RunBusy, read_state, record_end, write_atomic
from experiments.table import column_types

MANIFEST = {"commit": "abc", "device": "cpu"}


@pytest.fixture
def cfg(tmp_path: Path) -> DictConfig:
    return config(f"results={tmp_path}")


def config(*overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        return compose("config", ["norm=post", "model.depth=3", "train.steps=4", "schedule.warmup=0", *overrides])


def finished(cfg: DictConfig, loss: float = 5.0) -> Path:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0, "loss": loss})
        writer.layers(0, {"grad_stream": np.ones(4)})
        writer.finish("complete", val_loss=np.float32(2.5))
    return writer.folder


def status(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "run.json").read_text())["status"]
    return found


def contents(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(folder.iterdir())}


# Tables


def test_null_is_not_measured_and_nan_is_measured_and_both_survive(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0, "loss": math.nan, "grad_norm": math.inf, "val_loss": None})
        writer.step({"step": 1, "loss": -math.inf, "grad_norm": 0.0, "val_loss": 1.0})
        writer.layers(0, {"grad_stream": np.array([math.nan, 1e-30, math.inf, 0.0])})
        writer.layers(1, {"stream_var": np.ones(4)})
        writer.finish("complete")
    steps = pq.read_table(writer.folder / "steps.parquet")
    assert str(steps["loss"].to_pylist()) == "[nan, -inf]"
    assert steps["grad_norm"].to_pylist() == [math.inf, 0.0]
    assert steps["val_loss"].to_pylist() == [None, 1.0]
    assert steps["val_loss"].null_count == 1
    assert steps["loss"].null_count == 0
    gradient = pq.read_table(writer.folder / "layers.parquet")["grad_stream"]
    assert gradient.null_count == 4
    assert str(gradient.to_pylist()) == f"[nan, {float(np.float32(1e-30))}, inf, 0.0, None, None, None, None]"


def test_a_quantity_of_blocks_is_null_at_the_last_stream_point(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, {"grad_wq": np.arange(3.0), "stream_var": np.arange(4.0), "nonfinite_grad": np.zeros(3)})
        writer.finish("complete")
    table = pq.read_table(writer.folder / "layers.parquet")
    assert table["layer"].to_pylist() == [0, 1, 2, 3]
    assert table["grad_wq"].to_pylist() == [0.0, 1.0, 2.0, None]
    assert table["stream_var"].to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert table["nonfinite_grad"].to_pylist() == [0, 0, 0, None]


def test_a_masked_entry_is_null(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, {"norm2_std_attn": np.ma.MaskedArray([1.0, math.nan, 3.0], mask=[True, False, False])})
        writer.finish("complete")
    found = pq.read_table(writer.folder / "layers.parquet")["norm2_std_attn"]
    assert str(found.to_pylist()) == "[None, nan, 3.0, None]"


@pytest.mark.parametrize("value", [1e-30, 1e30, 1.4e-45, float(np.float32(1) / np.float32(3))])
def test_a_float32_norm_survives_to_the_last_bit(cfg: DictConfig, value: float) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, {"grad_stream": np.full(4, value)})
        writer.finish("complete")
    assert pq.read_table(writer.folder / "layers.parquet")["grad_stream"].to_pylist() == [float(np.float32(value))] * 4


def test_tables_have_the_columns_and_types_of_the_schema(cfg: DictConfig) -> None:
    folder = finished(cfg)
    for name in ("steps", "layers"):
        found = pq.read_schema(folder / f"{name}.parquet")
        assert dict(zip(found.names, found.types, strict=True)) == column_types(name)


def test_floats_are_split_into_byte_streams_and_packed_with_zstd(cfg: DictConfig) -> None:
    group = pq.ParquetFile(finished(cfg) / "layers.parquet").metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "BYTE_STREAM_SPLIT" in columns["grad_stream"].encodings
    assert "BYTE_STREAM_SPLIT" not in columns["step"].encodings


def test_a_deep_and_long_run_stays_small(tmp_path: Path) -> None:
    deep = config("model.depth=96", f"results={tmp_path}")
    noise = np.random.default_rng(0)
    with RunWriter(deep, MANIFEST) as writer:
        for step in range(50):
            writer.layers(step, {name: np.exp(noise.normal(size=97)) for name in list(column_types("layers"))[2:6]})
        writer.finish("complete")
    assert (writer.folder / "layers.parquet").stat().st_size < 50 * 97 * 4 * 4 + 30_000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"grad_w9": np.ones(3)}, "no grad_w9 in table layers"),
        ({"grad_wq": np.ones(2)}, r"grad_wq has shape \(2,\); depth 3 has 4 points"),
        ({"nonfinite_grad": np.array([0, math.nan, 0])}, "nonfinite_grad of table layers: .* are not whole numbers"),
    ],
)
def test_a_column_that_the_schema_does_not_carry_is_an_error(
    cfg: DictConfig, columns: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises((KeyError, ValueError), match=message), RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, columns)
    assert read_state(run_folder(cfg)).state == "failed"


def test_a_second_part_of_a_step_adds_columns_and_never_overwrites(cfg: DictConfig) -> None:
    with pytest.raises(ValueError, match="step 1 of table layers has grad_wq already"), RunWriter(cfg, MANIFEST) as writer:
        writer.layers(1, {"grad_wq": np.ones(3)})
        writer.layers(1, {"update_wq": np.full(3, 2.0)})
        writer.layers(1, {"grad_wq": np.ones(3)})
    table = pq.read_table(run_folder(cfg) / "layers.parquet")
    assert table.num_rows == 4
    assert table["update_wq"].to_pylist() == [2.0, 2.0, 2.0, None]


def test_steps_rise(cfg: DictConfig) -> None:
    with pytest.raises(ValueError, match="step 1 of table steps comes after step 2"), RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 2})
        writer.step({"step": 1})


# States


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
    assert expected.items() <= status(writer.folder).items()


def test_a_run_ends_once(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.finish("complete")
        with pytest.raises(RuntimeError, match="finished already"):
            writer.finish("complete")
        with pytest.raises(ValueError, match="state=trained is no way to finish"):
            writer.finish("trained")


def test_an_error_after_the_finish_leaves_the_result(cfg: DictConfig) -> None:
    with pytest.raises(ZeroDivisionError), RunWriter(cfg, MANIFEST) as writer:
        writer.finish("complete")
        _ = 1 / 0
    assert read_state(run_folder(cfg)).done


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
    with pytest.raises(type(error)), RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0, "loss": 5.0})
        raise error
    found = read_state(writer.folder)
    assert found.state == expected
    assert "\n" not in found.message
    assert (found.traceback is not None) == (expected in ("failed", "oom"))
    assert pq.read_table(writer.folder / "steps.parquet")["loss"].to_pylist() == [5.0]
    if found.traceback:
        assert "raise error" in found.traceback.read_text()


def test_a_run_that_leaves_its_block_without_a_result_failed(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0})
    assert read_state(writer.folder).message == "RuntimeError: the run ended without finish()"


def test_running_with_a_free_lock_is_interrupted(cfg: DictConfig) -> None:
    folder = finished(cfg)
    record = json.loads((folder / "run.json").read_text())
    record["status"]["state"] = "running"
    (folder / "run.json").write_text(json.dumps(record))
    assert read_state(folder).state == "interrupted"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"status": {}}', '{"status": null}', "\x00\xff"])
def test_a_run_json_that_cannot_be_read_is_interrupted_with_a_reason(cfg: DictConfig, text: str) -> None:
    folder = finished(cfg)
    (folder / "run.json").write_text(text)
    found = read_state(folder)
    assert found.state == "interrupted"
    assert "run.json cannot be read" in found.message
    assert finished(cfg) == folder
    assert read_state(folder).state == "complete"


def test_a_complete_run_without_its_tables_is_not_complete(cfg: DictConfig) -> None:
    folder = finished(cfg)
    (folder / "layers.parquet").unlink()
    found = read_state(folder)
    assert found.state == "interrupted"
    assert "layers.parquet missing" in found.message


def test_a_folder_that_is_not_there_is_missing(tmp_path: Path) -> None:
    assert read_state(tmp_path / "none").state == "missing"


# Folders


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
    with pytest.raises(ValueError, match="x"), RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0, "loss": 9.0})
        raise ValueError("x")
    (writer.folder / ".steps.parquet.1.tmp").touch()
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
            RunWriter(config(f"results={results}"), MANIFEST),
        ):
            pass


# Atomic writes


def test_a_crash_between_write_and_rename_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old")
    program = """
        import os, signal, sys
        from pathlib import Path
        from experiments.state import write_atomic
        Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        write_atomic(Path(sys.argv[1]), b"new")
    """
    environment = {**os.environ, "PYTHONPATH": str(CONF.parent)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert [half.read_bytes() for half in tmp_path.glob(".run.json.*.tmp")] == [b"new"]


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_a_full_disk_does_not_hide_why_the_run_failed(cfg: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match="the reason") as caught, RunWriter(cfg, MANIFEST) as writer:
        monkeypatch.setattr(state.os, "fsync", full)
        raise ValueError("the reason")
    assert "has no record of this" in caught.value.__notes__[0]
    assert read_state(writer.folder).state == "interrupted"


# Ends that another process writes down


@contextmanager
def other_process(cfg: DictConfig) -> Iterator[multiprocessing.process.BaseProcess]:
    """A process that writes a run until it is killed."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_write_for_ever, args=(cfg,))
    process.start()
    deadline = time.monotonic() + 20
    while read_state(run_folder(cfg)).state != "running" or not read_state(run_folder(cfg)).record:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield process
    process.kill()
    process.join()


def _write_for_ever(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST):
        time.sleep(60)


def test_a_live_run_in_another_process_is_running_and_a_killed_one_interrupted(cfg: DictConfig) -> None:
    with other_process(cfg) as process:
        with pytest.raises(RunBusy), RunWriter(cfg, MANIFEST):
            pass
        record_end(cfg, "killed", "by mistake")
        assert read_state(run_folder(cfg)).state == "running"
        process.kill()
        process.join()
        assert read_state(run_folder(cfg)).state == "interrupted"
        record_end(cfg, "killed", "SIGKILL")
    found = read_state(run_folder(cfg))
    assert (found.state, found.message) == ("killed", "SIGKILL")
    assert found.record["manifest"] == MANIFEST


def test_the_end_of_a_run_that_never_began_has_its_config(cfg: DictConfig) -> None:
    record_end(cfg, "failed", "no such module", "Traceback: here")
    found = read_state(run_folder(cfg))
    assert found.state == "failed"
    assert found.record["config"]["seed"] == 0
    assert found.traceback is not None
    assert found.traceback.read_text() == "Traceback: here"


def test_the_end_of_a_done_run_is_not_rewritten(cfg: DictConfig) -> None:
    folder = finished(cfg)
    before = contents(folder)
    record_end(cfg, "killed", "SIGKILL")
    assert contents(folder) == before


def test_a_manifest_names_commit_command_and_versions() -> None:
    found = make_manifest("make sweep")
    assert found["command"] == "make sweep"
    assert {"python", "torch", "numpy", "hydra-core"} <= found["versions"].keys()
    assert found["versions"]["numpy"] == np.__version__
    assert found["commit"] == "unknown" or len(found["commit"].rstrip("+")) >= 12
