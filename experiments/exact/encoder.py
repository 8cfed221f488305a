"""C15: nn.TransformerEncoderLayer with norm_first=True is Pre-LN, and the default is Post-LN."""

from collections.abc import Callable, Iterator
from typing import cast

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from experiments.branches import Attention, FeedForward
from experiments.config import InitConfig
from experiments.exact.check import ROUNDING, Check, normal, transformer
from experiments.init import initialise
from experiments.model import Block

OPTIONS: dict[str, dict[str, bool]] = {"pre": {"norm_first": True}, "post": {}}  # of torch's layer; {} is its default
DIFFERENT = 1e-3  # relative; above it two layers are not the same


def checks() -> Iterator[Check]:
    for placement in OPTIONS:
        yield from of_block(perturbed_block(placement), placement)


def of_block(block: Block, placement: str) -> Iterator[Check]:
    """Parity of a block with the torch layer of its placement, and that with the other's layer there is none."""
    (other,) = OPTIONS.keys() - {placement}
    same, swapped = (parity(block, encoder_layer(block, **OPTIONS[name])) for name in (placement, other))
    setting = f"{placement}, norm_first={{}}, d = 16, 2 heads, gelu, causal, weights copied"
    here, there = (setting.format(OPTIONS[name].get("norm_first", "default")) for name in (placement, other))
    for what, near, far in zip(("output", "input_gradient"), same, swapped, strict=True):
        quantity = f"{what.replace('_', ' ')}: largest difference over largest entry"
        yield Check("C15", f"{placement}_{what}", quantity, here, 0.0, near, ROUNDING)
        differs = f"1 if above {DIFFERENT:g}, else 0: {quantity}"
        yield Check("C15", f"{placement}_{what}_swapped", differs, there, 1.0, float(far > DIFFERENT), 0.0)


def parity(block: Block, layer: nn.TransformerEncoderLayer) -> tuple[float, float]:
    """(outputs, input gradients): largest difference over the largest entry of torch's."""
    x_BTD = normal(2, 11, layer.linear1.in_features)
    mask_TT = nn.Transformer.generate_square_subsequent_mask(x_BTD.shape[1], dtype=x_BTD.dtype)
    cotangent_BTD, results = normal(*x_BTD.shape, seed=1), []
    forwards: tuple[Callable[[Tensor], Tensor], ...] = (block, lambda x_BTD: layer(x_BTD, src_mask=mask_TT, is_causal=True))
    for forward in forwards:
        input_BTD = x_BTD.clone().requires_grad_()
        y_BTD = forward(input_BTD)
        results.append((y_BTD.detach(), *torch.autograd.grad(y_BTD, input_BTD, cotangent_BTD)))
    output, gradient = (float((ours - theirs).abs().max() / theirs.abs().max()) for ours, theirs in zip(*results, strict=True))
    return output, gradient


def encoder_layer(block: Block, **options: bool) -> nn.TransformerEncoderLayer:
    """torch's layer, without dropout, with the weights of a Pre-LN or Post-LN block with LayerNorm, GELU and biases.

    options : norm_first, or nothing for torch's default.
    """
    attention, ffn = cast("Attention", block.branches[0]), cast("FeedForward", block.branches[1])
    norm1, norm2 = (module for module in block.joins.modules() if isinstance(module, nn.LayerNorm))
    layer = nn.TransformerEncoderLayer(
        attention.wq.in_features,
        attention.n_head,
        ffn.w1.out_features,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=norm1.eps,
        batch_first=True,
        dtype=ffn.w1.weight.dtype,
        **options,
    )
    ours = {"self_attn.out_proj": attention.wo, "linear1": ffn.w1, "linear2": ffn.w2, "norm1": norm1, "norm2": norm2}
    state = {f"{name}.{key}": value for name, module in ours.items() for key, value in module.state_dict().items()}
    for key in ("weight", "bias"):
        state[f"self_attn.in_proj_{key}"] = torch.cat([getattr(m, key) for m in (attention.wq, attention.wk, attention.wv)])
    layer.load_state_dict(state)
    return layer


def perturbed_block(placement: str) -> Block:
    """A Xavier block of width 16, its gains and biases moved away from 1 and 0."""
    model = transformer(placement, depth=1, width=16)
    initialise(model, OmegaConf.structured(InitConfig(name="xavier")), 0)
    block = cast("Block", model.double().blocks[0])
    with torch.no_grad():
        for seed, parameter in enumerate(block.parameters()):
            parameter.add_(0.1 * normal(*parameter.shape, seed=seed))
    return block
