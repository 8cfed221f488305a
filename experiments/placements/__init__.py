"""Placements of normalisation: one module each, found by name."""

from pathlib import Path

from experiments import plugins
from experiments.config import ConfigError
from experiments.placements.base import Placement


def find(name: str) -> type[Placement]:
    """The placement that experiments/placements/<name>.py defines. ConfigError lists the known names, or says what the module
    lacks."""
    found = plugins.find(Path(__file__).parent, Placement, "norm.placement", name)  # type: ignore[type-abstract]
    if not isinstance(getattr(found, "final_norm", None), bool):
        raise ConfigError(f"experiments/placements/{name}.py: {found.__name__} lacks final_norm; set it to True or False")
    return found
