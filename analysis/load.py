"""Run folders, or the reference, as tidy tables.

A study's own runs are read where its newest plan is done, exactly the runs of that plan; otherwise the committed reference.
The two are never mixed, and what is left out is counted.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis import schema
from analysis.plan import Plan, newest_plan
from analysis.schema import SchemaError, read_json, read_table

ORDER = ["variant", "depth", "warmup", "seed", "run"]


@dataclass(frozen=True)
class Columns:
    """What to read of `steps` and `layers`: None = all, () = nothing. `step` (and `layer`) are always read.

    if_there : a column that some file lacks, being older than its probe, is left out of the table, not refused.
    """

    steps: tuple[str, ...] | None = None
    layers: tuple[str, ...] | None = None
    if_there: bool = False


ALL = Columns()


@dataclass(frozen=True)
class Source:
    """Where the runs of a study came from.

    left_out : runs of the plan that have not ended and are not in the tables.
    other : why the study's own runs were not used, or were not all; empty where nothing needs saying.
    """

    study: str
    scale: str
    kind: Literal["runs", "reference"]
    runs: int
    left_out: int
    commits: tuple[str, ...]
    other: str = ""

    def __str__(self) -> str:
        where = "results/runs" if self.kind == "runs" else "the committed reference"
        line = f"{self.study}: {self.runs} runs of {where} at {self.scale}, {self.origin}"
        if self.left_out:
            line += f"; {self.left_out} incomplete left out"
        return line + (f" ({self.other})" if self.other else "")

    @property
    def origin(self) -> str:
        """The commits of the code that ran."""
        return f"commit{'s' if len(self.commits) > 1 else ''} {', '.join(self.commits)}"


@dataclass(frozen=True)
class Study:
    """One study's tables: `runs` has one row per run; `steps` and `layers` name their run in the categorical column `run`."""

    source: Source
    runs: pd.DataFrame
    steps: pd.DataFrame
    layers: pd.DataFrame

    def only(self, kept: pd.Series) -> "Study":
        """The runs where a mask over `runs` is true, with their steps and layers; a source that counts them."""
        runs = self.runs[kept].reset_index(drop=True)
        tables = [_of(table, runs["run"]) for table in (self.steps, self.layers)]
        return Study(replace(self.source, runs=len(runs)), runs, *tables)


def load_study(
    results: Path, study: str, scale: str = "laptop", *, partial: bool = False, columns: Columns = ALL
) -> Study | None:
    """A study's tables from its own runs if the newest plan is done, else from the reference; None if there is neither.

    partial : use the runs that have ended of a plan that is not done.
    Raises SchemaError for a file that does not fit the schema or is cut short.
    """
    folder = results / "runs" / study / scale
    plan = newest_plan(folder)
    if plan is not None and (plan.done or (partial and plan.finished)):
        return _from_runs(folder, plan, columns)
    reason = f"results/runs: {plan}" if plan is not None else ""
    return load_reference(results, study, scale, columns=columns, other=reason)


def load_reference(
    results: Path, study: str, scale: str = "laptop", *, columns: Columns = ALL, other: str = ""
) -> Study | None:
    """A study's tables from results/reference; None where it has none at this scale."""
    folder = results / "reference" / study
    if not (folder / "runs.parquet").exists():
        return None
    frame = read_table(folder / "runs.parquet", "runs").to_pandas().sort_values(ORDER, ignore_index=True)
    if set(frame["scale"]) != {scale}:
        return None
    return Study(
        _source(frame, "reference", 0, other),
        frame,
        _shared(folder, "steps", _found([folder], "steps", columns), frame["run"]),
        _shared(folder, "layers", _found([folder], "layers", columns), frame["run"]),
    )


def _from_runs(folder: Path, plan: Plan, columns: Columns) -> Study:
    names = plan.finished
    frame = run_table(folder, names).to_pandas().sort_values(ORDER, ignore_index=True)
    source = _source(frame, "runs", len(plan.states) - len(names), "" if plan.done else str(plan))
    folders = [folder / run for run in frame["run"]]
    step_frame = _separate(folder, "steps", _found(folders, "steps", columns), frame["run"])
    layer_frame = _separate(folder, "layers", _found(folders, "layers", columns), frame["run"])
    _check_whole(folder, frame, step_frame, layer_frame)
    return Study(source, frame, step_frame, layer_frame)


