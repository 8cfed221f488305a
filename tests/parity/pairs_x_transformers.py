"""Decoders of the x-transformers library. It calls torch's attention (attn_flash), as its own casts to float32."""

import warnings
from collections.abc import Callable, Mapping

from pairs import CONTEXT, D_FF, DEPTH, HEADS, VOCAB, WIDTH, Pair, Table
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    from x_transformers import Decoder, TransformerWrapper

# A branch is [norms before it, after it and after the sum], itself, the sum.
PLAIN: Table = {
    "wte": "token_emb.emb.{p}",
    "wpe": ("pos_emb.emb.{p}", lambda table: table * WIDTH**-0.5),
    "branches.0.wq": "attn_layers.layers.{a}.1.to_q.{p}",
    "branches.0.wk": "attn_layers.layers.{a}.1.to_k.{p}",
    "branches.0.wv": "attn_layers.layers.{a}.1.to_v.{p}",
    "branches.0.wo": "attn_layers.layers.{a}.1.to_out.{p}",
    "branches.1.w1": "attn_layers.layers.{f}.1.ff.0.0.{p}",
    "branches.1.w2": "attn_layers.layers.{f}.1.ff.2.{p}",
    "head": "to_logits.{p}",
}
BEFORE: Table = {
    "joins.0.norm": "attn_layers.layers.{a}.0.0.gamma",
    "joins.1.norm": "attn_layers.layers.{f}.0.0.gamma",
    "final_norm": "attn_layers.final_norm.gamma",
}
AROUND: Table = {
    "joins.0.norm_in": "attn_layers.layers.{a}.0.0.gamma",
    "joins.0.norm_out": "attn_layers.layers.{a}.0.1.gamma",
    "joins.1.norm_in": "attn_layers.layers.{f}.0.0.gamma",
    "joins.1.norm_out": "attn_layers.layers.{f}.0.1.gamma",
    "final_norm": "attn_layers.final_norm.gamma",
}
EMBEDDING: Table = {"joins.0.norm_embed": "post_emb_norm.gamma"}
BEFORE_AND_AFTER_SUM: Table = {
    "joins.0.norm_in": "attn_layers.layers.{a}.0.0.gamma",
    "joins.0.norm_out": "attn_layers.layers.{a}.0.2.gamma",
    "joins.1.norm_in": "attn_layers.layers.{f}.0.0.gamma",
    "joins.1.norm_out": "attn_layers.layers.{f}.0.2.gamma",
}
AFTER_SUM: Table = {
    "joins.0.norm": "attn_layers.layers.{a}.0.2.gamma",
    "joins.1.norm": "attn_layers.layers.{f}.0.2.gamma",
}
SCALED: Table = {
    **BEFORE,
    **{ours: path.replace(".1.", ".1.fn.") for ours, path in PLAIN.items() if ours.startswith("branches")},
    "joins.0.scale": "attn_layers.layers.{a}.1.gamma",
    "joins.1.scale": "attn_layers.layers.{f}.1.gamma",
}


def run(model: nn.Module, tokens_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The stream is theirs before each attention and before the final norm; point 0 comes before a norm of the embedding."""
    points: list[Tensor] = []
    hook = model.post_emb_norm.register_forward_pre_hook(lambda _norm, inputs: points.append(inputs[0]))
    logits_BTV, seen = model(tokens_BT, return_intermediates=True)
    hook.remove()
    return logits_BTV, points + seen.layer_hiddens[2::2]


def pair(norm: str, table: Table, *, embedding_norm: bool = False, **options: object) -> Pair:
    sizes = {"dim": WIDTH, "depth": DEPTH, "heads": HEADS, "attn_dim_head": WIDTH // HEADS, "ff_mult": D_FF / WIDTH}
    layers = Decoder(**sizes, ff_no_bias=True, norm_add_unit_offset=False, attn_flash=True, **options)
    ends = {"num_tokens": VOCAB, "max_seq_len": CONTEXT, "post_emb_norm": embedding_norm}
    same = (f"norm={norm}", "model.bias=false", "norm.eps=1e-5")  # their LayerNorm has a gain only
    return Pair(TransformerWrapper(**ends, attn_layers=layers), run, PLAIN | table, same)


def keel(*, first_branch_alike: bool = False) -> Pair:
    """Theirs treats the first branch like all others. The paper makes it Pre-LN, and so does this unless told otherwise."""
    made = pair("keel", BEFORE_AND_AFTER_SUM, pre_and_post_norm=True, scale_residual_constant=2.0 * DEPTH)
    if not first_branch_alike:
        norms, _, total = made.theirs.attn_layers.layers[0]
        norms[2], total.scale_residual_constant = None, 1.0
    return made


DECODERS: Mapping[str, Callable[[], Pair]] = {
    "pre": lambda: pair("pre", BEFORE),
    "post": lambda: pair("post", AFTER_SUM, pre_norm=False),
    "sandwich": lambda: pair("sandwich", AROUND, sandwich_norm=True),
    "peri": lambda: pair("peri", AROUND | EMBEDDING, sandwich_norm=True, embedding_norm=True),
    "deepnorm": lambda: pair("deepnorm", AFTER_SUM, pre_norm=False, scale_residual_constant=(2 * DEPTH) ** 0.25),
    "keel": keel,
    "layerscale": lambda: pair("layerscale", SCALED, use_layerscale=True),
}
