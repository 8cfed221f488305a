"""Laws of the optimizers: updates against the papers' formulas, and decay where it belongs."""

from math import sqrt

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from experiments.config import KNOWN, ModelConfig
from experiments.exact.check import norm
from experiments.model import Shape, Transformer
from experiments.optim import OPTIMIZERS, make_optimizer, parameter_groups

LR, DECAY, BETAS, EPS, MOMENTUM = 0.05, 0.3, (0.9, 0.98), 1e-6, 0.8
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def settings(name: str, weight_decay: float = DECAY, decay_embeddings: bool = False) -> DictConfig:
    values = {"name": name, "lr": LR, "weight_decay": weight_decay, "betas": list(BETAS), "eps": EPS}
    return OmegaConf.create(values | {"momentum": MOMENTUM, "decay_embeddings": decay_embeddings, "frozen": []})


def options(decay_embeddings: bool, frozen: tuple[str, ...] = ()) -> DictConfig:
    values = {"weight_decay": DECAY, "decay_embeddings": decay_embeddings, "frozen": list(frozen)}
    return OmegaConf.create(values)


def transformer(tied: bool = False, ffn: str = "swiglu") -> Transformer:
    model = ModelConfig(depth=2, width=8, n_head=2, ffn=ffn, positions="learned", tied=tied)
    return Transformer(OmegaConf.structured(model), OmegaConf.structured(norm(placement="pre")), Shape(vocab=11, context=4))


def decayed_names(model: nn.Module, decay_embeddings: bool = False) -> set[str]:
    names = {id(p): name for name, p in model.named_parameters()}
    groups = parameter_groups(model, options(decay_embeddings))
    return {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}


def test_known_optimizers_are_the_table():
    assert set(KNOWN["optim.name"]) == set(OPTIMIZERS)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("decay_embeddings", [False, True])
def test_every_parameter_is_in_one_group_once(tied, decay_embeddings):
    model = transformer(tied)
    grouped = [id(p) for group in parameter_groups(model, options(decay_embeddings)) for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(p) for p in model.parameters()}


def test_matrices_of_blocks_and_readout_decay_and_nothing_else():
    branches = [("wq", "wk", "wv", "wo"), ("wg", "w1", "w2")]
    matrices = {f"blocks.{n}.branches.{k}.{w}.weight" for n in range(2) for k, names in enumerate(branches) for w in names}
    assert decayed_names(transformer()) == matrices | {"head.weight"}


def test_embeddings_decay_only_if_asked():
    more = decayed_names(transformer(), decay_embeddings=True) - decayed_names(transformer())
    assert more == {"wte.weight", "wpe.weight"}


def test_a_tied_readout_counts_as_embedding():
    assert not {"wte.weight", "head.weight"} & decayed_names(transformer(tied=True))
    assert "wte.weight" in decayed_names(transformer(tied=True), decay_embeddings=True)


@every_optimizer
def test_frozen_parameters_stay_and_have_gradients(name):
    model = transformer()
    cfg = settings(name)
    cfg.frozen = ["wte", "wpe"]
    optimizer = make_optimizer(cfg, model)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    for _ in range(2):
        model(torch.randint(11, (3, 4))).square().mean().backward()
        for group in optimizer.param_groups:
            group["lr"] = LR * group["rate"]
        optimizer.step()
    same = {key for key, p in model.named_parameters() if torch.equal(p, before[key])}
    assert {"wte.weight", "wpe.weight"} <= same
    assert not any(key.endswith(("w1.weight", "wv.weight", "head.weight")) for key in same)
    assert float(model.wte.weight.grad.norm()) > 0


def test_a_model_without_matrices_has_one_group():
    assert [group["weight_decay"] for group in parameter_groups(nn.LayerNorm(3), options(False))] == [0.0]


@every_optimizer
def test_decay_moves_only_its_group(name):
    model = transformer()
    optimizer = make_optimizer(settings(name), model)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for key, p in model.named_parameters():
        factor = 1 - LR * DECAY if key in decayed_names(model) else 1.0
        torch.testing.assert_close(p.detach(), before[key] * factor)


@every_optimizer
def test_the_rate_is_the_configured_one_in_every_group(name):
    optimizer = make_optimizer(settings(name), transformer())
    assert {group["lr"] for group in optimizer.param_groups} == {LR}


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_updates_are_fused_on_the_cpu(name):
    assert all(group["fused"] for group in make_optimizer(settings(name), transformer()).param_groups)


def adamw(start: float, grads: list[float]) -> float:
    """Loshchilov and Hutter 2019, algorithm 2, lines 6 to 12, with the rate on the decay as torch has it."""
    theta, m, v = start, 0.0, 0.0
    for t, g in enumerate(grads, start=1):
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        m_hat, v_hat = m / (1 - BETAS[0] ** t), v / (1 - BETAS[1] ** t)
        theta -= LR * (m_hat / (sqrt(v_hat) + EPS) + DECAY * theta)
    return theta


def sgd(start: float, grads: list[float]) -> float:
    """Polyak's heavy ball with the L2 penalty's gradient."""
    theta, velocity = start, 0.0
    for g in grads:
        velocity = MOMENTUM * velocity + g + DECAY * theta
        theta -= LR * velocity
    return theta


def radam(start: float, grads: list[float]) -> float:
    """Liu et al. 2020, algorithm 2, with decoupled decay, torch's threshold and its eps beside sqrt(v)."""
    theta, m, v = start, 0.0, 0.0
    limit = 2 / (1 - BETAS[1]) - 1
    for t, g in enumerate(grads, start=1):
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
        m_hat = m / (1 - BETAS[0] ** t)
        rho = limit - 2 * t * BETAS[1] ** t / (1 - BETAS[1] ** t)
        adaptive = 1.0
        if rho > 5:
            rectified = sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
            adaptive = rectified * sqrt(1 - BETAS[1] ** t) / (sqrt(v) + EPS)
        theta -= LR * (m_hat * adaptive + DECAY * theta)
    return theta


@pytest.mark.parametrize("formula", [adamw, sgd, radam])
@pytest.mark.parametrize("updates", [1, 2, 12])
def test_updates_equal_the_formula(formula, updates):
    grads = [0.7, -0.2, 1.3, 0.05, -0.9, 0.4, 0.8, -1.1, 0.3, 0.6, -0.5, 0.2][:updates]
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.5, -0.4]], dtype=torch.float64))
    optimizer = make_optimizer(settings(formula.__name__), model)
    for g in grads:
        model.weight.grad = torch.full_like(model.weight, g)
        optimizer.step()
    expected = torch.tensor([[formula(1.5, grads), formula(-0.4, grads)]], dtype=torch.float64)
    torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-12, atol=0)
