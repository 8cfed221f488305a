"""LayerScale."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class LayerScale(Placement):
    """x + scale f(norm(x)), final norm; scale is learnt, one number a feature, and starts at 0.1 up to 18 blocks, 1e-5 up to
    24, 1e-6 beyond (Touvron et al. 2021, CaiT, arXiv:2103.17239, section 2)."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        start = 0.1 if site.depth <= 18 else 1e-5 if site.depth <= 24 else 1e-6
        self.norm, self.scale = make_norm(site.width), nn.Parameter(torch.full((site.width,), start))

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + self.scale * branch(self.norm(stream))
