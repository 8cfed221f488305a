"""Laws of what a figure is drawn from: the columns it reads, the studies beside each other, and the parts of one study."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from synthetic_store import Run, write_parquet, write_plan, write_study
from synthetic_studies import SMOKE, init_runs

from analysis import figures, gallery
from analysis.gallery import FIGURES, Entry
from analysis.load import Columns
from analysis.reference import write_reference
from analysis.store import Store
from analysis.story import Story
from analysis.tables import DRAWN


def factors(results: Path, *, scale: str = "smoke") -> list[Run]:
    """The init study with a factor `relu` beside its base."""
    runs = []
    for run in init_runs(SMOKE, 1, scale):
        runs.append(replace(run, override={"study.factor": "base"}))
        runs.append(replace(run, override={"study.factor": "relu", "model.ffn": "relu", "init.qk_gain": 3.0}))
    write_study(results, runs)
    return runs


def found(results: Path, study: str = "init_scaling") -> Story:
    story = Store(results, "smoke").story(study)
    assert story is not None
    return story


def test_a_study_that_varies_factors_is_shown_by_its_base_and_keeps_the_whole(tmp_path: Path) -> None:
    factors(tmp_path)
    story = found(tmp_path)
    assert (len(story.runs), len(story.whole.runs)) == (6, 12)
    assert story.factors == ("base", "relu")
    part = story.part("relu")
    assert part is not None
    assert set(part.runs["config"].map(lambda config: '"ffn": "relu"' in config)) == {True}
    assert story.part("sgd") is None


def test_what_a_factor_changes_is_read_from_the_configs(tmp_path: Path) -> None:
    factors(tmp_path)
    story = found(tmp_path)
    assert story.changes == {"relu": "qk_gain=3, ffn=relu"}
    assert "12 runs" in story.factors_note("relu")
    assert "relu has qk_gain=3, ffn=relu" in story.factors_note("base", "relu")


def test_a_study_without_factors_is_its_own_base(tmp_path: Path) -> None:
    write_study(tmp_path, init_runs(SMOKE, 1, "smoke"))
    story = found(tmp_path)
    assert (story.factors, story.changes) == ((), {})
    assert len(story.runs) == len(story.whole.runs) == 6
    assert "Against it" not in story.factors_note("base")


def test_the_columns_of_a_study_are_those_of_all_its_figures() -> None:
    columns = gallery.columns("init_scaling")
    for entry in FIGURES.values():
        if "init_scaling" in entry.studies:
            assert set(entry.columns.steps or ()) <= set(columns.steps or ())
            assert set(entry.columns.layers or ()) <= set(columns.layers or ())
    assert gallery.columns("a study of the user") == DRAWN


def drop(run: Run, results: Path, column: str) -> None:
    path = run.folder(results) / "layers.parquet"
    write_parquet(pq.read_table(path).drop_columns([column]), path)


def test_a_figure_whose_column_is_older_than_its_probe_is_skipped_and_others_are_drawn(tmp_path: Path) -> None:
    runs = factors(tmp_path)
    drop(runs[3], tmp_path, "grad_w2")
    console = Console(width=200, record=True, quiet=True)
    drawing = figures.draw(
        Store(tmp_path, "smoke"), tmp_path, [FIGURES["exponents"], FIGURES["init_variance"]], console, ("png",)
    )
    assert [path.name for path in drawing.paths] == ["init_variance.png"]
    assert list(drawing.skipped.values()) == [["exponents"]]
    assert "without grad_w2" in next(iter(drawing.skipped))


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three studies, each run here and in the reference."""
    for name in ("init_scaling", "xiong2020", "collapse"):
        runs = [replace(run, study=name, scale="laptop") for run in init_runs((2, 3), 1, "laptop")]
        write_study(tmp_path, runs)
        write_reference(tmp_path, name)
    return tmp_path


ENTRY = Entry("all", lambda *stories: stories, "init_scaling", ("xiong2020", "collapse"), Columns(("loss",), ("grad_stream",)))


def undone(results: Path, study: str) -> None:
    """A newer plan of this study that is not done."""
    run = replace(init_runs((2,), 1, "laptop")[0], study=study, scale="laptop")
    write_plan(results, [run, replace(run, depth=9)], age=-10, tag="99999999")


def kinds(results: Path) -> tuple[dict[str, str], str]:
    stories, remark = Store(results, "laptop").together(ENTRY)
    return {study: story.whole.source.kind for study, story in stories.items()}, remark


def test_several_studies_are_drawn_together_from_their_runs(three: Path) -> None:
    assert kinds(three) == ({"init_scaling": "runs", "xiong2020": "runs", "collapse": "runs"}, "")


def test_where_one_study_is_not_done_all_come_from_the_reference(three: Path) -> None:
    undone(three, "xiong2020")
    where, remark = kinds(three)
    assert where == {"init_scaling": "reference", "xiong2020": "reference", "collapse": "reference"}
    assert "from the reference" in remark
    assert "xiong2020" in remark


def test_a_study_that_is_nowhere_is_named_and_the_rest_is_drawn(three: Path) -> None:
    for name in ("runs", "reference"):
        (three / name / "collapse").rename(three / name / "elsewhere")
    where, remark = kinds(three)
    assert where == {"init_scaling": "runs", "xiong2020": "runs"}
    assert "without the panels of collapse" in remark


def test_a_figure_gets_its_studies_in_order_and_none_for_a_missing_one(three: Path) -> None:
    stories, _ = Store(three, "laptop").together(ENTRY)
    del stories["xiong2020"]
    drawn = ENTRY.figure(stories)
    assert [None if story is None else story.study.source.study for story in drawn] == ["init_scaling", None, "collapse"]
