"""Laws of the learning-rate schedules."""

from itertools import pairwise
from math import cos, pi, sqrt

import pytest
from omegaconf import DictConfig, OmegaConf

from experiments.config import KNOWN
from experiments.schedule import SCHEDULES, rate

PEAK = 3e-3
every_schedule = pytest.mark.parametrize("name", SCHEDULES)
decaying = pytest.mark.parametrize("name", ["cosine", "linear"])


def schedule(name: str, warmup: int, final_ratio: float = 0.1) -> DictConfig:
    return OmegaConf.create({"name": name, "warmup": warmup, "final_ratio": final_ratio})


def rates(name: str, steps: int, warmup: int, final_ratio: float = 0.1) -> list[float]:
    return [rate(schedule(name, warmup, final_ratio), steps, PEAK, step) for step in range(steps)]


def test_known_schedules_are_the_table():
    assert set(KNOWN["schedule.name"]) == set(SCHEDULES)


@every_schedule
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (10, 0), (10, 9), (10, 10), (400, 200)])
def test_rates_are_above_zero_and_at_most_the_peak(name, steps, warmup):
    assert all(0 < value <= PEAK for value in rates(name, steps, warmup))


@every_schedule
@pytest.mark.parametrize("warmup", [0, 1])
def test_without_warmup_the_first_update_has_the_full_rate(name, warmup):
    assert rates(name, 10, warmup)[0] == PEAK


@every_schedule
def test_warmup_is_linear_and_ends_at_the_peak(name):
    assert rates(name, 20, 8)[:8] == pytest.approx([PEAK * k / 8 for k in range(1, 9)])


@every_schedule
def test_warmup_of_all_steps_ends_at_the_peak(name):
    assert rates(name, 8, 8)[-1] == pytest.approx(PEAK)


@every_schedule
def test_after_warmup_the_rate_never_rises(name):
    tail = rates(name, 50, 10)[9:]
    assert all(later <= earlier for earlier, later in pairwise(tail))


@decaying
@pytest.mark.parametrize(("steps", "warmup"), [(2, 0), (2, 1), (10, 0), (10, 1), (10, 9), (400, 200)])
@pytest.mark.parametrize("final_ratio", [0.0, 0.1, 1.0])
def test_the_last_update_has_the_final_ratio_of_the_peak(name, steps, warmup, final_ratio):
    assert rates(name, steps, warmup, final_ratio)[-1] == pytest.approx(final_ratio * PEAK, abs=1e-18)


@decaying
def test_past_the_last_update_the_rate_stays(name):
    shape = schedule(name, 2)
    assert rate(shape, 10, PEAK, 11) == rate(shape, 10, PEAK, 9)


def test_constant_keeps_the_peak():
    assert rates("constant", 10, 3)[2:] == [PEAK] * 8


def test_cosine_follows_its_formula():
    warmup, steps, low = 5, 25, 0.1
    expected = [PEAK * (low + (1 - low) * (1 + cos(pi * (s - 4) / 20)) / 2) for s in range(warmup, steps)]
    assert rates("cosine", steps, warmup)[warmup:] == pytest.approx(expected)


def test_linear_loses_the_same_with_every_update():
    tail = rates("linear", 25, 5)[4:]
    assert [a - b for a, b in pairwise(tail)] == pytest.approx([0.9 * PEAK / 20] * 20)


@pytest.mark.parametrize("warmup", [1, 4, 40])
def test_inverse_sqrt_is_vaswani_with_its_peak_at_the_end_of_warmup(warmup):
    paper = [min(k**-0.5, k * warmup**-1.5) * sqrt(warmup) for k in range(1, 101)]
    assert rates("inverse_sqrt", 100, warmup) == pytest.approx([PEAK * value for value in paper])
