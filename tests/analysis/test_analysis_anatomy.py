"""The anatomy of every variant: where its parts are, and that no line crosses a text."""

import json
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, final

import matplotlib as mpl
import numpy as np
import pytest
import torch
from compose import config
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.path import Path as Way
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from torch import Tensor, nn

from analysis import style
from analysis.anatomy import __main__ as command
from analysis.anatomy.formula import tex
from analysis.anatomy.graph import Graph, read
from analysis.anatomy.marks import Marks
from analysis.anatomy.page import anatomy
from analysis.anatomy.plan import LEFT, plan
from experiments import placements
from experiments.config import CONF
from experiments.ledger.trace import trace
from experiments.norms import MakeNorm
from experiments.placements.base import Branch, Placement, Site, Stream

VARIANTS = sorted(path.stem for path in (CONF / "norm").glob("*.yaml"))
SMALL = ("model.depth=2", "model.width=768", "model.n_head=12")
RICH = ("model.positions=rope", "norm.qk=rmsnorm", "model.ffn=swiglu")


@final
class Apart(Placement):
    """(x + norm(y), d + b y) of (x, d), y = f(x + 0.1 d): what no variant does yet."""

    final_norm: ClassVar[bool] = True

    def __init__(self, make_norm: MakeNorm, site: Site) -> None:
        super().__init__(make_norm, site)
        self.norm, self.b = make_norm(site.width), nn.Parameter(torch.ones(site.width))

    def forward(self, stream: tuple[Tensor, Tensor], branch: Branch) -> tuple[Tensor, Tensor]:
        x_BTD, d_BTD = stream
        y_BTD = branch(x_BTD + 0.1 * d_BTD)
        return x_BTD + self.norm(y_BTD), d_BTD + self.b * y_BTD

    def enter(self, x_BTD: Tensor) -> Stream:
        return x_BTD, x_BTD

    def leave(self, stream: tuple[Tensor, Tensor], final_norm: nn.Module) -> Tensor:
        return final_norm(stream[0])


@cache
def traced(*overrides: str, layer: int = 0) -> dict[str, Any]:
    return json.loads(json.dumps(trace(config(*SMALL, *overrides), layer)))


def planned(*overrides: str, layer: int = 0) -> tuple[Graph, Marks]:
    graph = read(traced(*overrides, layer=layer))
    return graph, plan(graph)


def drawn(found: dict[str, Any]) -> Figure:
    """As it is saved: hinting makes letters a little wider at one resolution than at another."""
    with style.applied():
        figure = anatomy(found)
        figure.set_dpi(mpl.rcParams["savefig.dpi"])
    return figure


def texts(figure: Figure) -> dict[str, Bbox]:
    found = [text for text in figure.findobj(Text) if text.get_text().strip()]
    return {f"{text.get_text()} {number}": text.get_window_extent() for number, text in enumerate(found)}


def ways(figure: Figure) -> list[Way]:
    """Every line, and the outline of every box, circle and arrow, in pixels."""
    lines = [line.get_transform().transform_path(line.get_path()) for line in figure.findobj(Line2D)]
    patches = [patch for patch in figure.findobj(Patch) if not isinstance(patch, Rectangle)]
    return lines + [patch.get_transform().transform_path(patch.get_path()) for patch in patches]


def crossed(figure: Figure, boxes: dict[str, Bbox]) -> list[str]:
    found = ways(figure)
    return [words for words, box in boxes.items() if any(way.intersects_bbox(box, filled=False) for way in found)]


@pytest.mark.parametrize(
    ("overrides", "layer"),
    [*(((f"norm={name}",), 0) for name in VARIANTS), (("norm=mix", "model.depth=4"), 0), (("norm=keel",), 1),
     (("norm=residual", *RICH), 0), (("norm=sandwich", "model.branches=[attn,cross,ffn]"), 0)],
    ids=str,
)  # fmt: skip
def test_no_line_crosses_a_text_and_no_text_another(overrides: tuple[str, ...], layer: int) -> None:
    figure = drawn(traced(*overrides, layer=layer))
    boxes = texts(figure)
    assert crossed(figure, boxes) == []
    assert not [(one, other) for (one, a), (other, b) in combinations(boxes.items(), 2) if a.overlaps(b)]
    assert all(figure.bbox.contains(*corner) for box in boxes.values() for corner in box.corners())


def test_a_line_through_a_text_would_be_found() -> None:
    figure = drawn(traced("norm=pre"))
    boxes = texts(figure)
    name, box = next((name, box) for name, box in boxes.items() if name.startswith("(B, T, 768)"))
    ends = figure.axes[0].transData.inverted().transform(box.get_points())
    figure.axes[0].add_line(Line2D(*ends.T))
    assert crossed(figure, boxes) == [name]


