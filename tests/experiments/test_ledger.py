"""The shape ledger against torch's own counters, the real block's weights, and published sizes."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from compose import config
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from experiments.config import CONF, ConfigError
from experiments.ledger import __main__ as command
from experiments.ledger import symbols, table
from experiments.ledger.operations import hollow, strip
from experiments.ledger.trace import trace
from experiments.model import Shape, Transformer, count_parameters

VARIANTS = sorted(path.stem for path in (CONF / "norm").glob("*.yaml"))
SMALL = ("model.depth=2", "model.width=24", "model.n_head=3", "train.context=16")
RICH = ("model.positions=rope", "norm.qk=l2", "model.ffn=swiglu", "model.branches=[attn,cross,ffn]", "model.bias=false")

# Step, output shapes, parameters, FLOPs in B T and B T² of GPT-2's block (Radford et al. 2019): D = 768, 12 heads, F = 4 D
D, F = 768, 3072
GPT2 = [
    ("Block input x", "(B, T, 768)", 0, 0, 0),
    ("LN1(x)", "(B, T, 768)", 2 * D, 0, 0),
    ("Q, K, V projections", "3 x (B, T, 768)", 3 * D * (D + 1), 6 * D * D, 0),
    ("Reshape & transpose", "3 x (B, 12, T, 64)", 0, 0, 0),
    ("Scaled dot products", "(B, 12, T, T)", 0, 0, 2 * D),
    ("Causal mask + softmax", "(B, 12, T, T)", 0, 0, 0),
    ("Value aggregation", "(B, 12, T, 64)", 0, 0, 2 * D),
    ("Transpose & concat", "(B, T, 768)", 0, 0, 0),
    ("Output projection W_O", "(B, T, 768)", D * (D + 1), 2 * D * D, 0),
    ("First residual add", "(B, T, 768)", 0, 0, 0),
    ("LN2(x1)", "(B, T, 768)", 2 * D, 0, 0),
    ("FFN expansion W_1", "(B, T, 3072)", F * (D + 1), 2 * D * F, 0),
    ("Activation GELU (tanh)", "(B, T, 3072)", 0, 0, 0),
    ("FFN projection W_2", "(B, T, 768)", D * (F + 1), 2 * D * F, 0),
    ("Second residual add", "(B, T, 768)", 0, 0, 0),
]
SIZES = {  # parameters of the published weights, the readout tied where it is; Llama with its own norm
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
    "llama_7b": 6_738_415_616,
}


@cache
def traced(*overrides: str, layer: int = 0) -> dict[str, Any]:
    return trace(config(*SMALL, *overrides), layer)


def operations(*overrides: str, layer: int = 0) -> list[str]:
    return [step["operation"] for step in traced(*overrides, layer=layer)["steps"]]


def hollow_model(*overrides: str) -> Transformer:
    cfg = config(*overrides)
    with hollow():
        return Transformer(cfg.model, cfg.norm, Shape(256, cfg.train.context))


def test_the_ledger_of_gpt2_has_its_fifteen_steps() -> None:
    found = trace(config("norm=pre", "model=gpt2", "model.depth=1"))
    rows = [
        (
            step["operation"],
            table.shapes(step["outputs"]),
            step["parameters"],
            *(step["flops"].get(p, 0) for p in ("B T", "B T^2")),
        )
        for step in found["steps"]
    ]
    assert rows == GPT2
    assert [step["step"] for step in found["steps"]] == list(range(15))
    assert found["parameters"]["block"] == 12 * D * D + 13 * D == sum(row[2] for row in GPT2)
    assert found["flops"] == {"B T": 24 * D * D, "B T^2": 4 * D}


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "model").glob("*.yaml")))
def test_a_named_size_has_the_parameters_of_the_published_weights(name: str) -> None:
    kind = ("norm.kind=rmsnorm",) if name.startswith("llama") else ()
    model = hollow_model("norm=pre", f"model={name}", *kind)
    strip(model)
    assert count_parameters(model) == SIZES[name]
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize("overrides", [*((f"norm={name}",) for name in VARIANTS), ("norm=residual", *RICH)], ids=str)
def test_rows_add_up_to_the_real_block_and_to_torchs_counter(overrides: tuple[str, ...]) -> None:
    B, T = 2, 11  # no pair that the trace was made at
    assert (B, T) not in symbols.PAIRS
    cfg = config(*SMALL, *overrides)
    model = Transformer(cfg.model, cfg.norm, Shape(256, cfg.train.context))
    found, block = traced(*overrides), model.blocks[0]
    assert found["parameters"]["model"] == count_parameters(model)
    assert found["parameters"]["block"] == count_parameters(block)
    rows = sum(step["parameters"] for step in found["steps"])
    assert rows + found["parameters"]["elsewhere"] == count_parameters(block)
    stream = model.blocks[0].joins[0].enter(torch.zeros(B, T, 24))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        block(stream)
    powers = {"B": B, "B T": B * T, "B T^2": B * T * T}
    assert sum(powers[name] * factor for name, factor in found["flops"].items()) == counter.get_total_flops()
    by_step = [sum(step["flops"].get(name, 0) for step in found["steps"]) for name in powers]
    assert by_step == [found["flops"].get(name, 0) for name in powers]


def test_streams_leave_a_block_in_the_shape_they_enter() -> None:
    for name in VARIANTS:
        found = traced(f"norm={name}")
        parts = {part["id"]: part for step in found["steps"] for part in step["parts"]}
        assert [parts[i]["shape"] for i in found["outputs"][-1]] == found["steps"][0]["outputs"], name
        assert len(found["streams"]) == len(found["steps"][0]["outputs"])


def test_edges_run_forward_and_carry_the_shape_of_their_source() -> None:
    found = traced("norm=b2t", *RICH)
    parts = {part["id"]: part for step in found["steps"] for part in step["parts"]}
    order = {part["id"]: step["step"] for step in found["steps"] for part in step["parts"]}
    assert all(order[edge["from"]] < order[edge["to"]] for edge in found["edges"])
    assert all(edge["shape"] == parts[edge["from"]]["shape"] for edge in found["edges"])


def outside(*overrides: str, layer: int = 0) -> list[str]:
    """The steps of the placement itself."""
    found = traced(*overrides, layer=layer)
    return [step["operation"] for step in found["steps"][1:] if not step["parts"][0]["inside"]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("post", ["First residual add", "LN1(x1)", "Second residual add", "LN2(x2)"]),
        ("deepnorm", ["Multiply by alpha = 1.414", "First residual add", "LN1(x1)",
                      "Multiply by alpha = 1.414", "Second residual add", "LN2(x2)"]),
        ("sandwich", ["LN1(x)", "LN2(attn)", "First residual add", "LN3(x1)", "LN4(ffn)", "Second residual add"]),
        ("residual", ["First residual add to x", "LN1(x1)", "First residual add to d",
                      "Second residual add to x", "LN2(x2)", "Second residual add to d"]),
        ("none", ["First residual add", "Second residual add"]),
        ("rezero", ["Multiply by a = 0", "First residual add", "Multiply by a = 0", "Second residual add"]),
    ],
)  # fmt: skip
def test_the_steps_of_a_placement_come_in_the_order_of_its_equation(name: str, expected: list[str]) -> None:
    assert outside(f"norm={name}") == expected


def test_a_constant_of_the_site_is_that_of_the_block_asked_for() -> None:
    assert outside("norm=lns", layer=1)[1] == "Divide by sqrt(block) = 1.414"


def test_norms_inside_a_branch_and_rotary_positions_are_steps_of_their_own() -> None:
    rich = operations("norm=pre", "norm.qk=rmsnorm", "model.positions=rope", "model.ffn=swiglu")
    assert rich[2:8] == [
        *("Q, K, V projections", "Reshape of Q, K", "Reshape & transpose of V"),
        *("RMSNorm of Q, K", "Transpose of Q, K", "Rotary positions of Q, K"),
    ]
    assert rich[-5:-1] == ["FFN expansion W_G, W_1", "Activation SiLU", "Gate", "FFN projection W_2"]
    assert {"LN before W_O", "LN before W_2"} <= {*operations("norm=subln")}
    assert "RMSNorm of Q, K, V" in operations("norm=hybrid")


def test_a_norm_of_no_kind_and_gauges_and_dropout_are_no_steps() -> None:
    plain = operations("norm=none")
    assert operations("norm=pre", "norm.kind=none", "model.dropout=0.1") == plain


def test_blocks_that_differ_are_told_apart() -> None:
    cfg = config(*SMALL, "norm=mix", "model.depth=8")
    assert [trace(cfg, layer)["alike"] for layer in (0, 7)] == [[0, 1], [2, 3, 4, 5, 6, 7]]
    assert traced("norm=lns")["alike"] == [0]  # its constants differ
    assert traced("norm=deepnorm")["alike"] == [0, 1]


@pytest.mark.parametrize(
    ("values", "expected"), [((768, 768), 768), ((2, 3), "B"), ((5, 7), "T"), ((10, 21), "B T"), ((24, 36), "12 B")]
)
def test_a_size_is_read_from_its_values_at_two_pairs(values: tuple[int, int], expected: int | str) -> None:
    assert symbols.size(values).plain == expected


def test_a_size_that_is_no_monomial_is_refused() -> None:
    with pytest.raises(ValueError, match="powers of B and T"):
        symbols.size((6, 8))


def test_a_block_or_a_context_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"layer=2 is no block of model.depth=2; choose 0 to 1"):
        traced("norm=pre", layer=2)
    with pytest.raises(ConfigError, match=r"train.context=4 is too short"):
        traced("norm=pre", "train.context=4")


def test_the_command_prints_the_table_and_keeps_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["norm=post", *SMALL, f"results={tmp_path}"]
    assert command.main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Post-LN, L2-d24-n_head_3: block 0 of 0-1, width 24, 3 heads of 8; B sequences of T tokens"
    assert lines[3].split() == ["1", "Q,", "K,", "V", "projections", "(B,", "T,", "24)", "3", "x", "(B,", "T,", "24)", "1,800",
                                "3,456", "B", "T", "with", "biases"]  # fmt: skip
    found = json.loads((tmp_path / "ledger" / "post-L2-d24-n_head_3.json").read_text())
    assert found == json.loads(json.dumps(traced("norm=post") | {"model": "L2-d24-n_head_3"}))
    assert command.main([*given, "--layer", "1", "--path"]) == 0
    assert Path(capsys.readouterr().out.strip()).name == "post-L2-d24-n_head_3-layer1.json"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["norm=pot"], "norm=pot is not known; did you mean post?"),
        (["model.dept=2"], "did you mean model.depth?"),
        (["model.depth=a"], "Value 'a' of type 'str' could not be converted to Integer"),
        (["model.n_head=5"], "model.width=64 is not a multiple of model.n_head=5"),
    ],
)
def test_a_config_that_is_none_ends_in_one_line(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(given) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
