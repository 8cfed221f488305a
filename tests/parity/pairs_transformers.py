"""Models of the transformers library, built from configs: nothing is downloaded.

Llama and its kin cast to float32 in RMSNorm and in RoPE's angles, whatever the model's dtype: hence SINGLE.
"""

from collections.abc import Callable, Mapping

import transformers as hf
from pairs import CONTEXT, D_FF, DEPTH, EPS, HEADS, VOCAB, WIDTH, Pair, Table, View
from torch import Tensor, nn

SINGLE = 1e-5
THETA = 100.0  # base of RoPE's frequencies, small: the slow pairs of features must turn too
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}


def run(model: nn.Module, tokens_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The stream is read at the blocks: the library's own last hidden state comes after the final norm."""
    points: list[Tensor] = []
    (blocks,) = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    hooks = [blocks[0].register_forward_pre_hook(lambda _block, inputs: points.append(inputs[0]))]
    hooks += [block.register_forward_hook(lambda _block, _inputs, out: points.append(first(out))) for block in blocks]
    logits_BTV = model(tokens_BT).logits
    for hook in hooks:
        hook.remove()
    return logits_BTV, points


def first(output: Tensor | list[Tensor]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def third(k: int) -> View:
    """Of a fused map to queries, keys and values; GPT's maps are [in, out]."""
    return lambda fused: fused.t().chunk(3)[k]


def halves_of_pairs(weight: Tensor) -> Tensor:
    """Rows in the order of ours: of each head, RoPE turns neighbours in theirs, and in ours features half a head apart."""
    return weight.unflatten(0, (HEADS, -1, 2)).transpose(1, 2).flatten(0, 2)


def one_more(gain: Tensor) -> Tensor:
    return 1 + gain


GPT_BLOCK: Table = {
    "branches.0.wq": ("transformer.h.{l}.attn.c_attn.{p}", third(0)),
    "branches.0.wk": ("transformer.h.{l}.attn.c_attn.{p}", third(1)),
    "branches.0.wv": ("transformer.h.{l}.attn.c_attn.{p}", third(2)),
    "branches.0.wo": ("transformer.h.{l}.attn.c_proj.{p}", Tensor.t),
    "branches.1.w1": ("transformer.h.{l}.mlp.c_fc.{p}", Tensor.t),
    "branches.1.w2": ("transformer.h.{l}.mlp.c_proj.{p}", Tensor.t),
    "joins.0.norm": "transformer.h.{l}.ln_1.{p}",
    "joins.1.norm": "transformer.h.{l}.ln_2.{p}",
}
GPT2: Table = GPT_BLOCK | {
    "wte": "transformer.wte.{p}",
    "wpe": "transformer.wpe.{p}",
    "final_norm": "transformer.ln_f.{p}",
}
GPT: Table = GPT_BLOCK | {
    "wte": "transformer.tokens_embed.{p}",
    "wpe": "transformer.positions_embed.{p}",
}
GPT_SIZES = {"vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": WIDTH, "n_layer": DEPTH, "n_head": HEADS}
GPT_SIZES |= {"layer_norm_epsilon": EPS, **NO_TOKENS}
GPT_SAME = ("model.ffn=gelu_tanh", "model.tied=true", "model.d_ff=null")  # null is their four times the width


def gpt2() -> Pair:
    """Pre-LN, final norm, learned positions, tied readout."""
    return Pair(hf.GPT2LMHeadModel(hf.GPT2Config(**GPT_SIZES)), run, GPT2, ("norm=pre", *GPT_SAME))


def gpt() -> Pair:
    """Post-LN, no final norm, learned positions, tied readout."""
    return Pair(hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(**GPT_SIZES)), run, GPT, ("norm=post", *GPT_SAME))


PLAIN: Table = {
    "wte": "model.embed_tokens.{p}",
    "branches.0.wq": "model.layers.{l}.self_attn.q_proj.{p}",
    "branches.0.wk": "model.layers.{l}.self_attn.k_proj.{p}",
    "branches.0.wv": "model.layers.{l}.self_attn.v_proj.{p}",
    "branches.0.wo": "model.layers.{l}.self_attn.o_proj.{p}",
    "branches.1.wg": "model.layers.{l}.mlp.gate_proj.{p}",
    "branches.1.w1": "model.layers.{l}.mlp.up_proj.{p}",
    "branches.1.w2": "model.layers.{l}.mlp.down_proj.{p}",
    "final_norm": "model.norm.{p}",
    "head": "lm_head.{p}",
}
PRE: Table = {
    "joins.0.norm": "model.layers.{l}.input_layernorm.{p}",
    "joins.1.norm": "model.layers.{l}.post_attention_layernorm.{p}",
}
QK_NORM: Table = {
    "branches.0.norm_q": "model.layers.{l}.self_attn.q_norm.{p}",
    "branches.0.norm_k": "model.layers.{l}.self_attn.k_norm.{p}",
}
OUTPUT: Table = {
    "joins.0.norm": "model.layers.{l}.post_attention_layernorm.{p}",
    "joins.1.norm": "model.layers.{l}.post_feedforward_layernorm.{p}",
}
GEMMA: Table = {
    "joins.0.norm_in": "model.layers.{l}.input_layernorm.{p}",
    "joins.0.norm_out": "model.layers.{l}.post_attention_layernorm.{p}",
    "joins.1.norm_in": "model.layers.{l}.pre_feedforward_layernorm.{p}",
    "joins.1.norm_out": "model.layers.{l}.post_feedforward_layernorm.{p}",
    "final_norm": "model.norm.{p}",
}
GLM4: Table = {
    "joins.0.norm_in": "model.layers.{l}.input_layernorm.{p}",
    "joins.0.norm_out": "model.layers.{l}.post_self_attn_layernorm.{p}",
    "joins.1.norm_in": "model.layers.{l}.post_attention_layernorm.{p}",
    "joins.1.norm_out": "model.layers.{l}.post_mlp_layernorm.{p}",
    "branches.0.wq": ("model.layers.{l}.self_attn.q_proj.{p}", halves_of_pairs),
    "branches.0.wk": ("model.layers.{l}.self_attn.k_proj.{p}", halves_of_pairs),
    "branches.1.wg": ("model.layers.{l}.mlp.gate_up_proj.{p}", lambda fused: fused.chunk(2)[0]),
    "branches.1.w1": ("model.layers.{l}.mlp.gate_up_proj.{p}", lambda fused: fused.chunk(2)[1]),
}
INSIDE: Table = {
    "branches.0.norm_out": "model.layers.{l}.self_attn.attn_sub_norm.{p}",
    "branches.1.norm_out": "model.layers.{l}.mlp.ffn_sub_norm.{p}",
}
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": D_FF,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": EPS,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "pad_token_id": None,
    **NO_TOKENS,
}
ROPE = {"rope_type": "default", "rope_theta": THETA}
SAME = ("norm.kind=rmsnorm", "model.bias=false", "model.ffn=swiglu", "model.positions=rope", f"model.rope_base={THETA}")


