"""What blocks are worth (layer drop) and how far they turn the stream (angular distance)."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from probed import make
from torch import Tensor
from two_streams import give_two_streams

from experiments.model import Transformer
from experiments.probes.angle import angular_distance
from experiments.probes.base import Panel


def made(*overrides: str, name: str, dtype: torch.dtype = torch.float64) -> tuple[Transformer, Tensor, Panel]:
    loop, panel = make(*overrides, names=[name], dtype=dtype)
    return loop.model, panel.probes[0].held_out_BT, panel


def measured(panel: Panel) -> np.ndarray:
    panel.open()
    (values,) = panel.read().values()
    return values


@torch.no_grad()
def loss(model: Transformer, tokens: Tensor) -> float:
    """The model's own loss on a batch."""
    model.eval()
    value = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    model.train()
    return float(value)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_layer_drop_is_the_loss_of_a_model_built_without_the_block(norm: str) -> None:
    model, tokens, panel = made(f"norm={norm}", "model.dropout=0.1", name="layer_drop")
    values = measured(panel)
    for layer in range(model.depth):
        smaller, _, _ = made(f"norm={norm}", "model.depth=2", name="layer_drop")
        kept = [  # embeddings and readout are those of the seed in both
            block for k, block in enumerate(model.blocks) if k != layer
        ]
        for block, original in zip(smaller.blocks, kept, strict=True):
            block.load_state_dict(original.state_dict())
        assert values[layer] == pytest.approx(loss(smaller, tokens) - loss(model, tokens), abs=1e-12)
    assert np.abs(values).min() > 1e-4


def test_layer_drop_of_a_block_that_adds_nothing_is_exactly_zero() -> None:
    model, _, panel = made("norm=pre", name="layer_drop", dtype=torch.float32)
    with torch.no_grad():
        for matrix in (model.blocks[1].branches[0].wo, model.blocks[1].branches[1].w2):
            matrix.weight.zero_()
            matrix.bias.zero_()
    values = measured(panel)
    assert values[1] == 0.0
    assert values[0] != 0.0 != values[2]


def test_layer_drop_keeps_how_two_streams_enter_and_leave() -> None:
    model, tokens, panel = made(name="layer_drop")
    give_two_streams(model)
    values = measured(panel)
    whole = loss(model, tokens)
    for layer, block in enumerate(model.blocks):
        passing = block.forward
        block.forward = lambda stream: stream
        assert values[layer] == pytest.approx(loss(model, tokens) - whole, abs=1e-12)
        block.forward = passing


@pytest.mark.parametrize("overrides", [["norm=pre"], ["norm=post", "model.dropout=0.1", "model.positions=rope"]])
def test_angular_distance_is_that_of_the_watched_stream_averaged_over_tokens(overrides: list[str]) -> None:
    model, tokens, panel = made(*overrides, name="angle")
    seen: list[Tensor] = []
    model.eval()
    model.watchers = (lambda _, stream: seen.append(stream.detach()),)
    model(tokens[:, :-1])
    model.watchers = ()
    expected = [(F.cosine_similarity(x, y, dim=-1).arccos() / math.pi).mean() for x, y in pairwise(seen)]
    np.testing.assert_allclose(measured(panel), expected, rtol=1e-7)


def test_angle_of_two_streams_is_that_of_what_branches_read() -> None:
    model, tokens, panel = made(name="angle")
    give_two_streams(model)
    seen: list[Tensor] = []
    model.watchers = (lambda _, stream: seen.append(stream[0].detach() if isinstance(stream, tuple) else stream.detach()),)
    model(tokens[:, :-1])
    model.watchers = ()
    cosine = F.cosine_similarity(seen[1], seen[2], dim=-1)
    assert measured(panel)[1] == pytest.approx(float((cosine.arccos() / math.pi).mean()), rel=1e-7)


def vectors(*values: list[float]) -> Tensor:
    return torch.tensor([values], dtype=torch.float32)


def test_identical_orthogonal_and_opposite_vectors_are_0_half_and_1() -> None:
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    assert (angular_distance(x, x) == 0).all()
    assert (angular_distance(x, 4 * x) == 0).all()
    assert (angular_distance(x.double(), 3 * x.double()) < 1e-15).all()
    assert (angular_distance(x, -x) == 1).all()
    apart = angular_distance(vectors([1, 2, 0, 0]), vectors([-2e-20, 1e-20, 0, 0]))
    assert float(apart) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("angle", [1e-6, 1e-4, 0.3, 3.0, math.pi - 1e-6])
def test_angles_of_float32_vectors_are_right_where_their_cosine_is_rounded_to_1(angle: float) -> None:
    x, y = vectors([1, 0]), vectors([math.cos(angle), math.sin(angle)])
    assert float(angular_distance(x, y)) * math.pi == pytest.approx(angle, rel=1e-2 if angle < 1 else 1e-6)


def test_a_zero_vector_has_no_angle() -> None:
    assert angular_distance(vectors([0, 0], [1, 0]), vectors([1, 0], [0, 2])).isnan().tolist() == [[True, False]]
