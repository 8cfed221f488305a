"""Configs for tests: what the command line would compose."""

from copy import deepcopy
from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments.config import CONF, register


def config(*overrides: str) -> DictConfig:
    return deepcopy(_composed(overrides))


@cache
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))
