"""Passes over a model that are no part of its training: eager, by block or by branch, outside autocast."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from torch import Tensor

from experiments.model import Block, Transformer
from experiments.placements.base import Branch, Placement, Stream
from experiments.probes.base import gauges_of


@contextmanager
def apart(model: Transformer) -> Iterator[None]:
    """Evaluation mode with gauges and watchers off; all three are as before afterwards. Draws no random number."""
    training, watchers = model.training, model.watchers
    gauges = [gauge for gauge in gauges_of([model]) if gauge.on]
    model.eval()
    model.watchers = ()
    for gauge in gauges:
        gauge.on = False
    try:
        yield
    finally:
        model.train(training)
        model.watchers = watchers
        for gauge in gauges:
            gauge.on = True


def enter(model: Transformer, x_BTD: Tensor) -> Stream:
    """What the first join receives when point 0 of the stream is x_BTD."""
    return _joins(model)[0].enter(x_BTD)


def leave(model: Transformer, stream: Stream) -> Tensor:
    """What the readout reads when the last block returns ``stream``: the last normalised state."""
    return _joins(model)[-1].leave(stream, model.final_norm)


def blocks(model: Transformer, start: int = 0) -> list[Block]:
    """The blocks from ``start`` on. Call their ``forward``: calling a compiled block itself would compile it anew for
    evaluation."""
    return cast("list[Block]", list(model.blocks)[start:])


def points(model: Transformer, tokens_BT: Tensor) -> Iterator[Stream]:
    """The stream at each of the N = L + 1 points, as a watcher sees it."""
    x_BTD = model.embed(tokens_BT)
    yield x_BTD
    stream = enter(model, x_BTD)
    for block in blocks(model):
        stream = block.forward(stream)
        yield stream


def state(model: Transformer, tokens_BT: Tensor) -> Tensor:
    """What the readout reads, [B, T, D]: F in the claims about amplification and model update."""
    *_, last = points(model, tokens_BT)
    return leave(model, last)


def joined(join: Placement, branch: Branch, stream: Stream) -> tuple[Stream, Tensor]:
    """The stream after a branch, and what the branch itself returned."""
    returned: list[Tensor] = []

    def observed(x_BTD: Tensor) -> Tensor:
        returned.append(branch(x_BTD))
        return returned[-1]

    after = join(stream, observed)
    (y_BTD,) = returned
    return after, y_BTD


def _joins(model: Transformer) -> list[Placement]:
    return [join for _, join, _ in model.sites()]
