"""How much the model amplifies noise on its weights."""

from copy import deepcopy
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments import walk
from experiments.model import Transformer
from experiments.probes.base import Column, Probe

EPS = 1e-4  # a larger one leaves the linear regime of deep models: the growth with depth then looks slower
DRAWS = 2  # of the noise; one scatters by a tenth in a Pre-LN and a third in a deep Post-LN, its seeds by a factor of three
SEED = 200408249  # of the noise; with the number of times the probe was opened


@final
class AmplificationProbe(Probe):
    """Mean square of F(W*) - F(W) over eps² (Liu et al. 2020, arXiv:2004.08249).

    W* = W + eps std(W) N(0, 1) for the linear maps of the blocks only; F is what the readout reads, so it is normalised.
    The mean over a few draws, std over the entries, uncorrected. Computed by a float64 copy of the model (on the CPU where
    the device has no float64), which costs a forward pass in float64 for each draw and one more, and twice the model's memory
    meanwhile. The noise is the same for every run with matrices of these shapes.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        Column(
            "amplification",
            "1",
            "mean square over tokens and features of the change of what the readout reads, over eps², when the block matrices "
            f"change by eps std(W) N(0, 1), eps = {EPS:g}, mean of {DRAWS} draws; null where not probed",
            table="steps",
        ),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.opened = 0
        self.value = torch.empty(())

    def open(self) -> None:
        rng = torch.Generator().manual_seed(SEED + self.opened)
        self.opened += 1
        self.value = amplification(self.model, self.held_out_BT[:, :-1], rng).to(self.dtype).to(self.device)

    def read(self) -> dict[str, Tensor]:
        return {"amplification": self.value}


@torch.no_grad()
def amplification(model: Transformer, tokens_BT: Tensor, rng: torch.Generator, eps: float = EPS) -> Tensor:
    """||F(W*) - F(W)||² per token and feature over eps², averaged over the draws, a float64 scalar."""
    device = torch.device("cpu") if tokens_BT.device.type == "mps" else tokens_BT.device
    with walk.apart(model):
        twin, tokens_BT = deepcopy(model).to(device).double(), tokens_BT.to(device)
    before_BTD, squares = walk.state(twin, tokens_BT), []
    for _ in range(DRAWS):
        for noisy, linear in zip(linear_maps(twin), linear_maps(model), strict=True):
            W = linear.weight.to(device).double()
            noise = torch.empty(W.shape, dtype=W.dtype).normal_(generator=rng).to(device)
            noisy.weight.copy_(W + noise * (eps * W.std(correction=0)))
        squares.append(((walk.state(twin, tokens_BT) - before_BTD) / eps).square().mean())
    return torch.stack(squares).mean()


def linear_maps(model: Transformer) -> list[nn.Linear]:
    """Those of the blocks."""
    return [module for module in model.blocks.modules() if isinstance(module, nn.Linear)]
