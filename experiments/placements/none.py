"""No norm."""

from typing import ClassVar, final

from torch import Tensor

from experiments.placements.base import Branch, Placement


@final
class NoNorm(Placement):
    """x + f(x), no norm anywhere: a control (He et al. 2015, arXiv:1512.03385, eq. 1)."""

    final_norm: ClassVar[bool] = False

    def forward(self, stream: Tensor, branch: Branch) -> Tensor:
        return stream + branch(stream)
