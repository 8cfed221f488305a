"""Laws of the state of a run: what is half-written is never read as whole, and what a dead process says is not believed."""

import json
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

import pytest
from omegaconf import DictConfig
from recorded import MANIFEST, contents, finished, small

from experiments import identity, state
from experiments.config import CONF
from experiments.identity import placement_code, run_folder
from experiments.record import RunWriter
from experiments.state import RunBusy, read_state, record_end, write_atomic


@pytest.fixture
def cfg(tmp_path: Path) -> DictConfig:
    return small(tmp_path)


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


def made_with(folder: Path, code: str) -> None:
    record = json.loads((folder / "run.json").read_text())
    record["manifest"]["placement_code"] = code
    (folder / "run.json").write_text(json.dumps(record))


def test_a_run_of_a_class_that_changed_since_is_outdated_and_made_again(cfg: DictConfig) -> None:
    folder = finished(cfg)
    made_with(folder, placement_code(cfg.norm.placement))
    assert read_state(folder).state == "complete"
    made_with(folder, "another")
    found = read_state(folder)
    assert (found.state, found.done) == ("outdated", False)
    assert found.message == f"experiments/placements/{cfg.norm.placement}.py has changed since"
    assert finished(cfg) == folder
    assert read_state(folder).state == "complete"


def test_a_run_that_does_not_say_what_class_it_had_is_believed(cfg: DictConfig) -> None:
    folder = finished(cfg)
    made_with(folder, "")
    assert read_state(folder).state == "complete"


def test_the_code_of_a_placement_is_more_than_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "placements").mkdir()
    monkeypatch.setattr(identity, "PACKAGE", tmp_path)
    body = "    def forward(self, x, f):\n        return x + f(x)\n"
    texts = {
        "one": f'class One:\n    """Words."""\n\n{body}',
        "words": f'"""More."""\n\nclass One:\n    """Others."""\n    # and a comment\n{body}',
        "other": f'class One:\n    """Words."""\n\n{body.replace("+", "-")}',
        "broken": "class One",
    }
    for name, text in texts.items():
        (tmp_path / "placements" / f"{name}.py").write_text(text)
    one, words, other, broken, absent = (placement_code.__wrapped__(name) for name in (*texts, "absent"))
    assert one == words != other
    assert broken == absent == ""


def test_a_folder_that_is_not_there_is_missing(tmp_path: Path) -> None:
    assert read_state(tmp_path / "none").state == "missing"


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
