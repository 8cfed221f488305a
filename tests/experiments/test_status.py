"""Laws of the status command: it counts what is there, and says why the rest broke."""

import os
from pathlib import Path

import fake_runs
import pytest

from experiments.identity import run_folder
from experiments.plan import collect, make_plan
from experiments.record import RunWriter
from experiments.state import make_folder, record_end
from experiments.status import main, standings

Output = pytest.CaptureFixture[str]


def test_an_empty_store_says_so_and_what_to_run(tmp_path: Path, capsys: Output) -> None:
    assert main(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs in {tmp_path / 'runs'}; start with: make quick, or make sweep\n"


def test_every_run_of_the_newest_plan_is_counted_by_state(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, 6)
    make_folder(run_folder(cfgs[0]).parent)
    make_plan(["old"], collect(cfgs[:1])[0]).write()
    plan = make_plan(["new"], collect(cfgs)[0])
    plan.write()
    os.utime(plan.path, (2**32, 2**32))
    fake_runs.run(cfgs[0])
    for cfg, state in zip(cfgs[1:], ("failed", "killed", "oom"), strict=False):
        record_end(cfg, state, "why")
    with RunWriter(cfgs[4], {}):
        [standing] = standings(tmp_path)
        assert standing.counts == {"complete": 1, "failed": 1, "killed": 1, "oom": 1, "running": 1, "missing": 1}
    assert (standing.study, standing.scale) == ("fake", "laptop")


def test_a_broken_run_is_named_with_its_reason_and_traceback(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [cfg] = fake_runs.jobs(Path("results"), 1)
    record_end(cfg, "failed", "ValueError: [bold]as asked[/bold]", "Traceback")
    assert main([]) == 0
    printed = capsys.readouterr().out
    folder = run_folder(cfg)
    assert f"failed: {folder}\n    ValueError: [bold]as asked[/bold]\n    {folder / 'traceback.txt'}\n" in printed
    assert "RETRY=1" in printed


def test_a_run_json_that_cannot_be_read_is_reported(tmp_path: Path, capsys: Output) -> None:
    [cfg] = fake_runs.jobs(tmp_path, 1)
    fake_runs.run(cfg)
    (run_folder(cfg) / "run.json").write_text("{")
    assert main(["--results", str(tmp_path)]) == 0
    assert "run.json cannot be read" in capsys.readouterr().out


def test_single_runs_are_counted_without_a_plan(tmp_path: Path) -> None:
    for cfg in fake_runs.jobs(tmp_path, 2, "study.name=single"):
        fake_runs.run(cfg)
    [standing] = standings(tmp_path)
    assert (standing.study, standing.counts["complete"]) == ("single", 2)


def test_the_table_fits_a_narrow_terminal(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cfgs = fake_runs.jobs(tmp_path, 4, "study.name=depth_warmup")
    fake_runs.run(cfgs[0])
    for cfg, state in zip(cfgs[1:], ("failed", "killed", "oom"), strict=True):
        record_end(cfg, state, "why")
    main(["--results", str(tmp_path)])
    heading = next(line for line in capsys.readouterr().out.splitlines() if "study" in line)
    assert heading.split() == ["study", "scale", "runs", "done", "running", "failed", "killed", "oom", "missing"]
