"""Every check of a config that needs neither model nor data; a sweep makes them for all its jobs before any starts."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches

from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.config import CONF, INSIDE, KNOWN, PACKAGE, TAKES_BETAS, TAKES_STD, Config, ConfigError, modules_in
from experiments.formula import names_in

SEEDS = 2**63  # torch's generators take no more
COLOR = re.compile(r"#[0-9A-Fa-f]{6}")
LINESTYLE = re.compile(r"-|--|-\.|:|\(\d+, \(\d+(\.\d+)?(, \d+(\.\d+)?)+\)\)")


def validate(cfg: DictConfig) -> None:
    """Raise ConfigError for the first value that cannot be run. Reads no data and imports no torch."""
    for message in _complaints(cfg):
        raise ConfigError(message)


def _complaints(cfg: DictConfig) -> Iterator[str]:
    yield from _misspelt(cfg, Config)
    if not cfg.results:
        yield "results= is empty; name a folder, as results=results"
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        yield f"no value for {', '.join(missing)}: set it on the command line or in conf/config.yaml"
    for key, known in KNOWN.items():
        value = OmegaConf.select(cfg, key)
        yield from _unknown(key, value if isinstance(value, ListConfig) else [value], known)
    yield from _unknown("probe.names", cfg.probe.names, modules_in(PACKAGE / "probes"))
    yield from _norm(cfg.norm)
    yield from _numbers(cfg)
    yield from _model(cfg.model)
    drawn = cfg.init.name in TAKES_STD
    if drawn != (cfg.init.std is not None):
        remedy = "set it, as 0.02" if drawn else "it has a std of its own, use init.std=null"
        yield f"init.std={cfg.init.std} with init.name={cfg.init.name}: {remedy}"
    yield from _training(cfg)


def validate_keys(overrides: Iterable[str]) -> None:
    """Raise ConfigError for the first override whose key no field has, before Hydra advises to add it with a +."""
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if not key.startswith("hydra") and not (CONF / key).is_dir():
            for message in _misspelt_key(key.split("."), Config):
                raise ConfigError(message)


def _misspelt_key(path: list[str], schema: type, prefix: str = "") -> Iterator[str]:
    kinds = {f.name: f.type for f in fields(schema)}
    name, *rest = path
    kind = kinds.get(name)
    if name not in kinds:
        yield _no_option(name, kinds, prefix)
    elif rest and isinstance(kind, type) and is_dataclass(kind):
        yield from _misspelt_key(rest, kind, f"{prefix}{name}.")


def _misspelt(cfg: DictConfig, schema: type, prefix: str = "") -> Iterator[str]:
    """Keys of a config that no field has."""
    kinds = {f.name: f.type for f in fields(schema)}
    for key in map(str, cfg):
        kind = kinds.get(key)
        if key not in kinds:
            yield _no_option(key, kinds, prefix)
        elif isinstance(kind, type) and is_dataclass(kind):
            yield from _misspelt(cfg[key], kind, f"{prefix}{key}.")


def _no_option(key: str, known: Iterable[str], prefix: str) -> str:
    near = get_close_matches(key, known, n=1)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"options are: {', '.join(known)}"
    return f"{prefix}{key} is no option; {hint}"


def _unknown(key: str, values: Iterable[str], known: tuple[str, ...]) -> Iterator[str]:
    for value in values:
        if value not in known:
            yield f"{key}={value} is not known; known are: {', '.join(known)}"


def _numbers(cfg: DictConfig) -> Iterator[str]:
    at_least_one = (
        "model.depth model.width model.n_head model.d_ff model.memory_tokens model.vocab model.max_positions train.batch "
        "train.context train.accumulate train.eval_every train.eval_batches study.draws probe.every probe.per_decade "
        "data.vocab threads sweep.jobs"
    )
    for key in at_least_one.split():
        value = OmegaConf.select(cfg, key)
        if value is not None and value < 1:
            yield f"{key}={value} must be 1 or more"
    for key in ("norm.eps", "norm.dyt_alpha", "optim.lr", "optim.eps", "model.rope_base"):
        value = OmegaConf.select(cfg, key)
        if value is not None and not (math.isfinite(value) and value > 0):
            yield f"{key}={value} must be a finite number above 0"
    for key in ("optim.weight_decay", "init.std", "init.embedding_std", "init.qk_gain", "train.steps"):
        value = OmegaConf.select(cfg, key)
        if value is not None and not (math.isfinite(value) and value >= 0):
            yield f"{key}={value} must be a finite number, 0 or more"
    for key in ("model.dropout", "optim.momentum"):
        value = OmegaConf.select(cfg, key)
        if not 0 <= value < 1:
            yield f"{key}={value} must be in [0, 1)"
    for key in ("schedule.final_ratio", "model.memory_cosine"):
        value = OmegaConf.select(cfg, key)
        if not 0 <= value <= 1:
            yield f"{key}={value} must be in [0, 1]"
    if not 0 <= cfg.seed < SEEDS:
        yield f"seed={cfg.seed} must be 0 or more, and below 2^63"


def _norm(norm: DictConfig) -> Iterator[str]:
    """A run is named and drawn after its norm file, so the file must be that of the placement, and drawable."""
    path = CONF / "norm" / f"{norm.name}.yaml"
    given = OmegaConf.load(path) if path.exists() else norm
    known = modules_in(PACKAGE / "placements")
    if norm.placement not in known:
        yield (
            f"norm.placement={norm.placement}, of conf/norm/{norm.name}.yaml, is not known: there is no "
            f"experiments/placements/{norm.placement}.py; write it, or name one of: {', '.join(known)}"
        )
    if given.placement != norm.placement:
        yield f"norm.placement={norm.placement} under the name of norm={norm.name}; choose the placement by its file: norm=..."
    if not COLOR.fullmatch(norm.color):
        yield f"norm.color={norm.color} is no colour; write it as '#0072B2'"
    for key, formula in _formulas(norm.equation):
        try:
            names_in(formula)
        except ConfigError as error:
            yield f"conf/norm/{norm.name}.yaml, equation.{key}: {error}"
    for name in norm.equation.inside:
        if name not in INSIDE:
            yield f"norm.equation.inside={name} is not known; known are: {', '.join(INSIDE)}"
    if not LINESTYLE.fullmatch(norm.linestyle):
        yield f"norm.linestyle={norm.linestyle} is no line style; use - -- -. : or dashes in points as '(0, (5, 1))'"


def _formulas(equation: DictConfig) -> Iterator[tuple[str, str]]:
    """Every formula that is given, with its key."""
    yield from ((key, equation[key]) for key in ("x", "out", "gain") if equation[key])
    for group in ("streams", "enter", "where", "start"):
        yield from ((f"{group}.{name}", text) for name, text in equation[group].items())


def _model(model: DictConfig) -> Iterator[str]:
    if model.width % model.n_head:
        yield f"model.width={model.width} is not a multiple of model.n_head={model.n_head}; choose a divisor of the width"
    if not model.branches or len(set(model.branches)) < len(model.branches):
        yield f"model.branches={list(model.branches)} must name each kind of branch at most once, as [attn, ffn]"
    head = model.width // model.n_head
    if model.positions == "rope" and head % 2:
        yield (
            f"model.positions=rope rotates pairs, but the head width {head} (model.width={model.width} / "
            f"model.n_head={model.n_head}) is odd; choose an even head width or model.positions=learned"
        )


def _training(cfg: DictConfig) -> Iterator[str]:
    train, schedule = cfg.train, cfg.schedule
    positions = cfg.model.max_positions
    if positions is not None and positions < train.context:
        yield f"train.context={train.context} is longer than model.max_positions={positions}; shorten it or raise that"
    if schedule.warmup < 0:
        yield f"schedule.warmup={schedule.warmup} must be 0 or more"
    if schedule.warmup > train.steps > 0:
        yield f"schedule.warmup={schedule.warmup} is longer than train.steps={train.steps}; shorten it or train longer"
    if train.batch % train.accumulate:
        yield f"train.batch={train.batch} is not a multiple of train.accumulate={train.accumulate}; choose a divisor"
    if train.clip is not None and not train.clip > 0:
        yield f"train.clip={train.clip} must be above 0; use train.clip=null to switch clipping off"
    betas = cfg.optim.betas
    if betas is not None and (len(betas) != 2 or not all(0 <= beta < 1 for beta in betas)):
        yield f"optim.betas={betas} must be two numbers in [0, 1)"
    if cfg.optim.name in TAKES_BETAS and (betas is None or cfg.optim.eps is None):
        yield f"optim.name={cfg.optim.name} needs optim.betas and optim.eps; choose it with optim={cfg.optim.name}"
    if not cfg.probe.names:
        yield "probe.names is empty: a run without probes records nothing by layer; leave out the override"
    if sum(cfg.probe[key] is not None for key in ("every", "per_decade", "steps")) > 1:
        yield "probe.every, probe.per_decade and probe.steps exclude each other; set the others to null"
    if any(step < 0 for step in cfg.probe.steps or ()):
        yield f"probe.steps={list(cfg.probe.steps)} must be 0 or more"
