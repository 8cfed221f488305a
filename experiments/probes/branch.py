"""What each branch adds to the stream, and what each norm receives."""

from typing import ClassVar, final

from torch import Tensor

from experiments.gauge import Gauge
from experiments.model import Transformer
from experiments.probes.base import Column, Meter, Probe, gauges_of


@final
class BranchProbe(Probe):
    """Rms of every branch's output and of the std of every norm's input, from the blocks' gauges.

    The norms of a join are numbered in the order in which it owns them; the first two are recorded.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        Column("attn_rms", "1", "root mean square of the attention branch's output"),
        Column("cross_rms", "1", "root mean square of the cross-attention branch's output"),
        Column("ffn_rms", "1", "root mean square of the feed-forward branch's output"),
        Column("norm_std_attn", "1", "root mean over tokens of the variance of the input of the attention join's first norm"),
        Column("norm_std_cross", "1", "the same at the cross-attention join"),
        Column("norm_std_ffn", "1", "the same at the feed-forward join"),
        Column("norm2_std_attn", "1", "the same at the attention join's second norm; null where there is none"),
        Column("norm2_std_cross", "1", "the same at the cross-attention join's second norm; null where there is none"),
        Column("norm2_std_ffn", "1", "the same at the feed-forward join's second norm; null where there is none"),
        Column(
            "final_norm_std",
            "1",
            "root mean over tokens of the variance of the final norm's input; null where there is none or not probed",
            table="steps",
        ),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.places: list[tuple[str, int]] = []  # (column, layer) of each gauge
        gauges: list[Gauge] = []
        for layer, join, branch in model.sites():
            norms = zip(("norm", "norm2"), gauges_of([join]), strict=False)
            found = {f"{branch.kind}_rms": branch.output} | {f"{nth}_std_{branch.kind}": norm for nth, norm in norms}
            gauges += found.values()
            self.places += [(column, layer) for column in found]
        final = gauges_of([model.final_norm])
        self.places += [("final_norm_std", 0)] * len(final)
        self.meter = Meter(gauges + final)

    def open(self) -> None:
        self.meter.open()

    def micro_batch(self) -> None:
        self.meter.micro_batch()

    def read(self) -> dict[str, Tensor]:
        rms_G = self.meter.close().mean(0)[:, 0].sqrt()
        values = {}
        for column in dict.fromkeys(column for column, _ in self.places):
            at = [k for k, (name, _) in enumerate(self.places) if name == column]
            rms_L = rms_G.new_full((self.model.depth,), float("nan"))
            rms_L[[self.places[k][1] for k in at]] = rms_G[at]
            values[column] = rms_L[0] if column == "final_norm_std" else rms_L
        return values
