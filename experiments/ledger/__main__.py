"""``python -m experiments.ledger norm=pre model=gpt2`` prints a block's shape ledger and writes its trace to
<results>/ledger/<variant>-<model>.json."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from experiments import ledger
from experiments.choices import check_choices
from experiments.config import CONF, ConfigError, register
from experiments.ledger import table
from experiments.ledger.trace import size_name, trace
from experiments.state import make_folder, write_json
from experiments.validation import validate, validate_keys


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 1 if the config, or the block, is none."""
    parser = argparse.ArgumentParser(prog="python -m experiments.ledger", description=ledger.__doc__)
    parser.add_argument("overrides", nargs="*", help="of the config, as norm=post model=gpt2 norm.qk=rmsnorm")
    parser.add_argument("--layer", type=int, default=0, help="which block, 0 the first")
    parser.add_argument("--path", action="store_true", help="print nothing but where the trace is")
    given = parser.parse_args(arguments)
    try:
        cfg, model = configured(given.overrides)
        found = trace(cfg, given.layer, model)
        path = write(cfg, found)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not given.path:
        table.show(found, Console())
    print(os.path.relpath(path))
    return 0


def configured(overrides: Sequence[str]) -> tuple[DictConfig, str]:
    """The validated config, and the name of its model: its file's or its size, and further options."""
    register()
    validate_keys(overrides)
    check_choices(overrides)
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = compose("config", list(overrides), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        said = f"{error} {error.__cause__ or ''}".partition("Config search path")[0].partition("full_key:")[0]
        raise ConfigError(" ".join(said.split())) from error
    name = str(OmegaConf.select(cfg, "hydra.runtime.choices.model") or "")
    OmegaConf.set_struct(cfg, False)
    del cfg["hydra"]
    OmegaConf.set_struct(cfg, True)
    validate(cfg)
    return cfg, "-".join([name or size_name(cfg), *_further(overrides)])


def _further(overrides: Sequence[str]) -> list[str]:
    """Options of the model that its name does not tell, as words of a file's name."""
    options = [
        override.lstrip("+").removeprefix("model.") for override in overrides if override.lstrip("+").startswith("model.")
    ]
    return [re.sub(r"[^\w.]+", "_", option) for option in options if option.partition("=")[0] not in ("depth", "width")]


def write(cfg: DictConfig, found: dict[str, object]) -> Path:
    """Keep a trace; that of a block other than the first has its number in the name."""
    folder = Path(cfg.results) / "ledger"
    make_folder(folder)
    layer = f"-layer{found['layer']}" if found["layer"] else ""
    path = folder / f"{found['variant']}-{found['model']}{layer}.json"
    write_json(path, found)
    return path


if __name__ == "__main__":
    sys.exit(main())
