"""Blocks of other branches: feed-forward only, attention without W_O, cross-attention to a fixed memory."""

import math

import pytest
import torch
from compose import config
from probed import make, measured

from experiments.init import initialise, matrices, memory
from experiments.model import Shape, Transformer, flops_per_token


def transformer(*overrides: str, seed: int = 0) -> Transformer:
    cfg = config("model.depth=3", "model.width=16", "model.n_head=2", "init=xavier", *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(29, 12))
    initialise(model, cfg.init, seed)
    return model.double()


CROSS = "model.branches=[attn,cross,ffn]"


def test_a_block_joins_the_branches_in_their_order() -> None:
    model = transformer("norm=pre", "model.branches=[ffn]")
    x_BTD = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (ffn,), (join,) = model.blocks[0].branches, model.blocks[0].joins
    torch.testing.assert_close(model.blocks[0](x_BTD), x_BTD + ffn.w2(torch.nn.functional.gelu(ffn.w1(join.norm(x_BTD)))))
    assert [branch.kind for branch in transformer(CROSS).blocks[1].branches] == ["attn", "cross", "ffn"]


def test_without_w_o_and_with_zero_queries_attention_is_the_mean_of_the_values() -> None:
    model = transformer("model.value_only=true", "init.zero=[wq,wk]", "model.n_head=1")
    attention = model.blocks[0].branches[0]
    x_BTD = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mean_BTD = attention.wv(x_BTD).cumsum(1) / torch.arange(1, 6)[:, None]
    torch.testing.assert_close(attention(x_BTD), mean_BTD)
    assert {matrix.name for matrix in matrices(model)} == {"wq", "wk", "wv", "w1", "w2", "head"}


def test_cross_attention_is_softmax_attention_to_the_memory() -> None:
    cross = transformer(CROSS, "model.memory_tokens=7").blocks[1].branches[1]
    x_BTD = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts = []
    for head in range(2):
        rows = slice(8 * head, 8 * head + 8)
        q, k, v = (
            x_BTD @ cross.wq.weight[rows].T,
            cross.memory_MD @ cross.wk.weight[rows].T,
            cross.memory_MD @ cross.wv.weight[rows].T,
        )
        parts.append((q @ k.T / math.sqrt(8)).softmax(-1) @ v)
    torch.testing.assert_close(cross(x_BTD), torch.cat(parts, -1) @ cross.wo.weight.T)


