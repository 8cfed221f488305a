"""The contract of a placement: a module that receives the branch and joins it to the residual stream."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from experiments.norms import MakeNorm

Branch = Callable[[Tensor], Tensor]  # attention or feed-forward: x_BTD -> y_BTD
Kind = Literal["attn", "cross", "ffn"]  # of branch
Stream = Tensor | tuple[Tensor, ...]  # of a tuple, [0] is what a branch reads


def streams_of(stream: Stream) -> tuple[Tensor, ...]:
    """Every tensor of a stream, one or several; [0] is what a branch reads."""
    return stream if isinstance(stream, tuple) else (stream,)


@dataclass(frozen=True)
class Site:
    """Address of one residual branch: block ``layer`` (0-based, from the input) of ``depth``."""

    width: int
    layer: int
    depth: int
    branch: Kind
    index: int  # of this branch among all ``count`` of the model
    count: int


class Placement(nn.Module, ABC):
    """Joins one branch to the residual stream. Subclasses are final and own their norms.

    Numbers that depend on the site and enter ``forward`` belong in buffers (in float64, which a model casts to its own
    floats): an int or float attribute that differs between layers makes torch.compile compile every block anew. A join owns
    norms and nn.Parameter; a linear map would be drawn by no init scheme.
    """

    final_norm: ClassVar[bool]  # must the model still normalise before the readout?

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:  # noqa: ARG002 - for subclasses
        """Build the join's norms with ``make_norm(width)``; a placement without norms ignores it."""
        super().__init__()

    @abstractmethod
    def forward(self, stream: Any, branch: Branch) -> Any:
        """The stream after this branch: a Stream in, a Stream out. Subclasses narrow both to Tensor or to their tuple."""

    @property
    def branch_gain(self) -> float:
        """Multiplies the initial std of the branch's wv, wo, w1, w2 and wg."""
        return 1.0

    def fit(self, branch: nn.Module) -> None:
        """May fill the branch's sockets ``norm_v`` and ``norm_out`` (before W_O or W_2). Called once, when built."""

    def calibrate(self, variance_K: Sequence[float]) -> None:
        """May set the join's parameters, once, before the first step. variance_K: variance of the output of every residual
        branch of the model at initialisation, in the model's order (this one's is at ``site.index``)."""

    def enter(self, x_BTD: Tensor) -> Stream:
        """The stream before the first branch. Called on the first join of the model only."""
        return x_BTD

    def leave(self, stream: Stream, final_norm: nn.Module) -> Tensor:
        """What the readout reads. Called on the last join of the model only."""
        if isinstance(stream, tuple):
            raise TypeError(f"{type(self).__name__} keeps {len(stream)} streams and must define how they leave")
        return final_norm(stream)
