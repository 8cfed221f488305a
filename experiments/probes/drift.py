"""How far training has moved the function."""

from typing import ClassVar, final

import torch
from torch import Tensor

from experiments import walk
from experiments.gauge import exact_norm
from experiments.model import Transformer
from experiments.probes.base import Column, Probe


@final
class DriftProbe(Probe):
    """||F(theta_i) - F(theta_0)|| / ||F(theta_0)||, F what the readout reads (the model update of Wang et al. 2022,
    arXiv:2203.00555, there not relative).

    Theta_0 are the weights of the first measured step, which is step 0; F(theta_0) is kept, [B, T, D]. Measured before the
    step's update, so 0 at step 0. What is near the precision of the model's floats is rounding. Costs one forward pass.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        Column(
            "function_change",
            "1",
            "norm of the change since step 0 of what the readout reads on the held-out batch, over its norm at step 0; before "
            "the update; null where not probed",
            table="steps",
        ),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.start_BTD: Tensor | None = None
        self.change = torch.empty(())

    @torch.no_grad()
    def open(self) -> None:
        with walk.apart(self.model):
            now_BTD = walk.state(self.model, self.held_out_BT[:, :-1])
        if self.start_BTD is None:
            self.start_BTD = now_BTD
        self.change = exact_norm(now_BTD - self.start_BTD) / exact_norm(self.start_BTD)

    def read(self) -> dict[str, Tensor]:
        return {"function_change": self.change}
