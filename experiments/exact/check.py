"""One exact check, and what the checks build models from."""

from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from experiments.config import ModelConfig, NormConfig
from experiments.model import Shape, Transformer

EPS = 1e-5  # of the norms, unless said
ROUNDING = 1e-12  # relative
SMALL = Shape(vocab=11, context=16)


@dataclass(frozen=True)
class Check:
    """One number of a claim. ``tolerance`` is absolute."""

    id: str
    name: str
    quantity: str
    setting: str
    expected: float
    measured: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return abs(self.measured - self.expected) <= self.tolerance


def transformer(placement: str, shape: Shape = SMALL, **options: Any) -> Transformer:
    """A model with LayerNorm; options are those of ModelConfig."""
    given: dict[str, Any] = {"n_head": 2, "ffn": "gelu", "positions": "learned"} | options
    model = OmegaConf.structured(ModelConfig(**given))
    return Transformer(model, OmegaConf.structured(norm(placement=placement)), shape)


def norm(kind: str = "layernorm", eps: float = EPS, placement: str = "") -> NormConfig:
    """A config of a norm that is not drawn."""
    return NormConfig(name=placement, placement=placement, kind=kind, eps=eps, label="", color="", linestyle="")


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.empty(shape, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(seed))
