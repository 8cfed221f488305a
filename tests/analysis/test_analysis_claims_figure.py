"""Laws of the ledger's picture: every test is on it, with its number, its prediction and its verdict."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from inspected import axes_of, drawn, words
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich.console import Console
from synthetic_claims import BOTH, INIT, init_runs
from synthetic_store import write_study

from analysis import claims, figures, style
from analysis.drawings import claims as drawing
from analysis.drawings.claims import MARKS, SPAN
from analysis.evidence.rows import Row
from analysis.evidence.verdicts import Finding, Verdict
from analysis.gallery import FIGURES
from analysis.ledger import entry
from analysis.stats import Interval
from analysis.store import Store

VERDICTS = tuple(MARKS)


def row(
    word: str = "holds", interval: Interval | None = None, *, claim: str = "C1", unit: str = "exponent in L", **more
) -> Row:
    test = replace(INIT, when=f"when it {word}", unit=unit)
    return Row(
        entry.Claim(claim, f"claim {claim}", "a paper", (test,)), test, Verdict(word), Finding(interval=interval), **more
    )


def picture(*rows: Row) -> Figure:
    return drawn(drawing.claims, list(rows))


def place(value: float) -> float:
    """Where a number stands: the middle of the strip is 0."""
    return drawing.STRIP + drawing.STRIP_WIDTH * (0.5 + value / (2 * SPAN))


def panel(*rows: Row) -> Axes:
    """The column of the page that holds the only claim."""
    return next(ax for ax in axes_of(picture(*rows)) if "claim C1" in words(ax))


def mark(ax: Axes):
    return next(line for line in ax.lines if line.get_marker() not in ("None", ""))


def test_every_test_has_its_verdict_as_a_coloured_letter_and_is_counted() -> None:
    figure = picture(*(row(word, claim=f"C{i}") for i, word in enumerate(VERDICTS)))
    text = words(figure)
    for word in VERDICTS:
        assert f"when it {word}" in text
        assert f"{MARKS[word][0]}  {word}: 1 of 4 tests" in text
    boxes = [t for ax in axes_of(figure) for t in ax.texts if t.get_bbox_patch() is not None]
    found = {t.get_text(): to_hex(t.get_bbox_patch().get_facecolor()) for t in boxes}
    assert found == {letter: to_hex(color) for letter, color in MARKS.values()}


def test_a_number_stands_at_its_place_with_its_interval_over_the_region_that_agrees() -> None:
    ax = panel(row("refuted", Interval(-0.5, -0.7, -0.3)))
    assert mark(ax).get_xdata() == pytest.approx([place(-0.5)])
    bar = next(line for line in ax.lines if line.get_linewidth() == 1.5)
    assert bar.get_xdata() == pytest.approx([place(-0.7), place(-0.3)])
    region = next(patch for patch in ax.patches if isinstance(patch, Rectangle))
    assert (region.get_x(), region.get_x() + region.get_width()) == pytest.approx((place(-0.25), place(0.25)))
    assert "−0.50 [−0.70, −0.30]" in words(ax)


@pytest.mark.parametrize(("value", "arrow"), [(-40.0, "<"), (40.0, ">"), (0.3, "o")])
def test_a_number_beyond_the_strip_is_an_arrow_at_its_end(value: float, arrow: str) -> None:
    found = mark(panel(row("refuted", Interval(value, value - 1, value + 1))))
    assert found.get_marker() == arrow
    assert found.get_xdata() == pytest.approx([place(max(-SPAN, min(SPAN, value)))])


def test_other_units_have_a_number_and_no_strip() -> None:
    ax = panel(row("holds", Interval(1.5, 1.4, 1.6), unit="nats"))
    assert "1.50 [1.40, 1.60]" in words(ax)
    assert len(ax.lines) == 0


def test_an_interval_without_bounds_and_diverged_runs_do_not_vanish() -> None:
    ax = panel(row("inconclusive", Interval(0.1, float("nan"), float("nan")), runs=5, diverged=2))
    assert mark(ax).get_xdata() == pytest.approx([place(0.1)])
    assert "× 2/5" in words(ax)


def test_all_claims_of_the_ledger_fit_on_the_page(tmp_path: Path) -> None:
    rows = claims.evaluated(tmp_path, "laptop")
    figure = picture(*rows)
    text = words(figure)
    assert all(f"{claim.id}  " in text for claim in claims.CLAIMS)
    for ax in axes_of(figure):
        assert all(0 <= t.get_position()[1] <= ax.get_ylim()[0] for t in ax.texts)
    heights = [max(t.get_position()[1] for t in ax.texts) for ax in axes_of(figure)]
    assert max(heights) < 1.25 * min(heights)


def test_the_ledger_is_drawn_by_the_command_where_something_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "evaluated", lambda *place, **how: claims.evaluated(*place, [BOTH], **how))
    console = Console(quiet=True)
    nothing = figures.draw(Store(tmp_path, "laptop"), tmp_path, [FIGURES["claims"]], console, ("png",))
    assert nothing.paths == []
    assert [name for names in nothing.skipped.values() for name in names] == ["claims"]
    write_study(tmp_path, init_runs())
    found = figures.draw(Store(tmp_path, "laptop"), tmp_path, [FIGURES["claims"]], console, ("png",))
    assert [path.name for path in found.paths] == ["claims.png"]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        figure = picture(row("holds", Interval(0.1, 0.0, 0.2)), row("refuted", Interval(1.0, 0.9, 1.1), claim="C2"))
        with style.applied():
            paths = style.save(figure, tmp_path / name / "claims")
        digests.add(tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths))
    assert len(digests) == 1