def test_cross_attention_reads_no_token_but_its_own() -> None:
    cross = transformer(CROSS).blocks[0].branches[1]
    x_BTD = torch.randn(1, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moved = x_BTD.clone()
    moved[0, 3] += 1
    same = (cross(x_BTD) == cross(moved)).all(-1)[0]
    assert same.tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("cosine", [0.0, 0.3, 1.0])
def test_memory_has_unit_variance_and_the_cosine_asked_for(cosine: float) -> None:
    memory_MD = memory(40, 4096, cosine, torch.Generator().manual_seed(0)).double()
    unit = torch.nn.functional.normalize(memory_MD, dim=-1)
    found = (unit @ unit.T)[~torch.eye(40, dtype=torch.bool)].mean()
    assert float(found) == pytest.approx(cosine, abs=0.02)
    assert float(memory_MD.square().mean()) == pytest.approx(1, abs=0.05)


def test_all_layers_read_one_memory_through_weights_of_their_own() -> None:
    model = transformer(CROSS)
    one, two = (model.blocks[layer].branches[1] for layer in (0, 2))
    assert torch.equal(one.memory_MD, two.memory_MD)
    assert not torch.equal(one.wv.weight, two.wv.weight)
    assert not torch.equal(one.wv.weight, model.blocks[0].branches[0].wv.weight)


def test_other_branches_leave_the_weights_of_a_layer_as_they_are() -> None:
    """Paired across kinds of block too: the feed-forward of layer 2 is the same with and without attention."""
    usual, more, fewer = transformer(), transformer(CROSS), transformer("model.branches=[ffn]")
    for name in ("w1", "w2"):
        w = getattr(usual.blocks[2].branches[1], name).weight
        assert torch.equal(w, getattr(more.blocks[2].branches[2], name).weight)
        assert torch.equal(w, getattr(fewer.blocks[2].branches[0], name).weight)
    assert torch.equal(usual.blocks[1].branches[0].wq.weight, more.blocks[1].branches[0].wq.weight)


def test_qk_gain_multiplies_queries_and_keys_alone() -> None:
    usual, sharp = transformer(), transformer("init.qk_gain=3")
    for ours, theirs in zip(matrices(usual), matrices(sharp), strict=True):
        factor = 3.0 if ours.name in {"wq", "wk"} else 1.0
        torch.testing.assert_close(theirs.linear.weight, factor * ours.linear.weight, rtol=1e-6, atol=0)


def test_scaled_init_counts_the_branches_there_are() -> None:
    for branches, count in (("[ffn]", 1), ("[attn,ffn]", 2), ("[attn,cross,ffn]", 3)):
        found = {matrix.count for matrix in matrices(transformer(f"model.branches={branches}"))}
        assert found == {3 * count}


def test_parameter_gradients_of_cross_attention_have_a_column_of_their_own() -> None:
    loop, panel = make(CROSS)
    panel.open()
    _, norm_P = loop._accumulate(0, panel)
    panel.gradients(norm_P, 1.0)
    values = panel.read()
    for layer, block in enumerate(loop.model.blocks):
        own = torch.stack([block.branches[1].get_submodule(name).weight.grad.norm() for name in ("wq", "wk", "wv", "wo")])
        assert values["grad_cross"][layer] == pytest.approx(float(own.norm()), rel=1e-12)
        assert values["grad_wq"][layer] == pytest.approx(float(block.branches[0].wq.weight.grad.norm()), rel=1e-12)
    assert (values["cross_rms"] > 0).all()
    assert (values["norm_std_cross"] > 0).all()


def test_blocks_without_attention_are_measured() -> None:
    _, values, _ = measured("model.branches=[ffn]")
    assert (values["grad_w2"] > 0).all()
    assert not {"attn_entropy", "grad_wq", "attn_rms", "param_wq"} & values.keys()


def test_flops_count_what_each_branch_does() -> None:
    per_map = 6 * 16 * 16
    head, ffn, attn = 6 * 16 * 29, 6 * 2 * 16 * 64, 4 * per_map + 12 * 12 * 16
    assert flops_per_token(transformer("model.branches=[ffn]"), 12) == head + 3 * ffn
    assert flops_per_token(transformer(), 12) == head + 3 * (ffn + attn)
    cross = 2 * per_map + 12 * 7 * 16
    assert flops_per_token(transformer(CROSS, "model.memory_tokens=7"), 12) == head + 3 * (ffn + attn + cross)


def test_l2_logits_are_a_scale_times_cosines_from_log2_of_the_pairs() -> None:
    """Henry et al. 2020 (arXiv:2010.04245): scale log2(T² - T) at the start, and no division by sqrt(K)."""
    attention = transformer("norm.qk=l2", "model.width=24", "model.n_head=2").blocks[0].branches[0]
    q_BTHK, k_BTHK = torch.randn(2, 3, 12, 2, 12, generator=torch.Generator().manual_seed(0)).double()
    logit = torch.einsum("bthk,bshk->bhts", attention.norm_q(q_BTHK), attention.norm_k(k_BTHK)) / 12**0.5
    cosine = torch.nn.functional.cosine_similarity(q_BTHK[:, :, None], k_BTHK[:, None], dim=-1).permute(0, 3, 1, 2)
    torch.testing.assert_close(logit, math.log2(12**2 - 12) * cosine, rtol=1e-6, atol=1e-6)


def test_a_norm_of_queries_reaches_cross_attention() -> None:
    model = transformer("norm.qk=rmsnorm", "norm.qk_axis=projection", "model.branches=[cross]")
    for branch in (block.branches[0] for block in model.blocks):
        assert branch.norm_q.normalized_shape == branch.norm_k.normalized_shape == (2, 8)
