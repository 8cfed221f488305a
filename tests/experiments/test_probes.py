"""Every probed quantity against an independent definition, and the passivity of measuring."""

import gc
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compose import config
from torch import Tensor

from experiments import probes
from experiments.config import CONF
from experiments.data import make_source
from experiments.loop import Loop, first_nonfinite_layer, gradient_norms
from experiments.model import Transformer
from experiments.optim import make_optimizer
from experiments.probes.base import Panel, Schedule
from experiments.run import build

SMALL = (
    "model.depth=3",
    "model.width=16",
    "model.n_head=2",
    "train.context=12",
    "data=random",
    "data.vocab=29",
    "init=xavier",
)

COMPILER_WARNS = pytest.mark.filterwarnings("default")  # torch.compile itself uses what torch deprecates


def make(*overrides: str, dtype: torch.dtype = torch.float64, names: list[str] | None = None) -> tuple[Loop, Panel]:
    cfg = config(*SMALL, *overrides)
    source = make_source(cfg)
    model = build(cfg, source.vocab, torch.device("cpu")).to(dtype)
    panel = Panel([probes.find(name)(model) for name in (cfg.probe.names if names is None else names)])
    return Loop(cfg, model, make_optimizer(cfg.optim, model), source), panel


def measured(*overrides: str, step: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Loop, dict[str, np.ndarray], dict]:
    loop, panel = make(*overrides, dtype=dtype)
    panel.open()
    row = loop._step(step, panel)
    return loop, panel.read(), row


def stream_points(model: Transformer, tokens: Tensor) -> tuple[list[Tensor], Tensor]:
    """The stream at every point, computed block by block without watchers, and the loss of the whole."""
    x = model.wte(tokens[:, :-1]) + model.wpe.weight[: tokens.shape[1] - 1]
    points = [x]
    for block in model.blocks:
        points.append(block(points[-1]))
    for point in points:
        point.retain_grad()
    loss = F.cross_entropy(model.head(model.final_norm(points[-1])).flatten(0, 1), tokens[:, 1:].flatten())
    return points, loss


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_stream_and_its_gradient_match_retained_gradients(norm: str) -> None:
    _, values, row = measured(f"norm={norm}", "optim.lr=1e-30")
    loop, _ = make(f"norm={norm}")
    tokens = torch.from_numpy(loop.source.batch(0, 0, 8, 12))
    points, loss = stream_points(loop.model, tokens)
    loss.backward()
    assert row["loss"] == pytest.approx(loss.item(), rel=1e-9)
    grads = [float(x.grad.norm()) for x in points]
    variances = [float(x.detach().var(-1, correction=0).mean()) for x in points]
    np.testing.assert_allclose(values["grad_stream"], grads, rtol=1e-8)
    np.testing.assert_allclose(values["stream_var"], variances, rtol=1e-5)
    np.testing.assert_allclose(values["stream_rms"], [float(x.detach().square().mean().sqrt()) for x in points], rtol=1e-8)
    np.testing.assert_allclose(values["stream_max"], [float(x.detach().abs().max()) for x in points], rtol=1e-8)
    relative = [g * math.sqrt(v) / (grads[-1] * math.sqrt(variances[-1])) for g, v in zip(grads, variances, strict=True)]
    np.testing.assert_allclose(values["grad_rel"], relative, rtol=1e-5)
    cosines = []
    for x in points:
        similar = F.cosine_similarity(x[:, :, None], x[:, None], dim=-1)
        cosines.append(float((similar.detach().sum((1, 2)) - 12).mean() / (12 * 11)))
    np.testing.assert_allclose(values["token_cosine"], cosines, atol=1e-5)


def total_of(values: dict[str, np.ndarray]) -> float:
    """Root of the summed squares of all parameter gradient columns."""
    columns = [v for k, v in values.items() if k.startswith("grad_") and k not in {"grad_stream", "grad_rel"}]
    return math.sqrt(sum(float(np.square(v).sum()) for v in columns))


