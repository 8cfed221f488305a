"""Probes that evaluate the model by themselves leave no trace in the training, and measure the same however it runs."""

import shutil

import numpy as np
import pytest
import torch
from probed import make
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from experiments import walk
from experiments.loop import Loop
from experiments.probes.base import Panel, gauges_of

NAMES = ["jacobian", "amplification", "drift", "layer_drop", "angle"]
IN_TRAINING = ["stream", "gradient", "branch", "attention", "update"]
NEEDS_COMPILER = pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler")
COMPILER_WARNS = pytest.mark.filterwarnings("default")  # torch.compile itself uses what torch deprecates


def made(names: list[str], *overrides: str, compiled: bool = False) -> tuple[Loop, Panel]:
    loop, panel = make(*overrides, dtype=torch.float32, names=names)
    if compiled:
        for block in loop.model.blocks:
            block.compile()
    return loop, panel


def trained(names: list[str], *overrides: str, compiled: bool = False) -> tuple[list[Tensor], list[dict[str, np.ndarray]]]:
    """Weights after 4 steps, of which the second is not measured, and what was measured in the others."""
    loop, panel = made(names, *overrides, compiled=compiled)
    torch.manual_seed(0)
    values = []
    for step in range(4):
        if step != 1:
            panel.open()
        loop._step(step, panel)
        values.append(panel.read())
    return [p.detach().clone() for p in loop.model.parameters()], values


@pytest.mark.parametrize(
    "overrides",
    [
        ["norm=pre"],
        ["norm=post", "model.dropout=0.1", "train.clip=0.5", "train.accumulate=2"],
        ["model.checkpointing=true", "model.dropout=0.1"],
        ["train.precision=bf16", "model.dropout=0.1"],
    ],
)
def test_weights_and_other_probes_values_are_bit_identical(overrides: list[str]) -> None:
    off, _ = trained([], *overrides)
    alone, plain = trained(IN_TRAINING, *overrides)
    on, values = trained([*IN_TRAINING, *NAMES], *overrides)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(on, off, alone, strict=True))
    for with_all, without in zip(values, plain, strict=True):
        assert all(np.array_equal(with_all[name], without[name], equal_nan=True) for name in without)
        assert len(with_all) == (len(without) + 8 if without else 0)


@pytest.mark.parametrize(
    "change", ["model.dropout=0.5", "train.accumulate=2", "model.checkpointing=true", "train.precision=bf16"]
)
def test_measures_the_model_itself_not_how_a_step_is_computed(change: str) -> None:
    measured = []
    for overrides in ([], [change]):
        _, panel = made(NAMES, *overrides)
        panel.open()
        measured.append(panel.read())
    assert all(np.array_equal(value, measured[1][name]) for name, value in measured[0].items())


class Watcher:
    """Notes the points that it sees, and cannot be copied."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, point: int, _: object) -> None:
        self.seen.append(point)

    def __deepcopy__(self, _: object) -> "Watcher":
        raise AssertionError("a probe copied what watches the stream")


@pytest.mark.parametrize("name", NAMES)
def test_opening_draws_no_random_number_and_leaves_the_model_as_it_was(name: str) -> None:
    loop, panel = made(["branch", "stream", name], "model.dropout=0.1")
    before, state, watcher = torch.get_rng_state(), loop.model.state_dict(keep_vars=True), Watcher()
    versions = {key: value._version for key, value in state.items()}
    loop.model.watchers = (watcher,)
    panel.open()
    assert torch.equal(torch.get_rng_state(), before)
    assert {key: value._version for key, value in loop.model.state_dict(keep_vars=True).items()} == versions
    assert all(p.grad is None and p.requires_grad for p in loop.model.parameters())
    assert all(module.training for module in loop.model.modules())
    assert sum(gauge.on for gauge in gauges_of([loop.model])) == 6 + 6 + 1  # branches, their norms, the final norm
    assert len(loop.model.watchers) == 2
    assert not watcher.seen


def test_a_pass_that_fails_leaves_the_model_in_training() -> None:
    loop, panel = made(["branch"])
    panel.open()

    def failing_pass() -> None:
        with walk.apart(loop.model):
            assert not loop.model.training
            assert not any(gauge.on for gauge in gauges_of([loop.model]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_pass()
    assert loop.model.training
    assert any(gauge.on for gauge in gauges_of([loop.model]))


@pytest.mark.parametrize("positions", ["learned", "rope", "none"])
def test_walked_points_are_those_the_model_shows_to_its_watchers(positions: str) -> None:
    loop, panel = made(["drift"], f"model.positions={positions}", "norm=post")
    tokens, seen = panel.probes[0].held_out_BT[:, :-1], []
    loop.model.watchers = (lambda _, stream: seen.append(stream),)
    logits = loop.model(tokens)
    walked = list(walk.points(loop.model, tokens))
    assert len(walked) == 4
    assert all(torch.equal(a, b) for a, b in zip(walked, seen, strict=True))
    assert torch.equal(loop.model.head(walk.state(loop.model, tokens)), logits)


def test_nonfinite_weights_are_measured_as_nan_from_their_block_on() -> None:
    loop, panel = made(NAMES)
    with torch.no_grad():
        loop.model.blocks[1].branches[1].w2.weight.fill_(torch.nan)
    panel.open()
    values = panel.read()
    for name in ("jac_attn_own", "jac_attn_first", "jac_ffn_own", "jac_ffn_first"):
        assert np.isnan(values[name]).tolist() == [False, "ffn" in name, True]
    assert np.isnan(values["angular_distance"]).tolist() == [False, True, True]
    assert np.isnan([*values["layer_drop"], values["amplification"], values["function_change"]]).all()


def test_jacobian_is_measured_where_the_only_kernel_left_is_fused() -> None:
    """Forward mode chooses its own kernel and gives back the one that was chosen."""
    _, panel = made(["jacobian"])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        panel.open()
        assert not torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.math_sdp_enabled()
    assert np.isfinite(panel.read()["jac_attn_first"]).all()


@pytest.mark.slow
@NEEDS_COMPILER
@COMPILER_WARNS
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_compiled_blocks_are_walked_eagerly_and_not_compiled_anew(norm: str) -> None:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    off, _ = trained([], f"norm={norm}", "model.dropout=0.1", compiled=True)
    graphs = counters["stats"]["unique_graphs"]
    torch._dynamo.reset()
    counters.clear()
    on, compiled = trained(NAMES, f"norm={norm}", "model.dropout=0.1", compiled=True)
    assert counters["stats"]["unique_graphs"] == graphs > 0
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))
    _, plain = trained(NAMES, f"norm={norm}", "model.dropout=0.1")
    assert all(np.array_equal(compiled[0][name], plain[0][name]) for name in plain[0])
