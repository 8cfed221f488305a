"""Placements of normalisation: one module each, found by name."""

import importlib

from experiments.config import PACKAGE, ConfigError, modules_in
from experiments.placements.base import Placement


def find(name: str) -> type[Placement]:
    """The one Placement class that experiments/placements/<name>.py defines. ConfigError lists the known names."""
    known = modules_in(PACKAGE / "placements")
    if name not in known:
        raise ConfigError(f"norm.placement={name} is not known; known are: {', '.join(known)}")
    module = importlib.import_module(f"{__name__}.{name}")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Placement) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise ConfigError(f"experiments/placements/{name}.py defines {len(classes)} placements; it must define one")
    return classes[0]
