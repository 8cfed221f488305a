"""The transformer against torch's own layers, closed forms and the laws of causality."""

import math

import pytest
import torch
from compose import config
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.branches import FEED_FORWARDS, feed_forward_width
from experiments.config import KNOWN
from experiments.init import initialise
from experiments.model import Shape, Transformer, count_parameters, flops_per_token, separate
from experiments.norms import KINDS

VOCAB, CONTEXT = 17, 11


def transformer(*overrides: str, seed: int = 0) -> Transformer:
    cfg = config("model.depth=3", "model.width=16", "model.n_head=2", *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(VOCAB, CONTEXT))
    initialise(model, cfg.init, seed)
    return model.double()


def tokens(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCAB, (2, CONTEXT), generator=torch.Generator().manual_seed(seed))


def torch_layer(block: nn.Module, norm_first: bool) -> nn.TransformerEncoderLayer:
    """torch's encoder layer with a block's weights copied into it."""
    attention, ffn = block.branches
    D = attention.wq.in_features
    layer = nn.TransformerEncoderLayer(
        D, attention.n_head, ffn.w1.out_features, 0.0, activation="gelu", batch_first=True, norm_first=norm_first
    ).double()
    pairs = {
        layer.self_attn.in_proj_weight: torch.cat([attention.wq.weight, attention.wk.weight, attention.wv.weight]),
        layer.self_attn.in_proj_bias: torch.cat([attention.wq.bias, attention.wk.bias, attention.wv.bias]),
        layer.self_attn.out_proj.weight: attention.wo.weight,
        layer.self_attn.out_proj.bias: attention.wo.bias,
        layer.linear1.weight: ffn.w1.weight,
        layer.linear1.bias: ffn.w1.bias,
        layer.linear2.weight: ffn.w2.weight,
        layer.linear2.bias: ffn.w2.bias,
    }
    for norm, join in zip((layer.norm1, layer.norm2), block.joins, strict=True):
        pairs[norm.weight], pairs[norm.bias] = join.norm[1].weight, join.norm[1].bias
    with torch.no_grad():
        for theirs, ours in pairs.items():
            theirs.copy_(ours)
    return layer


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_block_equals_torch_encoder_layer_in_outputs_and_gradients(norm: str) -> None:
    torch.manual_seed(0)
    model = transformer(f"norm={norm}", "init=xavier")
    block = model.blocks[1]
    with torch.no_grad():
        for parameter in block.parameters():  # gains and biases away from 1 and 0
            parameter.add_(0.1 * torch.randn_like(parameter))
    layer = torch_layer(block, norm_first=norm == "pre")
    ours = torch.randn(2, CONTEXT, 16, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, dtype=torch.float64)
    y, z = block(ours), layer(theirs, src_mask=mask, is_causal=True)
    cotangent = torch.randn_like(y)
    y.backward(cotangent)
    z.backward(cotangent)
    torch.testing.assert_close(y, z, rtol=0, atol=1e-10)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-10)
    attention, ffn = block.branches
    in_proj = torch.cat([attention.wq.weight.grad, attention.wk.weight.grad, attention.wv.weight.grad])
    torch.testing.assert_close(in_proj, layer.self_attn.in_proj_weight.grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(attention.wo.weight.grad, layer.self_attn.out_proj.weight.grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(ffn.w1.weight.grad, layer.linear1.weight.grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(ffn.w2.weight.grad, layer.linear2.weight.grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(block.joins[0].norm[1].weight.grad, layer.norm1.weight.grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(block.joins[1].norm[1].bias.grad, layer.norm2.bias.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", KNOWN["model.positions"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_future_tokens_do_not_leak(norm: str, positions: str) -> None:
    model, one = transformer(f"norm={norm}", f"model.positions={positions}", "init=xavier"), tokens()
    two = one.clone()
    two[:, 6:] = (two[:, 6:] + 1) % VOCAB
    a, b = model(one), model(two)
    torch.testing.assert_close(a[:, :6], b[:, :6], rtol=0, atol=1e-12)
    assert not torch.allclose(a[:, 6:], b[:, 6:])


@pytest.mark.parametrize(
    "overrides", [["norm=pre"], ["norm=post"], ["model.ffn=swiglu"], ["norm.kind=rmsnorm", "model.bias=false"]]
)
def test_every_parameter_gets_a_gradient(overrides: list[str]) -> None:
    model = transformer(*overrides, "init=xavier")
    model(tokens()).square().mean().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert [name for name in without if not name.endswith("wk.bias")] == []  # a key bias shifts all logits of a query alike


def test_rotary_scores_depend_on_relative_position_only() -> None:
    rotary = transformer("model.positions=rope").blocks[0].branches[0].rotary
    q_K, k_K = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q_TK, k_TK = rotary(q_K.expand(CONTEXT, 8)), rotary(k_K.expand(CONTEXT, 8))
    score_TT = q_TK @ k_TK.T
    for offset in range(1 - CONTEXT, CONTEXT):
        diagonal = score_TT.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-6, atol=1e-6)


def test_rotary_turns_pair_i_by_t_over_base_to_the_two_i_over_k() -> None:
    model = transformer("model.positions=rope", "model.rope_base=100.0")
    x_K = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    turned = model.blocks[0].branches[0].rotary(x_K.expand(CONTEXT, 8))[5]
    for i in range(4):
        pair = complex(x_K[i], x_K[i + 4]) * complex(math.cos(5 * 100 ** (-2 * i / 8)), math.sin(5 * 100 ** (-2 * i / 8)))
        assert complex(turned[i], turned[i + 4]) == pytest.approx(pair, abs=1e-6)


@pytest.mark.parametrize(("width", "expected"), [(768, 2048), (64, 128), (16, 42), (96, 256)])
def test_swiglu_width_is_eight_thirds_rounded_down_to_64(width: int, expected: int) -> None:
    assert feed_forward_width(width, "swiglu") == expected
    assert feed_forward_width(width, "gelu") == 4 * width


def test_activations_match_their_formulas() -> None:
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    formulas = {
        "gelu": x * torch.special.ndtr(x),
        "gelu_tanh": 0.5 * x * (1 + inner.tanh()),
        "relu": x.clamp(min=0),
        "silu": x / (1 + torch.exp(-x)),
    }
    for ffn, expected in formulas.items():
        act = transformer(f"model.ffn={ffn}").blocks[0].branches[1].act
        torch.testing.assert_close(act(x), expected, rtol=1e-12, atol=1e-12)


def test_swiglu_is_the_gated_product() -> None:
    ffn = transformer("model.ffn=swiglu", "init=xavier").blocks[0].branches[1]
    x = torch.randn(3, 16, dtype=torch.float64)
    gate = ffn.wg(x)
    torch.testing.assert_close(ffn(x[None])[0], ffn.w2(gate * torch.sigmoid(gate) * ffn.w1(x)), rtol=1e-12, atol=1e-12)


def test_pre_and_post_have_12_d_squared_a_block_and_differ_by_the_final_norm() -> None:
    counts = {norm: count_parameters(transformer(f"norm={norm}")) for norm in ("pre", "post")}
    D = 16
    block = 12 * D**2 + 13 * D  # 4 D² + 8 D², biases 4 D + 5 D, two norms 4 D
    outside = 2 * VOCAB * D + CONTEXT * D
    assert counts["post"] == 3 * block + outside
    assert counts["pre"] == counts["post"] + 2 * D


def test_tied_readout_counts_once() -> None:
    assert count_parameters(transformer()) - count_parameters(transformer("model.tied=true")) == VOCAB * 16


def test_streams_of_a_point_have_gradients_of_their_own() -> None:
    """A stream computed from another of the same point is a variable apart, and so is what it passes on."""
    x = torch.ones(3, requires_grad=True)
    one, two = separate((x, x))
    (2 * one + 3 * two).sum().backward(inputs=[one, two])
    assert (one.grad.tolist(), two.grad.tolist()) == ([2.0] * 3, [3.0] * 3)


def test_final_norm_follows_the_placement_unless_set() -> None:
    for norm, given, expected in [
        ("pre", "null", True),
        ("post", "null", False),
        ("pre", "false", False),
        ("post", "true", True),
    ]:
        model = transformer(f"norm={norm}", f"model.final_norm={given}")
        assert isinstance(model.final_norm, nn.Identity) is not expected


def test_flops_agree_with_torch_counter_on_the_matrix_products() -> None:
    model = transformer("norm=post", "model.positions=none", "model.tied=false")
    with FlopCounterMode(display=False) as counter, nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        model(tokens()).sum().backward()
    linear = {k: v for k, v in counter.get_flop_counts()["Global"].items() if "bmm" not in str(k)}
    assert sum(linear.values()) == pytest.approx((flops_per_token(model, CONTEXT) - 12 * 3 * CONTEXT * 16) * 2 * CONTEXT)


@pytest.mark.parametrize("overrides", [["model.dropout=0.1"], []])
def test_checkpointing_changes_neither_output_nor_gradient(overrides: list[str]) -> None:
    results = []
    for checkpointing in ("false", "true"):
        model = transformer(f"model.checkpointing={checkpointing}", "init=xavier", *overrides)
        torch.manual_seed(3)
        logits = model(tokens())
        logits.square().mean().backward()
        results.append((logits, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_options_reach_every_layer() -> None:
    model = transformer("model.bias=false", "model.dropout=0.3", "model.d_ff=24", "model.positions=none")
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.3}
    assert {block.branches[0].dropout for block in model.blocks} == {0.3}
    assert {tuple(block.branches[1].w2.weight.shape) for block in model.blocks} == {(16, 24)}
    assert model.wpe is None


def test_dropout_acts_in_training_only() -> None:
    model = transformer("model.dropout=0.3", "init=xavier")
    assert not torch.equal(model(tokens()), model(tokens()))
    model.eval()
    assert torch.equal(model(tokens()), model(tokens()))


def test_tables_hold_what_the_config_knows() -> None:
    assert KNOWN["model.ffn"] == FEED_FORWARDS
    assert tuple(KINDS) == KNOWN["norm.kind"]


def test_identity_path_carries_the_whole_gradient_past_constant_branches() -> None:
    model = transformer("norm=pre", "model.width=2", "model.n_head=1", "model.depth=1")
    x0 = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)
    x2 = x0
    for join, delta in zip(model.blocks[0].joins, ([0.1, 0.2], [0.3, -0.1]), strict=True):
        x2 = join(x2, lambda _, delta=delta: torch.tensor(delta, dtype=torch.float64))
    x2.backward(torch.tensor([2.0, 3.0], dtype=torch.float64))
    torch.testing.assert_close(x2.detach(), torch.tensor([1.4, 1.1], dtype=torch.float64))
    assert x0.grad.tolist() == [2.0, 3.0]
