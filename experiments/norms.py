"""Kinds of norm, each with a gauge on its input, and norms of queries and keys. A placement receives a maker, so it never
knows the kind."""

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from experiments.config import NormConfig
from experiments.gauge import Gauge, token_variance

MakeNorm = Callable[[int], nn.Module]  # width -> norm
Shape = tuple[int, ...]  # of the last dimensions, which are normalised together


class DyT(nn.Module):
    """gain * tanh(alpha x) + bias, alpha one learnt number (Zhu et al. 2025, arXiv:2503.10622, eq. 1 and section 4)."""

    def __init__(self, shape: Shape, alpha: float, bias: bool) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(alpha))
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.weight * torch.tanh(self.alpha * x)
        return y if self.bias is None else y + self.bias


class Unit(nn.Module):
    """x / ||x|| over the last dimensions; with a scale, times that one learnt number and a constant factor."""

    def __init__(self, shape: Shape, scale: float | None = None, factor: float = 1.0) -> None:
        super().__init__()
        self.dims, self.factor = tuple(range(-len(shape), 0)), factor
        self.scale = None if scale is None else nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=self.dims, keepdim=True)
        unit = x / norm.clamp_min(torch.finfo(x.dtype).tiny)
        return unit if self.scale is None else unit * (self.factor * self.scale)


class MakeKind(Protocol):
    def __call__(self, shape: Shape, norm: NormConfig, bias: bool) -> nn.Module: ...


# LayerNorm: Ba et al. 2016 (arXiv:1607.06450), eq. 3. RMSNorm: Zhang and Sennrich 2019 (arXiv:1910.07467), eq. 4.
KINDS: Mapping[str, MakeKind] = {
    "layernorm": lambda shape, norm, bias: nn.LayerNorm(shape, eps=norm.eps, bias=bias),
    "rmsnorm": lambda shape, norm, bias: nn.RMSNorm(shape, eps=norm.eps),  # noqa: ARG005
    "dyt": lambda shape, norm, bias: DyT(shape, norm.dyt_alpha, bias),
    "none": lambda shape, norm, bias: nn.Identity(),  # noqa: ARG005
}
QK_NORMS = ("none", "l2", "layernorm", "rmsnorm")


def norm_maker(norm: NormConfig, bias: bool) -> MakeNorm:
    """A maker of norms over the last dimension. ``bias`` is LayerNorm's and DyT's; RMSNorm has none."""
    make = KINDS[norm.kind]
    return lambda width: nn.Sequential(Gauge(token_variance), make((width,), norm, bias))


def qk_norms(norm: NormConfig, n_head: int, head_width: int, context: int) -> tuple[nn.Module, nn.Module]:
    """Norms of queries and keys, for tensors [..., H, K]. norm.qk_axis: over each head, with a gain [K] that the heads share
    (Dehghani et al. 2023, arXiv:2302.05442; Qwen 3), or over the whole projection, with a gain [H, K] (OLMo 2,
    arXiv:2501.00656).

    ``l2`` makes the logits scale * cosine, scale learnt, one a layer, from log2(T² - T) (Henry et al. 2020,
    arXiv:2010.04245, section 3), of the whole projection's cosine where that is the axis. Its factor sqrt(K) undoes
    attention's division. The others have no bias.
    """
    shape = (head_width,) if norm.qk_axis == "head" else (n_head, head_width)
    if norm.qk == "l2":
        start = math.log2(max(context * (context - 1), 2))
        return Unit(shape, start, head_width**0.5), Unit(shape)
    make = KINDS[norm.qk]
    return make(shape, norm, False), make(shape, norm, False)
