"""A plan of an anatomy in ink, on an Axes whose units are inches."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon

from analysis.anatomy.marks import Box, Label, Line, Marks, Point

PAPER = "#0f172a"  # dark slate
WHITE, CYAN, PALE, FAINT, ROSE = "#ffffff", "#7dc4d4", "#cbd5e1", "#94a3b8", "#fda4af"
STREAMS = ("#fbbf24", "#c084fc", "#34d399")
INKS: Mapping[str, tuple[str, str]] = {  # a box's face and edge
    "container": ("#162036", "#334155"),
    "norm": ("#134e4a", "#2dd4bf"),
    "linear": ("#1e3a8a", "#60a5fa"),
    "scale": ("#4c1130", "#fb7185"),
    "memory": ("#334155", "#94a3b8"),
    "join": (PAPER, PALE),
}
OTHER = ("#312e81", "#a5b4fc")  # what learns nothing
LABELS: Mapping[str, tuple[str, float, str]] = {  # colour, size as a share of a box's, weight
    "shape": (CYAN, 0.8, "normal"),
    "heading": (WHITE, 0.92, "bold"),
    "count": (FAINT, 0.8, "normal"),
    "value": (ROSE, 0.84, "normal"),
}
TALLEST = 0.56  # inches of a row
TEXT = (6.5, 20.0, 9.5)  # points of a box's text: at least, for each inch of a row, at most
ROUND, ARROW, DOT, PLUS = 0.09, 0.085, 0.045, 0.27  # inches: corners, arrow heads, forks; share of a circle
CONTAINER, LINE, BOX, TOP = 1, 3, 5, 7  # from below to above


class Ink:
    """Draws marks between two heights of the page, in inches from its foot."""

    def __init__(self, ax: Axes, marks: Marks, low: float, high: float) -> None:
        self.ax, self.marks = ax, marks
        self.row = min(TALLEST, (high - low) / marks.rows)
        self.top = high - (high - low - self.row * marks.rows) / 2
        least, each, most = TEXT
        self.size = min(most, max(least, each * self.row))
        self.circles = {(box.x, box.y): self.row * box.height / 2 for box in marks.boxes if not box.width}

    def draw(self) -> None:
        for box in self.marks.boxes:
            self._box(box)
        for line in sorted(self.marks.lines, key=lambda line: line.style != "branch"):
            self._line(line)
        for dot in self.marks.dots:
            x, y = self._at((dot.x, dot.y))
            self.ax.add_patch(Circle((x, y), DOT, facecolor=color(dot.style), linewidth=0, zorder=BOX + 1))
        for label in self.marks.labels:
            self._label(label)

    def _at(self, point: Point) -> Point:
        return point[0], self.top - self.row * point[1]

    def _box(self, box: Box) -> None:
        (x, y), height = self._at((box.x, box.y)), self.row * box.height
        face, edge = inks(box.style)
        if not box.width:
            self.ax.add_patch(Circle((x, y), height / 2, facecolor=face, edgecolor=edge, linewidth=1.6, zorder=BOX))
            arm = PLUS * height
            for dx, dy in ((arm, 0.0), (0.0, arm)):
                self.ax.add_line(Line2D([x - dx, x + dx], [y - dy, y + dy], color=edge, linewidth=1.6, zorder=BOX + 1))
            return
        holds = box.style == "container"
        corners = f"round,pad=0,rounding_size={0.14 if holds else 0.07}"
        self.ax.add_patch(
            FancyBboxPatch((x - box.width / 2, y - height / 2), box.width, height, corners, facecolor=face, edgecolor=edge,
                           linewidth=1.0 if holds else 1.2, zorder=CONTAINER if holds else BOX)
        )  # fmt: skip
        if box.text:
            self.ax.text(x, y, box.text, color=WHITE, fontsize=self.size, ha="center", va="center_baseline", zorder=TOP)

    def _line(self, line: Line) -> None:
        points = [self._at(point) for point in line.points]
        if radius := self.circles.get(line.points[-1]):
            points[-1] = points[-1][0] + (radius if points[-2][0] > points[-1][0] else -radius), points[-1][1]
        tip = points[-1]
        if line.arrow:
            points[-1] = toward(tip, points[-2], ARROW * 0.8)
        stream = line.style != "branch"
        xs, ys = zip(*rounded(points), strict=True)
        self.ax.add_line(
            Line2D(xs, ys, color=color(line.style), linewidth=2.4 if stream else 1.3, zorder=LINE + stream,
                   solid_capstyle="butt", solid_joinstyle="round")
        )  # fmt: skip
        if line.arrow:
            self.ax.add_patch(
                Polygon(head(tip, points[-2]), closed=True, facecolor=color(line.style), linewidth=0, zorder=BOX + 1)
            )

    def _label(self, label: Label) -> None:
        x, y = self._at((label.x, label.y))
        ink, share, weight = LABELS.get(label.style) or (color(label.style), 0.84, "normal")
        self.ax.text(x, y, label.text, color=ink, fontsize=share * self.size, fontweight=weight, ha=label.align, zorder=TOP,
                     va="center" if label.upright else "center_baseline", rotation=90 if label.upright else 0)  # fmt: skip


def color(style: str) -> str:
    """Of a line."""
    return PALE if style == "branch" else STREAMS[int(style.removeprefix("stream")) % len(STREAMS)]


def inks(style: str) -> tuple[str, str]:
    """Face and edge of a box."""
    for start in ("stream", "join"):
        if style.startswith(start) and style != start:
            return PAPER, color(f"stream{style.removeprefix(start)}")
    return INKS.get(style, OTHER)


def rounded(points: Sequence[Point]) -> list[Point]:
    """The way through points with its corners rounded."""
    out = [points[0]]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        (ax, ay), (bx, by) = (toward(corner, other, ROUND) for other in (before, after))
        for step in range(9):
            t = step / 8
            p, q, r = (1 - t) ** 2, 2 * t * (1 - t), t**2
            out.append((p * ax + q * corner[0] + r * bx, p * ay + q * corner[1] + r * by))
    return [*out, points[-1]]


def toward(start: Point, end: Point, most: float) -> Point:
    """At most so far from one point on the way to another, and at most half of it."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = (dx**2 + dy**2) ** 0.5
    share = min(most / length, 0.5) if length else 0.0
    return start[0] + share * dx, start[1] + share * dy


def head(tip: Point, behind: Point) -> list[Point]:
    """The triangle of an arrow."""
    dx, dy = behind[0] - tip[0], behind[1] - tip[1]
    length = (dx**2 + dy**2) ** 0.5
    ux, uy = ARROW * dx / length, ARROW * dy / length
    return [tip, (tip[0] + ux + 0.55 * uy, tip[1] + uy - 0.55 * ux), (tip[0] + ux - 0.55 * uy, tip[1] + uy + 0.55 * ux)]
