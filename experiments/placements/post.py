"""Post-LN."""

from typing import ClassVar, final

from torch import Tensor

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class PostLN(Placement):
    """norm(x + f(x)). Every path to the loss crosses every later norm (Vaswani et al. 2017, arXiv:1706.03762, section 3.1)."""

    final_norm: ClassVar[bool] = False

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return self.norm(stream + branch(stream))
