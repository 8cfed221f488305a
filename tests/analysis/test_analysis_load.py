"""Laws of the store: which runs are read, and what is refused."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_store import Run, edit_json, write_parquet, write_plan, write_study

from analysis.load import Columns, load_reference, load_study
from analysis.reference import write_reference
from analysis.schema import SchemaError, columns
from analysis.tables import DRAWN

SMALL = [Run(norm, depth, seed=seed, steps=30) for norm in ("pre", "post") for depth in (2, 3) for seed in (0, 1)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_study(tmp_path, SMALL)
    return tmp_path


def test_a_done_plan_is_read_whole(results: Path) -> None:
    study = load_study(results, "depth_warmup")
    assert study is not None
    assert sorted(study.runs["run"]) == sorted(run.name for run in SMALL)
    assert list(study.runs.columns) == list(columns("runs"))
    assert list(study.layers.columns) == ["run", *columns("layers")]
    assert study.layers.groupby("run", observed=True)["layer"].max().to_dict() == {run.name: run.depth for run in SMALL}
    assert str(study.source) == "depth_warmup: 8 runs of results/runs at laptop, commit abc1234"


def test_exactly_the_runs_of_the_newest_plan_are_read(results: Path) -> None:
    write_plan(results, SMALL, age=10, tag="11111111")
    write_plan(results, SMALL[:3], age=0, tag="00000001")
    study = load_study(results, "depth_warmup")
    assert study is not None
    assert set(study.runs["run"]) == {run.name for run in SMALL[:3]}
    assert set(study.layers["run"].unique()) == {run.name for run in SMALL[:3]}


@pytest.mark.parametrize("state", ["running", "interrupted", "failed", "killed", "oom"])
def test_a_plan_that_is_not_done_gives_way_to_the_reference_and_says_so(results: Path, state: str) -> None:
    write_reference(results, "depth_warmup")
    edit_json(SMALL[0].folder(results) / "run.json", "status", "state", value=state)
    study = load_study(results, "depth_warmup")
    assert study is not None
    assert study.source.kind == "reference"
    assert len(study.runs) == 8
    assert f"7 of 8 runs of its newest plan done, 1 {state}" in str(study.source)


def test_without_reference_an_undone_plan_is_read_only_when_asked_and_counted(results: Path) -> None:
    write_plan(results, [*SMALL, Run("pre", 4, steps=30)], tag="11111111")
    edit_json(SMALL[0].folder(results) / "run.json", "status", "state", value="interrupted")
    assert load_study(results, "depth_warmup") is None
    study = load_study(results, "depth_warmup", partial=True)
    assert study is not None
    assert len(study.runs) == 7
    assert SMALL[0].name not in set(study.layers["run"])
    assert "; 2 incomplete left out" in str(study.source)
    assert "1 interrupted, 1 missing" in str(study.source)


def test_a_diverged_run_is_done(tmp_path: Path) -> None:
    write_study(tmp_path, [Run(steps=30), Run(seed=1, steps=30, outcome="diverged", state="diverged")])
    study = load_study(tmp_path, "depth_warmup")
    assert study is not None
    assert sorted(study.runs["state"]) == ["complete", "diverged"]
    assert study.runs["diverged_step"].notna().sum() == 1


def test_an_empty_store_has_no_study(tmp_path: Path) -> None:
    assert load_study(tmp_path, "depth_warmup") is None
    assert load_reference(tmp_path, "depth_warmup") is None


def test_runs_of_two_commits_are_named(tmp_path: Path) -> None:
    write_study(tmp_path, [Run(steps=30), Run(seed=1, steps=30, commit="def5678+")])
    study = load_study(tmp_path, "depth_warmup")
    assert study is not None
    assert "commits abc1234, def5678+" in str(study.source)


@pytest.mark.parametrize("table", ["steps", "layers"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_parquet_cut_short_is_named_and_never_read_as_whole(results: Path, table: str, share: float) -> None:
    path = SMALL[3].folder(results) / f"{table}.parquet"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(SchemaError, match=f"{SMALL[3].name}/{table}.parquet"):
        load_study(results, "depth_warmup")


def test_a_parquet_with_a_changed_byte_is_refused(results: Path) -> None:
    path = SMALL[3].folder(results) / "layers.parquet"
    body = bytearray(path.read_bytes())
    for at in range(40, 200, 7):
        body[at] ^= 0xFF
    path.write_bytes(bytes(body))
    with pytest.raises(SchemaError, match="damaged"):
        load_study(results, "depth_warmup")


def test_a_missing_parquet_is_named(results: Path) -> None:
    (SMALL[0].folder(results) / "steps.parquet").unlink()
    with pytest.raises(SchemaError, match=r"steps\.parquet"):
        load_study(results, "depth_warmup")


def test_a_table_that_ends_before_the_run_is_refused(results: Path) -> None:
    path = SMALL[0].folder(results) / "steps.parquet"
    write_parquet(pq.read_table(path).slice(0, 12), path)
    with pytest.raises(SchemaError, match="ends at step 11 of 29"):
        load_study(results, "depth_warmup")


def test_a_step_without_all_layers_is_refused(results: Path) -> None:
    path = SMALL[0].folder(results) / "layers.parquet"
    table = pq.read_table(path)
    write_parquet(table.slice(0, len(table) - 1), path)
    with pytest.raises(SchemaError, match="lacks some of the 3 layers"):
        load_study(results, "depth_warmup")


def test_a_missing_column_is_named_unless_nobody_asks_for_it(results: Path) -> None:
    path = SMALL[0].folder(results) / "layers.parquet"
    write_parquet(pq.read_table(path).drop_columns(["grad_wq"]), path)
    with pytest.raises(SchemaError, match=r"layers\.parquet: column grad_wq is missing"):
        load_study(results, "depth_warmup")
    assert load_study(results, "depth_warmup", columns=DRAWN) is not None


def test_a_column_of_the_wrong_type_or_unknown_is_named(results: Path) -> None:
    path = SMALL[0].folder(results) / "layers.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("grad_w2")
    write_parquet(table.set_column(at, "grad_w2", table["grad_w2"].cast(pa.float64())), path)
    with pytest.raises(SchemaError, match="column grad_w2 is double, not float"):
        load_study(results, "depth_warmup", columns=DRAWN)
    write_parquet(table.append_column("surprise", table["grad_w2"]), path)
    with pytest.raises(SchemaError, match="column surprise is not in results/schema"):
        load_study(results, "depth_warmup", columns=DRAWN)


@pytest.mark.parametrize("text", ["", "{", '{"run": "x', "[]"])
def test_a_broken_run_json_is_named(results: Path, text: str) -> None:
    path = SMALL[2].folder(results) / "run.json"
    path.write_text(text)
    with pytest.raises(SchemaError, match=f"{SMALL[2].name}/run.json"):
        load_study(results, "depth_warmup")


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("schema",), 99, "schema=99"),
        (("run",), "other", "not the name of its folder"),
        (("config", "model", "depth"), "six", "depth='six' is not int32"),
        (("status", "val_loss"), None, "val_loss is null"),
    ],
)
def test_a_wrong_value_in_run_json_is_named(results: Path, keys: tuple[str, ...], value: object, message: str) -> None:
    edit_json(SMALL[2].folder(results) / "run.json", *keys, value=value)
    with pytest.raises(SchemaError, match=message) as caught:
        load_study(results, "depth_warmup")
    assert SMALL[2].name in str(caught.value)


@pytest.mark.parametrize("keys", [("status",), ("status", "state"), ("config", "seed"), ("manifest", "data", "unigram")])
def test_a_missing_key_in_run_json_is_named(results: Path, keys: tuple[str, ...]) -> None:
    edit_json(SMALL[2].folder(results) / "run.json", *keys, drop=True)
    with pytest.raises(SchemaError, match=f"{SMALL[2].name}/run.json: no key .*{keys[-1]}"):
        load_study(results, "depth_warmup")


def test_a_broken_plan_is_named(results: Path) -> None:
    (results / "runs" / "depth_warmup" / "laptop" / "plan-00000000.json").write_text("{")
    with pytest.raises(SchemaError, match="plan-00000000"):
        load_study(results, "depth_warmup")


def test_only_the_columns_asked_for_are_read(results: Path) -> None:
    study = load_study(results, "depth_warmup", columns=Columns(steps=(), layers=("grad_w2",)))
    assert study is not None
    assert list(study.layers.columns) == ["run", "step", "layer", "grad_w2"]
    assert study.steps.empty
