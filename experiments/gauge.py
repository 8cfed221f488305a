"""Points inside a block where a statistic of a passing tensor can be read."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Statistic = Callable[..., Tensor]


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest float of a device: float64, but float32 on mps, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def widen(x: Tensor) -> Tensor:
    """x in float32, or in float64 if that is what it has."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def exact_norm(x: Tensor) -> Tensor:
    """Frobenius norm, right from 1e-30 to 1e30 although squares of float32 underflow below 1e-22.

    Returns a scalar of the widest float. Where that is float32, the entries are scaled by their maximum first.
    """
    dtype = exact_dtype(x.device)
    if dtype == torch.float64:
        return torch.linalg.vector_norm(x, dtype=dtype)
    largest = torch.linalg.vector_norm(x.float(), torch.inf)
    scale = torch.where((largest > 0) & largest.isfinite(), largest, torch.ones_like(largest))
    return torch.linalg.vector_norm(x.float() / scale) * scale


def mean_square(x: Tensor) -> Tensor:
    """Mean of x² over all entries."""
    return exact_norm(x) ** 2 / x.numel()


def token_variance(x_BTD: Tensor) -> Tensor:
    """Mean over tokens of the (population) variance over features."""
    variance_BT = widen(x_BTD).var(-1, correction=0)
    return variance_BT.mean(dtype=exact_dtype(x_BTD.device))


def attention_statistics(q_BHTK: Tensor, k_BHTK: Tensor) -> Tensor:
    """[entropy of the causal attention weights averaged over heads and queries (nats), largest allowed logit].

    A second pass over the scores, T² per head: computed only while its gauge is on.
    """
    T, K = q_BHTK.shape[-2:]
    logit_BHTT = widen(q_BHTK) @ widen(k_BHTK).transpose(-2, -1) * K**-0.5
    future_TT = torch.ones(T, T, dtype=torch.bool, device=q_BHTK.device).triu(1)
    masked_BHTT = logit_BHTT.masked_fill(future_TT, -torch.inf)
    weight_BHTT = masked_BHTT.softmax(-1)
    entropy_BHT = masked_BHTT.logsumexp(-1) - (weight_BHTT * logit_BHTT.masked_fill(future_TT, 0.0)).sum(-1)
    return torch.stack([entropy_BHT.mean(), masked_BHTT.amax()]).to(exact_dtype(q_BHTK.device))


class Gauge(nn.Module):
    """Identity on its first argument. While on, overwrites its slot with the statistic of its arguments.

    Overwriting makes a recomputed forward pass (activation checkpointing) count once. The slot is a buffer, so that a
    compiled block can write to it without a graph break. Off, it costs nothing.
    """

    slot: Tensor

    def __init__(self, statistic: Statistic, size: int = 1) -> None:
        super().__init__()
        self.statistic = statistic
        self.on = False
        self.register_buffer("slot", torch.zeros(size, dtype=torch.float64), persistent=False)

    def forward(self, *tensors: Tensor) -> Tensor:
        if self.on:
            with torch.no_grad():
                self.slot.copy_(self.statistic(*(t.detach() for t in tensors)))
        return tensors[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Gauge":  # noqa: ARG002 - torch's signature
        """Move with the model but keep the widest float: a model cast to bf16 keeps exact gauges."""
        device = fn(torch.zeros(1)).device
        self.slot = self.slot.to(device, exact_dtype(device))
        return self
