"""Norm on the branch's output only."""

from typing import ClassVar, final

from torch import Tensor

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class OutputNorm(Placement):
    """x + norm(f(x)), final norm: the reordered norm of OLMo 2 (2025, arXiv:2501.00656), whose branches read the stream as
    it is. There the norm is RMSNorm, and queries and keys have one too."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + self.norm(branch(stream))
