"""Every probed quantity against an independent definition."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compose import config
from omegaconf import OmegaConf
from probed import make, measured
from torch import Tensor

from experiments import probes
from experiments.config import CONF
from experiments.loop import first_nonfinite_layer
from experiments.model import Transformer
from experiments.probes.base import Schedule


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


def test_collapsed_gradients_of_96_blocks_are_not_rounded_to_zero() -> None:
    loop, panel = make("model.depth=96", "norm=post", "init=gpt2", dtype=torch.float32)
    with torch.no_grad():
        loop.model.head.weight.mul_(1e-26)  # shrinks every gradient below it; their squares are below float32's range
    panel.open()
    loop._step(0, panel)
    grad = panel.read()["grad_stream"]
    assert ((grad > 1e-30) & (grad < 1e-24)).all()


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


def schedule(total: int, /, **probe: object) -> Schedule:
    return Schedule(total, OmegaConf.create({"every": None, "per_decade": None, "steps": None} | probe))


def test_schedule_always_has_the_first_and_the_last_step() -> None:
    assert schedule(10).steps == frozenset(range(10))
    assert schedule(10, every=4).steps == {0, 4, 8, 9}
    for steps in (1, 2, 7, 400):
        log = schedule(steps, per_decade=12).steps
        assert {0, steps - 1} <= log <= set(range(steps))
    assert schedule(10, steps=[3, 5, 70]).steps == {0, 3, 5, 9}
    assert schedule(0).steps == {0}
    gaps = np.diff(sorted(schedule(1000, per_decade=10).steps))
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
    with pytest.raises(
        ValueError, match=r"probe.names=entropy is not known; known are: amplification, angle, attention, branch"
    ):
        probes.find("entropy")


def test_default_probes_are_all_that_only_listen() -> None:
    evaluating = {"amplification", "angle", "drift", "jacobian", "layer_drop"}
    assert set(config().probe.names) == set(probes.KNOWN) - evaluating
