"""Sizes and initial weights of GPT, GPT-2 and Llama in the transformers library. It once forgot to scale GPT-2's with depth
(#47458)."""

from collections.abc import Callable, Mapping
from math import sqrt

import pytest
import torch
import transformers as hf
from compose import config
from pairs import Table, read
from pairs_transformers import GPT, GPT2, NO_TOKENS, PLAIN, PRE
from torch import Tensor, nn

from experiments.init import initialise
from experiments.model import Shape, Transformer, count_parameters

pytestmark = pytest.mark.slow

STD, WIDTH, HEADS, VOCAB, CONTEXT = 0.02, 64, 4, 200, 100
SIZES = {"n_embd": WIDTH, "n_head": HEADS, "vocab_size": VOCAB, "n_positions": CONTEXT, **NO_TOKENS}
INIT = (f"init.std={STD}", f"init.embedding_std={STD}")
OURS = (f"model.width={WIDTH}", f"model.n_head={HEADS}", "model.tied=true", *INIT)
NAMED = [
    (["norm=pre", "model=gpt2"], lambda: hf.GPT2LMHeadModel(hf.GPT2Config()), GPT2),
    (["norm=pre", "norm.kind=rmsnorm", "model=llama_7b"], lambda: hf.LlamaForCausalLM(hf.LlamaConfig()), PLAIN | PRE),
]


def transformer(depth: int, *overrides: str) -> Transformer:
    cfg = config(*OURS, f"model.depth={depth}", *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(VOCAB, CONTEXT))
    initialise(model, cfg.init, 0)
    return model


def assert_drawn(weights: Mapping[str, Tensor], factor: float) -> None:
    """Matrices are normal of std STD, those that write to the stream times the factor, within five standard errors; gains
    are one and biases zero."""
    for name, weight in weights.items():
        if weight.ndim == 1:
            assert (weight == (0.0 if name.endswith("bias") else 1.0)).all(), name
        else:
            std = STD * (factor if name.endswith(("wo.weight", "w2.weight")) else 1.0)
            assert weight.std().item() == pytest.approx(std, rel=5 / sqrt(2 * weight.numel())), name
            assert weight.mean().item() == pytest.approx(0.0, abs=5 * std / sqrt(weight.numel())), name


@pytest.mark.parametrize("depth", [2, 8])
def test_gpt2_scales_what_writes_to_the_stream_by_one_over_root_2_l(depth: int) -> None:
    ours, theirs = transformer(depth, "init=gpt2_scaled"), hf.GPT2LMHeadModel(hf.GPT2Config(**SIZES, n_layer=depth))
    for weights in (dict(ours.named_parameters()), read(GPT2, theirs, ours)):
        assert_drawn(weights, 1 / sqrt(2 * depth))


@pytest.mark.parametrize("depth", [2, 8])
def test_gpt_scales_nothing(depth: int) -> None:
    theirs = hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(**SIZES, n_layer=depth))
    ours = transformer(depth, "norm=post", "init=gpt2")
    for weights in (dict(ours.named_parameters()), read(GPT, theirs, ours)):
        assert_drawn(weights, 1.0)


@pytest.mark.parametrize(("overrides", "theirs", "table"), NAMED)
def test_named_sizes_are_the_librarys_defaults(overrides: list[str], theirs: Callable[[], nn.Module], table: Table) -> None:
    cfg = config(*overrides)
    with torch.device("meta"):
        ours, other = Transformer(cfg.model, cfg.norm, Shape(VOCAB, CONTEXT)), theirs()
    assert {name: weight.shape for name, weight in ours.named_parameters()} == {
        name: weight.shape for name, weight in read(table, other, ours).items()
    }
    assert count_parameters(ours) == other.num_parameters()


def test_a_wrong_factor_is_seen() -> None:
    """The comparison can fail."""
    ours = transformer(8, "init=gpt2")
    with pytest.raises(AssertionError, match="wo"):
        assert_drawn(dict(ours.named_parameters()), 1 / sqrt(16))
