"""Tiny models of a variant with their reference, built once and shared by the laws, which leave them as they are."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from compose import config
from omegaconf import OmegaConf
from reference import Reference
from torch import Tensor, nn

from experiments import placements
from experiments.calibration import calibrate
from experiments.config import ModelConfig, NormConfig
from experiments.init import initialise
from experiments.model import Shape, Transformer
from experiments.norms import norm_maker
from experiments.placements.base import Placement, Site

WIDTH, HEADS, VOCAB, CONTEXT = 8, 2, 13, 6
DEPTHS = (6, 24, 96)  # at which constants are compared
NORM_OPTIONS = frozenset({"kind", "eps", "qk", "qk_axis"})


@cache
def norm_of(variant: str) -> NormConfig:
    """The norm config that the command line composes for a variant."""
    return OmegaConf.to_object(config(f"norm={variant}").norm)


def options(variant: str, **changes: Any) -> tuple[ModelConfig, NormConfig]:
    of_norm = {key: value for key, value in changes.items() if key in NORM_OPTIONS}
    of_model = {key: value for key, value in changes.items() if key not in NORM_OPTIONS}
    small = {"depth": 3, "width": WIDTH, "n_head": HEADS, "ffn": "gelu", "positions": "learned"}
    return ModelConfig(**(small | of_model)), replace(norm_of(variant), **of_norm)


@cache
def built(variant: str, perturbed: bool = False, init: str = "xavier", **changes: Any) -> Reference:
    """A model in float64 as a run starts with it, or with every parameter moved so that no gain of 1 or bias of 0 hides a
    fault. ``changes`` are options of the model or the norm."""
    model_options, norm = options(variant, **changes)
    model = Transformer(OmegaConf.structured(model_options), OmegaConf.structured(norm), Shape(VOCAB, CONTEXT))
    initialise(model, config(f"init={init}").init, seed=0)
    model.double()
    calibrate(model, tokens())
    if perturbed:
        move(model)
    return Reference(model, model_options, norm)


def joins(variant: str, depth: int, **changes: Any) -> Iterator[tuple[Site, Placement]]:
    """The joins of a model of this depth, without their branches, in float64."""
    model_options, norm = options(variant, depth=depth, width=4, **changes)
    kind, make_norm, names = placements.find(norm.placement), norm_maker(norm, model_options.bias), model_options.branches
    for index in range(len(names) * depth):
        layer, k = divmod(index, len(names))
        site = Site(model_options.width, layer, depth, names[k], index, len(names) * depth)
        yield site, kind(make_norm, site).double()


@torch.no_grad()
def move(module: nn.Module) -> None:
    """Add a tenth of Gaussian noise to every parameter, the same each time."""
    rng = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.empty(parameter.shape, dtype=parameter.dtype).normal_(generator=rng))


def tokens(seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (2, CONTEXT), generator=torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.empty(shape, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(seed))


def gradients(logits_BTV: Tensor, parameters: dict[str, nn.Parameter]) -> dict[str, Tensor | None]:
    """Of a fixed random combination of the logits, by name; None where a parameter has no part in them."""
    loss = (logits_BTV * normal(*logits_BTV.shape, seed=2)).sum()
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values()), allow_unused=True), strict=True))


def forget() -> None:
    """Drop all built models: for tests that change what a variant is."""
    built.cache_clear()
    norm_of.cache_clear()
