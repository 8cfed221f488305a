"""A placement of two streams, for tests: what the contract allows beyond a single tensor."""

from typing import ClassVar, final

from torch import Tensor, nn

from experiments.exact.check import norm
from experiments.model import Transformer
from experiments.norms import MakeNorm, norm_maker
from experiments.placements.base import Branch, Placement, Site, Stream

Pair = tuple[Tensor, Tensor]


@final
class TwoStreams(Placement):
    """(norm(p + f), d + f) of (p, d), f read from p (as in Xie et al. 2023, arXiv:2304.14802)."""

    final_norm: ClassVar[bool] = False

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm, self.dual = make_norm(site.width), make_norm(site.width)

    def forward(self, stream: Pair, branch: Branch) -> Pair:
        p_BTD, d_BTD = stream
        y_BTD = branch(p_BTD + 0.1 * d_BTD)
        return self.norm(p_BTD + y_BTD), d_BTD + y_BTD

    def enter(self, x_BTD: Tensor) -> Stream:
        return self.norm(x_BTD), x_BTD

    def leave(self, stream: Pair, final_norm: nn.Module) -> Tensor:  # noqa: ARG002
        return stream[0] + self.dual(stream[1])


def give_two_streams(model: Transformer) -> None:
    """Replace every join of a model, in place, in the floats of its embedding."""
    make_norm, width = norm_maker(norm(), True), model.wte.embedding_dim
    for layer, block in enumerate(model.blocks):
        sites = [Site(width, layer, model.depth, branch.kind, 0, 1) for branch in block.branches]
        block.joins = nn.ModuleList(TwoStreams(make_norm, site).to(model.wte.weight.dtype) for site in sites)
