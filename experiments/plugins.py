"""Plug-ins: a package folder in which every module defines one class, found by the module's name."""

import importlib
from pathlib import Path
from typing import TypeVar

from experiments.config import ConfigError, modules_in

Kind = TypeVar("Kind")


def find(package: Path, kind: type[Kind], key: str, name: str) -> type[Kind]:
    """The class that experiments/<package>/<name>.py defines. ConfigError says what ``key`` may be, or what is wrong."""
    known = modules_in(package)
    if name not in known:
        raise ConfigError(f"{key}={name} is not known; known are: {', '.join(known)}")
    module = importlib.import_module(f"experiments.{package.name}.{name}")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, kind) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise ConfigError(f"experiments/{package.name}/{name}.py defines {len(classes)} {kind.__name__} classes; make it one")
    return classes[0]