def llama() -> Pair:
    """Pre-LN with RMSNorm, half-split RoPE, SwiGLU, no biases."""
    theirs = hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, rope_parameters=ROPE))
    return Pair(theirs, run, PLAIN | PRE, ("norm=pre", *SAME), SINGLE)


def qwen3() -> Pair:
    """Llama with an RMSNorm over each head's queries and keys."""
    theirs = hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES, head_dim=WIDTH // HEADS, rope_parameters=ROPE))
    return Pair(theirs, run, PLAIN | PRE | QK_NORM, ("norm=pre", "norm.qk=rmsnorm", *SAME), SINGLE)


def olmo2() -> Pair:
    """x + norm(f(x)), and an RMSNorm over the whole projection of queries and of keys."""
    theirs = hf.Olmo2ForCausalLM(hf.Olmo2Config(**SIZES, rope_parameters=ROPE))
    same = ("norm=output", "norm.qk=rmsnorm", "norm.qk_axis=projection", *SAME)
    gains = {ours: (path, lambda gain: gain.unflatten(0, (HEADS, -1))) for ours, path in QK_NORM.items()}
    return Pair(theirs, run, PLAIN | OUTPUT | gains, same, SINGLE)


def gemma3() -> Pair:
    """x + norm(f(norm(x))), an RMSNorm over each head's queries and keys; gains are 1 + weight, tokens times sqrt(width)."""
    attention = {"query_pre_attn_scalar": WIDTH // HEADS, "layer_types": ["full_attention"] * DEPTH}
    options = {"head_dim": WIDTH // HEADS, "hidden_activation": "silu", "rope_parameters": {"full_attention": ROPE}}
    theirs = hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**SIZES, **attention, **options))
    gains = {ours: (path, one_more) for ours, path in (GEMMA | QK_NORM).items()}
    table = PLAIN | gains | {"wte": ("model.embed_tokens.{p}", lambda table: table * WIDTH**0.5)}
    return Pair(theirs, run, table, ("norm=sandwich", "norm.qk=rmsnorm", *SAME), SINGLE)


def glm4() -> Pair:
    """x + norm(f(norm(x))), RoPE on neighbouring features, gate and its factor in one matrix."""
    rope = ROPE | {"partial_rotary_factor": 1.0}
    theirs = hf.Glm4ForCausalLM(hf.Glm4Config(**SIZES, head_dim=WIDTH // HEADS, rope_parameters=rope))
    return Pair(theirs, run, PLAIN | GLM4, ("norm=sandwich", *SAME), SINGLE)


def bitnet() -> Pair:
    """Pre-LN with a norm before W_O and W_2; its layers are of full precision here."""
    theirs = hf.BitNetForCausalLM(hf.BitNetConfig(**SIZES, hidden_act="silu", rope_parameters=ROPE))
    return Pair(theirs, run, PLAIN | PRE | INSIDE, ("norm=subln", *SAME), SINGLE)


GPTS: Mapping[str, Callable[[], Pair]] = {"gpt2": gpt2, "gpt": gpt}
LLAMAS: Mapping[str, Callable[[], Pair]] = {
    "llama": llama,
    "qwen3": qwen3,
    "olmo2": olmo2,
    "gemma3": gemma3,
    "glm4": glm4,
    "bitnet": bitnet,
}
