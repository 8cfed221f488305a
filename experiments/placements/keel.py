"""Keel."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class Keel(Placement):
    """norm_out(alpha x + f(norm_in(x))), alpha = 2N, the number of branches (Chen and Wei 2026, arXiv:2601.19895). The first
    branch of the model is x + f(norm_in(x))."""

    final_norm: ClassVar[bool] = False
    alpha: Tensor

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        first = site.index == 0
        self.norm_in = make_norm(site.width)
        self.norm_out = nn.Identity() if first else make_norm(site.width)
        self.register_buffer("alpha", torch.tensor(1.0 if first else 2.0 * site.depth), persistent=False)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return self.norm_out(self.alpha * stream + branch(self.norm_in(stream)))
