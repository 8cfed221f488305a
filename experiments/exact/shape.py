"""C16: a block maps (B, T, d) to (B, T, d), whatever the placement."""

from collections.abc import Iterator
from pathlib import Path

from experiments import placements
from experiments.config import modules_in
from experiments.exact.check import Check, normal, transformer
from experiments.placements.base import Stream, streams_of

SIZES = ((1, 1, 8), (2, 7, 16), (3, 16, 64))  # B, T, d
BRANCHES = ({"ffn": "gelu"}, {"ffn": "swiglu"}, {"branches": ["ffn"]}, {"branches": ["attn", "cross", "ffn"]})  # of a block
DEPTH = 4


def checks() -> Iterator[Check]:
    for placement in modules_in(Path(placements.__file__).parent):
        yield of_placement(placement)


def of_placement(placement: str) -> Check:
    blocks = f"{DEPTH} blocks of attention and GELU or SwiGLU, of GELU alone, or with cross-attention"
    setting = f"{placement}, {blocks}, (B, T, d) in {SIZES}"
    quantity = "blocks that do not map each stream of shape (B, T, d) to one of the same shape"
    return Check("C16", f"{placement}_shape", quantity, setting, 0.0, float(violations(placement)), 0.0)


def violations(placement: str) -> int:
    """Blocks whose output differs from the stream that enters the model in shape or in the number of streams."""
    count = 0
    for B, T, D in SIZES:
        for options in BRANCHES:
            model = transformer(placement, depth=DEPTH, width=D, **options)
            _, first_join, _ = next(model.sites())
            stream = first_join.enter(normal(B, T, D).float())
            given = shapes(stream)
            count += sum(given != [(B, T, D)] * len(given) or shapes(block(stream)) != given for block in model.blocks)
    return count


def shapes(stream: Stream) -> list[tuple[int, ...]]:
    """Of every tensor of a stream."""
    return [tuple(x.shape) for x in streams_of(stream)]
