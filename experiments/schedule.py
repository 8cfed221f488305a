"""Learning rates: pure functions of the update, so a resumed run needs no state of its schedule. Imports no torch."""

from collections.abc import Callable
from math import cos, pi, sqrt

from omegaconf import DictConfig

Shape = Callable[[DictConfig, int, int], float]  # schedule, steps, step -> factor, before warmup's


def rate(schedule: DictConfig, steps: int, peak: float, step: int) -> float:
    """The rate of update ``step`` (0-based) of ``steps``: peak times a linear warmup times the schedule's shape.

    Warmup multiplies by min(1, (step + 1) / warmup): the first update is never 0, the update warmup - 1 is the first at the
    peak, and warmup=0 (like warmup=1) gives the peak at once.
    """
    warm = min(1.0, (step + 1) / schedule.warmup) if schedule.warmup else 1.0
    return peak * warm * SCHEDULES[schedule.name](schedule, steps, step)


def _constant(_schedule: DictConfig, _steps: int, _step: int) -> float:
    return 1.0


def _cosine(schedule: DictConfig, steps: int, step: int) -> float:
    """Loshchilov and Hutter 2017 (arXiv:1608.03983), eq. 5, one period, its minimum ``final_ratio`` times the peak."""
    return _between(schedule.final_ratio, (1 + cos(pi * _progress(schedule, steps, step))) / 2)


def _linear(schedule: DictConfig, steps: int, step: int) -> float:
    return _between(schedule.final_ratio, 1 - _progress(schedule, steps, step))


def _inverse_sqrt(schedule: DictConfig, _steps: int, step: int) -> float:
    """Vaswani et al. 2017, eq. 3, scaled to reach the peak at the end of warmup."""
    return min(1.0, sqrt(max(schedule.warmup, 1) / (step + 1)))


SCHEDULES: dict[str, Shape] = {
    "constant": _constant,
    "cosine": _cosine,
    "linear": _linear,
    "inverse_sqrt": _inverse_sqrt,
}


def _progress(schedule: DictConfig, steps: int, step: int) -> float:
    """How much of the decay is behind: 0 up to the first update at the peak, 1 from the last update on.

    Where the first update at the peak is the last (warmup = steps, or a single step) there is no decay.
    """
    start: int = max(schedule.warmup - 1, 0)
    return min(max(step - start, 0) / max(steps - 1 - start, 1), 1.0)


def _between(low: float, share: float) -> float:
    return low + (1 - low) * share
