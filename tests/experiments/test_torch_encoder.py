"""The study on torch's own encoder layers, weights copied: an implementation not ours sees what our probes record."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from probed import make, measured
from torch import Tensor, nn

from experiments.exact.encoder import encoder_layer
from experiments.model import Transformer

REAL = ("model.width=64", "model.n_head=4", "train.context=64", "data.vocab=256")  # the studies' size


@dataclass(frozen=True)
class Seen:
    """What torch's stack says of a batch."""

    loss: float
    grad_stream: NDArray[np.float64]  # norm at each stream point
    stream_var: NDArray[np.float64]
    grad_w2: NDArray[np.float64]  # norm of each block's


class Stack(nn.Module):
    """A language model whose blocks are nn.TransformerEncoder's. Keeps the stream at every point, and its gradient."""

    def __init__(self, ours: Transformer, *, norm_first: bool) -> None:
        super().__init__()
        layers = [encoder_layer(block, norm_first=norm_first) for block in ours.blocks]
        self.embedding, self.positions = nn.Embedding.from_pretrained(ours.wte.weight.detach()), ours.wpe.weight.detach()
        final = None
        if norm_first:
            (own,) = (module for module in ours.final_norm.modules() if isinstance(module, nn.LayerNorm))
            final = nn.LayerNorm(own.normalized_shape, eps=own.eps, dtype=own.weight.dtype)
            final.load_state_dict(own.state_dict())
        self.encoder = nn.TransformerEncoder(layers[0], len(layers), final, enable_nested_tensor=False)
        self.encoder.layers = nn.ModuleList(layers)
        self.readout = ours.head.weight.detach().clone()
        self.points: list[Tensor] = []
        for layer in layers:
            layer.register_forward_hook(lambda _module, _inputs, x_BTD: self._keep(x_BTD))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        T = tokens_BT.shape[1]
        self.points = []
        x_BTD = (self.embedding(tokens_BT) + self.positions[:T]).requires_grad_()
        self._keep(x_BTD)
        mask_TT = nn.Transformer.generate_square_subsequent_mask(T, dtype=x_BTD.dtype)
        return F.linear(self.encoder(x_BTD, mask=mask_TT, is_causal=True), self.readout)

    def _keep(self, x_BTD: Tensor) -> None:
        x_BTD.retain_grad()
        self.points.append(x_BTD)


def seen_by_torch(*overrides: str, dtype: torch.dtype, norm_first: bool) -> Seen:
    """Loss and gradients of step 0's batch, before any update."""
    loop, _ = make(*overrides, dtype=dtype)
    train, stack = loop.cfg.train, Stack(loop.model, norm_first=norm_first)
    tokens_BT = torch.from_numpy(loop.source.batch(loop.cfg.seed, 0, train.batch, train.context))
    loss = F.cross_entropy(stack(tokens_BT[:, :-1]).flatten(0, 1), tokens_BT[:, 1:].flatten())
    loss.backward()
    grads = [x.grad.double().norm().item() for x in stack.points]
    variances = [x.detach().double().var(-1, correction=0).mean().item() for x in stack.points]
    w2 = [layer.linear2.weight.grad.double().norm().item() for layer in stack.encoder.layers]
    return Seen(loss.item(), np.array(grads), np.array(variances), np.array(w2))


def compare(*overrides: str, dtype: torch.dtype, rtol: float) -> tuple[dict[str, NDArray[np.float64]], Seen]:
    """Hold what the probes record against what torch's stack says; returns both."""
    theirs = seen_by_torch(*overrides, dtype=dtype, norm_first="norm=pre" in overrides)
    _, ours, row = measured(*overrides, dtype=dtype)
    assert row["loss"] == pytest.approx(theirs.loss, rel=rtol)
    np.testing.assert_allclose(ours["grad_stream"], theirs.grad_stream, rtol=rtol)
    np.testing.assert_allclose(ours["stream_var"], theirs.stream_var, rtol=rtol)
    np.testing.assert_allclose(ours["grad_w2"], theirs.grad_w2, rtol=rtol)
    return ours, theirs


@pytest.mark.parametrize("depth", [2, 6, 12])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_stream_points_gradient_is_that_of_torchs_layers(norm: str, depth: int) -> None:
    for dtype, rtol in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        ours, _ = compare(f"norm={norm}", f"model.depth={depth}", dtype=dtype, rtol=rtol)
        assert ours["grad_stream"].shape == (depth + 1,)
        assert (ours["grad_stream"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "single"), [(24, 1e-5), (96, 1e-4)])  # float32's rounding grows through Post-LN: 7e-6 at 96
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_same_at_the_studies_size_and_depths(norm: str, depth: int, single: float) -> None:
    for dtype, rtol in ((torch.float64, 1e-11), (torch.float32, single)):
        compare(*REAL, f"norm={norm}", f"model.depth={depth}", dtype=dtype, rtol=rtol)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_exponents_in_depth_are_those_of_torchs_layers(norm: str) -> None:
    depths = [3, 6, 12]
    pairs = [compare(f"norm={norm}", f"model.depth={depth}", dtype=torch.float64, rtol=1e-12) for depth in depths]
    for points in (
        [(ours["grad_stream"][0], theirs.grad_stream[0]) for ours, theirs in pairs],
        [(ours["grad_stream"][-1], theirs.grad_stream[-1]) for ours, theirs in pairs],
        [(ours["grad_w2"][-1], theirs.grad_w2[-1]) for ours, theirs in pairs],
    ):
        our_exponent, their_exponent = np.polyfit(np.log(depths), np.log(points), 1)[0]
        assert our_exponent == pytest.approx(their_exponent, abs=1e-10)


def test_torchs_other_placement_disagrees() -> None:
    """The comparison can fail."""
    for norm, norm_first in (("post", True), ("pre", False)):
        _, ours, _ = measured(f"norm={norm}", "model.final_norm=true")
        theirs = seen_by_torch(f"norm={norm}", "model.final_norm=true", dtype=torch.float64, norm_first=norm_first)
        assert (np.abs(ours["grad_stream"] / theirs.grad_stream - 1) > 1e-3).all()
