"""Sizes of the matrices and of their updates."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

from experiments.gauge import exact_norm
from experiments.model import Transformer
from experiments.probes.base import Column, Probe
from experiments.probes.gradient import MATRICES


@final
class UpdateProbe(Probe):
    """||W|| before the optimizer's step and ||dW|| of it, per matrix and layer, those of cross-attention left out. Keeps a
    copy of the blocks' matrices during the measured step."""

    columns: ClassVar[tuple[Column, ...]] = (
        *(
            Column(f"param_{name}", "1", f"Frobenius norm of the {what} matrix before the update")
            for name, what in MATRICES.items()
        ),
        *(
            Column(f"update_{name}", "1", f"Frobenius norm of the change of the {what} matrix in this update")
            for name, what in MATRICES.items()
        ),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.weights: dict[str, list[Tensor]] = {}
        for branch in (branch for _, _, branch in model.sites() if branch.kind != "cross"):
            for name, child in branch.named_children():
                if isinstance(child, nn.Linear):
                    self.weights.setdefault(name, []).append(child.weight)
        self.before: dict[str, list[Tensor]] = {}
        self.values: dict[str, Tensor] = {}

    def open(self) -> None:
        self.values = {}

    def gradients(self, norm_P: Tensor, loss_scale: float) -> None:  # noqa: ARG002
        self.before = {name: [w.detach().clone() for w in weights] for name, weights in self.weights.items()}

    def updated(self) -> None:
        for name, weights in self.weights.items():
            before = self.before.pop(name)
            self.values[f"param_{name}"] = torch.stack([exact_norm(b) for b in before])
            change = [exact_norm(w.detach() - b) for w, b in zip(weights, before, strict=True)]
            self.values[f"update_{name}"] = torch.stack(change)

    def read(self) -> dict[str, Tensor]:
        return self.values
