"""Entry point: ``python -m experiments.train`` trains one run, with ``-m`` the jobs of a sweep."""

import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.choices import check_choices
from experiments.config import CONF, SINGLE, ConfigError, register
from experiments.data import make_source
from experiments.plan import Job, refuse_other_config
from experiments.record import RunDone
from experiments.state import RunBusy
from experiments.sweep import finished_plan, run_sweep
from experiments.validation import validate, validate_keys

COMMAND = "python -m experiments.train"
MULTIRUN = {"-m", "--multirun"}


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 when everything asked for is there, 1 otherwise."""
    register()
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    swept = bool(MULTIRUN & set(arguments))
    sys.argv[1:] = sorted(arguments, key=lambda argument: argument not in MULTIRUN)  # Hydra wants -m before the overrides
    try:
        validate_keys(overrides)
        check_choices(overrides)
        refuse_two_studies(overrides)
        if swept and (plan := finished_plan(overrides, results_of(overrides))):
            print(f"{plan.study} at {plan.scale}: all {len(plan.runs)} runs are done; nothing to do")
            return 0
        jobs: list[DictConfig] = []
        compose(jobs)
        return run_sweep(jobs, overrides, prepare=check_jobs) if jobs else 0
    except (ConfigError, RunBusy, RunDone) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command runs it again", file=sys.stderr)
        return 128 + signal.SIGINT


def compose(jobs: list[DictConfig]) -> None:
    """Let Hydra compose the command line's config: train it at once, or in a multirun append each job's to ``jobs``.

    An error of Hydra's own (an unknown option, a misspelt key) is printed by Hydra, which exits with code 1.
    """
    failed: list[Exception] = []

    def task(cfg: DictConfig) -> None:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            jobs.append(cfg)
            return
        try:
            train(cfg)
        except (ConfigError, RunBusy, RunDone) as error:
            failed.append(error)

    # Hydra composes every job twice, first only to see whether it can; here none starts before all are composed
    setattr(Sweeper, "validate_batch_is_legal", lambda _self, _batch: None)  # noqa: B010
    hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(task)()
    if failed:
        raise failed[0]


def train(cfg: DictConfig) -> None:
    """Train one run in this process, with a progress bar."""
    if cfg.study.name != SINGLE:
        raise ConfigError(f"study={cfg.study.name} is a sweep; run it with: {COMMAND} -m study={cfg.study.name}")
    validate(cfg)
    job, console = Job(cfg), Console(soft_wrap=True)
    refuse_other_config(job)
    if job.state().done:
        console.print(f"already {job.state().state}: {job.folder}")
        return
    from experiments.run import check, run  # noqa: PLC0415 - torch, which a sweep's parent never imports

    check_source(cfg)
    check([cfg])
    text, columns = "{task.fields[step]}", (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(TextColumn(job.name), *columns, TextColumn(text), console=console) as progress:
        bar, began = progress.add_task("", total=cfg.train.steps, step=""), time.monotonic()

        def report(step: int, loss: float, tokens: int) -> None:
            speed = tokens * (step + 1) / (time.monotonic() - began)
            progress.update(bar, completed=step + 1, step=f"loss {loss:.3f}  {speed:,.0f} tokens/s")

        state = run(cfg, report)
    console.print(f"{state}: {job.folder}")


def check_jobs(jobs: Sequence[DictConfig]) -> None:
    """ConfigError before any job starts if a token source, a device or a precision is not to be had, or a variant is none."""
    for cfg in {str((cfg.data, cfg.train.context, cfg.model.vocab)): cfg for cfg in jobs}.values():
        check_source(cfg)
    unlike = {_made_of(cfg): cfg for cfg in jobs}
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as child:
        child.submit(_check_with_torch, list(unlike.values())).result()


def _made_of(cfg: DictConfig) -> str:
    """What two runs share whose blocks, whatever their number, are alike on one kind of device."""
    blocks = {key: value for key, value in cfg.model.items() if key != "depth"}
    return str((cfg.norm, blocks, cfg.init, cfg.device, cfg.train.precision))


def _check_with_torch(jobs: Sequence[DictConfig]) -> None:
    from experiments.run import check  # noqa: PLC0415 - torch, which a sweep's parent never imports

    check(jobs)


def check_source(cfg: DictConfig) -> None:
    """ConfigError if the tokens of a config are not to be had, or are more than its model has rows for."""
    ids, rows = make_source(cfg).vocab, cfg.model.vocab
    if rows is not None and rows < ids:
        raise ConfigError(
            f"model.vocab={rows} is below the {ids} token ids of data={cfg.data.name}; raise it to {ids} or more"
        )


def refuse_two_studies(overrides: Sequence[str]) -> None:
    """Hydra 1.3 would silently drop the sweeper params of both."""
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "study" and "," in value:
            raise ConfigError(f"{override} asks for two studies in one sweep; run them one after the other")


def results_of(overrides: Sequence[str]) -> Path:
    """The results folder that a command line asks for."""
    given = [override.removeprefix("results=") for override in overrides if override.startswith("results=")]
    return Path(given[-1].strip("'\"") if given else "results")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
