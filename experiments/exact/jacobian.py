"""C7: a norm's Jacobian (Xiong et al. 2020, arXiv:2002.04745, Lemma 3, bounds LayerNorm's by O(sqrt(d) / ||x||))."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from experiments.exact.check import ROUNDING, Check, norm, normal
from experiments.norms import norm_maker

NO_EPS = 1e-30  # far below float64's resolution of a variance near 1
ZERO = 1e-9  # a singular value below this part of the largest is none
WIDTHS = (16, 64)


@dataclass(frozen=True)
class Law:
    """All singular values are sqrt(d) / ||part(x)||, but for ``lacking`` zeros."""

    lacking: int
    part: Callable[[Tensor], Tensor]
    words: str

    def largest(self, x_D: Tensor) -> float:
        return math.sqrt(x_D.numel()) / float(torch.linalg.vector_norm(self.part(x_D)))


LAWS = {
    "layernorm": Law(2, lambda x_D: x_D - x_D.mean(), "x - mean x"),
    "rmsnorm": Law(1, lambda x_D: x_D, "x"),
}


def checks() -> Iterator[Check]:
    for kind in LAWS:
        for width in WIDTHS:
            yield from of_norm(norm_maker(norm(kind, NO_EPS), True)(width).double(), kind, width)


def of_norm(norm: nn.Module, kind: str, width: int) -> Iterator[Check]:
    """The law of a kind of norm, on a norm with gain 1 and an eps far below rounding."""
    law, x_D = LAWS[kind], 2 + normal(width)
    value_D, grown_D, moved_D = (singular_values(norm, x) for x in (x_D, 100 * x_D, x_D + 10))
    setting = f"{kind}, d = {width}, gain 1, eps {NO_EPS:g}, x Gaussian with mean 2 and variance 1"

    def row(name: str, quantity: str, expected: float, measured: Tensor, tolerance: float = ROUNDING) -> Check:
        return Check("C7", f"{kind}_{name}_d{width}", quantity, setting, expected, float(measured), tolerance)

    largest = "largest singular value of the Jacobian"
    yield row("spectral_norm", f"{largest}; sqrt(d) / ||{law.words}||", law.largest(x_D), value_D[0])
    yield row(
        "smallest_nonzero",
        f"nonzero singular value number d - {law.lacking}; the same",
        law.largest(x_D),
        value_D[-1 - law.lacking],
    )
    rank = (value_D > ZERO * value_D[0]).sum()
    yield row(
        "rank", f"singular values above {ZERO:g} of the largest; d - {law.lacking}", float(width - law.lacking), rank, 0.0
    )
    yield row(
        "scale_exponent", f"exponent of the {largest} in ||x||, x times 1 and 100", -1.0, (grown_D[0] / value_D[0]).log10() / 2
    )
    moved = law.largest(x_D + 10) / law.largest(x_D)
    yield row("shift", f"{largest} at x + 10 over that at x", moved, moved_D[0] / value_D[0])


def singular_values(norm: nn.Module, x_D: Tensor) -> Tensor:
    """Of the explicit Jacobian dnorm(x)/dx, shape [D], largest first."""
    return torch.linalg.svdvals(torch.func.jacrev(norm)(x_D)).detach()