@pytest.mark.parametrize("name", VARIANTS)
def test_everything_of_the_graph_is_drawn_once_and_lines_end_at_it(name: str) -> None:
    graph, marks = planned(f"norm={name}")
    boxes = [box for box in marks.boxes if box.style != "container"]
    ends = 2 * len(graph.streams)
    kept = [node for node in graph.nodes.values() if node.kind not in {"input", "copy"}]
    assert len(boxes) == len(kept) + ends
    assert sum(not box.width for box in boxes) == sum(node.kind == "add" for node in kept)
    assert len(marks.boxes) - len(boxes) == len(graph.branches)
    for line in marks.lines:
        x, y = line.points[-1]
        if line.arrow:
            assert any(abs(x - box.x) <= box.width / 2 + 1e-9 and abs(y - box.y) <= box.height / 2 + 1e-9 for box in boxes)


def lane_of(marks: Marks) -> list[str]:
    """What stands in the first stream's lane, from the top."""
    boxes = sorted((box for box in marks.boxes if abs(box.x - LEFT) < 1e-9), key=lambda box: box.y)
    return [box.style.rstrip("0") for box in boxes][1:-1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pre", ["join", "join"]),
        ("sandwich", ["join", "join"]),
        ("post", ["join", "norm", "join", "norm"]),
        ("deepnorm", ["scale", "join", "norm", "scale", "join", "norm"]),
        ("hybrid", ["join", "norm", "join"]),
        ("residual", ["join", "norm", "join", "norm"]),
        ("b2t", ["join", "norm", "join", "join", "norm"]),
    ],
)
def test_norms_and_constants_stand_in_the_residual_stream_only_where_the_equation_has_them(
    name: str, expected: list[str]
) -> None:
    assert lane_of(planned(f"norm={name}")[1]) == expected


def test_the_second_stream_of_residual_holds_sums_only() -> None:
    graph, marks = planned("norm=residual")
    lanes = {box.x for box in marks.boxes if box.style == "stream1"}
    assert [box.style for box in marks.boxes if box.x in lanes and not box.style.startswith("stream")] == ["join1", "join1"]
    assert [len(graph.inputs[number]) for number, node in graph.nodes.items() if node.kind == "add"] == [2] * 4


def test_boxes_do_not_overlap() -> None:
    for name in ("b2t", "keel", "residual", "sandwich"):
        boxes = [box for box in planned(f"norm={name}", *RICH)[1].boxes if box.style != "container" and box.width]
        corners = [Bbox([[b.x - b.width / 2, b.y - b.height / 2], [b.x + b.width / 2, b.y + b.height / 2]]) for b in boxes]
        assert not any(a.overlaps(b) for a, b in combinations(corners, 2)), name


def test_one_trace_gives_the_same_bytes_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger" / "post-small.json"
    path.parent.mkdir()
    path.write_text(json.dumps(traced("norm=post")))
    assert command.main([str(path)]) == command.main([str(path), "--out", str(tmp_path / "again")]) == 0
    for end in ("png", "svg"):
        one, other = (tmp_path / folder / f"anatomy-post-small.{end}" for folder in ("figures", "again"))
        assert one.read_bytes() == other.read_bytes()
    assert "anatomy-post-small.png .svg" in capsys.readouterr().out


def test_a_file_that_is_no_trace_ends_with_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}")
    assert command.main([str(path)]) == 1
    path.write_text(json.dumps(traced("norm=post") | {"schema": 0}))
    assert command.main([str(path)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {path}: no key")
    assert "make ledger" in second


@pytest.mark.parametrize(
    ("formula", "names", "expected"),
    [
        ("norm(alpha * x + f(x))", {}, r"\mathrm{norm}(\alpha\,x + f(x))"),
        ("(2 * N) ** (1 / 4)", {}, "(2\\,N)^{1/4}"),
        ("x + f(norm_in(x) / sqrt(l))", {}, r"x + f(\mathrm{norm}_{\mathrm{in}}(x)/\sqrt{\ell})"),
        ("norm(x) if l <= floor(N / 4) else x", {"l": 2.0, "N": 8.0}, r"\mathrm{norm}(x)"),
        ("a if ffn else b", {"ffn": 0.0}, "b"),
        ("x - (a - b) * c", {}, "x - (a - b)\\,c"),
        ("0 * x", {}, "0"),
    ],
)
def test_formulas_keep_their_meaning_in_mathematical_notation(formula: str, names: dict[str, float], expected: str) -> None:
    assert tex(formula, names) == expected


def test_the_page_is_a_dark_square() -> None:
    figure = drawn(traced("norm=pre"))
    assert np.ptp(figure.get_size_inches()) == 0
    assert tuple(round(255 * part) for part in figure.get_facecolor()[:3]) == (0x0F, 0x17, 0x2A)


def test_a_placement_that_nobody_has_written_yet_is_drawn_from_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placements, "find", lambda _name: Apart)
    found = json.loads(json.dumps(trace(config(*SMALL, "norm=pre"))))
    marks = plan(read(found))
    assert lane_of(marks) == ["join", "join"]
    assert [box.style for box in marks.boxes].count("join") == 2  # what the branches read
    figure = drawn(found)
    assert crossed(figure, texts(figure)) == []
