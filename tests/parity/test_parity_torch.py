"""Attention, and a decoder block with cross-attention, against torch.nn's. torch's encoder layer is tested elsewhere."""

import pytest
import torch
from compose import config
from pairs import perturb, relative
from torch import Tensor, nn
from torch.func import functional_call

from experiments.branches import Attention, CrossAttention
from experiments.init import initialise
from experiments.model import Block, Shape, Transformer

pytestmark = pytest.mark.slow

T, D, H, F, M = 11, 16, 2, 24, 7
OURS = (f"model.width={D}", f"model.n_head={H}", f"model.d_ff={F}", f"model.memory_tokens={M}", "norm.eps=0.01")


def block(*overrides: str) -> Block:
    """Self-attention, cross-attention and feed-forward, the weights away from 0 and 1."""
    cfg = config(*OURS, "model.depth=1", "model.branches=[attn,cross,ffn]", "init=xavier", *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(17, T))
    initialise(model, cfg.init, 0)
    perturb(model)
    return model.double().blocks[0]


def stream() -> Tensor:
    return torch.randn(2, T, D, dtype=torch.float64, requires_grad=True)


def mask() -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)


def of_attention(ours: Attention | CrossAttention, prefix: str = "") -> dict[str, Tensor]:
    """The parameters of torch's attention, as functions of ours."""
    maps = (ours.wq, ours.wk, ours.wv)
    return {
        f"{prefix}in_proj_weight": torch.cat([linear.weight for linear in maps]),
        f"{prefix}in_proj_bias": torch.cat([linear.bias for linear in maps]),
        f"{prefix}out_proj.weight": ours.wo.weight,
        f"{prefix}out_proj.bias": ours.wo.bias,
    }


def of_block(ours: Block) -> dict[str, Tensor]:
    """The parameters of torch's decoder layer, as functions of ours."""
    attention, cross, ffn = ours.branches
    norms = [module for join in ours.joins for module in join.modules() if isinstance(module, nn.LayerNorm)]
    plain = {"linear1": ffn.w1, "linear2": ffn.w2, "norm1": norms[0], "norm2": norms[1], "norm3": norms[2]}
    weights = {f"{name}.{key}": value for name, module in plain.items() for key, value in module.named_parameters()}
    return weights | of_attention(attention, "self_attn.") | of_attention(cross, "multihead_attn.")


def differences(ours: nn.Module, y_BTD: Tensor, z_BTD: Tensor, *inputs: Tensor) -> list[float]:
    """Of outputs, and of their gradients with respect to inputs and all our parameters."""
    leaves, cotangent_BTD = [*inputs, *ours.parameters()], torch.randn_like(y_BTD)
    gradients = [torch.autograd.grad(out, leaves, cotangent_BTD, retain_graph=True) for out in (y_BTD, z_BTD)]
    return [relative(mine, other) for mine, other in zip([y_BTD, *gradients[0]], [z_BTD, *gradients[1]], strict=True)]


def decoder_layer(*, norm_first: bool) -> nn.TransformerDecoderLayer:
    options = {"activation": "gelu", "layer_norm_eps": 0.01, "batch_first": True, "dtype": torch.float64}
    return nn.TransformerDecoderLayer(D, H, F, 0.0, norm_first=norm_first, **options)


def test_attention_its_weights_entropy_and_gradients() -> None:
    attention, x_BTD = block().branches[0], stream()
    theirs = nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64)
    options = {"attn_mask": mask(), "average_attn_weights": False}
    attention.scores.on = True
    y_BTD = attention(x_BTD)
    z_BTD, weight_BHTT = functional_call(theirs, of_attention(attention), (x_BTD, x_BTD, x_BTD), options)
    assert max(differences(attention, y_BTD, z_BTD, x_BTD)) < 1e-10
    assert attention.scores.slot[0].item() == pytest.approx(torch.special.entr(weight_BHTT).sum(-1).mean().item(), rel=1e-10)


@pytest.mark.parametrize(("norm", "norm_first"), [("pre", True), ("post", False)])
def test_a_block_with_cross_attention_and_gradients(norm: str, norm_first: bool) -> None:
    ours, x_BTD = block(f"norm={norm}"), stream()
    memory_BMD = ours.branches[1].memory_MD.requires_grad_().expand(2, M, D)
    inputs, options = (x_BTD, memory_BMD), {"tgt_mask": mask(), "tgt_is_causal": True}
    y_BTD, layers = ours(x_BTD), [decoder_layer(norm_first=first) for first in (norm_first, not norm_first)]
    same, swapped = (functional_call(layer, of_block(ours), inputs, options) for layer in layers)
    assert max(differences(ours, y_BTD, same, x_BTD, ours.branches[1].memory_MD)) < 1e-10
    assert min(differences(ours, y_BTD, swapped, x_BTD)[:2]) > 1e-3  # the comparison can fail
