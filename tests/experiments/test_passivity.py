"""Measuring is passive, and measures the same however the step is computed."""

import gc
import math
import shutil

import numpy as np
import pytest
import torch
from probed import make
from torch import Tensor

from experiments.loop import gradient_norms

NEEDS_COMPILER = pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler")
COMPILER_WARNS = pytest.mark.filterwarnings("default")  # torch.compile itself uses what torch deprecates


def weights_after(
    steps: int, *overrides: str, names: list[str] | None = None, every: bool = True, compiled: bool = False
) -> list[Tensor]:
    loop, panel = make(*overrides, dtype=torch.float32, names=names)
    if compiled:
        for block in loop.model.blocks:
            block.compile()
    torch.manual_seed(0)
    for step in range(steps):
        if every:
            panel.open()
        loop._step(step, panel)
        panel.read()
    return [p.detach().clone() for p in loop.model.parameters()]


@pytest.mark.parametrize(
    "overrides",
    [
        ["norm=pre"],
        ["norm=post", "model.dropout=0.1", "train.clip=0.5"],
        ["train.accumulate=4", "model.checkpointing=true"],
        ["train.precision=bf16"],
    ],
)
def test_probes_on_or_off_leave_bit_identical_weights(overrides: list[str]) -> None:
    on, off = weights_after(10, *overrides), weights_after(10, *overrides, names=[], every=False)
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))
    assert not torch.equal(on[0], weights_after(9, *overrides)[0])


@pytest.mark.slow
@NEEDS_COMPILER
@COMPILER_WARNS
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_probes_on_or_off_leave_bit_identical_weights_compiled(norm: str) -> None:
    torch._dynamo.reset()
    on, off = (weights_after(10, f"norm={norm}", compiled=True, every=every) for every in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))


def values_of(*overrides: str, compiled: bool = False) -> dict[str, np.ndarray]:
    loop, panel = make(*overrides, dtype=torch.float32)
    if compiled:
        for block in loop.model.blocks:
            block.compile()
    panel.open()
    row = loop._step(0, panel)
    return panel.read() | {"loss": np.array(row["loss"]), "grad_norm": np.array(row["grad_norm"])}


SAME = {"rtol": 2e-4, "atol": 1e-7}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("change", ["train.accumulate=4", "model.checkpointing=true"])
def test_accumulation_and_checkpointing_measure_the_same(norm: str, change: str) -> None:
    plain, changed = values_of(f"norm={norm}"), values_of(f"norm={norm}", change)
    assert plain.keys() == changed.keys()
    for name in plain:
        np.testing.assert_allclose(changed[name], plain[name], err_msg=name, **SAME)


@pytest.mark.slow
@NEEDS_COMPILER
@COMPILER_WARNS
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_compiled_blocks_measure_the_same(norm: str) -> None:
    torch._dynamo.reset()
    plain, compiled = values_of(f"norm={norm}"), values_of(f"norm={norm}", compiled=True)
    assert plain.keys() == compiled.keys()
    for name in plain:
        np.testing.assert_allclose(compiled[name], plain[name], err_msg=name, **SAME)


@pytest.mark.slow
@NEEDS_COMPILER
@COMPILER_WARNS
def test_96_blocks_compile_one_graph_and_hit_no_recompile_limit() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    loop, panel = make("model.depth=96", dtype=torch.float32)
    for block in loop.model.blocks:
        block.compile()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for step in range(3):
            if step != 1:
                panel.open()
            loop._step(step, panel)
            panel.read()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4
    assert not torch._dynamo.utils.counters["graph_break"]


def test_norms_do_not_depend_on_the_loss_scale() -> None:
    values = []
    for scale in (2.0**4, 2.0**10):
        loop, panel = make("train.clip=0.1", dtype=torch.float32)
        loop.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        panel.open()
        row = loop._step(0, panel)
        values.append(panel.read() | {key: np.array(row[key]) for key in ("grad_norm", "grad_norm_clipped")})
        assert row["grad_norm_clipped"] <= 0.1 * (1 + 1e-6) < row["grad_norm"]
    for name in values[0]:
        np.testing.assert_allclose(values[0][name], values[1][name], rtol=1e-5, atol=1e-9, err_msg=name)


def test_gradients_are_probed_before_clipping_and_clipped_to_the_threshold() -> None:
    loop, panel = make("train.clip=0.01", names=["gradient"])
    panel.open()
    seen = []
    loop.optimizer.register_step_pre_hook(
        lambda *_: seen.append(float(torch.linalg.vector_norm(gradient_norms(loop.parameters))))
    )
    row = loop._step(0, panel)
    values = panel.read()
    assert math.hypot(*(float(np.linalg.norm(v)) for k, v in values.items())) == pytest.approx(row["grad_norm"], rel=1e-9)
    assert seen == pytest.approx([0.01], rel=1e-6)


def test_fifty_probed_steps_leave_memory_flat() -> None:
    loop, panel = make(dtype=torch.float32)

    def tensors_after(steps: range) -> int:
        for step in steps:
            panel.open()
            loop._step(step, panel)
            panel.read()
        gc.collect()
        return sum(issubclass(type(o), Tensor) for o in gc.get_objects())

    assert tensors_after(range(3)) == tensors_after(range(3, 53))
