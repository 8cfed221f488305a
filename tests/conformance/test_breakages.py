"""Deliberate faults, of the kinds that published code has, and the law that catches each."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import built
import pytest
import test_variant_equation
import test_variant_parts
import test_variant_start
import torch
from law import LawError
from torch import Tensor, nn
from tree import check, copied

from experiments import branches, norms, placements
from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[Placement]], None]]:
    """Makes every variant's class the one that is given."""
    built.forget()
    yield lambda kind: monkeypatch.setattr(placements, "find", lambda _name: kind)
    built.forget()


class WithoutFinalNorm(Placement):
    """Pre-LN whose readout reads the stream as it is."""

    final_norm: ClassVar[bool] = False

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + branch(self.norm(stream))


class ResidualAfterNorm(Placement):
    """n + f(n), n = norm(x): the norm on the identity path, as Pre-LN never has it."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        normed = self.norm(stream)
        return normed + branch(normed)


class ConstantAlpha(Placement):
    """DeepNorm with the alpha of 8 blocks at every depth."""

    final_norm: ClassVar[bool] = False
    alpha = 16**0.25

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm, self.depth = make_norm(site.width), site.depth

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return self.norm(self.alpha * stream + branch(stream))

    @property
    def branch_gain(self) -> float:
        return (8 * self.depth) ** -0.25


class Unscaled(ConstantAlpha):
    """DeepNorm that leaves the initialisation as it is."""

    branch_gain = 1.0


def test_a_dropped_final_norm_is_caught(give: Callable[[type[Placement]], None]) -> None:
    give(WithoutFinalNorm)
    with pytest.raises(LawError, match=r"no final norm; set final_norm = True in experiments/placements/pre.py"):
        test_variant_parts.test_final_norm("pre")
    with pytest.raises(LawError, match="final_norm holds nothing"):
        test_variant_equation.test_gradients("pre")


def test_a_residual_taken_after_the_norm_is_caught(give: Callable[[type[Placement]], None]) -> None:
    give(ResidualAfterNorm)
    with pytest.raises(LawError, match=r"layer 0 of 3, attn: ResidualAfterNorm does not compute x: x \+ f\(norm\(x\)\)"):
        test_variant_equation.test_joins("pre")


def test_a_constant_alpha_is_caught(give: Callable[[type[Placement]], None]) -> None:
    give(ConstantAlpha)
    with pytest.raises(LawError, match=r"layer 0 of 6, attn: ConstantAlpha does not compute x"):
        test_variant_equation.test_constants("deepnorm")


@pytest.mark.parametrize("name", ["deepnorm", "subln"])
def test_an_unscaled_initialisation_is_caught(give: Callable[[type[Placement]], None], name: str) -> None:
    give(Unscaled)
    with pytest.raises(LawError, match="branch_gain is 1, gain: "):
        test_variant_start.test_initial_matrices(name)


def test_an_initialisation_that_drops_the_gain_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.init.GAINED", frozenset())
    with pytest.raises(LawError, match="init=xavier, layer 0 of 24: wv has not std"):
        test_variant_start.test_initial_matrices("deepnorm")


def other_axis(norm: norms.NormConfig, *shape: int) -> tuple[nn.Module, nn.Module]:
    axis = {"head": "projection", "projection": "head"}[norm.qk_axis]
    return norms.qk_norms(replace(norm, qk_axis=axis), *shape)


class HeadwiseStatistics(nn.Module):
    """A gain for the whole projection, but the root mean square of each head."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, x_BTHK: Tensor) -> Tensor:
        return self.weight * torch.nn.functional.rms_norm(x_BTHK, x_BTHK.shape[-1:], eps=1e-5)


def headwise(_norm: norms.NormConfig, n_head: int, head_width: int, _context: int) -> tuple[nn.Module, nn.Module]:
    return HeadwiseStatistics((n_head, head_width)), HeadwiseStatistics((n_head, head_width))


@pytest.mark.usefixtures("give")
@pytest.mark.parametrize(
    ("made", "axes", "message"),
    [
        (other_axis, {"qk": "rmsnorm", "qk_axis": "head"}, "norm_q over each head has a gain of shape"),
        (other_axis, {"qk": "l2", "qk_axis": "projection"}, "largest difference"),
        (headwise, {"qk": "rmsnorm", "qk_axis": "projection"}, "largest difference"),
    ],
)
def test_a_qk_norm_over_the_wrong_axis_is_caught(
    monkeypatch: pytest.MonkeyPatch, made: Callable[..., object], axes: dict[str, str], message: str
) -> None:
    monkeypatch.setattr(branches, "qk_norms", made)
    monkeypatch.setattr(test_variant_equation, "AXES", (axes,))
    with pytest.raises(LawError, match=message):
        test_variant_equation.test_axes("pre")


def test_one_norm_for_all_layers_is_caught(give: Callable[[type[Placement]], None]) -> None:
    shared = nn.LayerNorm(built.WIDTH)

    class OneNorm(ResidualAfterNorm):
        def __init__(self, make_norm: MakeNorm, site: Site) -> None:
            super().__init__(make_norm, site)
            self.norm = shared

    give(OneNorm)
    with pytest.raises(LawError, match=r"blocks.0.joins.1.norm is the same object as blocks.0.joins.0.norm"):
        test_variant_parts.test_layers_are_their_own("pre")


def test_the_command_names_the_broken_law_and_fails(tmp_path: Path) -> None:
    copied(tmp_path)
    path = tmp_path / "experiments" / "placements" / "pre.py"
    right, wrong = "stream + branch(self.norm(stream))", "self.norm(stream) + branch(self.norm(stream))"
    path.write_text(path.read_text().replace(right, wrong))
    done = check(tmp_path, "pre")
    assert done.returncode == 1
    assert "BROKEN   Every join computes the formula of its file" in done.stdout
    assert "layer 0 of 3, attn: PreLN does not compute x: x + f(norm(x)): largest difference" in done.stdout
    assert "laws are broken" in done.stdout.splitlines()[-1]
    assert not done.stderr
