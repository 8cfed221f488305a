"""LayerNorm Scaling."""

from typing import ClassVar, final

import torch
from torch import Tensor

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class LayerNormScaling(Placement):
    """x + f(norm(x) / sqrt(l)) in block l = 1..N, both branches, final norm (Sun et al. 2025, arXiv:2502.05795).
    It replaces scaled initialisation: combine it with init=gpt2, not gpt2_scaled."""

    final_norm: ClassVar[bool] = True
    block: Tensor

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)
        self.register_buffer("block", torch.tensor(site.layer + 1.0), persistent=False)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + branch(self.norm(stream) / self.block.sqrt())
