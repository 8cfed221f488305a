"""DeepNorm."""

from typing import ClassVar, final

from torch import Tensor

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class DeepNorm(Placement):
    """norm(alpha x + f(x)), alpha = (2N)^(1/4); W_V, W_O and the feed-forward start (8N)^(-1/4) times as large as the init
    scheme says, W_Q and W_K do not (Wang et al. 2022, arXiv:2203.00555, figure 2, decoder-only row). The paper's scheme is
    Xavier."""

    final_norm: ClassVar[bool] = False

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)
        self.alpha, self.beta = (2 * site.depth) ** 0.25, (8 * site.depth) ** -0.25

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return self.norm(self.alpha * stream + branch(stream))

    @property
    def branch_gain(self) -> float:
        return self.beta
