"""Placements of normalisation: one module each, found by name."""

from pathlib import Path

from experiments import plugins
from experiments.placements.base import Placement


def find(name: str) -> type[Placement]:
    """The placement that experiments/placements/<name>.py defines. ConfigError lists the known names."""
    return plugins.find(Path(__file__).parent, Placement, "norm.placement", name)  # type: ignore[type-abstract]
