"""A first look at every variant that is about to be trained: two blocks, one short sequence."""

from collections.abc import Iterable, Iterator

import torch
from omegaconf import DictConfig
from torch import nn

from experiments import placements, walk
from experiments.config import ConfigError
from experiments.init import initialise
from experiments.model import Shape, Transformer
from experiments.placements.base import Stream, streams_of

DEPTH, VOCAB, CONTEXT = 2, 16, 8
SEED = 0


def check_variants(cfgs: Iterable[DictConfig]) -> None:
    """ConfigError, naming the variant's files, for the first config whose placement cannot be built, does not keep the shape
    of the stream, or is not finite at initialisation."""
    for cfg in cfgs:
        for complaint in _complaints(cfg):
            name = cfg.norm.placement
            raise ConfigError(f"norm={cfg.norm.name}: {complaint}; correct experiments/placements/{name}.py")


def _complaints(cfg: DictConfig) -> Iterator[str]:
    placements.find(cfg.norm.placement)
    small = cfg.model.copy()
    small.depth, small.vocab, small.max_positions = DEPTH, VOCAB, CONTEXT
    tokens_BT = torch.arange(CONTEXT).view(1, -1) % VOCAB
    where = "the constructor"
    try:
        model = Transformer(small, cfg.norm, Shape(VOCAB, CONTEXT))
        for name, module in (named for _, join, _ in model.sites() for named in join.named_modules()):
            if isinstance(module, nn.Linear | nn.Embedding):
                kind = type(module).__name__
                yield f"{name} is nn.{kind}, which no init scheme draws; a join owns norms (make_norm) and nn.Parameter only"
        initialise(model, cfg.init, SEED)
        x_BTD = model.embed(tokens_BT)
        where = "enter"
        stream = walk.enter(model, x_BTD)
        given = _shapes(stream)
        for layer, join, branch in model.sites():
            where = f"the update of block {layer}, {branch.kind},"
            stream = join(stream, branch)
            if _shapes(stream) != given:
                yield f"{where} makes a stream of shape {_words(_shapes(stream))} from one of {_words(given)}"
            elif not all(bool(x.isfinite().all()) for x in streams_of(stream)):
                yield f"{where} is not finite at initialisation"
        where = "leave"
        left = walk.leave(model, stream)
        if left.shape != x_BTD.shape:
            yield f"{where} makes {tuple(left.shape)} of streams of {_words(given)}"
        elif not bool(left.isfinite().all()):
            yield f"{where} is not finite at initialisation"
    except ConfigError:
        raise
    except Exception as error:  # whatever a variant's code may raise
        yield f"{where} fails with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def _shapes(stream: Stream) -> list[tuple[int, ...]]:
    return [tuple(x.shape) for x in streams_of(stream)]


def _words(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(map(str, shapes))
