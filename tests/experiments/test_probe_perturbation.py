"""Amplification of weight noise and the change of the function, from the model's own forward pass."""

import numpy as np
import pytest
import torch
from probed import make
from torch import Tensor, nn
from two_streams import give_two_streams

from experiments.loop import Loop
from experiments.model import Transformer
from experiments.probes import amplification as probe


def read_by_the_readout(model: Transformer, tokens: Tensor) -> Tensor:
    """F as the model itself computes it: what its head receives."""
    seen: list[Tensor] = []
    handle = model.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.eval()
    with torch.no_grad():
        model(tokens)
    model.train()
    handle.remove()
    return seen[0]


def made(*overrides: str, name: str = "amplification", dtype: torch.dtype = torch.float64) -> tuple[Loop, Tensor, object]:
    loop, panel = make(*overrides, names=[name], dtype=dtype)
    return loop, panel.probes[0].held_out_BT[:, :-1], panel


def amplified(*overrides: str, dtype: torch.dtype = torch.float64) -> float:
    _, _, panel = made(*overrides, dtype=dtype)
    panel.open()
    return float(panel.read()["amplification"])


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("overrides", [["norm=pre"], ["norm=post", "model.ffn=swiglu", "model.branches=[attn,cross,ffn]"]])
def test_amplification_is_the_mean_square_of_the_change_under_the_drawn_noise(overrides: list[str]) -> None:
    loop, tokens, _ = made(*overrides, "model.dropout=0.2")
    before, noise, expected = read_by_the_readout(loop.model, tokens), rng(probe.SEED), []
    matrices = [w for name, w in loop.model.named_parameters() if name.startswith("blocks") and w.ndim == 2]
    originals = [w.detach().clone() for w in matrices]
    for _ in range(probe.DRAWS):
        with torch.no_grad():
            for weight, W in zip(matrices, originals, strict=True):
                drawn = torch.empty(W.shape, dtype=torch.float64).normal_(generator=noise)
                weight.copy_(W + 1e-4 * float(np.std(W.numpy())) * drawn)
        change = read_by_the_readout(loop.model, tokens) - before
        expected.append(float(change.square().sum()) / change.numel() / 1e-4**2)
    assert amplified(*overrides) == pytest.approx(np.mean(expected), rel=1e-6)


def test_linear_branch_amplifies_by_the_closed_form() -> None:
    """With W_1 = 0 the feed-forward branch is W_2 act(b_1), linear in the only matrix that has a std: the mean square of its
    change is std(W_2)² |act(b_1)|² in expectation over the noise."""
    loop, tokens, _ = made("norm=pre", "model.depth=1", "model.branches=[ffn]", "model.final_norm=false", "model.ffn=relu")
    ffn = loop.model.blocks[0].branches[0]
    with torch.no_grad():
        ffn.w1.weight.zero_()
        ffn.w1.bias.copy_(torch.linspace(-1, 2, len(ffn.w1.bias)))
    values = [float(probe.amplification(loop.model, tokens, rng(seed))) for seed in range(15)]
    c = np.maximum(np.linspace(-1, 2, len(ffn.w1.bias)), 0)
    expected = np.var(ffn.w2.weight.detach().numpy()) * (c @ c)
    assert np.mean(values) == pytest.approx(expected, rel=4 * (2 / (16 * 15 * probe.DRAWS)) ** 0.5)  # chi² of 16 features


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_amplification_does_not_depend_on_a_small_eps(norm: str) -> None:
    loop, tokens, _ = made(f"norm={norm}", "model.depth=6")
    values = [float(probe.amplification(loop.model, tokens, rng(), eps)) for eps in (1e-4, 1e-5, 1e-6)]
    assert values == pytest.approx([values[-1]] * 3, rel=2e-3)
    assert values[-1] > 1


def test_amplification_is_computed_in_float64_whatever_the_model_has() -> None:
    assert amplified(dtype=torch.float32) == pytest.approx(amplified(), rel=1e-9)


def test_only_the_matrices_of_the_blocks_are_perturbed() -> None:
    loop, tokens, _ = made()
    with torch.no_grad():
        for module in loop.model.blocks.modules():
            if isinstance(module, nn.Linear):
                module.weight.zero_()
    assert float(probe.amplification(loop.model, tokens, rng())) == 0.0


def test_noise_is_the_same_in_a_rerun_and_another_one_at_the_next_opening() -> None:
    assert amplified() == amplified()
    _, _, panel = made()
    values = []
    for _ in range(2):
        panel.open()
        values.append(float(panel.read()["amplification"]))
    assert values[0] == amplified() != values[1]


@pytest.mark.parametrize("overrides", [["norm=pre"], ["norm=post", "model.dropout=0.1", "train.accumulate=2"]])
def test_function_change_is_zero_at_step_0_and_relative_to_it_later(overrides: list[str]) -> None:
    loop, tokens, panel = made(*overrides, name="drift")
    changes, states = [], []
    for step in range(4):
        if step != 1:
            panel.open()
        states.append(read_by_the_readout(loop.model, tokens).numpy())
        loop._step(step, panel)
        changes.append(panel.read().get("function_change"))
    assert changes[0] == 0.0
    assert changes[1] is None
    for step in (2, 3):
        expected = np.linalg.norm(states[step] - states[0]) / np.linalg.norm(states[0])
        assert changes[step] == pytest.approx(expected, rel=1e-10)
        assert changes[step] > 1e-4


def test_two_streams_are_read_as_they_leave() -> None:
    loop, tokens, panel = made(name="drift")
    give_two_streams(loop.model)
    panel.open()
    panel.read()
    before = read_by_the_readout(loop.model, tokens)
    with torch.no_grad():
        loop.model.blocks[0].branches[0].wv.weight *= 1.1
    panel.open()
    change = read_by_the_readout(loop.model, tokens) - before
    assert float(panel.read()["function_change"]) == pytest.approx(float(change.norm() / before.norm()), rel=1e-9)
    assert float(probe.amplification(loop.model, tokens, rng())) > 0
