"""Language models of other libraries, weights copied: the same logits, stream and gradients."""

from dataclasses import replace

import pytest
import torch
from pairs import Table, difference, perturb, read, relative, tokens, worst
from pairs_transformers import GEMMA, GPT2, GPTS, LLAMAS, PLAIN
from pairs_x_transformers import DECODERS, keel

PAIRS = GPTS | LLAMAS | {f"x_transformers_{name}": make for name, make in DECODERS.items()}
pytestmark = pytest.mark.slow

WRONG = [  # ours, changed by options
    ("gpt2", ["norm=post", "model.final_norm=true"]),
    ("gpt2", ["model.final_norm=false"]),
    ("gpt2", ["model.ffn=gelu"]),
    ("gpt2", ["norm.eps=1e-5"]),
    ("gpt", ["norm=pre", "model.final_norm=false"]),
    ("llama", ["model.rope_base=10000"]),
    ("llama", ["norm.kind=layernorm"]),
    ("qwen3", ["norm.qk=none"]),
    ("qwen3", ["norm.qk=layernorm"]),
    ("olmo2", ["norm=pre"]),
    ("olmo2", ["norm=post", "model.final_norm=true"]),
    ("gemma3", ["norm=keel", "model.final_norm=true"]),
    ("bitnet", ["norm=post", "model.final_norm=true"]),
    ("x_transformers_pre", ["norm=post", "model.final_norm=true"]),
    ("x_transformers_post", ["norm=pre", "model.final_norm=false"]),
    ("x_transformers_sandwich", ["norm=keel", "model.final_norm=true"]),
    ("x_transformers_peri", ["norm=sandwich"]),
    ("x_transformers_deepnorm", ["norm=post"]),
    ("x_transformers_layerscale", ["norm=pre"]),
]
MISREAD = [  # theirs, read from other places or without what the table does to it
    ("gpt2", {"branches.0.wq": GPT2["branches.0.wk"], "branches.0.wk": GPT2["branches.0.wq"]}),
    ("llama", {"branches.1.wg": PLAIN["branches.1.w1"], "branches.1.w1": PLAIN["branches.1.wg"]}),
    ("glm4", {"branches.0.wq": PLAIN["branches.0.wq"], "branches.0.wk": PLAIN["branches.0.wk"]}),  # RoPE on neighbours
    ("gemma3", GEMMA),  # gains without the 1
]


@pytest.mark.parametrize("name", PAIRS)
def test_logits_stream_and_gradients_of_their_weights(name: str) -> None:
    pair = PAIRS[name]()
    largest, where = worst(difference(pair))
    assert largest < pair.tolerance, where


@pytest.mark.parametrize("name", LLAMAS)
def test_without_casts_to_float32_the_rest_is_rounding_of_float64(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of theirs, and of ours in the tables of RoPE. Looser tolerances above thus hide nothing."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    largest, where = worst(difference(PAIRS[name]()))
    assert largest < 1e-10, where


@pytest.mark.parametrize("name", PAIRS)
def test_logits_of_our_weights_written_into_theirs(name: str) -> None:
    """A weight of theirs that is ours times or plus a number is read from them instead."""
    pair = PAIRS[name]()
    ours = pair.ours()
    perturb(ours)
    storages = {weight.untyped_storage().data_ptr() for weight in pair.theirs.parameters()}
    with torch.no_grad():
        for weight, place in read(pair.table, pair.theirs, ours).items():
            mine, shared = ours.get_parameter(weight), place.untyped_storage().data_ptr() in storages
            (place if shared else mine).copy_(mine if shared else place)
        assert relative(ours(tokens()), pair.run(pair.theirs, tokens())[0]) < pair.tolerance


@pytest.mark.parametrize(("name", "overrides"), WRONG)
def test_another_model_of_ours_differs(name: str, overrides: list[str]) -> None:
    """The comparison can fail."""
    pair = PAIRS[name]()
    assert difference(pair, *overrides)["logits"] > 100 * pair.tolerance


def test_x_transformers_keel_is_not_the_papers_in_the_first_branch() -> None:
    """Its pre_and_post_norm normalises there too; the parity above takes that away."""
    assert difference(keel(first_branch_alike=True))["stream at point 1"] > 1e-3


@pytest.mark.parametrize(("name", "table"), MISREAD)
def test_misread_weights_differ(name: str, table: Table) -> None:
    """The comparison can fail."""
    pair = PAIRS[name]()
    assert difference(replace(pair, table=pair.table | table))["logits"] > 100 * pair.tolerance
