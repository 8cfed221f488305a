"""HybridNorm."""

from typing import ClassVar, final

from torch import Tensor, nn

from experiments.branches import Attention, CrossAttention
from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site


@final
class HybridNorm(Placement):
    """x + attn(x) with norms of queries, keys and values, each over its head; then z + ffn(z), z = norm(x); final norm (Zhuo
    et al. 2025, arXiv:2503.04598). The class owns the norm of values; those of queries and keys are norm.qk. The paper's
    starred form makes block 0 Pre-LN; this is the plain one."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm = make_norm(site.width) if site.branch == "ffn" else nn.Identity()
        self.make_norm = make_norm

    def fit(self, branch: nn.Module) -> None:
        if isinstance(branch, Attention | CrossAttention):
            branch.norm_v = self.make_norm(branch.wv.out_features // branch.n_head)

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        z_BTD = self.norm(stream)
        return z_BTD + branch(z_BTD)
