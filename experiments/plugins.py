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
    file = f"experiments/{package.name}/{name}.py"
    try:
        module = importlib.import_module(f"experiments.{package.name}.{name}")
    except Exception as error:  # whatever a module's code may raise
        raise ConfigError(f"{file} cannot be imported: {type(error).__name__}: {error}; correct it") from error
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, kind) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise ConfigError(f"{file} defines {len(classes)} {kind.__name__} classes; make it one")
    return classes[0]
