"""Peri-LN."""

from typing import ClassVar, final

from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class PeriLN(Placement):
    """x + norm_out(f(norm_in(x))), final norm, and a norm on the embedding, which the paper leaves open (Kim et al. 2025,
    arXiv:2502.02732)."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm_in, self.norm_out = make_norm(site.width), make_norm(site.width)
        self.norm_embed = make_norm(site.width) if site.index == 0 else nn.Identity()

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + self.norm_out(branch(self.norm_in(stream)))

    def enter(self, x_BTD: Tensor) -> Tensor:
        return self.norm_embed(x_BTD)
