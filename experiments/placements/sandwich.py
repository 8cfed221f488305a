"""Sandwich-LN."""

from typing import ClassVar, final

from torch import Tensor

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class SandwichLN(Placement):
    """x + norm_out(f(norm_in(x))), final norm: Pre-LN with a norm on what the branch returns (Ding et al. 2021, CogView,
    arXiv:2105.13290, section 2.4)."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm_in, self.norm_out = make_norm(site.width), make_norm(site.width)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + self.norm_out(branch(self.norm_in(stream)))