def test_parameter_gradients_match_autograd_and_add_up_to_the_total() -> None:
    _, values, row = measured("model.ffn=swiglu", "model.positions=learned")
    loop, _ = make("model.ffn=swiglu")
    tokens = torch.from_numpy(loop.source.batch(0, 0, 8, 12))
    loss = F.cross_entropy(loop.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    for layer, block in enumerate(loop.model.blocks):
        attention, ffn = block.branches
        for name in ("wq", "wk", "wv", "wo"):
            assert values[f"grad_{name}"][layer] == pytest.approx(float(getattr(attention, name).weight.grad.norm()), rel=1e-9)
        for name in ("w1", "w2", "wg"):
            assert values[f"grad_{name}"][layer] == pytest.approx(float(getattr(ffn, name).weight.grad.norm()), rel=1e-9)
        gains = [join.norm[1].weight.grad.norm() for join in block.joins]
        assert values["grad_norm_gain"][layer] == pytest.approx(math.hypot(*gains), rel=1e-9)
    embeddings = [loop.model.wte.weight.grad.norm(), loop.model.wpe.weight.grad.norm()]
    assert values["grad_embedding"] == pytest.approx(math.hypot(*embeddings), rel=1e-9)
    assert row["grad_norm"] == pytest.approx(total_of(values), rel=1e-9)


def test_tied_embedding_counts_once() -> None:
    _, values, row = measured("model.tied=true")
    assert "grad_head" not in values
    assert row["grad_norm"] == pytest.approx(total_of(values), rel=1e-9)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_branches_and_norm_inputs_match_their_definitions(norm: str) -> None:
    _, values, _ = measured(f"norm={norm}")
    loop, _ = make(f"norm={norm}")
    tokens = torch.from_numpy(loop.source.batch(0, 0, 8, 12))
    model = loop.model
    x = model.wte(tokens[:, :-1]) + model.wpe.weight[:12]
    for layer, block in enumerate(model.blocks):
        for name, join, branch in zip(("attn", "ffn"), block.joins, block.branches, strict=True):
            y = branch(join.norm(x)) if norm == "pre" else branch(x)
            norm_input = x if norm == "pre" else x + y
            assert values[f"{name}_rms"][layer] == pytest.approx(float(y.detach().square().mean().sqrt()), rel=1e-6)
            std = float(norm_input.detach().var(-1, correction=0).mean().sqrt())
            assert values[f"norm_std_{name}"][layer] == pytest.approx(std, rel=1e-5)
            x = x + y if norm == "pre" else join.norm(x + y)
    assert ("final_norm_std" in values) == (norm == "pre")
    if norm == "pre":
        assert values["final_norm_std"] == pytest.approx(float(x.detach().var(-1, correction=0).mean().sqrt()), rel=1e-5)


def test_updates_are_the_change_of_the_weights() -> None:
    before, _ = make()
    loop, values, _ = measured()
    for layer, (old, new) in enumerate(zip(before.model.blocks, loop.model.blocks, strict=True)):
        for k, name in [(0, "wq"), (0, "wo"), (1, "w1"), (1, "w2")]:
            w, v = getattr(old.branches[k], name).weight, getattr(new.branches[k], name).weight
            assert values[f"param_{name}"][layer] == pytest.approx(float(w.detach().norm()), rel=1e-9)
            assert values[f"update_{name}"][layer] == pytest.approx(float((v - w).detach().norm()), rel=1e-6)


def test_attention_entropy_starts_near_that_of_uniform_attention() -> None:
    _, values, _ = measured("init=gpt2")
    uniform = sum(math.log(n) for n in range(1, 13)) / 12
    np.testing.assert_allclose(values["attn_entropy"], uniform, rtol=1e-2)
    assert (values["attn_logit_max"] < 0.5).all()


def weights_after(
    steps: int, *overrides: str, names: list[str] | None = None, every: bool = True, compiled: bool = False
) -> list[Tensor]:
    loop, panel = make(*overrides, dtype=torch.float32, names=names)
    if compiled:
        for block in loop.model.blocks:
            block.compile()
    torch.manual_seed(0)
    for step in range(steps):
        if every:
            panel.open()
        loop._step(step, panel)
        panel.read()
    return [p.detach().clone() for p in loop.model.parameters()]


@pytest.mark.parametrize(
    "overrides",
    [
        ["norm=pre"],
        ["norm=post", "model.dropout=0.1", "train.clip=0.5"],
        ["train.accumulate=4", "model.checkpointing=true"],
        ["train.precision=bf16"],
    ],
)
def test_probes_on_or_off_leave_bit_identical_weights(overrides: list[str]) -> None:
    on, off = weights_after(10, *overrides), weights_after(10, *overrides, names=[], every=False)
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))
    assert not torch.equal(on[0], weights_after(9, *overrides)[0])


@pytest.mark.slow
@COMPILER_WARNS
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_probes_on_or_off_leave_bit_identical_weights_compiled(norm: str) -> None:
    torch._dynamo.reset()
    on, off = (weights_after(10, f"norm={norm}", compiled=True, every=every) for every in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))


def values_of(*overrides: str, compiled: bool = False) -> dict[str, np.ndarray]:
    loop, panel = make(*overrides, dtype=torch.float32)
    if compiled:
        for block in loop.model.blocks:
            block.compile()
    panel.open()
    row = loop._step(0, panel)
    return panel.read() | {"loss": np.array(row["loss"]), "grad_norm": np.array(row["grad_norm"])}


SAME = {"rtol": 2e-4, "atol": 1e-7}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("change", ["train.accumulate=4", "model.checkpointing=true"])
def test_accumulation_and_checkpointing_measure_the_same(norm: str, change: str) -> None:
    plain, changed = values_of(f"norm={norm}"), values_of(f"norm={norm}", change)
    assert plain.keys() == changed.keys()
    for name in plain:
        np.testing.assert_allclose(changed[name], plain[name], err_msg=name, **SAME)


