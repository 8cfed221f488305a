"""Made-up studies in memory, as analysis.load would give them, and as files of a reference."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from synthetic_store import BIGRAM, INITIAL, STYLES, UNIGRAM, Run, write_parquet

from analysis.evidence.record import LAST, MissingError, Record
from analysis.load import Source, Study
from analysis.schema import columns

END = 299  # last recorded step
FLOOR = {"trained": 2.4, "stuck": UNIGRAM, "unfinished": 3.9, "diverged": np.nan}


@dataclass(frozen=True)
class Case:
    """A run with the values of its tables: (step, column) -> value_L, shape [L + 1]; (step, column) -> value; final loss."""

    run: Run
    layers: Mapping[tuple[int, str], np.ndarray]
    steps: Mapping[tuple[int, str], float]
    final: float | None = None


class Memory:
    """Studies in memory that stand in for a sources.Sources."""

    def __init__(self, studies: Mapping[str, Study] = {}, checks: list[dict[str, Any]] | None = None) -> None:
        self._records = {name: Record(study, "results/runs at laptop, commit abc1234") for name, study in studies.items()}
        self._checks = checks

    def kind(self, _studies: object) -> str:
        return "runs"

    def record(self, study: str, _kind: str) -> Record:
        if study not in self._records:
            raise MissingError(f"no runs of {study} at laptop")
        return self._records[study]

    def checks(self, _kind: str) -> tuple[list[dict[str, Any]], str]:
        if self._checks is None:
            raise MissingError("no exact checks in results/runs")
        return self._checks, "results/exact.json, commit abc1234"


def study(name: str, found: list[Case]) -> Study:
    """The tables of these cases, as analysis.load would give them."""
    table = pd.DataFrame([_run_row(case) for case in found])
    names = pd.Index(table["run"])
    steps = pd.DataFrame([row for code, case in enumerate(found) for row in _step_rows(case, code)])
    layers = _layer_table(found)
    for part in (steps, layers):
        part["run"] = pd.Categorical.from_codes(part["run"], categories=names)
    return Study(Source(name, "laptop", "runs", len(table), 0, ("abc1234",)), table, steps, layers)


def _run_row(case: Case) -> dict[str, Any]:
    run = case.run
    label, color, linestyle = STYLES[run.norm]
    final = case.final if case.final is not None else FLOOR[run.outcome]
    manifest = {"data": {"sha256": "0" * 64}}
    return {
        "run": run.name, "study": run.study, "scale": "laptop", "variant": run.norm, "label": label, "color": color,
        "linestyle": linestyle, "depth": run.depth, "warmup": run.warmup, "seed": run.seed, "state": run.state,
        "initial_loss": INITIAL, "final_val_loss": np.nan if run.state == "diverged" else final, "unigram": UNIGRAM,
        "bigram": BIGRAM, "commit": "abc1234", "config": json.dumps(run.config, sort_keys=True),
        "manifest": json.dumps(manifest),
    }  # fmt: skip


def _step_rows(case: Case, code: int) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {0: {"run": code, "step": 0, "loss": INITIAL}}
    for (step, column), value in case.steps.items():
        at = END if step == LAST else step
        rows.setdefault(at, {"run": code, "step": at, "loss": 2.0})[column] = value
    return list(rows.values())


def _layer_table(found: list[Case]) -> pd.DataFrame:
    """One row per run, step and layer; what a case does not have at a step is NaN."""
    wanted = list(dict.fromkeys(column for case in found for _, column in case.layers))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("run", "step", "layer", *wanted)}
    for code, case in enumerate(found):
        L = case.run.depth
        for step in {step for step, _ in case.layers} or {0}:
            parts["run"].append(np.full(L + 1, code))
            parts["step"].append(np.full(L + 1, END if step == LAST else step))
            parts["layer"].append(np.arange(L + 1))
            for column in wanted:
                parts[column].append(case.layers.get((step, column), np.full(L + 1, np.nan)))
    return pd.DataFrame({name: np.concatenate(values) for name, values in parts.items()})


def write_reference(results: Path, found: Study) -> None:
    """results/reference/<study>/*.parquet of a study in memory."""
    folder = results / "reference" / found.source.study
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("runs", "steps", "layers"):
        table = getattr(found, name)
        kinds = ({"run": pa.string()} if name != "runs" else {}) | columns(name)
        data = {
            column: pa.array(table[column].astype(object).where(table[column].notna(), None), kind)
            if column in table else pa.nulls(len(table), kind)
            for column, kind in kinds.items()
        }  # fmt: skip
        write_parquet(pa.table(data), folder / f"{name}.parquet")
