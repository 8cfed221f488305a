"""What a plan of an anatomy consists of. Across: inches from the left of the page. Down: rows from the top of the block."""

from dataclasses import dataclass, field

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rounded box around its text, or a circle with a plus where it has no width.

    style : a kind of node, ``container``, ``stream0`` (what enters and leaves), ``join0`` (a sum in that stream), ``join``.
    """

    x: float  # centre
    y: float
    width: float
    height: float
    style: str
    text: str = ""

    @property
    def top(self) -> Point:
        return self.x, self.y - self.height / 2

    @property
    def bottom(self) -> Point:
        return self.x, self.y + self.height / 2


@dataclass(frozen=True)
class Line:
    """A way through points, its corners rounded. style: ``branch``, or ``stream0``, ``stream1``, ..."""

    points: tuple[Point, ...]
    style: str
    arrow: bool = True


@dataclass(frozen=True)
class Dot:
    """Where a line forks."""

    x: float
    y: float
    style: str


@dataclass(frozen=True)
class Label:
    """Text beside a line or in a container. align: left, right or center. style: shape, heading, count, value, stream0, ...

    upright : reads upwards.
    """

    x: float
    y: float
    text: str
    align: str = "left"
    style: str = "shape"
    upright: bool = False


@dataclass
class Marks:
    """What to draw, and how many rows high it is."""

    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    rows: float = 0.0

    def add(self, other: "Marks") -> None:
        self.boxes += other.boxes
        self.lines += other.lines
        self.dots += other.dots
        self.labels += other.labels
