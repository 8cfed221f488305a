"""ResiDual."""

from typing import ClassVar, final

from torch import Tensor, nn

from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site, Stream

Pair = tuple[Tensor, Tensor]


@final
class ResiDual(Placement):
    """norm(x + f(x)) beside d + f(x), the sum of the embedding and all that branches return; the readout reads
    x + final(d) (Xie et al. 2023, arXiv:2304.14802)."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width)

    def forward(self, stream: Pair, branch: Branch) -> Pair:
        x_BTD, d_BTD = stream
        y_BTD = branch(x_BTD)
        return self.norm(x_BTD + y_BTD), d_BTD + y_BTD

    def enter(self, x_BTD: Tensor) -> Pair:
        return x_BTD, x_BTD

    def leave(self, stream: Stream, final_norm: nn.Module) -> Tensor:
        x_BTD, d_BTD = stream
        return x_BTD + final_norm(d_BTD)
