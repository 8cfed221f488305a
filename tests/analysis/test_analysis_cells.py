"""Laws of cells: seeds are averaged only where nothing else differs."""

from pathlib import Path

import pandas as pd
import pytest
from synthetic_store import Run, edit_json, write_study

from analysis.cells import check_cells, told_apart
from analysis.load import Columns, load_study
from analysis.schema import SchemaError


def cells_of(tmp_path: Path, *runs: Run) -> pd.DataFrame:
    write_study(tmp_path, list(runs))
    study = load_study(tmp_path, "depth_warmup", columns=Columns((), ()))
    assert study is not None
    return study.runs


def test_seeds_and_what_does_not_change_the_science_share_a_cell(tmp_path: Path) -> None:
    outside = {"results": "elsewhere", "device": "cuda", "threads": 4, "sweep.jobs": 3, "norm.label": "other"}
    check_cells(cells_of(tmp_path, Run(steps=30), Run(seed=1, steps=30, override=outside)))


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ({"optim.lr": 1e-3}, "optim.lr"),
        ({"optim.betas": [0.9, 0.999]}, "optim.betas"),
        ({"train.clip": 1.0, "init.std": 0.1}, "init.std, train.clip"),
    ],
)
def test_runs_of_one_group_that_differ_are_refused_by_key(tmp_path: Path, override: dict[str, object], keys: str) -> None:
    runs = cells_of(tmp_path, Run(steps=30), Run(seed=1, steps=30, override=override))
    with pytest.raises(SchemaError, match=rf"differ in {keys};"):
        check_cells(runs)
    check_cells(runs, ("variant", "depth", "warmup", "seed"))


def test_a_swept_option_makes_series_of_its_own(tmp_path: Path) -> None:
    rates = [{"optim.lr": 1e-3}, {"optim.lr": 4e-3}]
    runs = cells_of(tmp_path, *(Run(seed=seed, steps=30, override=rate) for seed in (0, 1) for rate in rates))
    apart = told_apart(runs)
    check_cells(apart)
    assert set(apart["variant"]) == {"pre lr=0.001", "pre lr=0.004"}
    assert apart.groupby("variant")["seed"].apply(list).to_dict() == {"pre lr=0.001": [0, 1], "pre lr=0.004": [0, 1]}
    assert set(apart["label"]) == {"Pre-LN, lr=0.001", "Pre-LN, lr=0.004"}


def test_runs_that_differ_in_nothing_else_keep_their_names(tmp_path: Path) -> None:
    runs = cells_of(tmp_path, Run(steps=30), Run(seed=1, steps=30), Run("post", steps=30))
    pd.testing.assert_frame_equal(told_apart(runs), runs)


def test_a_run_from_before_an_option_has_its_neutral_value(tmp_path: Path) -> None:
    later = Run(seed=1, steps=30, override={"norm.qk": "none", "model.branches": ["attn", "ffn"]})
    check_cells(cells_of(tmp_path, Run(steps=30), later))
    with pytest.raises(SchemaError, match=r"differ in norm.qk;"):
        check_cells(cells_of(tmp_path, Run(steps=30), Run(seed=2, steps=30, override={"norm.qk": "l2"})))


def test_runs_on_different_data_are_refused(tmp_path: Path) -> None:
    write_study(tmp_path, [Run(steps=30), Run(seed=1, steps=30)])
    edit_json(Run(seed=1, steps=30).folder(tmp_path) / "run.json", "manifest", "data", "sha256", value="1" * 64)
    study = load_study(tmp_path, "depth_warmup", columns=Columns((), ()))
    assert study is not None
    with pytest.raises(SchemaError, match=r"data\.sha256"):
        check_cells(study.runs)


def test_one_seed_twice_in_a_cell_is_refused(tmp_path: Path) -> None:
    runs = cells_of(tmp_path, Run(steps=30), Run(steps=30, override={"threads": 2}))
    with pytest.raises(SchemaError, match="seed 0 stands twice"):
        check_cells(runs)
