"""The inside of a branch: one row for each step away from its input, one slot for each map that reads the input. A box spans
the slots of all that it reads, so every line inside runs straight down."""

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.anatomy import words
from analysis.anatomy.graph import Graph, Node
from analysis.anatomy.marks import Box, Label, Line, Marks, Point

HEAD, BUS, FOOT = 0.62, 0.3, 0.34  # rows of a container above and below its boxes
HEIGHT, PITCH = 0.6, 1.02  # rows: of a box, and from one to the next
PAD, MARGIN, ASIDE = 0.16, 0.2, 0.07  # inches: between boxes, at the container's sides, from a line to its text
NARROW, WIDEST = 2.5, 4.9  # inches: of a box that carries the width of the stream, of the widest


@dataclass(frozen=True)
class Frame:
    """Where a container is: left edge and width in inches, top in rows."""

    left: float
    width: float
    top: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


def plan(graph: Graph, join: int, frame: Frame) -> tuple[Marks, Mapping[int, Point]]:
    """The marks of a branch's container, its rows counted from the page's, and the point below each of its nodes."""
    inside = {node.id: node for node in graph.nodes.values() if node.join == join and node.inside}
    rows = levels(graph, inside)
    spans = slots(graph, inside)
    marks = Marks(rows=HEAD + (BUS if _many(spans) else 0) + PITCH * len(set(rows.values())) - PITCH + HEIGHT + FOOT)
    marks.boxes.append(Box(frame.middle, frame.top + marks.rows / 2, frame.width, marks.rows, "container"))
    marks.labels += _heading(graph, join, inside, frame)
    order = sorted(set(rows.values()))
    first = frame.top + HEAD + (BUS if _many(spans) else 0) + HEIGHT / 2
    boxes = {}
    for number, node in inside.items():
        x, width = _extent(graph, node, spans, frame)
        boxes[number] = Box(x, first + PITCH * order.index(rows[number]), width, HEIGHT, node.kind, words.text(graph, node))
    marks.boxes += boxes.values()
    marks.lines += _entries(graph, inside, boxes, frame)
    for number in inside:
        for source in graph.inputs[number]:
            if source in inside:
                x = _between(boxes[source], boxes[number])
                marks.lines.append(Line(((x, boxes[source].bottom[1]), (x, boxes[number].top[1])), "branch"))
                marks.labels += _edge_label(graph, source, number, (x, boxes[source].bottom[1] + (PITCH - HEIGHT) / 2))
    return marks, {number: box.bottom for number, box in boxes.items()}


def levels(graph: Graph, inside: Mapping[int, Node]) -> dict[int, int]:
    """Longest way from the branch's input to each node; a memory comes before all."""
    found: dict[int, int] = {}
    for number, node in inside.items():
        before = [found[i] for i in graph.inputs[number] if i in found]
        found[number] = 0 if node.kind == "memory" else 1 + max(before, default=0)
    return found


def slots(graph: Graph, inside: Mapping[int, Node]) -> dict[int, tuple[int, int]]:
    """First slot and end of each node: those that read the input or a memory have one each, the others all that they read."""
    memory = [number for number, node in inside.items() if node.kind == "memory"]
    found: dict[int, tuple[int, int]] = {}
    used = 0
    for number in inside:
        known = [found[i] for i in graph.inputs[number] if i in found]
        if number in memory:
            continue
        if not known:
            found[number], used = (used, used + 1), used + 1
        else:
            found[number] = min(low for low, _ in known), max(high for _, high in known)
    for number in memory:
        readers = [found[i] for i in graph.readers(number)]
        found[number] = min(low for low, _ in readers), max(high for _, high in readers)
    return found


def _many(spans: Mapping[int, tuple[int, int]]) -> bool:
    return max(high for _, high in spans.values()) > 1


def _extent(graph: Graph, node: Node, spans: Mapping[int, tuple[int, int]], frame: Frame) -> tuple[float, float]:
    """Centre and width of a node's box in inches."""
    count = max(high for _, high in spans.values())
    slot = (frame.width - 2 * MARGIN) / count
    low, high = spans[node.id]
    x, width = frame.left + MARGIN + slot * (low + high) / 2, slot * (high - low) - PAD
    if count == 1:
        ratio = _features(node) / min(_features(other) for other in graph.nodes.values() if other.id in spans)
        return x, min(NARROW * ratio**0.5, WIDEST, width)
    alone = high - low == count and len(graph.inputs[node.id]) == 1
    return x, min(width, NARROW) if alone else width


def _features(node: Node) -> float:
    return float(node.shape[-1]) if isinstance(node.shape[-1], int) else 1.0


def _entries(graph: Graph, inside: Mapping[int, Node], boxes: Mapping[int, Box], frame: Frame) -> list[Line]:
    """From the top of the container to every node that reads the branch's input."""
    top = frame.middle, frame.top
    lines = []
    for number in inside:
        if any(i not in inside for i in graph.inputs[number]):
            end = boxes[number].top
            bus = frame.top + HEAD
            points = (top, end) if abs(end[0] - top[0]) < 1e-9 else (top, (top[0], bus), (end[0], bus), end)
            lines.append(Line(points, "branch"))
    return lines


def _between(upper: Box, lower: Box) -> float:
    """The middle of what two boxes have in common, from left to right."""
    left = max(upper.x - upper.width / 2, lower.x - lower.width / 2)
    right = min(upper.x + upper.width / 2, lower.x + lower.width / 2)
    return (left + right) / 2


def _edge_label(graph: Graph, source: int, target: int, at: Point) -> list[Label]:
    """The shape below a node, where it is another than above it; Q, K, V and the weights A with their names."""
    node = graph.nodes[source]
    above = {graph.carried[i, source][-1] for i in graph.inputs[source]}
    name = words.HEADS.get(node.name, "A" if node.kind == "softmax" else "")
    if not name and above == {graph.carried[source, target][-1]} and len(graph.carried[source, target]) == 1:
        return []
    text = words.edge(graph, source, target)
    return [Label(at[0] + ASIDE, at[1], f"${name}$  {text}" if name else text)]


def _heading(graph: Graph, join: int, inside: Mapping[int, Node], frame: Frame) -> list[Label]:
    y = frame.top + HEAD / 2 + 0.02
    left = Label(frame.left + MARGIN, y, words.heading(graph, join), "left", "heading")
    count = sum(node.parameters for node in inside.values())
    right = Label(frame.left + frame.width - MARGIN, y, f"{count:,} parameters", "right", "count")
    return [left, right]
