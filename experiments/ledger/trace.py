"""The trace of one block: its ledger's steps, its graph and its sums, as results/ledger keeps them."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from experiments import identity
from experiments.branches import BranchModule
from experiments.config import ConfigError
from experiments.data import BYTES
from experiments.ledger import symbols
from experiments.ledger.graph import Part, Parts
from experiments.ledger.operations import hollow, record, strip
from experiments.ledger.parts import Gatherer
from experiments.ledger.steps import Step, steps
from experiments.ledger.symbols import Counts
from experiments.model import Block, Shape, Transformer, count_parameters
from experiments.trial import check_variants

SCHEMA = 1
KEPT = ("id", "kind", "name", "label", "join", "inside", "stream", "constant", "value", "learnt", "divides")  # of a part
LONGEST = max(tokens for _, tokens in symbols.PAIRS)


def trace(cfg: DictConfig, layer: int = 0, model_name: str = "") -> dict[str, Any]:
    """What the ledger says of block ``layer`` of a validated config, in plain types. The model is built without its weights.

    ConfigError if there is no such block, or the variant's own code fails.
    """
    if not 0 <= layer < cfg.model.depth:
        raise ConfigError(f"layer={layer} is no block of model.depth={cfg.model.depth}; choose 0 to {cfg.model.depth - 1}")
    if cfg.train.context < LONGEST:
        raise ConfigError(f"train.context={cfg.train.context} is too short to tell sizes apart; use {LONGEST} or more")
    try:
        return {"schema": SCHEMA, "model": model_name or size_name(cfg), **_trace(cfg, layer)}
    except (RuntimeError, TypeError, ValueError, AttributeError):
        check_variants([cfg])  # says more plainly what is wrong with a variant
        raise


def size_name(cfg: DictConfig) -> str:
    """The name of a size that no file of conf/model gives."""
    return f"L{cfg.model.depth}-d{cfg.model.width}"


def _trace(cfg: DictConfig, layer: int) -> dict[str, Any]:
    with hollow():
        model = Transformer(cfg.model, cfg.norm, Shape(cfg.data.vocab or BYTES, cfg.train.context))
    values = strip(model)
    graphs = [graph(model, values, other) for other in range(model.depth)]
    found, block = graphs[layer], cast("Block", model.blocks[layer])
    kinds = [str(branch.kind) for branch in cast("list[BranchModule]", list(block.branches))]
    streams = stream_names(cfg, len(found.outputs[-1]))
    weights = {path: parameter.numel() for path, parameter in block.named_parameters()}
    used = sum(weights[path] for part in found.parts for path in part.parameters)
    return {
        "variant": identity.variant(cfg),
        "label": identity.label(cfg),
        "equation": OmegaConf.to_container(cfg.norm.equation),
        "size": {key: cfg.model[key] for key in ("depth", "width", "n_head", "ffn")} | {"vocab": model.wte.num_embeddings},
        "layer": layer,
        "alike": [other for other, its in enumerate(graphs) if form(its) == form(found)],
        "streams": streams,
        "branches": kinds,
        "steps": [_step(number, row, found, weights) for number, row in enumerate(steps(found, kinds, streams))],
        "edges": [{"from": i, "to": part.id, "shape": _plain(found.parts[i])} for part in found.parts for i in part.inputs],
        "outputs": found.outputs,
        "parameters": {
            "block": sum(weights.values()),
            "elsewhere": sum(weights.values()) - used,
            "model": count_parameters(model),
        },
        "flops": _counts([part.flops for part in found.parts]),
    }


def graph(model: Transformer, values: Mapping[str, float], layer: int) -> Parts:
    """The graph of a block of a stripped model. values: of its constants, by path."""
    recordings = [record(model, layer, *pair) for pair in symbols.PAIRS]
    start = f"blocks.{layer}."
    own = {path.removeprefix(start): value for path, value in values.items() if path.startswith(start)}
    return Gatherer(recordings, cast("Block", model.blocks[layer]), own).gather()


def form(found: Parts) -> Any:
    """What makes two blocks alike: the same parts, read in the same order, with the same constants."""
    parts = [(part.kind, part.name, part.label, part.inputs, part.shape, part.constant, part.value) for part in found.parts]
    return parts, found.outputs


def stream_names(cfg: DictConfig, count: int) -> list[str]:
    """As the variant's equation names them."""
    names = ["x", *cfg.norm.equation.streams]
    return names if len(names) == count else [f"x{number}" for number in range(count)]


def _step(number: int, row: Step, found: Parts, weights: Mapping[str, int]) -> dict[str, Any]:
    read = dict.fromkeys(i for part in row.parts for i in part.inputs)
    return {
        "step": number,
        "operation": row.operation,
        "inputs": [_plain(found.parts[i]) for i in read],
        "outputs": [_plain(part) for part in row.parts],
        "parameters": sum(weights[path] for part in row.parts for path in part.parameters),
        "flops": _counts([part.flops for part in row.parts]),
        "note": row.note,
        "parts": [_part(part, weights) for part in row.parts],
    }


def _part(part: Part, weights: Mapping[str, int]) -> dict[str, Any]:
    kept = {key: getattr(part, key) for key in KEPT}
    return {**kept, "shape": _plain(part), "parameters": sum(weights[path] for path in part.parameters)}


def _plain(part: Part) -> list[int | str]:
    return [size.plain for size in part.shape]


def _counts(found: Iterable[Counts]) -> dict[str, int]:
    """A polynomial with its powers in words: ``{"B T": 14155776, "B T^2": 3072}``."""
    return {symbols.words(1, powers).replace("²", "^2"): factor for powers, factor in symbols.total(found).items()}
