"""How sharp attention is."""

from typing import ClassVar, final

from torch import Tensor

from experiments.branches import Attention
from experiments.model import Transformer
from experiments.probes.base import Column, Meter, Probe


@final
class AttentionProbe(Probe):
    """Entropy and largest logit of every layer's self-attention, computed a second time from its queries and keys."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("attn_entropy", "nats", "entropy of the attention weights, averaged over heads and queries"),
        Column("attn_logit_max", "1", "largest allowed attention logit, after division by sqrt(K)"),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.meter = Meter([branch.scores for _, _, branch in model.sites() if isinstance(branch, Attention)])

    def open(self) -> None:
        self.meter.open()

    def micro_batch(self) -> None:
        self.meter.micro_batch()

    def read(self) -> dict[str, Tensor]:
        if not self.meter.gauges:  # blocks without self-attention
            return {}
        slot_CLS = self.meter.close()
        return {"attn_entropy": slot_CLS[..., 0].mean(0), "attn_logit_max": slot_CLS[..., 1].amax(0)}
