"""Laws of a whole run: determinism, accumulation, divergence, skipped steps, evaluation."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from compose import config

from experiments.config import KNOWN
from experiments.loop import AUTOCAST
from experiments.run import build, run
from experiments.validation import validate

TINY = ("model.depth=2", "model.width=16", "model.n_head=2", "train.context=12", "data=random", "data.vocab=29", "scale=smoke")
SHORT = ("train.steps=6", "schedule.warmup=0", "train.eval_batches=2", "probe.per_decade=null")


def trained(results: Path, *overrides: str) -> tuple[dict, dict, dict]:
    """(status, steps, layers) of a run made for the test, columns as lists."""
    cfg = config(f"results={results}", *TINY, *SHORT, *overrides)
    validate(cfg)
    run(cfg)
    (folder,) = (path.parent for path in results.glob("runs/*/*/*/run.json"))
    tables = [pq.read_table(folder / f"{name}.parquet").to_pydict() for name in ("steps", "layers")]
    return json.loads((folder / "run.json").read_text())["status"], *tables


def test_seed_0_twice_gives_identical_tables(tmp_path: Path) -> None:
    one, two, other = (trained(tmp_path / name, f"seed={seed}") for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    del one[1]["seconds"], two[1]["seconds"]
    assert one[1:] == two[1:]
    assert one[2]["grad_stream"] != other[2]["grad_stream"]


def test_k_micro_batches_equal_one_batch(tmp_path: Path) -> None:
    whole, parts = trained(tmp_path / "a"), trained(tmp_path / "b", "train.accumulate=4")
    for name in ("loss", "grad_norm", "val_loss"):
        whole_values, parts_values = (np.array(t[1][name], dtype=float) for t in (whole, parts))
        np.testing.assert_allclose(parts_values, whole_values, rtol=1e-4)


def test_evaluating_more_often_changes_nothing_else(tmp_path: Path) -> None:
    seldom = trained(tmp_path / "a", "model.dropout=0.2")
    often = trained(tmp_path / "b", "model.dropout=0.2", "train.eval_every=2")
    assert [v is not None for v in often[1]["val_loss"]] == [True, False, True, False, True, False, True]
    assert seldom[1]["loss"] == often[1]["loss"]
    assert seldom[1]["val_loss"][-1] == often[1]["val_loss"][-1]


def test_first_update_has_a_rate_and_no_warmup_has_the_full_rate_at_once(tmp_path: Path) -> None:
    _, steps, layers = trained(tmp_path / "a")
    assert steps["lr"][:6] == [2e-3] * 6
    _, steps, layers = trained(tmp_path / "b", "schedule.warmup=4")
    assert steps["lr"][:6] == pytest.approx([5e-4, 1e-3, 1.5e-3, 2e-3, 2e-3, 2e-3])
    assert all(update > 0 for update, layer in zip(layers["update_w1"], layers["layer"], strict=True) if layer < 2)


def test_steps_count_tokens_and_the_last_row_is_the_final_validation(tmp_path: Path) -> None:
    status, steps, layers = trained(tmp_path)
    assert status["state"] == "complete"
    assert steps["step"] == list(range(7))
    assert steps["tokens"] == [8 * 12 * (step + 1) for step in range(6)] + [None]
    assert steps["loss"][-1] is None
    assert status["val_loss"] == pytest.approx(steps["val_loss"][-1])
    assert sorted(set(layers["layer"])) == [0, 1, 2]
    assert layers["grad_wq"][2] is None  # point L has no block


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_divergence_is_recorded_with_its_step_and_layer(tmp_path: Path, precision: str) -> None:
    status, steps, layers = trained(tmp_path, "optim=sgd", "optim.lr=1e30", f"train.precision={precision}", "init=xavier")
    assert status["state"] == "diverged"
    assert status["diverged_step"] == steps["step"][-1] < 6
    assert math.isfinite(status["loss"])
    assert not (math.isfinite(steps["loss"][-1]) and math.isfinite(steps["grad_norm"][-1]))
    last = [k for k, step in enumerate(layers["step"]) if step == status["diverged_step"]]
    assert status["first_nonfinite_layer"] == next(
        (layers["layer"][k] for k in last if layers["nonfinite_stream"][k]),
        max((layers["layer"][k] for k in last if layers["nonfinite_grad"][k]), default=None),
    )


def test_fp16_skips_non_finite_steps_counts_them_and_holds_the_rate(tmp_path: Path) -> None:
    status, steps, _ = trained(tmp_path, "train.precision=fp16", "schedule.warmup=6", "init.std=1.0", "optim.lr=1e-6")
    skipped = steps["skipped"][:6]
    assert skipped == sorted(skipped)
    assert 0 < skipped[-1] < 6  # gradients above 1 overflow at the first loss scale of 2^16
    applied = [step - count for step, count in zip(range(6), [0, *skipped[:-1]], strict=True)]
    assert steps["lr"][:6] == pytest.approx([1e-6 * (position + 1) / 6 for position in applied])
    assert status["state"] == "complete"


def test_skipped_steps_leave_the_weights_and_a_collapsed_scale_is_divergence(tmp_path: Path) -> None:
    overrides = ["train.precision=fp16", "optim=sgd", "optim.lr=1e30", "train.steps=60"]
    status, steps, _ = trained(tmp_path, *overrides)
    assert status["state"] == "diverged"
    assert steps["skipped"][-1] >= 30  # 2^16 to below 1e-4 by halves
    assert steps["loss_scale"][-1] < 2e-4
    assert len(set(map(str, steps["loss"][2:]))) == 1 or any(math.isnan(x) for x in steps["loss"][2:])


def test_clipping_bounds_the_norm_that_the_optimizer_sees(tmp_path: Path) -> None:
    _, steps, _ = trained(tmp_path, "train.clip=0.5", "init=xavier")
    for before, after in zip(steps["grad_norm"][:6], steps["grad_norm_clipped"][:6], strict=True):
        assert after == pytest.approx(min(before, 0.5), rel=1e-6)


@pytest.mark.parametrize("optim", KNOWN["optim.name"])
def test_every_optimizer_learns_a_fixed_pattern(tmp_path: Path, optim: str) -> None:
    text = tmp_path / "pattern.txt"
    text.write_text("abcdefgh" * 300)
    overrides = ["data=text", f"data.path={text}", f"optim={optim}", "train.steps=120"]
    cfg = config(f"results={tmp_path}", *TINY[:4], *SHORT, *overrides)
    run(cfg)
    (record,) = tmp_path.glob("runs/*/*/*/run.json")
    status = json.loads(record.read_text())["status"]
    assert status["val_loss"] < 0.7 * status["initial_loss"]


def test_gpu_scale_composes_and_trains_two_steps_on_a_cpu(tmp_path: Path) -> None:
    cfg = config(
        f"results={tmp_path}", "scale=gpu", "model.depth=2", "train.steps=2", "schedule.warmup=0", "train.batch=1",
        "train.context=64", "train.compile=false", "device=cpu", "train.eval_batches=1", "data=random",
    )  # fmt: skip
    assert (cfg.model.width, cfg.model.n_head, cfg.train.precision) == (768, 12, "bf16")
    validate(cfg)
    assert run(cfg) == "complete"
    assert config("scale=gpu").train.compile


def test_precisions_are_what_the_config_knows() -> None:
    assert {*AUTOCAST, "fp32", "fp64"} == set(KNOWN["train.precision"])
    assert AUTOCAST["bf16"] == torch.bfloat16


def test_float64_is_float64_throughout(tmp_path: Path) -> None:
    model = build(config(*TINY, "train.precision=fp64"), 29, torch.device("cpu"))
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    single, double = (trained(tmp_path / p, f"train.precision={p}", "train.steps=0") for p in ("fp32", "fp64"))
    assert double[1]["loss"] == pytest.approx(single[1]["loss"], rel=1e-6)
    np.testing.assert_allclose(double[2]["grad_stream"], single[2]["grad_stream"], rtol=1e-4)


def test_no_steps_is_a_look_at_the_initialisation(tmp_path: Path) -> None:
    """The same numbers as step 0 of a training; nothing is updated or validated."""
    look = trained(tmp_path / "a", "train.steps=0")
    step = trained(tmp_path / "b", "train.steps=1")
    status, steps, layers = look
    assert (status["state"], status["val_loss"], steps["step"], set(layers["step"])) == ("complete", None, [0], {0})
    assert steps["loss"] == step[1]["loss"][:1]
    for name in ("grad_stream", "grad_w2", "stream_var", "attn_logit_max"):
        assert layers[name] == step[2][name]
    assert steps["lr"] == [None]
    assert set(layers["update_w1"]) == {None}


def test_a_look_at_an_initialisation_that_is_not_finite_is_divergence(tmp_path: Path) -> None:
    status, steps, _ = trained(tmp_path, "train.steps=0", "init.embedding_std=1e30", "norm.eps=1e-30", "norm=pre")
    assert status["state"] == "diverged"
    assert status["diverged_step"] == 0
    assert math.isnan(steps["loss"][0]) or math.isnan(steps["grad_norm"][0])