@pytest.mark.slow
@COMPILER_WARNS
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_compiled_blocks_measure_the_same(norm: str) -> None:
    torch._dynamo.reset()
    plain, compiled = values_of(f"norm={norm}"), values_of(f"norm={norm}", compiled=True)
    assert plain.keys() == compiled.keys()
    for name in plain:
        np.testing.assert_allclose(compiled[name], plain[name], err_msg=name, **SAME)


@pytest.mark.slow
@COMPILER_WARNS
def test_96_blocks_compile_one_graph_and_hit_no_recompile_limit() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    loop, panel = make("model.depth=96", dtype=torch.float32)
    for block in loop.model.blocks:
        block.compile()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for step in range(3):
            if step != 1:
                panel.open()
            loop._step(step, panel)
            panel.read()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4
    assert not torch._dynamo.utils.counters["graph_break"]


def test_collapsed_gradients_of_96_blocks_are_not_rounded_to_zero() -> None:
    loop, panel = make("model.depth=96", "norm=post", "init=gpt2", dtype=torch.float32)
    with torch.no_grad():
        loop.model.head.weight.mul_(1e-26)  # shrinks every gradient below it; their squares are below float32's range
    panel.open()
    loop._step(0, panel)
    grad = panel.read()["grad_stream"]
    assert ((grad > 1e-30) & (grad < 1e-24)).all()


def test_norms_do_not_depend_on_the_loss_scale() -> None:
    values = []
    for scale in (2.0**4, 2.0**10):
        loop, panel = make("train.clip=0.1", dtype=torch.float32)
        loop.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        panel.open()
        row = loop._step(0, panel)
        values.append(panel.read() | {key: np.array(row[key]) for key in ("grad_norm", "grad_norm_clipped")})
        assert row["grad_norm_clipped"] <= 0.1 * (1 + 1e-6) < row["grad_norm"]
    for name in values[0]:
        np.testing.assert_allclose(values[0][name], values[1][name], rtol=1e-5, atol=1e-9, err_msg=name)


def test_gradients_are_probed_before_clipping_and_clipped_to_the_threshold() -> None:
    loop, panel = make("train.clip=0.01", names=["gradient"])
    panel.open()
    seen = []
    loop.optimizer.register_step_pre_hook(
        lambda *_: seen.append(float(torch.linalg.vector_norm(gradient_norms(loop.parameters))))
    )
    row = loop._step(0, panel)
    values = panel.read()
    assert math.hypot(*(float(np.linalg.norm(v)) for k, v in values.items())) == pytest.approx(row["grad_norm"], rel=1e-9)
    assert seen == pytest.approx([0.01], rel=1e-6)


def test_fifty_probed_steps_leave_memory_flat() -> None:
    loop, panel = make(dtype=torch.float32)

    def tensors_after(steps: range) -> int:
        for step in steps:
            panel.open()
            loop._step(step, panel)
            panel.read()
        gc.collect()
        return sum(issubclass(type(o), Tensor) for o in gc.get_objects())

    assert tensors_after(range(3)) == tensors_after(range(3, 53))


def test_nonfinite_entries_are_counted_where_they_are() -> None:
    loop, panel = make(dtype=torch.float32)
    with torch.no_grad():
        loop.model.blocks[1].branches[1].w2.bias[3] = torch.nan
    panel.open()
    loop._step(0, panel)
    values = panel.read()
    assert values["nonfinite_stream"][:2].tolist() == [0, 0]
    assert values["nonfinite_stream"][2] == 8 * 12  # feature 3 of every token
    assert math.isnan(values["stream_rms"][2])
    assert first_nonfinite_layer(values) == 2
    assert first_nonfinite_layer({"nonfinite_stream": np.zeros(4), "nonfinite_grad": np.array([1, 5, 0])}) == 1


def test_schedule_always_has_the_first_and_the_last_step() -> None:
    assert Schedule(10, None, None).steps == frozenset(range(10))
    assert Schedule(10, 4, None).steps == {0, 4, 8, 9}
    for steps in (1, 2, 7, 400):
        log = Schedule(steps, None, 12).steps
        assert {0, steps - 1} <= log <= set(range(steps))
    gaps = np.diff(sorted(Schedule(1000, None, 10).steps))
    assert gaps[0] == 1
    assert gaps.max() > 100


def test_schema_lists_what_the_probes_declare() -> None:
    tables = json.loads((CONF.parent / "results" / "schema.json").read_text())["tables"]
    for column in probes.columns():
        listed = tables[column.table]["columns"][column.name]
        assert listed == {"dtype": column.dtype, "unit": column.unit, "meaning": column.meaning}
    declared = {column.name for column in probes.columns() if column.table == "layers"}
    assert set(tables["layers"]["columns"]) == declared | {"step", "layer"}


def test_unknown_probe_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"probe.names=entropy is not known; known are: attention, branch"):
        probes.find("entropy")


def test_default_probes_are_all_probes() -> None:
    assert set(config().probe.names) == set(probes.KNOWN)
