"""The jobs of a command: which runs it asks for, and the file that says so."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from experiments.config import CONF, PACKAGE, ConfigError
from experiments.identity import config_difference, run_folder, study_folder
from experiments.state import SCHEMA, RunState, read_state, write_json
from experiments.validation import validate

BYTES = 256  # vocabulary where the config does not state one


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    cfg: DictConfig

    @cached_property
    def folder(self) -> Path:
        return run_folder(self.cfg)

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def cost(self) -> float:
        return cost(self.cfg)

    def state(self) -> RunState:
        return read_state(self.folder)


@dataclass(frozen=True)
class Plan:
    """A command, as its overrides without sweep.*, and the names of its runs. `path` is its file."""

    path: Path
    overrides: tuple[str, ...]
    conf_digest: str
    runs: tuple[str, ...]

    @property
    def study(self) -> str:
        return self.path.parent.parent.name

    @property
    def scale(self) -> str:
        return self.path.parent.name

    def states(self) -> dict[str, RunState]:
        return {name: read_state(self.path.parent / name) for name in self.runs}

    def write(self) -> None:
        named = {"schema": SCHEMA, "study": self.study, "scale": self.scale}
        listed = {"overrides": list(self.overrides), "conf_digest": self.conf_digest, "runs": list(self.runs)}
        write_json(self.path, named | listed)


def cost(cfg: DictConfig | Mapping[str, Any]) -> float:
    """Multiply-adds of a run's forward passes: matrices of 12 D^2 a block, attention, readout. A scale, not a time."""
    model, train = cfg["model"], cfg["train"]
    width, context = model["width"], train["context"]
    a_token = model["depth"] * (12 * width**2 + 2 * context * width) + width * (cfg["data"].get("vocab") or BYTES)
    return float(max(train["steps"], 1) * train["batch"] * context * a_token)


def collect(cfgs: Sequence[DictConfig]) -> tuple[list[Job], int]:
    """Distinct valid jobs of one study and scale in the order given, and how many study.seeds dropped.

    A config stands for study.draws of them, with its seed and those that follow. Raises ConfigError, before anything is
    written, for the first job that cannot be run.
    """
    for cfg in cfgs:
        validate(cfg)
    folders = sorted({str(study_folder(cfg)) for cfg in cfgs})
    if len(folders) > 1:
        raise ConfigError(
            f"a sweep belongs to one study, scale and results folder, not to {', '.join(folders)}; sweep them in turn"
        )
    kept = [one for cfg in cfgs for one in _draws(cfg)]
    if not kept:
        raise ConfigError("no run is left: study.seeds allows none of these seeds at these depths; ask for others")
    jobs = {job.name: job for job in map(Job, kept)}
    for job in jobs.values():
        refuse_other_config(job)
    return list(jobs.values()), sum(cfg.study.draws for cfg in cfgs) - len(kept)


def make_plan(overrides: Sequence[str], jobs: Sequence[Job]) -> Plan:
    """The plan of these jobs; its file is named after the overrides."""
    asked = asked_for(overrides)
    return Plan(jobs[0].folder.parent / _file(asked), asked, conf_digest(), tuple(job.name for job in jobs))


def read_plan(path: Path) -> Plan | None:
    """The plan in a file; None where it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Plan(path, tuple(found["overrides"]), str(found["conf_digest"]), tuple(map(str, found["runs"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def newest_plan(folder: Path) -> Plan | None:
    """The plan of the last command given in a study's folder."""
    paths = sorted(folder.glob("plan-*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return next((plan for plan in map(read_plan, paths) if plan), None)


def finished_plan(overrides: Sequence[str], results: str | Path) -> Plan | None:
    """The plan of this command, if conf/ is as it was and every run is done; answers without composing a config.

    Makes that plan the newest of its study, unless the command is a dry run.
    """
    asked = asked_for(overrides)
    digest = conf_digest()
    for path in Path(results).glob(f"runs/*/*/{_file(asked)}"):
        plan = read_plan(path)
        if not plan or plan.overrides != asked or plan.conf_digest != digest:
            continue
        if all(state.done for state in plan.states().values()):
            if not any(word.lower() in ("sweep.dry=true", "sweep.dry=1") for word in overrides):
                os.utime(path)
            return plan
    return None


def asked_for(overrides: Sequence[str]) -> tuple[str, ...]:
    """Overrides that say what is asked, sorted: without sweep.*, which says how it is done."""
    return tuple(sorted(word for word in overrides if not word.lstrip("+~").startswith("sweep.")))


def conf_digest() -> str:
    """SHA-256 over every file that shapes a config."""
    digest = hashlib.sha256()
    for path in [*sorted(CONF.rglob("*.yaml")), PACKAGE / "config.py"]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(CONF.parent)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _file(asked: tuple[str, ...]) -> str:
    return f"plan-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]}.json"


def _draws(cfg: DictConfig) -> Iterator[DictConfig]:
    """The configs that one stands for, but for those whose seed study.seeds does not allow at their depth."""
    most = cfg.study.seeds.get(cfg.model.depth)
    for seed in range(cfg.seed, cfg.seed + cfg.study.draws):
        if most is None or seed < most:
            one = cfg.copy()
            one.seed = seed
            yield one


def refuse_other_config(job: Job) -> None:
    """ConfigError where the job's folder holds a run of another config, as after an edit by hand."""
    held = job.state().record.get("config")
    if held is not None and (keys := config_difference(held, job.cfg)):
        raise ConfigError(f"{job.folder} holds another config, which differs in {', '.join(keys)}; move that folder away")
