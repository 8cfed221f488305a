"""Probes: one quantity, or family of quantities, a module, found by name."""

from pathlib import Path

from experiments import plugins
from experiments.config import modules_in
from experiments.probes.base import Column, Probe

FOLDER = Path(__file__).parent
KNOWN = modules_in(FOLDER)


def find(name: str) -> type[Probe]:
    """The probe that experiments/probes/<name>.py defines. ConfigError lists the known names."""
    return plugins.find(FOLDER, Probe, "probe.names", name)  # type: ignore[type-abstract]


def columns() -> tuple[Column, ...]:
    """Every column that a probe declares."""
    return tuple(column for name in KNOWN for column in find(name).columns)
