"""The lines of an anatomy: down a lane, from a lane to the branches and back, from lane to lane."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.anatomy import words
from analysis.anatomy.branch import ASIDE, HEIGHT, PITCH
from analysis.anatomy.graph import Graph
from analysis.anatomy.marks import Box, Dot, Label, Line, Marks, Point

BELOW = 0.2  # rows from a node to the shape beside the lane
WIDE, PASSING = 2.5, 0.3  # inches: of a node in the column; from it to a line that passes it, on the side without labels


@dataclass(frozen=True)
class Spot:
    """A placed node: its box, or its container's; the lane it lies in, None for the column; where its line leaves."""

    box: Box
    lane: int | None
    leaves: Point


@dataclass
class Spots:
    """Where everything is. lanes: in inches from the left. Keys of forks and exits are those of Graph.key."""

    lanes: Sequence[float]
    of: dict[int, Spot] = field(default_factory=dict)
    containers: dict[int, Box] = field(default_factory=dict)
    forks: dict[int, float] = field(default_factory=dict)  # rows in which something's line leaves a lane
    exits: dict[int, float] = field(default_factory=dict)  # rows in which one turns to a lane while another goes on below
    ends: list[Box] = field(default_factory=list)  # what each stream leaves the block by
    turn: float = 0.0  # the row in which streams change lanes at the end


def connect(graph: Graph, spots: Spots) -> Marks:
    """The lines between placed nodes, with the shapes beside them."""
    return _Connector(graph, spots).connect()


class _Connector:
    def __init__(self, graph: Graph, spots: Spots) -> None:
        self.graph, self.spots, self.marks = graph, spots, Marks()

    def connect(self) -> Marks:
        pairs = [(source, self.graph.key(target)) for target, inputs in self.graph.inputs.items() for source in inputs]
        for source, key in dict.fromkeys(pairs):
            if self.graph.key(source) == key < 0:
                continue  # the container's own
            if key < 0:
                self._edge(source, key, self.spots.containers[key], None)
            elif self.graph.nodes[key].kind == "copy":
                self._cross(source, self.spots.of[key])
            else:
                self._edge(source, key, self.spots.of[key].box, self.spots.of[key].lane)
        for stream, source in enumerate(self.graph.outputs[-1]):
            self._end(stream, self.spots.of[source])
        for left in self.graph.outputs[:-1]:
            for source in dict.fromkeys(left):
                self._shape(source)
        return self.marks

    def _edge(self, source: int, key: int, box: Box, lane: int | None) -> None:
        spot = self.spots.of[source]
        if lane is None and spot.lane is None:
            self._down(source, key, box)
        elif lane is None:
            self._fork(source, key, box)
        elif lane == spot.lane:
            self._line((spot.leaves, box.top), f"stream{lane}")
        else:
            self._join(source, box)

    def _down(self, source: int, key: int, box: Box) -> None:
        """From one thing in the column to the next, or past others that stand between."""
        spot = self.spots.of[source]
        (x, y), top, above = spot.leaves, box.top, box.top[1] - (PITCH - HEIGHT) / 2
        way: tuple[Point, ...] = ((x, y), top) if abs(x - top[0]) < 1e-9 else ((x, y), (x, above), (top[0], above), top)
        if self._between(spot.box, box):
            aside, below = top[0] - WIDE / 2 - PASSING, spot.box.bottom[1] + (PITCH - HEIGHT) / 2
            way = ((x, y), (x, below), (aside, below), (aside, above), (top[0], above), top)
        self._line(way, "branch", key >= 0)
        self.marks.labels.append(Label(top[0] + ASIDE, above, words.shape(self.graph.nodes[source].shape)))

    def _between(self, upper: Box, lower: Box) -> bool:
        """Whether something in the column stands between two boxes of it."""
        column = [*self.spots.containers.values(), *(spot.box for spot in self.spots.of.values() if spot.lane is None)]
        return any(upper.bottom[1] < box.y < lower.top[1] for box in column)

    def _fork(self, source: int, key: int, box: Box) -> None:
        """From a lane to the column: from above, or from the side where another line comes from above."""
        spot = self.spots.of[source]
        x, y = spot.leaves
        if key in self.spots.forks:
            row = self.spots.forks[key]
            way: tuple[Point, ...] = ((x, row), (box.x, row), box.top)
        else:
            way = ((x, box.y), _side(box, x))
        if self._goes_on(source):
            self.marks.dots.append(Dot(*way[0], f"stream{spot.lane}"))
        else:
            way = ((x, y), *way)
        self._line(way, "branch", key >= 0)

    def _join(self, source: int, box: Box) -> None:
        """From the column, or another lane, to a node in a lane."""
        spot = self.spots.of[source]
        (x, y), key = spot.leaves, self.graph.key(source)
        row = self.spots.exits.get(key, box.y)
        style = "branch" if spot.lane is None else f"stream{spot.lane}"
        start = ((x, row),) if self._goes_on(source) else ((x, y), (x, row))
        self._line((*start, _side(box, x)), style)
        if key in self.spots.exits or self._goes_on(source):
            self.marks.dots.append(Dot(x, row, style))

    def _cross(self, source: int, there: Spot) -> None:
        """From a lane to the top of another."""
        x, row = self.spots.of[source].leaves[0], there.box.y
        start = ((x, row),) if self._goes_on(source) else (self.spots.of[source].leaves, (x, row))
        self._line((*start, (there.box.x, row), there.leaves), f"stream{there.lane}", arrow=False)
        if self._goes_on(source):
            self.marks.dots.append(Dot(x, row, f"stream{self.spots.of[source].lane}"))

    def _end(self, stream: int, spot: Spot) -> None:
        (x, y), box = spot.leaves, self.spots.ends[stream]
        straight = spot.lane == stream
        row = self.spots.turn
        style = f"stream{stream if spot.lane is None else spot.lane}"
        self._line(((x, y), box.top) if straight else ((x, y), (x, row), (box.x, row), box.top), style)

    def _shape(self, source: int) -> None:
        """The shape of what a join hands on, beside its lane."""
        spot, node = self.spots.of[source], self.graph.nodes[source]
        if spot.lane is not None and node.kind not in {"input", "copy"}:
            side, align = (-1, "right") if spot.lane == 0 else (1, "left")
            x, y = spot.leaves
            self.marks.labels.append(Label(x + side * ASIDE, y + BELOW, words.shape(node.shape), align))

    def _goes_on(self, source: int) -> bool:
        """Whether a lane goes on below a node, past a line that leaves it."""
        stream = self.spots.of[source].lane
        readers = [k for k in self.graph.readers(source) if self.graph.key(k) >= 0 and self.spots.of[k].lane == stream]
        return stream is not None and (bool(readers) or self.graph.outputs[-1][stream] == source)

    def _line(self, points: tuple[Point, ...], style: str, arrow: bool = True) -> None:
        self.marks.lines.append(Line(points, style, arrow))


def _side(box: Box, x: float) -> Point:
    """The side of a box that looks to x; a circle's own is found by its size in inches, which only the page knows."""
    return box.x + (1 if x > box.x else -1) * box.width / 2, box.y
