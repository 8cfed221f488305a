"""Initialisation: stated spreads, and pairing across placements and depths."""

import pytest
import torch
from compose import config

from experiments.config import KNOWN
from experiments.init import SCHEMES, initialise, matrices
from experiments.model import Shape, Transformer
from experiments.placements.post import PostLN


def transformer(*overrides: str, seed: int = 0) -> Transformer:
    cfg = config("model.width=64", *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(256, 64))
    initialise(model, cfg.init, seed)
    return model


def stds(model: Transformer) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for matrix in matrices(model):
        found.setdefault(matrix.name, []).append(float(matrix.linear.weight.detach().std()))
    return found


def test_xavier_is_glorot_normal() -> None:
    found = stds(transformer("init=xavier", "model.depth=6"))
    for name, fans in {"wq": 128, "wo": 128, "w1": 320, "w2": 320, "head": 320}.items():
        assert found[name] == pytest.approx([(2 / fans) ** 0.5] * len(found[name]), rel=0.03)


def test_gpt2_has_one_std() -> None:
    for values in stds(transformer("init=gpt2", "model.depth=6")).values():
        assert values == pytest.approx([0.02] * len(values), rel=0.03)


@pytest.mark.parametrize("depth", [6, 24])
def test_depth_scaled_init_is_really_applied(depth: int) -> None:
    found = stds(transformer("init=gpt2_scaled", f"model.depth={depth}"))
    for name, values in found.items():
        expected = 0.02 / (2 * depth) ** 0.5 if name in {"wo", "w2"} else 0.02
        assert values == pytest.approx([expected] * len(values), rel=0.03)


def test_torch_scheme_has_the_distribution_of_torch_linear() -> None:
    model = transformer("init=torch", "model.depth=6")
    theirs = torch.nn.Linear(64, 256)
    for block in model.blocks:
        ours = block.branches[1].w1
        assert ours.weight.abs().max() <= 64**-0.5
        assert float(ours.weight.detach().std()) == pytest.approx(float(theirs.weight.detach().std()), rel=0.05)
        assert float(ours.bias.detach().std()) == pytest.approx(float(theirs.bias.detach().std()), rel=0.25)


@pytest.mark.parametrize("scheme", ["xavier", "gpt2", "torch"])
def test_layer_3_of_depth_6_is_layer_3_of_depth_96(scheme: str) -> None:
    short, deep = (transformer(f"init={scheme}", f"model.depth={depth}") for depth in (6, 96))
    for ours, theirs in zip(short.blocks[3].parameters(), deep.blocks[3].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(short.blocks[3].branches[0].wq.weight, short.blocks[4].branches[0].wq.weight)


def test_placements_of_a_seed_share_their_matrices() -> None:
    pre, post, other = transformer("norm=pre"), transformer("norm=post"), transformer("norm=post", seed=1)
    for a, b, c in zip(matrices(pre), matrices(post), matrices(other), strict=True):
        assert torch.equal(a.linear.weight, b.linear.weight)
        assert not torch.equal(b.linear.weight, c.linear.weight)


@pytest.mark.parametrize("positions", ["learned", "rope", "none"])
def test_summed_embeddings_have_unit_variance_by_default(positions: str) -> None:
    model = transformer(f"model.positions={positions}")
    variance = float(model.wte.weight.detach().var()) + (
        float(model.wpe.weight.detach().var()) if model.wpe is not None else 0.0
    )
    assert variance == pytest.approx(1.0, rel=0.03)


def test_embedding_std_is_the_std_of_each_table() -> None:
    model = transformer("init.embedding_std=0.02")
    assert float(model.wte.weight.detach().std()) == pytest.approx(0.02, rel=0.03)
    assert float(model.wpe.weight.detach().std()) == pytest.approx(0.02, rel=0.03)


def test_branch_gain_reaches_the_value_path_and_the_feed_forward_only() -> None:
    plain = transformer("norm=post", "model.depth=2", "init=xavier")
    cfg = config("norm=post", "model.depth=2", "model.width=64", "init=xavier")
    gained = Transformer(cfg.model, cfg.norm, Shape(256, 64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostLN, "branch_gain", 0.5)
        initialise(gained, cfg.init, 0)
    for a, b in zip(matrices(plain), matrices(gained), strict=True):
        factor = 0.5 if a.name in {"wv", "wo", "w1", "w2"} else 1.0
        assert torch.equal(factor * a.linear.weight, b.linear.weight)


def test_tables_hold_what_the_config_knows() -> None:
    assert tuple(SCHEMES) == KNOWN["init.name"]
