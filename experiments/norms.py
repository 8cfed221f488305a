"""Kinds of norm, each with a gauge on its input. A placement receives a maker, so it never knows the kind."""

from collections.abc import Callable

from torch import nn

from experiments.gauge import Gauge, token_variance

MakeNorm = Callable[[int], nn.Module]  # width -> norm

# LayerNorm: Ba et al. 2016 (arXiv:1607.06450), eq. 3. RMSNorm: Zhang and Sennrich 2019 (arXiv:1910.07467), eq. 4.
KINDS: dict[str, Callable[[int, float, bool], nn.Module]] = {
    "layernorm": lambda width, eps, bias: nn.LayerNorm(width, eps=eps, bias=bias),
    "rmsnorm": lambda width, eps, _bias: nn.RMSNorm(width, eps=eps),
}


def norm_maker(kind: str, eps: float, bias: bool) -> MakeNorm:
    """A maker of norms over the last dimension. ``bias`` is LayerNorm's; RMSNorm has none."""
    make = KINDS[kind]
    return lambda width: nn.Sequential(Gauge(token_variance), make(width, eps, bias))
