"""By how much each block turns the stream."""

from itertools import pairwise
from typing import ClassVar, final

import torch
from torch import Tensor

from experiments import walk
from experiments.gauge import exact_dtype
from experiments.model import Transformer
from experiments.placements.base import Stream
from experiments.probes.base import Column, Probe


@final
class AngleProbe(Probe):
    """Angular distance between the ends of every block on the held-out batch (Gromov et al. 2024, arXiv:2403.17887,
    there of the last token only). Block 0 begins at point 0, before ``enter``. Costs one forward pass."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column(
            "angular_distance",
            "1",
            "angle between the stream before and after the block over pi, averaged over tokens of the held-out batch",
        ),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.distance_L = torch.empty(0)

    @torch.no_grad()
    def open(self) -> None:
        with walk.apart(self.model):
            ends = pairwise(walk.points(self.model, self.held_out_BT[:, :-1]))
            self.distance_L = torch.stack([angular_distance(_read(x), _read(y)).mean() for x, y in ends])

    def read(self) -> dict[str, Tensor]:
        return {"angular_distance": self.distance_L}


def angular_distance(x_BTD: Tensor, y_BTD: Tensor) -> Tensor:
    """Angle between the vectors of each token over pi, [B, T]; NaN where one is zero.

    2 atan2(|u - w|, |u + w|) of the unit vectors, not arccos(u·w): the cosine of an angle a differs from 1 by a²/2, so
    arccos returns 0 or noise below the root of the rounding error, and noise where x = y.
    """
    u_BTD, w_BTD = (z / torch.linalg.vector_norm(z, dim=-1, keepdim=True) for z in (_exact(x_BTD), _exact(y_BTD)))
    apart_BT, along_BT = (torch.linalg.vector_norm(z, dim=-1) for z in (u_BTD - w_BTD, u_BTD + w_BTD))
    return 2 / torch.pi * torch.atan2(apart_BT, along_BT)


def _exact(x: Tensor) -> Tensor:
    return x.to(exact_dtype(x.device))


def _read(stream: Stream) -> Tensor:
    """What a branch reads of the stream."""
    return stream[0] if isinstance(stream, tuple) else stream
