"""Exact norms and gauges."""

import math

import pytest
import torch
from torch import nn

from experiments.gauge import Gauge, attention_statistics, exact_norm, mean_square, token_variance
from experiments.loop import gradient_norms


@pytest.mark.parametrize("power", [-37, -30, -23, -10, 0, 10, 23, 30, 37])
def test_norms_are_right_from_1e_30_to_1e30(power: int) -> None:
    unit = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    small = unit * 10.0**power
    assert float(exact_norm(small)) == pytest.approx(float(unit.double().norm()) * 10.0**power, rel=1e-5)
    parameter = nn.Parameter(torch.zeros(64, 64))
    parameter.grad = small
    assert gradient_norms([parameter]).tolist() == [float(exact_norm(small))]


def test_norms_by_scaling_agree_where_there_is_no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.gauge.exact_dtype", lambda _device: torch.float32)
    unit = torch.randn(64, generator=torch.Generator().manual_seed(0))
    for power in (-30, 0, 30):
        assert float(exact_norm(unit * 10.0**power)) == pytest.approx(float(unit.norm()) * 10.0**power, rel=1e-5)
    assert float(exact_norm(torch.zeros(3))) == 0.0
    assert math.isnan(exact_norm(torch.tensor([1.0, math.nan])))
    assert math.isinf(exact_norm(torch.tensor([1.0, math.inf])))


def test_zero_is_zero_and_nan_is_never_dropped() -> None:
    assert float(exact_norm(torch.zeros(5))) == 0.0
    assert math.isnan(exact_norm(torch.tensor([1.0, math.nan])))
    assert math.isinf(exact_norm(torch.tensor([1.0, -math.inf])))
    assert float(exact_norm(torch.full((4,), 1e-45))) == pytest.approx(2 * 1.4013e-45, rel=1e-3)


def test_statistics_match_their_definitions() -> None:
    x = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    rows = x.reshape(10, 7).double()
    assert float(mean_square(x)) == pytest.approx(float((rows**2).mean()))
    assert float(token_variance(x)) == pytest.approx(float(((rows - rows.mean(1, keepdim=True)) ** 2).mean()))


def test_attention_statistics_match_a_loop_over_queries() -> None:
    q, k = torch.randn(2, 2, 3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    entropies, largest = [], -math.inf
    for b in range(2):
        for h in range(3):
            for t in range(6):
                logits = [float(q[b, h, t] @ k[b, h, s]) / 2 for s in range(t + 1)]
                total = sum(math.exp(z) for z in logits)
                entropies.append(-sum(math.exp(z) / total * math.log(math.exp(z) / total) for z in logits))
                largest = max(largest, *logits)
    entropy, maximum = attention_statistics(q, k).tolist()
    assert entropy == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)
    assert maximum == pytest.approx(largest, rel=1e-6)


def test_uniform_attention_has_the_entropy_of_its_window() -> None:
    q = torch.zeros(1, 1, 5, 4)
    assert float(attention_statistics(q, q)[0]) == pytest.approx(sum(math.log(n) for n in range(1, 6)) / 5, rel=1e-6)


def test_gauge_is_the_identity_and_writes_only_while_on() -> None:
    gauge, x = Gauge(mean_square), torch.full((4,), 2.0, requires_grad=True)
    assert gauge(x) is x
    assert gauge.slot.item() == 0.0
    gauge.on = True
    for _ in range(2):
        assert gauge(x) is x
    assert gauge.slot.item() == 4.0
    assert not gauge.slot.requires_grad


def test_gauge_keeps_float64_when_its_model_is_cast() -> None:
    assert nn.Sequential(Gauge(mean_square)).to(torch.bfloat16)[0].slot.dtype == torch.float64
