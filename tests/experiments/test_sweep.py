"""Laws of a sweep whose runs may fail: what is done stays, what broke is said, the rest goes on."""

import json
import subprocess
import sys
from pathlib import Path

import fake_runs
import pytest
from compose import config
from omegaconf import DictConfig

from experiments import pool
from experiments.config import CONF, ConfigError
from experiments.identity import run_folder
from experiments.pool import THREADS, oom_kills
from experiments.progress import clock, makespan
from experiments.state import read_state
from experiments.sweep import BATCH, run_sweep

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pool sets is taken back; its server finds the fake runs."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    for name in THREADS:
        monkeypatch.setenv(name, "9")


def behave(results: Path, **seeds: str) -> None:
    (results / "behaviour.json").write_text(json.dumps({name.removeprefix("s"): value for name, value in seeds.items()}))


def states(cfgs: list[DictConfig]) -> list[str]:
    return [read_state(run_folder(cfg)).state for cfg in cfgs]


def contents(results: Path) -> dict[str, tuple[bytes, int, int]]:
    """Bytes, time and inode of every file in the store, plans and locks apart."""
    files = [path for path in sorted(results.rglob("*")) if path.is_file() and not path.name.startswith(("plan-", ".", "beh"))]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


def test_every_job_is_run_once_in_a_process_of_its_own(tmp_path: Path, capsys: Output) -> None:
    cfgs = fake_runs.jobs(tmp_path, 3)
    behave(tmp_path, s2="diverge")
    assert fake_runs.sweep(cfgs, "seed=0,1,2") == 0
    assert states(cfgs) == ["complete", "complete", "diverged"]
    manifests = [read_state(run_folder(cfg)).record["manifest"] for cfg in cfgs]
    assert len({made["pid"] for made in manifests}) == 3
    assert {made["omp"] for made in manifests} == {"1"}
    printed = capsys.readouterr().out
    assert "3 runs, 3 to do" in printed
    assert "[3/3]" in printed
    assert "2 complete, 1 diverged of 3 runs" in printed


def test_a_second_sweep_leaves_done_runs_untouched(tmp_path: Path, capsys: Output) -> None:
    cfgs = fake_runs.jobs(tmp_path, 3)
    behave(tmp_path, s1="diverge")
    fake_runs.sweep(cfgs[:2])
    before = contents(tmp_path)
    capsys.readouterr()
    assert fake_runs.sweep(cfgs) == 0
    assert "3 runs, 1 to do (1 complete, 1 diverged)" in capsys.readouterr().out
    assert before.items() <= contents(tmp_path).items()


@pytest.mark.parametrize(
    ("behaviour", "state", "message"),
    [
        ("fail", "failed", "ValueError: as asked"),
        ("refuse", "failed", "ValueError: before the record is open"),
        ("exhaust", "oom", "MemoryError"),
        ("die", "killed", "ended by SIGKILL"),
        ("leave", "failed", "ended with exit code 7 and without a result"),
        ("return", "failed", "ended with exit code 0 and without a result"),
    ],
)
def test_a_broken_run_ends_no_other_and_is_redone_only_when_asked(
    tmp_path: Path, capsys: Output, behaviour: str, state: str, message: str
) -> None:
    cfgs = fake_runs.jobs(tmp_path, 3, "sweep.jobs=2")
    behave(tmp_path, s0=behaviour)
    assert fake_runs.sweep(cfgs) == 1
    assert states(cfgs) == [state, "complete", "complete"]
    found = read_state(run_folder(cfgs[0]))
    assert message in found.message
    assert (found.traceback is not None) == (behaviour in ("fail", "refuse", "exhaust"))
    printed = capsys.readouterr().out
    assert f"{run_folder(cfgs[0]).name}: {found.message}" in printed
    assert "RETRY=1" in printed
    before = contents(tmp_path)
    behave(tmp_path)
    assert fake_runs.sweep(cfgs) == 1
    assert contents(tmp_path) == before
    assert fake_runs.sweep([config(*fake_runs.SMALL, f"results={tmp_path}", "sweep.retry=true")]) == 0
    assert states(cfgs) == ["complete"] * 3
    assert not (run_folder(cfgs[0]) / "traceback.txt").exists()


def test_runs_without_training_share_a_process(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, BATCH + 2, "train.steps=0")
    assert fake_runs.sweep(cfgs) == 0
    pids = [read_state(run_folder(cfg)).record["manifest"]["pid"] for cfg in cfgs]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [BATCH, 2]


@pytest.mark.parametrize(
    ("behaviour", "state"), [("fail", "failed"), ("die", "killed"), ("leave", "failed"), ("return", "failed")]
)
def test_a_run_that_breaks_ends_no_other_of_its_process(tmp_path: Path, behaviour: str, state: str) -> None:
    cfgs = fake_runs.jobs(tmp_path, 5, "train.steps=0", "sweep.jobs=1")
    behave(tmp_path, s1=behaviour, s3=behaviour)
    assert fake_runs.sweep(cfgs) == 1
    assert states(cfgs) == ["complete", state, "complete", state, "complete"]
    behave(tmp_path)
    for cfg in cfgs:
        cfg.sweep.retry = True
    assert fake_runs.sweep(cfgs) == 0
    assert states(cfgs) == ["complete"] * 5


