"""Jacobian norms of the branches against explicitly computed Jacobians."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from probed import make
from torch import Tensor
from torch.autograd.functional import jacobian
from two_streams import give_two_streams

from experiments.model import Transformer
from experiments.placements.pre import PreLN
from experiments.probes import jacobian as probe

TINY = ("model.depth=2", "model.width=8", "train.context=3", "train.batch=1")
SIZE = 3 * 8  # entries of the stream
SETTINGS = [
    ["norm=pre"],
    ["norm=post"],
    ["norm=post", "model.branches=[attn,cross,ffn]"],
    ["norm=pre", "norm.kind=rmsnorm", "model.ffn=swiglu", "model.positions=rope"],
    ["norm=pre", "model.branches=[ffn]", "model.ffn=relu"],
]

Site = tuple[int, str]  # layer, kind of branch
Map = Callable[[Tensor], Tensor]


def tiny(*overrides: str) -> tuple[Transformer, Tensor, probe.JacobianProbe]:
    """A model, point 0 of its stream on the held-out batch (by a watcher), and its probe."""
    loop, panel = make(*TINY, *overrides, names=["jacobian"])
    seen: list[Tensor] = []
    loop.model.watchers = (lambda _, stream: seen.append(stream),)
    with torch.no_grad():
        loop.model(panel.probes[0].held_out_BT[:, :-1])
    loop.model.watchers = ()
    return loop.model, seen[0], panel.probes[0]


def chain(*maps: Map) -> Map:
    def chained(x: Tensor) -> Tensor:
        for f in maps:
            x = f(x)
        return x

    return chained


def residual(f: Map) -> Map:
    return lambda x: x + f(x)


def branch_maps(model: Transformer, x: Tensor) -> Iterator[tuple[Site, Map, Tensor, Map]]:
    """(site, own map, its input, map from point 0) of every branch, the placements written out."""
    past = chain()
    for layer, block in enumerate(model.blocks):
        for join, branch in zip(block.joins, block.branches, strict=True):
            pre = isinstance(join, PreLN)
            own = chain(join.norm, branch) if pre else branch
            yield (layer, branch.kind), own, past(x).detach(), chain(past, own)
            past = chain(past, residual(own)) if pre else chain(past, residual(own), join.norm)


def explicit(model: Transformer, x: Tensor) -> dict[Site, tuple[Tensor, Tensor]]:
    """The two Jacobian matrices [n_out, n_in] of every branch that is measured."""
    return {
        site: (jacobian(own, z).reshape(SIZE, SIZE), jacobian(first, x).reshape(SIZE, SIZE))
        for site, own, z, first in branch_maps(model, x)
        if site[1] != "cross"
    }


def gaussian(seed: int) -> probe.Draw:
    rng = torch.Generator().manual_seed(seed)
    return lambda like: torch.randn(like.shape, generator=rng, dtype=like.dtype)


def basis(k: int) -> probe.Draw:
    return lambda like: torch.eye(SIZE, dtype=like.dtype)[k].view_as(like)


@pytest.mark.parametrize("overrides", SETTINGS)
def test_products_are_those_of_the_explicit_jacobians(overrides: list[str]) -> None:
    model, x, _ = tiny(*overrides)
    matrices = explicit(model, x)
    pulled = {(layer, b.kind): (u, parts[0]) for layer, b, u, parts in probe.own_products(model, x, gaussian(1))}
    v = gaussian(2)(x)
    with probe.forward_mode():
        pushed = {(layer, b.kind): tangent for layer, b, tangent in probe.first_products(model, x, v)}
    assert list(pulled) == list(pushed) == list(matrices)
    for site, (own, first) in matrices.items():
        u, back = pulled[site]
        torch.testing.assert_close(back.flatten(), own.T @ u.flatten(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(pushed[site].flatten(), first @ v.flatten(), rtol=1e-10, atol=1e-12)


def test_reverse_and_forward_mode_agree() -> None:
    """<u, J v> = <J^T u, v> where both see one Jacobian: at the first branch the own input is point 0."""
    for norm in ("pre", "post"):
        model, x, _ = tiny(f"norm={norm}")
        _, _, u, (back,) = next(probe.own_products(model, x, gaussian(1)))
        v = gaussian(2)(x)
        with probe.forward_mode():
            _, _, tangent = next(probe.first_products(model, x, v))
        assert float((u * tangent).sum()) == pytest.approx(float((back * v).sum()), rel=1e-11)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_squares_over_a_basis_add_up_to_the_frobenius_norm(norm: str) -> None:
    model, x, _ = tiny(f"norm={norm}")
    total = dict.fromkeys(explicit(model, x), 0.0)
    for k in range(SIZE):
        for layer, branch, _, parts in probe.own_products(model, x, basis(k)):
            total[layer, branch.kind] += float(probe.joint_norm(parts)) ** 2
    for site, (own, _) in explicit(model, x).items():
        assert total[site] == pytest.approx(float(own.norm()) ** 2, rel=1e-10)


@pytest.mark.parametrize("overrides", [["norm=pre"], ["norm=post", "model.branches=[attn,cross,ffn]"]])
def test_mean_square_of_the_columns_is_the_frobenius_norm_over_the_size(overrides: list[str]) -> None:
    model, x, measure = tiny(*overrides)
    rows = []
    for _ in range(40):
        measure.open()
        rows.append({name: value.numpy() ** 2 for name, value in measure.read().items()})
    assert set(rows[0]) == {column.name for column in measure.columns}
    for (layer, kind), (own, first) in explicit(model, x).items():
        for name, matrix in [(f"jac_{kind}_own", own), (f"jac_{kind}_first", first)]:
            value_N = np.array([row[name][layer] for row in rows])
            error = value_N.std(ddof=1) / len(rows) ** 0.5
            assert abs(value_N.mean() - float(matrix.norm()) ** 2 / SIZE) < 4 * error
            assert error < 0.2 * value_N.mean()


def test_norm_over_two_streams_is_joint() -> None:
    """The branch reads p + d / 10, so J^T u is (J_f^T u, J_f^T u / 10)."""
    model, x, measure = tiny("norm=post")
    give_two_streams(model)
    measure.open()
    values = measure.read()
    stream = model.blocks[0].joins[0].enter(x)
    read = (stream[0] + 0.1 * stream[1]).detach().requires_grad_()
    u = torch.empty(x.shape).normal_(generator=torch.Generator().manual_seed(probe.SEED)).to(x)
    (back,) = torch.autograd.grad(model.blocks[0].branches[0](read), read, u)
    assert float(values["jac_attn_own"][0]) == pytest.approx(float(1.01**0.5 * back.norm() / u.norm()), rel=1e-10)
    assert all(value.isfinite().all() for value in values.values())


def test_attention_is_absent_from_feed_forward_only_blocks() -> None:
    _, _, measure = tiny("model.branches=[ffn]")
    measure.open()
    assert set(measure.read()) == {"jac_ffn_own", "jac_ffn_first"}


def test_rerun_gives_the_same_bytes_and_another_step_other_vectors() -> None:
    first, second = (tiny()[2] for _ in range(2))
    values = []
    for measure in (first, second, second):
        measure.open()
        values.append(measure.read())
    for name, value in values[0].items():
        assert torch.equal(value, values[1][name])
        assert not torch.equal(value, values[2][name])
