"""Laws of what a command asks for: one plan, distinct runs, refused as a whole or not at all."""

import json
import os
from pathlib import Path

import fake_runs
import pytest
from compose import config
from omegaconf import OmegaConf

from experiments import plan as plans
from experiments.config import ConfigError
from experiments.identity import run_folder
from experiments.plan import asked_for, collect, cost, finished_plan, make_plan, newest_plan
from experiments.state import read_state

COMMAND = ["seed=0,1", "study=depth_warmup", "sweep.jobs=2"]


def done(results: Path, seeds: int, overrides: list[str]) -> Path:
    """A plan whose runs are all complete; its file."""
    cfgs = fake_runs.jobs(results, seeds)
    for cfg in cfgs:
        if not read_state(run_folder(cfg)).done:
            fake_runs.run(cfg)
    plan = make_plan(overrides, collect(cfgs)[0])
    plan.write()
    return plan.path


def test_equal_jobs_are_one_run(tmp_path: Path) -> None:
    cfgs = [config(*fake_runs.SMALL, f"results={tmp_path}", f"optim.lr={lr}") for lr in ("1e-3", "0.001", "1.0e-3", "2e-3")]
    jobs, dropped = collect(cfgs)
    assert (len(jobs), dropped) == (2, 0)


def test_a_config_stands_for_its_draws(tmp_path: Path) -> None:
    cfg = config(*fake_runs.SMALL, f"results={tmp_path}", "study.draws=3", "seed=4", "+study.seeds={2: 6}")
    jobs, dropped = collect([cfg])
    assert [job.cfg.seed for job in jobs] == [4, 5]
    assert dropped == 1
    single = [config(*fake_runs.SMALL, f"results={tmp_path}", f"seed={seed}") for seed in (4, 5)]
    assert [job.name for job in jobs] == [run_folder(one).name for one in single]


def test_a_study_drops_seeds_beyond_its_limit_at_a_depth(tmp_path: Path) -> None:
    cfgs = [
        config(*fake_runs.SMALL, f"results={tmp_path}", "+study.seeds={2: 2}", f"model.depth={depth}", f"seed={seed}")
        for depth in (1, 2)
        for seed in range(4)
    ]
    jobs, dropped = collect(cfgs)
    assert dropped == 2
    assert [(job.cfg.model.depth, job.cfg.seed) for job in jobs] == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]
    with pytest.raises(ConfigError, match="no run is left"):
        collect(cfgs[-2:])


@pytest.mark.parametrize("other", ["study.name=second", "scale=smoke", "results=elsewhere"])
def test_a_sweep_of_two_studies_is_refused(tmp_path: Path, other: str) -> None:
    first = config(*fake_runs.SMALL, f"results={tmp_path}")
    with pytest.raises(ConfigError, match="one study, scale and results folder"):
        collect([first, config(*fake_runs.SMALL, f"results={tmp_path}", other)])


def test_one_invalid_job_refuses_all_and_writes_nothing(tmp_path: Path) -> None:
    cfgs = [*fake_runs.jobs(tmp_path, 2), config(*fake_runs.SMALL, f"results={tmp_path}", "model.depth=0")]
    with pytest.raises(ConfigError, match=r"model\.depth=0 must be 1 or more"):
        fake_runs.sweep(cfgs)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_another_config_refuses_the_sweep(tmp_path: Path) -> None:
    [cfg] = fake_runs.jobs(tmp_path, 1)
    fake_runs.run(cfg)
    path = run_folder(cfg) / "run.json"
    path.write_text(path.read_text().replace('"steps": 2', '"steps": 9', 1))
    with pytest.raises(ConfigError, match=r"another config, which differs in train\.steps"):
        collect([cfg])


def test_a_deeper_wider_longer_run_costs_more() -> None:
    base = config(*fake_runs.SMALL)
    for key in ("model.depth", "model.width", "train.steps", "train.batch", "train.context"):
        more = base.copy()
        OmegaConf.update(more, key, 2 * OmegaConf.select(base, key))
        assert cost(more) > 1.4 * cost(base)
    assert cost(OmegaConf.to_container(base, resolve=True)) == cost(base)  # type: ignore[arg-type]


def test_a_plan_says_what_was_asked_and_which_runs_answer(tmp_path: Path) -> None:
    path = done(tmp_path, 2, COMMAND)
    found = json.loads(path.read_text())
    assert path.parent == tmp_path / "runs" / "fake" / "laptop"
    assert (found["schema"], found["study"], found["scale"]) == (1, "fake", "laptop")
    assert found["overrides"] == ["seed=0,1", "study=depth_warmup"]
    assert found["runs"] == [run_folder(cfg).name for cfg in fake_runs.jobs(tmp_path, 2)]
    assert len(found["conf_digest"]) == 64


def test_how_a_sweep_is_run_is_not_part_of_what_is_asked() -> None:
    assert asked_for(["b=1", "sweep.jobs=2", "+sweep.retry=true", "a=2"]) == ("a=2", "b=1")


def test_a_finished_plan_is_found_without_composing(tmp_path: Path) -> None:
    path = done(tmp_path, 2, COMMAND)
    found = finished_plan([*reversed(COMMAND)], tmp_path)
    assert found is not None
    assert (found.path, found.study, found.scale, len(found.runs)) == (path, "fake", "laptop", 2)
    assert finished_plan(["seed=0"], tmp_path) is None
    assert finished_plan(COMMAND, tmp_path / "nowhere") is None


def test_a_plan_with_a_run_that_is_not_done_is_not_finished(tmp_path: Path) -> None:
    done(tmp_path, 2, COMMAND)
    next(tmp_path.glob("runs/fake/laptop/*/steps.parquet")).unlink()
    assert finished_plan(COMMAND, tmp_path) is None


def test_a_plan_of_other_configs_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(tmp_path, 1, COMMAND)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "config.yaml").write_text("seed: 1\n")
    monkeypatch.setattr(plans, "CONF", conf)
    monkeypatch.setattr(plans, "PACKAGE", tmp_path)
    (tmp_path / "config.py").touch()
    assert finished_plan(COMMAND, tmp_path) is None


def test_a_half_written_plan_is_no_plan(tmp_path: Path) -> None:
    path = done(tmp_path, 1, COMMAND)
    path.write_text(path.read_text()[:40])
    assert finished_plan(COMMAND, tmp_path) is None
    assert newest_plan(path.parent) is None


def test_the_plan_of_the_last_command_is_the_current_one(tmp_path: Path) -> None:
    small, large = done(tmp_path, 1, ["seed=0"]), done(tmp_path, 2, ["seed=0,1"])
    os.utime(small, (1, 1))
    os.utime(large, (2, 2))
    newest = newest_plan(small.parent)
    assert newest is not None
    assert newest.path == large
    assert finished_plan(["seed=0", "sweep.dry=true"], tmp_path) is not None
    assert newest_plan(small.parent) == newest
    finished_plan(["seed=0"], tmp_path)
    assert newest_plan(small.parent) != newest
