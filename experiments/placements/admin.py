"""Admin."""

from collections.abc import Sequence
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class Admin(Placement):
    """norm(omega x + f(x)), omega learnt, one number a feature. It starts at 1 in the first join; from join to join its square
    grows by the variance of f at initialisation (Liu et al. 2020, arXiv:2004.08249, section 4.3)."""

    final_norm: ClassVar[bool] = False

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm, self.index = make_norm(site.width), site.index
        self.omega = nn.Parameter(torch.ones(site.width))

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return self.norm(self.omega * stream + branch(stream))

    def calibrate(self, variance_K: Sequence[float]) -> None:
        nn.init.constant_(self.omega, (1 + sum(variance_K[: self.index])) ** 0.5)
