"""The parts of a block as the steps of its ledger: what runs side by side in a branch, as Q, K and V do, is one step."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.ledger import words
from experiments.ledger.graph import Part, Parts


@dataclass(frozen=True)
class Step:
    """A row of the ledger."""

    operation: str
    note: str
    parts: tuple[Part, ...]


def steps(graph: Parts, branches: Sequence[str], streams: Sequence[str]) -> list[Step]:
    """The steps in the order of the forward pass, the block's input first.

    branches : kind of branch of each join. streams : names.
    """
    namer = words.Namer(graph, branches, streams)
    rows = [[part for part in graph.parts if part.kind == "input"]]
    for join in range(len(branches)):
        own = [part for part in graph.parts if part.join == join]
        inside = [part for part in own if part.inside]
        began = min((part.id for part in inside if part.inputs), default=0)
        rows += [[part] for part in own if not part.inside and part.id < began]
        rows += _side_by_side(inside)
        rows += [[part] for part in own if not part.inside and part.id > began]
    return [Step(namer.operation(row), namer.note(row), tuple(row)) for row in rows]


def _side_by_side(inside: Sequence[Part]) -> list[list[Part]]:
    """The parts of a branch by their distance from its input, those alike together."""
    levels = level_of(inside)
    rows: dict[tuple[object, ...], list[Part]] = {}
    for part in inside:
        alike = part.name if part.kind == "other" else part.label
        rows.setdefault((levels[part.id], part.kind, alike, part.shape), []).append(part)
    return sorted(rows.values(), key=lambda row: (levels[row[0].id], row[0].id))


def level_of(inside: Sequence[Part]) -> dict[int, int]:
    """Longest way from the branch's input to each of its parts; 0 for a memory."""
    levels: dict[int, int] = {}
    for part in inside:
        before = [levels[i] for i in part.inputs if i in levels]
        levels[part.id] = 0 if part.kind == "memory" else 1 + max(before, default=0)
    return levels
