"""The graph of a block."""

from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.ledger.symbols import Counts, Shape


@dataclass
class Part:
    """A node of a block's graph.

    kind : input, memory, norm, linear, rotary, reshape, scores, softmax, values, activation, product, add, scale,
        fresh, other.
    join : in whose turn it happens; None for what enters the block. inside : the branch.
    stream : on whose way past the branch, from the join's input to its output, it lies; None if on none.
    inputs : other parts, in the order they are read. parameters : their paths, at their first use.
    constant, value : of a scale, where known; learnt; divides, rather than multiplies.
    axes : the last ones that a norm takes together.
    """

    id: int
    kind: str
    name: str
    join: int | None
    inside: bool
    label: str = ""
    stream: int | None = None
    inputs: list[int] = field(default_factory=list)
    shape: Shape = ()
    parameters: list[str] = field(default_factory=list)
    flops: Counts = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)
    constant: str | None = None
    value: float | None = None
    learnt: bool = False
    divides: bool = False
    axes: int = 1


class Parts(NamedTuple):
    """The graph of a block: its parts in the order of the forward pass, and the parts that each join's streams leave by."""

    parts: list[Part]
    outputs: list[list[int]]
