"""What the command line chooses of conf/, looked at before Hydra composes it: one line says what is wrong."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path

from omegaconf import MISSING as REQUIRED
from omegaconf import DictConfig, OmegaConf

from experiments.config import CONF, ConfigError, NormConfig

NAME = re.compile(r"[\w-]+")


def check_choices(overrides: Iterable[str]) -> None:
    """ConfigError for the first choice of a group that has no file, or of a norm whose file cannot be used."""
    groups = {path.name for path in CONF.iterdir() if path.is_dir()}
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        if group not in groups:
            continue
        if value.startswith("["):
            first = value.strip("[]").split(",")[0]
            raise ConfigError(f"{override} is a list; choose one, as {group}={first}, or sweep them with -m")
        for name in (word.strip("'\" ") for word in value.split(",")):
            _check(CONF / group, name)


def _check(folder: Path, name: str) -> None:
    if not NAME.fullmatch(name) or name == "null":
        return  # a factor's path, a sweep's glob, nothing
    path = folder / f"{name}.yaml"
    if not path.exists():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? known" if near else "known"
        raise ConfigError(f"{folder.name}={name} is not known; {hint} are: {', '.join(known)}")
    for complaint in _complaints(path) if folder.name == "norm" else ():
        raise ConfigError(f"{path.relative_to(CONF.parent)}: {complaint}")


def _complaints(path: Path) -> Iterator[str]:
    """What keeps a norm's file from being used."""
    try:
        given = OmegaConf.load(path)
    except Exception as error:  # whatever a parser says of somebody's file
        yield f"cannot be read: {' '.join(str(error).split())}"
        return
    if not isinstance(given, DictConfig) or not given:
        yield "holds no options; write name, placement, label, color, linestyle and equation, as conf/norm/pre.yaml does"
        return
    known = {field.name: field.default for field in fields(NormConfig)}
    unknown = [str(key) for key in given if str(key) not in known]
    if unknown:
        yield f"{', '.join(unknown)} is no option; options are: {', '.join(known)}"
    shared = {"kind", "eps"}  # conf/config.yaml has them
    missing = [name for name, default in known.items() if default == REQUIRED and name not in shared | given.keys()]
    if missing:
        yield f"{', '.join(missing)} is missing"
