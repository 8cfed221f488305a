"""Pre-LN."""

from typing import ClassVar, final

from torch import Tensor

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class PreLN(Placement):
    """x + f(norm(x)). The identity path crosses no norm until the final one (Xiong et al. 2020, arXiv:2002.04745, table 1)."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + branch(self.norm(stream))
