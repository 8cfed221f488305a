"""ReZero."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class ReZero(Placement):
    """x + a f(x), no norm; a is one learnt number that starts at 0, so every block starts as the identity (Bachlechner et al.
    2020, arXiv:2003.04887, eq. 1). One a for each branch; the paper's transformer shares it between the two of a block."""

    final_norm: ClassVar[bool] = False

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.a = nn.Parameter(torch.zeros(()))

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + self.a * branch(stream)
