"""What each block is worth."""

from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments import walk
from experiments.model import Transformer
from experiments.placements.base import Stream
from experiments.probes.base import Column, Probe


@final
class LayerDropProbe(Probe):
    """Loss on the held-out batch with one block left out minus with all (Men et al. 2024, arXiv:2403.03853,
    there perplexity). ``enter`` and ``leave`` stay, whichever block goes. Costs L²/2 blocks forward: what comes before
    the block is computed once."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("layer_drop", "nats", "loss on the held-out batch without the block minus with it"),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.drop_L = torch.empty(0)

    @torch.no_grad()
    def open(self) -> None:
        with walk.apart(self.model):
            stream = walk.enter(self.model, self.model.embed(self.held_out_BT[:, :-1]))
            without = []
            for layer, block in enumerate(walk.blocks(self.model)):
                without.append(self._loss(stream, layer + 1))
                stream = block.forward(stream)
            self.drop_L = torch.stack(without) - self._loss(stream, self.model.depth)

    def read(self) -> dict[str, Tensor]:
        return {"layer_drop": self.drop_L}

    def _loss(self, stream: Stream, start: int) -> Tensor:
        """Mean cross-entropy per token when ``stream`` enters block ``start``, in the widest float: differences are small."""
        for block in walk.blocks(self.model, start):
            stream = block.forward(stream)
        logits_BTV = self.model.head(walk.leave(self.model, stream))
        return F.cross_entropy(logits_BTV.to(self.dtype).flatten(0, 1), self.held_out_BT[:, 1:].flatten())
