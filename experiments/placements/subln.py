"""Sub-LN."""

import math
from typing import ClassVar, final

from torch import Tensor, nn

from experiments.branches import Attention, CrossAttention, FeedForward
from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class SubLN(Placement):
    """x + f(norm(x)), final norm; f has a second norm before W_O, over all heads together, or before W_2. W_V, W_O and the
    feed-forward start sqrt(log 2N) times as large as the init scheme says, W_Q and W_K do not (Wang et al. 2022, Magneto,
    arXiv:2210.06423, decoder). The paper's scheme is Xavier."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)
        self.make_norm, self.gamma = make_norm, math.sqrt(math.log(2 * site.depth))

    def fit(self, branch: nn.Module) -> None:
        if isinstance(branch, FeedForward):
            branch.norm_out = self.make_norm(branch.w2.in_features)
        elif isinstance(branch, Attention | CrossAttention):
            branch.norm_out = self.make_norm(branch.wv.out_features)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + branch(self.norm(stream))

    @property
    def branch_gain(self) -> float:
        return self.gamma
