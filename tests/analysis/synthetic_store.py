"""A store of made-up runs in exactly the layout and schema of real ones, with laws that the tests know."""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.schema import columns

UNIGRAM, BIGRAM, INITIAL = 3.26, 2.49, 5.6
STYLES = {
    "pre": ("Pre-LN", "#0072B2", "-"), "post": ("Post-LN", "#D55E00", "--"), "odd": ("Odd-LN", "#009E73", "-."),
    "even": ("Even-LN", "#0072B2", ":"),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One made-up run. outcome: trained, stuck, unfinished, diverged or init; state: as in run.json."""

    norm: str = "pre"
    depth: int = 6
    warmup: int = 0
    seed: int = 0
    steps: int = 400
    outcome: str = "trained"
    state: str = "complete"
    study: str = "depth_warmup"
    scale: str = "laptop"
    init: str = "gpt2"
    commit: str = "abc1234"
    override: dict[str, Any] = field(default_factory=dict)  # dotted config key: value
    first_exponent: float = 0.0  # of grad_stream at point 0 in depth, before training changes it
    last_exponent: float = 0.0  # the same at point L
    final: float | None = None  # validation loss; None = as the outcome has it
    initial: float = INITIAL
    noise: float = 0.1  # std over seeds of ln of the gradient norms

    @property
    def config(self) -> dict[str, Any]:
        label, color, linestyle = STYLES[self.norm]
        init = {"name": self.init, "std": None if self.init == "xavier" else 0.02, "embedding_std": None}
        config: dict[str, Any] = {
            "norm": {"name": self.norm, "placement": self.norm, "kind": "layernorm", "eps": 1e-5,
                     "label": label, "color": color, "linestyle": linestyle},
            "model": {"depth": self.depth, "width": 64, "n_head": 4, "ffn": "gelu", "positions": "learned", "d_ff": None,
                      "rope_base": 1e4, "final_norm": None, "tied": False, "bias": True, "dropout": 0.0,
                      "checkpointing": False},
            "init": init,
            "data": {"name": "shakespeare", "path": None, "vocab": None, "valid_fraction": None},
            "optim": {"name": "adamw", "lr": 2e-3, "weight_decay": 0.0, "betas": [0.9, 0.98], "eps": 1e-8, "momentum": 0.0,
                      "decay_embeddings": False},
            "schedule": {"name": "constant", "warmup": self.warmup, "final_ratio": 0.0},
            "train": {"steps": self.steps, "batch": 8, "context": 64, "precision": "fp32", "eval_every": None,
                      "eval_batches": 16, "accumulate": 1, "clip": None, "compile": False},
            "probe": {"names": ["stream", "gradient"], "every": None, "per_decade": 12},
            "seed": self.seed, "study": {"name": self.study, "seeds": {}},
            "scale": {"name": self.scale, "steps": self.steps, "warmup": 200},
            "sweep": {"jobs": None, "retry": False, "dry": False},
            "results": "results", "device": "cpu", "threads": 1,
        }  # fmt: skip
        for key, value in self.override.items():
            *path, last = key.split(".")
            target = config
            for part in path:
                target = target[part]
            target[last] = value
        return config

    @property
    def name(self) -> str:
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.norm}-L{self.depth}-w{self.warmup}-s{self.seed}-{digest}"

    @property
    def last_step(self) -> int:
        """Last measured step; diverged runs end at a third, interrupted ones at half."""
        full = self.steps - 1
        return full // 3 if self.state == "diverged" else full if self.state == "complete" else full // 2

    def folder(self, results: Path) -> Path:
        return results / "runs" / self.study / self.scale / self.name


def recorded_steps(last: int) -> np.ndarray:
    """Log-spaced, 12 a decade, always the first and the last."""
    spaced = np.unique(np.round(10 ** (np.arange(0, 60) / 12)).astype(int))
    return np.unique(np.concatenate([[0], spaced[spaced <= last], [last]]))


def loss_curve(run: Run) -> np.ndarray:
    step = np.arange(run.last_step + 1)
    rng = np.random.default_rng([run.seed, run.depth, run.warmup, *run.norm.encode()])
    floor = {"trained": 2.35, "stuck": UNIGRAM, "unfinished": 3.9}.get(run.outcome, 3.2)
    loss = floor + (INITIAL - floor) * np.exp(-step / (8 + 0.05 * run.warmup)) + 0.05 * rng.normal(size=len(step))
    if run.outcome == "trained":
        loss += 0.85 / (1 + np.exp((step - 40 - 0.4 * run.warmup) / 15))
    loss[0] = INITIAL
    if run.state == "diverged":
        loss[-1] = np.nan
    return loss


def layer_values(run: Run, step: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of layers.parquet, shape [steps, L + 1]."""
    L = run.depth
    rng = np.random.default_rng([7, run.seed, run.depth, run.warmup, *run.norm.encode()])
    layer = np.arange(L + 1)
    time = step / max(run.steps, 10)
    fall = np.where(step > 0, 1.0, 0.0) * np.exp(-(np.log(np.maximum(step, 1) / 30) ** 2))
    depth_fall = {"stuck": 0.25, "trained": 0.03 if run.norm != "pre" else 0.0, "unfinished": 0.1}.get(run.outcome, 0.0)
    dead = depth_fall * (1 - np.exp(-step / 20)) if run.outcome == "stuck" else depth_fall * fall
    growth = 0.3 * (1 + 5 * time)
    var = 1 + growth[:, None] * layer if run.norm == "pre" else np.ones((len(step), 1)) + 0 * layer
    tilt = np.exp(-dead[:, None] * (L - layer) * rng.uniform(0.9, 1.1))
    last = 0.03 * (L / 6) ** run.last_exponent * np.exp(run.noise * rng.normal())
    first = 0.08 * (L / 6) ** run.first_exponent * np.exp(run.noise * rng.normal())
    grad = first ** (1 - layer / L) * last ** (layer / L) * tilt * np.exp(0.02 * rng.normal(size=tilt.shape))
    grad[:, 0], grad[:, -1] = first * tilt[:, 0], last
    rel = grad * np.sqrt(var)
    block = np.where(layer < L, 1.0, np.nan)
    std = (1 + 8 * dead[:, None]) * np.sqrt(var) * block * 1.4
    cosine = 0.2 + 0.75 * (1 - np.exp(-12 * dead[:, None])) * (layer + 1) / (L + 1)
    return {
        "grad_stream": grad, "grad_rel": rel / rel[:, -1:], "stream_var": var, "token_cosine": cosine,
        "norm_std_attn": std, "norm_std_ffn": std * 1.1, "grad_w2": grad * 0.1 * block,
    }  # fmt: skip


def layer_table(run: Run) -> pa.Table:
    step = recorded_steps(run.last_step)
    values = layer_values(run, step)
    n = len(step) * (run.depth + 1)
    data: dict[str, pa.Array] = {}
    for name, kind in columns("layers").items():
        if name == "step":
            data[name] = pa.array(np.repeat(step, run.depth + 1), kind)
        elif name == "layer":
            data[name] = pa.array(np.tile(np.arange(run.depth + 1), len(step)), kind)
        elif name in values:
            array = values[name].ravel().astype(np.float32)
            null = np.isnan(array) if name.startswith("norm_std") or name == "grad_w2" else np.zeros(n, bool)
            data[name] = pa.array(array, kind, mask=null)
        else:
            data[name] = pa.nulls(n, kind)
    return pa.table(data)


def step_table(run: Run) -> pa.Table:
    """One row per step; a complete run has one more, with the validation loss alone."""
    loss = loss_curve(run)
    n = len(loss)
    given = {"step": np.arange(n), "loss": loss, "lr": np.full(n, 2e-3), "tokens": 512 * np.arange(1, n + 1)}
    table = _filled("steps", n, given)
    if run.state != "complete":
        return table
    return pa.concat_tables([table, _filled("steps", 1, {"step": [run.steps], "val_loss": [final_loss(run)]})])


def _filled(table: str, rows: int, given: dict[str, Any]) -> pa.Table:
    """A table of the schema; columns that are not given are null."""
    data = {
        name: pa.array(np.asarray(given[name], float), pa.float64()).cast(kind) if name in given else pa.nulls(rows, kind)
        for name, kind in columns(table).items()
    }
    return pa.table(data)


def final_loss(run: Run) -> float:
    if run.final is not None:
        return run.final
    floor = {"trained": 2.4, "stuck": 3.27, "unfinished": 3.9}.get(run.outcome, INITIAL - 0.05)
    return float(floor + 0.01 * np.random.default_rng(run.seed).normal())


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def write_run(results: Path, run: Run) -> Path:
    """The folder of a run: run.json, steps.parquet, layers.parquet."""
    folder = run.folder(results)
    folder.mkdir(parents=True, exist_ok=True)
    write_parquet(step_table(run), folder / "steps.parquet")
    write_parquet(layer_table(run), folder / "layers.parquet")
    status = {
        "state": run.state, "step": run.last_step, "seconds": 12.5, "loss": 2.5, "initial_loss": run.initial,
        "val_loss": final_loss(run) if run.state == "complete" else None,
        "diverged_step": run.last_step if run.state == "diverged" else None, "first_nonfinite_layer": None, "message": None,
    }  # fmt: skip
    manifest = {
        "commit": run.commit, "command": "python -m experiments.train", "started": "2026-01-01T00:00:00", "device": "cpu",
        "threads": 1, "versions": {}, "parameters": 1, "flops_per_token": 1.0, "tokens_per_step": 512,
        "data": {"name": "shakespeare", "sha256": "0" * 64, "vocab": 256, "unigram": UNIGRAM, "bigram": BIGRAM},
    }  # fmt: skip
    body = {
        "schema": 1, "run": run.name, "study": run.study, "scale": run.scale, "variant": run.norm, "id": run.name[-8:],
        "config": run.config, "manifest": manifest, "status": status,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(body))
    return folder


def write_plan(results: Path, runs: list[Run], *, age: float = 0.0, tag: str = "00000000") -> Path:
    """A plan of these runs, `age` seconds old."""
    folder = results / "runs" / runs[0].study / runs[0].scale
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"plan-{tag}.json"
    plan = {
        "schema": 1, "study": runs[0].study, "scale": runs[0].scale, "overrides": [f"study={runs[0].study}"],
        "conf_digest": "0", "runs": [run.name for run in runs],
    }  # fmt: skip
    path.write_text(json.dumps(plan))
    stamp = path.stat().st_mtime - age
    os.utime(path, (stamp, stamp))
    return path


def write_study(results: Path, runs: list[Run]) -> None:
    """Runs and a plan of them all."""
    for run in runs:
        write_run(results, run)
    write_plan(results, runs)


def edit_json(path: Path, *keys: str, value: object = None, drop: bool = False) -> None:
    body = json.loads(path.read_text())
    target = body
    for key in keys[:-1]:
        target = target[key]
    if drop:
        del target[keys[-1]]
    else:
        target[keys[-1]] = value
    path.write_text(json.dumps(body))
