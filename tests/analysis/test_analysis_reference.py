"""Laws of the reference: what is committed is what was run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_store import Run, write_parquet, write_plan, write_study
from synthetic_studies import training_runs

from analysis.load import load_reference, load_study
from analysis.reference import main as write_references
from analysis.reference import write_reference
from analysis.schema import SchemaError, read_table
from analysis.tables import DRAWN

SMALL = [Run(norm, depth, seed=seed, steps=30) for norm in ("pre", "post") for depth in (2, 3) for seed in (0, 1)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_study(tmp_path, SMALL)
    return tmp_path


def with_values(results: Path, run: Run, values: list[float | None]) -> None:
    """Puts values at the start of grad_stream."""
    path = run.folder(results) / "layers.parquet"
    table = pq.read_table(path)
    old = table["grad_stream"].to_pylist()
    at = table.schema.get_field_index("grad_stream")
    write_parquet(table.set_column(at, "grad_stream", pa.array([*values, *old[len(values) :]], pa.float32())), path)


def test_nan_and_infinity_survive_the_store_and_the_reference(results: Path) -> None:
    with_values(results, SMALL[0], [np.nan, np.inf, None, 1e-30, 0.0])
    write_reference(results, "depth_warmup")
    table = read_table(results / "reference" / "depth_warmup" / "layers.parquet", "layers", ("grad_stream",), many=True)
    kept = [value for run, value in zip(*table.to_pydict().values(), strict=True) if run == SMALL[0].name][:5]
    assert np.isnan(kept[0])
    assert kept[1:3] == [np.inf, None]
    assert kept[3:] == [pytest.approx(1e-30), 0.0]


def test_the_reference_gives_the_same_tables_as_the_runs(results: Path) -> None:
    own = load_study(results, "depth_warmup", columns=DRAWN)
    write_reference(results, "depth_warmup")
    kept = load_reference(results, "depth_warmup", columns=DRAWN)
    assert own is not None
    assert kept is not None
    for table in ("runs", "steps", "layers"):
        pd.testing.assert_frame_equal(getattr(own, table), getattr(kept, table))
    assert (own.source.kind, kept.source.kind) == ("runs", "reference")


def test_the_reference_of_another_scale_is_not_taken(results: Path) -> None:
    write_reference(results, "depth_warmup")
    assert load_study(results, "depth_warmup", "smoke") is None


def test_the_reference_is_made_only_of_a_done_plan_at_laptop_scale(results: Path) -> None:
    with pytest.raises(SchemaError, match="scale=smoke"):
        write_reference(results, "depth_warmup", "smoke")
    write_plan(results, [*SMALL, Run("pre", 4, steps=30)], tag="11111111")
    with pytest.raises(SchemaError, match="8 of 9 runs of its newest plan done, 1 missing"):
        write_reference(results, "depth_warmup")
    with pytest.raises(SchemaError, match="no plan"):
        write_reference(results, "init_scaling")
    assert not (results / "reference").exists()


def test_the_reference_is_replaced_whole_and_leaves_nothing_beside_it(results: Path) -> None:
    folder = write_reference(results, "depth_warmup")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(first) == ["layers.parquet", "runs.parquet", "steps.parquet"]
    write_reference(results, "depth_warmup")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_reference_files_of_different_makings_are_refused(results: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = write_reference(results, "depth_warmup")
    other = tmp_path_factory.mktemp("other")
    write_study(other, SMALL[:3])
    layers = write_reference(other, "depth_warmup") / "layers.parquet"
    (folder / "layers.parquet").write_bytes(layers.read_bytes())
    with pytest.raises(SchemaError, match="its runs are not those"):
        load_reference(results, "depth_warmup")


def test_a_laptop_reference_stays_below_two_megabytes(tmp_path: Path) -> None:
    """Float noise hardly compresses, so depth and records are those of the study and the seeds are cut to a third."""
    runs = [replace(run, steps=300) for run in training_runs() if run.seed == 0]
    write_study(tmp_path, runs)
    folder = write_reference(tmp_path, "depth_warmup")
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size * 84 / len(runs) < 2e6


def test_make_reference_fails_where_nothing_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_references(["--results", str(tmp_path)]) == 1
    assert "make sweep" in capsys.readouterr().err
