"""Where everything of a block's anatomy goes. Streams are lanes, the first at the left, others at the right; between them the
branches stand in a column, one below the other. Everything follows from the trace's graph."""

from collections.abc import Iterable

from analysis.anatomy import branch, words
from analysis.anatomy.branch import HEIGHT, PITCH, Frame
from analysis.anatomy.edges import WIDE, Spot, Spots, connect
from analysis.anatomy.graph import Graph, Node, lane
from analysis.anatomy.marks import Box, Label, Marks

PAGE = 10.0  # inches, both ways
LEFT, OUTER, BETWEEN = 1.45, 1.1, 1.05  # inches: the first lane; from the last to the right edge; between lanes
GAP, RIGHT = 0.95, 0.5  # inches: from a lane to the branches, from them to the right edge
ASIDE = 0.16  # inches from a lane to its name
FORK, JOIN, NEXT, LEAVE = 0.7, 0.55, 0.36, 0.6  # rows: a fork; from a branch to its join; from node to node; to the end
ENTRY = 0.75  # rows from the top to below the input
WIDTHS = {"norm": 1.2, "add": 0.0, "scale": 0.72, "fresh": 0.72}  # inches in a lane; a circle has none
SIZES = {"add": 0.5, "scale": 0.5, "fresh": 0.5}  # rows
END, SHORT = 1.75, 0.7  # inches: of what a stream enters and leaves by, with its shape or without
NAME, PLACES = 1.4, (0.72, 0.28, 0.5)  # rows that a stream's name takes on either side; where beside a branch it may be


def plan(graph: Graph) -> Marks:
    """The marks of a block's anatomy."""
    return _Planner(graph).plan()


