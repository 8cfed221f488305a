"""The residual stream and the gradient of the loss with respect to it, at all N = L + 1 points."""

from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.gauge import exact_norm, mean_square, token_variance, widen
from experiments.model import Transformer
from experiments.placements.base import Stream, streams_of
from experiments.probes.base import Column, Probe


@final
class StreamProbe(Probe):
    """Statistics of x_l forward; ||dLoss/dx_l|| backward, by a hook on the tensor, which sees the sum over its uses.

    Of a tuple of streams the statistics are of [0], what branches read; the gradient norm is joint.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        Column("stream_var", "1", "mean over tokens of the variance over features of the residual stream"),
        Column("stream_rms", "1", "root mean square of the stream over tokens and features"),
        Column("stream_max", "1", "largest |x| of the stream"),
        Column("token_cosine", "1", "mean cosine between two different tokens of a sequence"),
        Column("nonfinite_stream", "count", "non-finite entries of the stream", dtype="int64"),
        Column("grad_stream", "nats", "Frobenius norm over the batch of the gradient of the loss at this stream point"),
        Column("grad_rel", "1", "grad_stream sqrt(stream_var) over the same at point L"),
    )

    def __init__(self, model: Transformer, held_out_BT: Tensor) -> None:
        super().__init__(model, held_out_BT)
        self.batches = 0
        self.loss_scale = 1.0

    def open(self) -> None:
        points = self.model.depth + 1
        self.batches = 0
        self.sum_NS = torch.zeros(points, 4, dtype=self.dtype, device=self.device)
        self.max_N = torch.zeros(points, dtype=self.dtype, device=self.device)
        self.square_N = torch.zeros(points, dtype=self.dtype, device=self.device)
        self.model.watchers = (*self.model.watchers, self._watch)

    def micro_batch(self) -> None:
        self.batches += 1

    def gradients(self, norm_P: Tensor, loss_scale: float) -> None:  # noqa: ARG002
        self.loss_scale = loss_scale

    def read(self) -> dict[str, Tensor]:
        self.model.watchers = tuple(w for w in self.model.watchers if w != self._watch)
        var_N, square_N, cosine_N, nonfinite_N = (self.sum_NS / self.batches).unbind(-1)
        grad_N = self.square_N.sqrt() / self.loss_scale
        scaled_N = grad_N * var_N.sqrt()
        return {
            "stream_var": var_N,
            "stream_rms": square_N.sqrt(),
            "stream_max": self.max_N,
            "token_cosine": cosine_N,
            "nonfinite_stream": nonfinite_N * self.batches,
            "grad_stream": grad_N,
            "grad_rel": scaled_N / scaled_N[-1],
        }

    def _watch(self, point: int, stream: Stream) -> None:
        streams = streams_of(stream)
        x_BTD = streams[0].detach()
        with torch.no_grad():
            finite = x_BTD.isfinite().sum()
            sums = (token_variance(x_BTD), mean_square(x_BTD), token_cosine(x_BTD), x_BTD.numel() - finite)
            self.sum_NS[point] += torch.stack([s.to(self.dtype) for s in sums])
            largest = torch.linalg.vector_norm(x_BTD, torch.inf)
            self.max_N[point] = torch.maximum(self.max_N[point], largest.to(self.dtype))
        for x in streams:
            if x.requires_grad:
                x.register_hook(lambda grad: self._add_gradient(point, grad))

    def _add_gradient(self, point: int, grad: Tensor) -> None:
        self.square_N[point] += exact_norm(grad) ** 2


def token_cosine(x_BTD: Tensor) -> Tensor:
    """Mean cosine between two different tokens of a sequence; NaN where a sequence has one token.

    (||sum_t u_t||² - T) / (T (T - 1)) with u_t = x_t / ||x_t||: no T x T matrix.
    """
    T = x_BTD.shape[1]
    unit_BTD = F.normalize(widen(x_BTD), dim=-1)
    square_B = torch.linalg.vector_norm(unit_BTD.sum(1), dim=-1) ** 2
    return ((square_B - T) / (T * (T - 1) or torch.nan)).mean()
