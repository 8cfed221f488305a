"""A block's graph as a drawing needs it: read from a trace of results/ledger, reshapes folded into the edges."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Node:
    """A part of the block, as experiments.ledger names it. ``stream``: on whose lane it lies, past the branch."""

    id: int
    kind: str
    name: str
    label: str
    join: int | None
    inside: bool
    stream: int | None
    shape: Shape
    constant: str | None = None
    value: float | None = None
    learnt: bool = False
    divides: bool = False
    parameters: int = 0


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of the forward pass. inputs: of each, in the order they are read. outputs: of each join, the nodes
    that its streams leave by. carried: the shapes that an edge takes, one, or two if it reshapes."""

    nodes: Mapping[int, Node]
    inputs: Mapping[int, Sequence[int]]
    outputs: Sequence[Sequence[int]]
    carried: Mapping[tuple[int, int], tuple[Shape, ...]]
    streams: Sequence[str]
    branches: Sequence[str]

    def key(self, number: int) -> int:
        """The node itself, or for what is inside of a branch a number below 0, one for each join."""
        node = self.nodes[number]
        return -1 - (node.join or 0) if node.inside else number

    def readers(self, node: int) -> list[int]:
        return [other for other, inputs in self.inputs.items() if node in inputs]

    def ancestors(self, start: Iterable[int]) -> set[int]:
        """Every node that the given ones depend on, themselves excluded unless one depends on another."""
        found: set[int] = set()
        todo = [i for node in start for i in self.inputs[node]]
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo += self.inputs[node]
        return found


def read(trace: Mapping[str, Any]) -> Graph:
    """The graph of a trace."""
    parts = {part["id"]: part for step in trace["steps"] for part in step["parts"]}
    before: dict[int, list[int]] = {number: [] for number in sorted(parts)}
    for edge in trace["edges"]:
        before[edge["to"]].append(edge["from"])

    def source(number: int) -> int:
        while parts[number]["kind"] == "reshape":
            number = before[number][0]
        return number

    kept = [number for number in before if parts[number]["kind"] != "reshape"]
    carried = {}
    for number in kept:
        for i in before[number]:
            shapes = [tuple(parts[source(i)]["shape"]), tuple(parts[i]["shape"])]
            carried[source(i), number] = tuple(dict.fromkeys(shapes))
    graph = Graph(
        nodes={number: _node(parts[number]) for number in kept},
        inputs={number: [source(i) for i in before[number]] for number in kept},
        outputs=[[source(i) for i in join] for join in trace["outputs"]],
        carried=carried,
        streams=trace["streams"],
        branches=trace["branches"],
    )
    return _changing_lanes(graph)


def _changing_lanes(graph: Graph) -> Graph:
    """Where a join hands one stream on as another, as a node of its own in the other's lane; its readers read that."""
    nodes, inputs, carried = dict(graph.nodes), {k: list(v) for k, v in graph.inputs.items()}, dict(graph.carried)
    outputs = [list(join) for join in graph.outputs]
    for join, streams in enumerate(outputs[:-1]):
        for stream, source in enumerate(list(streams)):
            if lane(nodes[source]) in {stream, None} or source in streams[:stream]:
                continue
            copy = max(nodes) + 1
            nodes[copy] = Node(copy, "copy", "", "", join, False, stream, nodes[source].shape)
            for later, read in inputs.items():
                if source in read and (nodes[later].join or 0) > join:
                    inputs[later] = [copy if i == source else i for i in read]
                    carried[copy, later] = carried.pop((source, later))
            inputs[copy], carried[source, copy] = [source], (nodes[source].shape,)
            outputs[join:] = [[copy if i == source else i for i in left] for left in outputs[join:]]
    return replace(graph, nodes=nodes, inputs=inputs, outputs=outputs, carried=carried)


def lane(node: Node) -> int | None:
    """The stream in whose lane a node lies."""
    return int(node.name) if node.kind == "input" else node.stream


def _node(part: Mapping[str, Any]) -> Node:
    kept: dict[str, Any] = {name: part[name] for name in Node.__dataclass_fields__}
    return Node(**{**kept, "shape": tuple(part["shape"])})