def run_table(folder: Path, names: list[str]) -> pa.Table:
    """The run.json files of these folders as the schema's table `runs`."""
    rows = {folder / name / "run.json": _row(folder / name / "run.json", name) for name in names}
    arrays = {}
    for column, kind in schema.columns("runs").items():
        for path, row in rows.items():
            try:
                pa.scalar(row[column], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise SchemaError(f"{path}: {column}={row[column]!r} is not {kind} as in the schema") from error
        arrays[column] = pa.array([row[column] for row in rows.values()], kind)
    return pa.table(arrays)


def _row(path: Path, name: str) -> dict[str, Any]:
    run = read_json(path, ("schema", "run", "study", "scale", "variant", "config", "manifest", "status"))
    if run["run"] != name:
        raise SchemaError(f"{path}: key run is {run['run']!r}, not the name of its folder")
    config, manifest, status = run["config"], run["manifest"], run["status"]
    if run["schema"] != schema.version():
        raise SchemaError(f"{path}: schema={run['schema']}, but this code reads {schema.version()}; run it again")
    try:
        if status["state"] == "complete" and status["val_loss"] is None and config["train"]["steps"] > 1:
            raise SchemaError(f"{path}: status.val_loss is null, but the run is complete; run it again")
        norm, data = config["norm"], manifest["data"]
        return {
            "run": name, "study": run["study"], "scale": run["scale"], "variant": run["variant"],
            "label": run.get("label", norm["label"]), "color": norm["color"], "linestyle": norm["linestyle"],
            "depth": config["model"]["depth"], "warmup": config["schedule"]["warmup"], "seed": config["seed"],
            "state": status["state"], "diverged_step": status["diverged_step"],
            "first_nonfinite_layer": status["first_nonfinite_layer"], "initial_loss": status["initial_loss"],
            "final_val_loss": status["val_loss"], "unigram": data["unigram"], "bigram": data["bigram"],
            "commit": manifest["commit"], "config": json.dumps(config, sort_keys=True),
            "manifest": json.dumps(manifest, sort_keys=True),
        }  # fmt: skip
    except (KeyError, TypeError) as error:
        raise SchemaError(f"{path}: no key {error}; the run is older than the schema, run it again") from error


def _source(frame: pd.DataFrame, kind: Literal["runs", "reference"], left_out: int, other: str) -> Source:
    study, scale = str(frame["study"].iloc[0]), str(frame["scale"].iloc[0])
    return Source(study, scale, kind, len(frame), left_out, tuple(sorted(set(frame["commit"]))), other)


def _found(folders: list[Path], table: str, columns: Columns) -> tuple[str, ...] | None:
    """The columns to read of a table. A damaged file is left to whoever reads it whole."""
    names: tuple[str, ...] | None = getattr(columns, table)
    for path in (folder / f"{table}.parquet" for folder in folders if columns.if_there and names):
        try:
            present = set(pq.read_schema(path).names)
        except (pa.ArrowException, OSError):
            continue
        names = tuple(name for name in names or () if name in present)
    return names


def _names(table: str, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    keys = ("step", "layer") if table == "layers" else ("step",)
    return None if names is None else keys + tuple(name for name in names if name not in keys)


def _separate(folder: Path, table: str, names: tuple[str, ...] | None, runs: pd.Series) -> pd.DataFrame:
    """One table from the files of many run folders."""
    if names == ():
        return pd.DataFrame()
    parts = [read_table(folder / run / f"{table}.parquet", table, _names(table, names)) for run in runs]
    code = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    frame: pd.DataFrame = pa.concat_tables(parts).to_pandas()
    frame.insert(0, "run", pd.Series(pd.Categorical.from_codes(code, categories=pd.Index(list(runs)))))
    return frame


def _shared(folder: Path, table: str, names: tuple[str, ...] | None, runs: pd.Series) -> pd.DataFrame:
    """One table from one file that holds many runs."""
    if names == ():
        return pd.DataFrame()
    path = folder / f"{table}.parquet"
    frame: pd.DataFrame = read_table(path, table, _names(table, names), many=True).to_pandas()
    if set(frame["run"].unique()) != set(runs):
        raise SchemaError(f"{path}: its runs are not those of {folder / 'runs.parquet'}; write the reference again")
    frame["run"] = pd.Categorical(frame["run"], categories=list(runs))
    return frame.sort_values([c for c in ("run", "step", "layer") if c in frame], ignore_index=True)


def _of(table: pd.DataFrame, runs: pd.Series) -> pd.DataFrame:
    if table.empty:
        return table
    part = table[table["run"].isin(runs)].reset_index(drop=True)
    return part.assign(run=part["run"].cat.set_categories(list(runs)))


def _check_whole(folder: Path, runs: pd.DataFrame, steps: pd.DataFrame, layers: pd.DataFrame) -> None:
    """Raise SchemaError where a complete run's steps end early, or a step lacks a layer."""
    of = runs.set_index("run")
    if "step" in steps:
        last = of["config"].map(lambda config: json.loads(config)["train"]["steps"] - 1)
        end = steps.groupby("run", observed=False)["step"].max().reindex(of.index)
        for run in of.index[(of["state"] == "complete") & ~(end >= last)]:
            raise SchemaError(f"{folder / run / 'steps.parquet'}: ends at step {end[run]} of {last[run]}; run it again")
    if "layer" in layers:
        group = layers.groupby("run", observed=False)["step"]
        short = (group.size() != group.nunique() * (of["depth"] + 1)).reindex(of.index)
        for run in of.index[short]:
            raise SchemaError(f"{folder / run / 'layers.parquet'}: a step lacks some of the {of['depth'][run] + 1} layers")
