"""Probes: one quantity, or family of quantities, a module, found by name."""

import importlib

from experiments.config import PACKAGE, ConfigError, modules_in
from experiments.probes.base import Column, Probe

KNOWN = modules_in(PACKAGE / "probes")


def find(name: str) -> type[Probe]:
    """The one Probe class that experiments/probes/<name>.py defines. ConfigError lists the known names."""
    if name not in KNOWN:
        raise ConfigError(f"probe.names={name} is not known; known are: {', '.join(KNOWN)}")
    module = importlib.import_module(f"{__name__}.{name}")
    (kind,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Probe) and value.__module__ == module.__name__
    )
    return kind


def columns() -> tuple[Column, ...]:
    """Every column that a probe declares."""
    return tuple(column for name in KNOWN for column in find(name).columns)
