"""Mix-LN."""

from typing import ClassVar, final

from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class MixLN(Placement):
    """norm_out(x + f(x)) in the first floor(N / 4) blocks, x + f(norm_in(x)) in the others, final norm (Li et al. 2024,
    arXiv:2412.13795). Each join owns one of the two norms; below 4 blocks it is Pre-LN."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        post = site.layer < site.depth // 4
        self.norm_in = nn.Identity() if post else make_norm(site.width)
        self.norm_out = make_norm(site.width) if post else nn.Identity()

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return self.norm_out(stream + branch(self.norm_in(stream)))
