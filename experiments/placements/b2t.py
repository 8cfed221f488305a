"""Bottom-to-top connection."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site, Stream

Pair = tuple[Tensor, Tensor]


@final
class BottomToTop(Placement):
    """Post-LN whose feed-forward join also adds b, what entered the block's attention: norm(x + f(x) + b) (Takase et al.
    2022, arXiv:2206.00330). Between blocks b is 0; blocks without attention are Post-LN."""

    final_norm: ClassVar[bool] = False

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)
        self.bottom, self.top = site.branch == "attn", site.branch == "ffn"

    def forward(self, stream: Pair, branch: Branch) -> Pair:
        x_BTD, b_BTD = stream
        y_BTD = x_BTD + branch(x_BTD)
        if self.top:
            return self.norm(y_BTD + b_BTD), torch.zeros_like(b_BTD)
        return self.norm(y_BTD), x_BTD if self.bottom else b_BTD

    def enter(self, x_BTD: Tensor) -> Pair:
        return x_BTD, torch.zeros_like(x_BTD)

    def leave(self, stream: Stream, final_norm: nn.Module) -> Tensor:
        return final_norm(stream[0])