def test_a_run_killed_for_memory_is_oom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 4])
    monkeypatch.setattr(pool, "oom_kills", lambda: next(counts))
    cfgs = fake_runs.jobs(tmp_path, 1)
    behave(tmp_path, s0="die")
    assert fake_runs.sweep(cfgs) == 1
    found = read_state(run_folder(cfgs[0]))
    assert (found.state, found.message) == ("oom", "ended by SIGKILL, out of memory")


def test_the_kernel_counts_memory_kills_in_either_hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    membership = tmp_path / "cgroup"
    monkeypatch.setattr(pool, "CGROUP", tmp_path)
    monkeypatch.setattr(pool, "MEMBERSHIP", membership)
    assert oom_kills() == 0
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "memory.events").write_text("oom 9\noom_kill 2\noom_group_kill 0\n")
    membership.write_text("0::/a\n")
    assert oom_kills() == 2
    (tmp_path / "memory" / "b").mkdir(parents=True)
    (tmp_path / "memory" / "b" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    membership.write_text("3:cpu,memory:/b\n0::/none\n")
    assert oom_kills() == 5


def test_an_interrupted_run_is_redone(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, 1)
    fake_runs.run(cfgs[0])
    path = run_folder(cfgs[0]) / "run.json"
    path.write_text(path.read_text().replace('"complete"', '"interrupted"'))
    assert states(cfgs) == ["interrupted"]
    assert fake_runs.sweep(cfgs) == 0
    assert states(cfgs) == ["complete"]


def test_long_jobs_come_first(tmp_path: Path, capsys: Output) -> None:
    cfgs = [config(*fake_runs.SMALL, f"results={tmp_path}", f"model.depth={depth}", "sweep.jobs=1") for depth in (1, 3, 2)]
    assert fake_runs.sweep(cfgs) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert [line.split("-")[1] for line in lines] == ["L3", "L2", "L1"]


def test_a_dry_run_lists_states_and_time_and_writes_nothing(tmp_path: Path, capsys: Output) -> None:
    cfgs = fake_runs.jobs(tmp_path, 3, "sweep.dry=true")
    fake_runs.run(cfgs[0])
    path = run_folder(cfgs[0]) / "run.json"
    record = json.loads(path.read_text())
    record["status"]["seconds"] = 120.0
    path.write_text(json.dumps(record))
    before = sorted(tmp_path.rglob("*"))
    assert run_sweep(cfgs, [], prepare=lambda _: pytest.fail("prepared"), target="none:none") == 0
    printed = capsys.readouterr().out
    assert f"complete    {run_folder(cfgs[0]).name}\n" in printed
    assert f"missing     {run_folder(cfgs[1]).name}  about 2:00\n" in printed
    assert "from the done runs of this study; nothing was run" in printed
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_without_a_done_run_says_that_its_rate_is_nominal(tmp_path: Path, capsys: Output) -> None:
    assert fake_runs.sweep(fake_runs.jobs(tmp_path, 1, "sweep.dry=true")) == 0
    assert "at a nominal rate" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_what_is_prepared_is_what_will_be_run_and_may_refuse_it(tmp_path: Path) -> None:
    cfgs = fake_runs.jobs(tmp_path, 2)
    fake_runs.sweep(cfgs[:1])
    before = sorted(tmp_path.rglob("*"))
    seen: list[list[int]] = []

    def refuse(wanted: list[DictConfig]) -> None:
        seen.append([cfg.seed for cfg in wanted])
        raise ConfigError("no such data")

    with pytest.raises(ConfigError, match="no such data"):
        run_sweep(cfgs, [], prepare=refuse, target="none:none")
    assert seen == [[1]]
    assert sorted(tmp_path.rglob("*")) == before


def test_results_that_cannot_be_written_refuse_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        fake_runs.sweep(fake_runs.jobs(tmp_path / "file", 1))


def test_the_parent_of_a_sweep_imports_no_torch() -> None:
    """Nor what belongs to the analysis. The second program shows that the first can fail."""
    modules = "experiments.sweep, experiments.status, experiments.record, experiments.manifest"
    look = "import sys; sys.exit(any(name in sys.modules for name in ('torch', 'pandas', 'matplotlib', 'analysis')))"
    for program, expected in ((f"import {modules}; {look}", 0), (f"import {modules}, pandas; {look}", 1)):
        assert subprocess.run([sys.executable, "-c", program], cwd=CONF.parent, check=False).returncode == expected


def test_time_left_counts_each_worker_once() -> None:
    assert makespan([4.0, 3.0, 3.0], 2) == 6.0
    assert makespan([], 2) == 0.0
    assert [clock(seconds) for seconds in (42, 725, 10800)] == ["0:42", "12:05", "3:00:00"]