class _Planner:
    """Places the nodes of a graph from the top down."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.marks, self.row = graph, Marks(), 0.0
        count = len(graph.streams)
        self.lanes = [LEFT, *(PAGE - OUTER - BETWEEN * (count - 1 - stream) for stream in range(1, count))]
        right = self.lanes[1] - GAP if count > 1 else PAGE - RIGHT
        self.left, self.width = LEFT + GAP, right - LEFT - GAP
        self.middle = self.left + self.width / 2
        self.spots = Spots(self.lanes)
        self.bottom = [0.0] * count  # of each lane so far

    def plan(self) -> Marks:
        for number, node in self.graph.nodes.items():
            if node.kind == "input":
                self._input(number, node)
        self.row = ENTRY
        for join in range(len(self.graph.branches)):
            self._join(join)
        self._ends()
        self.marks.add(connect(self.graph, self.spots))
        for stream in range(len(self.lanes)):
            self._name(stream)
        self.marks.rows = self.row
        return self.marks

    def _join(self, join: int) -> None:
        """Place one join's nodes: what its branch waits for, the branch, what waits for it."""
        nodes = [node for node in self.graph.nodes.values() if node.join == join]
        inside = {node.id for node in nodes if node.inside}
        before = self.graph.ancestors(inside)
        for node in nodes:
            if node.kind == "copy" and self.graph.inputs[node.id][0] in self.spots.of:
                self._cross(node)
        outside = [node for node in nodes if not node.inside and node.id not in self.spots.of]
        in_lane = [node for node in outside if node.stream is not None]
        column = [node for node in outside if node.stream is None]
        waits = {node.id for node in outside if self.graph.ancestors([node.id]) & inside or self._crosses(node)}
        for node in in_lane:
            if node.id in before:
                self._in_lane(node, max(self.row, self.bottom[node.stream or 0] + NEXT))
                self.row = self.bottom[node.stream or 0]
        began = self.row
        for node in column:
            if node.id in before:
                self._in_column(node, more=True)
        after = [node for node in column if node.id not in before]
        self._container(join, inside, more=bool(after))
        for node in after:
            self._in_column(node, more=node is not after[-1])
        aside = [node for node in in_lane if node.id not in before | waits]
        for number, node in enumerate(aside, start=1):
            middle = began + (self.row - began) * number / (len(aside) + 1)
            self._in_lane(node, middle - SIZES.get(node.kind, HEIGHT) / 2)
        for node in in_lane:
            if node.id in waits:
                self._in_lane(node, self._meets(node))
        self.row = max(self.row, *self.bottom)

    def _crosses(self, node: Node) -> bool:
        """Whether a node in a lane reads nothing from it: another lane, or nothing at all."""
        inputs = self.graph.inputs[node.id]
        other = [i for i in inputs if lane(self.graph.nodes[i]) not in {None, node.stream}]
        return node.stream is not None and (bool(other) or not inputs)

    def _meets(self, node: Node) -> float:
        """The top of a node in a lane that waits for the branch: level with its line, below what else it reads."""
        half = SIZES.get(node.kind, HEIGHT) / 2
        top = self.bottom[node.stream or 0] + NEXT
        for i in self.graph.inputs[node.id]:
            spot = self.spots.of[i]
            if spot.lane is None:
                top = max(top, self.spots.exits.get(self.graph.key(i), self.row + JOIN) - half)
            elif spot.lane != node.stream:
                top = max(top, spot.leaves[1] + NEXT, self.row + JOIN + NEXT)
                self.bottom[spot.lane] = max(self.bottom[spot.lane], top + half)
        return top

    def _in_lane(self, node: Node, top: float) -> None:
        if node.kind == "copy":
            self._cross(node)
            return
        stream, height = node.stream or 0, SIZES.get(node.kind, HEIGHT)
        style = f"join{stream}" if node.kind == "add" else node.kind
        width = WIDTHS.get(node.kind, WIDTHS["norm"])
        box = Box(self.lanes[stream], top + height / 2, width, height, style, words.text(self.graph, node))
        self._place(node, box, stream)
        self.bottom[stream] = top + height

    def _cross(self, node: Node) -> None:
        """A stream handed on as another: its line crosses to the other's lane in a row of its own."""
        stream = node.stream or 0
        row = max(self.row, *self.bottom) + FORK / 2
        self.spots.of[node.id] = Spot(Box(self.lanes[stream], row, 0.0, 0.0, "copy"), stream, (self.lanes[stream], row + NEXT))
        self.row = self.bottom[stream] = row + NEXT / 2

    def _in_column(self, node: Node, *, more: bool) -> None:
        """A node on the way to the branch or from it, below what stands there."""
        self._approach(node.id, self.graph.inputs[node.id])
        height = SIZES.get(node.kind, HEIGHT)
        width = WIDE if node.kind == "norm" else WIDTHS.get(node.kind, WIDE)
        style = "join" if node.kind == "add" else node.kind
        self._place(node, Box(self.middle, self.row + height / 2, width, height, style, words.text(self.graph, node)), None)
        self.row += height
        self._depart(node.id, [node.id], more)

    def _container(self, join: int, inside: set[int], *, more: bool) -> None:
        key = -1 - join
        self._approach(key, [i for number in sorted(inside) for i in self.graph.inputs[number] if i not in inside])
        marks, leaves = branch.plan(self.graph, join, Frame(self.left, self.width, self.row))
        self.marks.add(marks)
        self.spots.containers[key] = marks.boxes[0]
        for number, point in leaves.items():
            self.spots.of[number] = Spot(marks.boxes[0], None, point)
        self.row += marks.rows
        self._depart(key, inside, more)

    def _approach(self, key: int, read: Iterable[int]) -> None:
        """Leave room above something in the column for the line that comes from a lane, or from what stands above."""
        if all(self.spots.of[i].lane is not None for i in read):
            self.spots.forks[key] = self.row + FORK / 2
            self.row += FORK
        else:
            self.row += PITCH - HEIGHT

    def _depart(self, key: int, members: Iterable[int], more: bool) -> None:
        """Leave room for a line to a lane below something that is not the last in its join's column."""
        readers = [self.graph.nodes[k] for i in members for k in self.graph.readers(i) if self.graph.key(k) != key]
        if more and any(lane(node) is not None for node in readers):
            self.spots.exits[key] = self.row + FORK / 2
            self.row += FORK / 2

    def _place(self, node: Node, box: Box, stream: int | None) -> None:
        self.marks.boxes.append(box)
        self.spots.of[node.id] = Spot(box, stream, box.bottom)
        if node.kind == "scale" and (said := words.value(node)):
            side = -1 if stream == 0 else 1
            x = box.x + side * (box.width / 2 + branch.ASIDE)
            self.marks.labels.append(Label(x, box.y, said, "left" if side > 0 else "right", "value"))

    def _input(self, number: int, node: Node) -> None:
        stream = int(node.name)
        box = self._end(node, stream, HEIGHT / 2)
        self.spots.of[number] = Spot(box, stream, box.bottom)
        if not self.graph.readers(number):
            self.marks.labels.append(Label(box.x, box.bottom[1] + 0.25, "not read", "center"))

    def _ends(self) -> None:
        """What leaves the block, level; a stream that comes from another lane crosses in a row above."""
        outputs = self.graph.outputs[-1]
        if any(self.spots.of[i].lane != stream for stream, i in enumerate(outputs)):
            self.spots.turn = self.row + FORK / 2
            self.row += FORK / 2
        self.row += LEAVE + HEIGHT
        self.spots.ends = [self._end(self.graph.nodes[i], stream, self.row - HEIGHT / 2) for stream, i in enumerate(outputs)]

    def _end(self, node: Node, stream: int, y: float) -> Box:
        text, room = f"${words.symbol(self.graph.streams[stream])}$", len(self.lanes) < 3
        box = Box(
            self.lanes[stream], y, END if room else SHORT, HEIGHT, f"stream{stream}",
            f"{text}  {words.shape(node.shape)}" if room else text,
        )  # fmt: skip
        self.marks.boxes.append(box)
        self.bottom[stream] = box.bottom[1]
        return box

    def _name(self, stream: int) -> None:
        """What a lane is, beside its line and clear of everything else there."""
        x, side = self.lanes[stream], -1 if stream == 0 else 1
        near = [label.y for label in self.marks.labels if abs(label.x - x) < END]
        taken = near + [box.y for box in self.marks.boxes if box.x == x]
        pairs = [pair for line in self.marks.lines for pair in zip(line.points, line.points[1:], strict=False)]
        lines = [(above[1], below[1]) for above, below in pairs if above[0] == below[0] == x]
        for box in self.spots.containers.values():
            for share in PLACES:
                y = box.y + (share - 0.5) * box.height
                clear = all(abs(y - other) > NAME for other in taken)
                if clear and any(above < y - NAME and y + NAME < below for above, below in lines):
                    text = f"residual stream ${words.symbol(self.graph.streams[stream])}$"
                    self.marks.labels.append(Label(x + side * ASIDE, y, text, "center", f"stream{stream}", upright=True))
                    return
