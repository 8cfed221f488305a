"""Optimizers, and which parameters decay."""

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig
from torch import nn, optim

Group = dict[str, Any]
FUSED = frozenset({"cpu", "cuda", "mps"})  # devices whose AdamW and SGD are one kernel


def parameter_groups(model: nn.Module, cfg: DictConfig) -> list[Group]:
    """Groups that hold every parameter once: the matrices of the blocks and the readout, which decay by
    ``cfg.weight_decay``, all others, which do not, and those of ``cfg.frozen`` modules, whose ``rate``, a factor, is 0.

    Gains and biases of norms, biases of linear maps and embeddings (of tokens and positions) do not decay; embeddings do
    if ``cfg.decay_embeddings``. A readout that shares the token embedding counts as one. A group without parameters is
    left out. Frozen parameters have gradients, so that every point of the stream does.
    """
    frozen = {id(p) for name in cfg.frozen if (part := getattr(model, name)) is not None for p in part.parameters()}
    embeddings = _weights(model, nn.Embedding)
    matrices = _weights(model, nn.Linear) - embeddings
    decayed = matrices | embeddings if cfg.decay_embeddings else matrices
    moving = [p for p in model.parameters() if id(p) not in frozen]
    groups = [
        {"params": [p for p in moving if id(p) in decayed], "weight_decay": cfg.weight_decay, "rate": 1.0},
        {"params": [p for p in moving if id(p) not in decayed], "weight_decay": 0.0, "rate": 1.0},
        {"params": [p for p in model.parameters() if id(p) in frozen], "weight_decay": 0.0, "rate": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _weights(model: nn.Module, kind: type[nn.Embedding | nn.Linear]) -> set[int]:
    return {id(module.weight) for module in model.modules() if isinstance(module, kind)}


def make_optimizer(cfg: DictConfig, model: nn.Module) -> optim.Optimizer:
    """The optimizer of cfg (conf/optim) for a model that is on its device; the rate is ``cfg.lr`` until a schedule sets it to
    the schedule's rate times the group's ``rate``."""
    groups = parameter_groups(model, cfg)
    fused = all(p.device.type in FUSED for p in model.parameters())
    return OPTIMIZERS[cfg.name](cfg, groups, fused)


def _adamw(cfg: DictConfig, groups: list[Group], fused: bool) -> optim.Optimizer:
    """Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2. The decay is lr times weight_decay; the paper's
    is not multiplied by the peak rate."""
    return optim.AdamW(groups, lr=cfg.lr, betas=tuple(cfg.betas), eps=cfg.eps, fused=fused)


def _sgd(cfg: DictConfig, groups: list[Group], fused: bool) -> optim.Optimizer:
    """Heavy ball in torch's form, v = momentum v + g, then -lr v; the decay is part of g, so momentum carries it."""
    return optim.SGD(groups, lr=cfg.lr, momentum=cfg.momentum, fused=fused)


def _radam(cfg: DictConfig, groups: list[Group], _fused: bool) -> optim.Optimizer:
    """Liu et al. 2020 (arXiv:1908.03265), algorithm 2, with AdamW's decay.

    torch rectifies where ρ_t > 5, the authors' code where ρ_t >= 5, the paper where ρ_t > 4. eps is added to the root of
    the second moment before its bias is corrected; the paper has none.
    """
    return optim.RAdam(groups, lr=cfg.lr, betas=tuple(cfg.betas), eps=cfg.eps, decoupled_weight_decay=True)


OPTIMIZERS: dict[str, Callable[[DictConfig, list[Group], bool], optim.Optimizer]] = {
    "adamw": _adamw,
    "sgd": _sgd,
    "radam": _radam,
}
