"""Laws of the tables of a run: what was measured survives to the bit, and what was not is null."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig
from recorded import MANIFEST, finished, small

from experiments.config import CONF
from experiments.identity import run_folder
from experiments.record import RunWriter
from experiments.state import read_state
from experiments.table import Table, column_types


@pytest.fixture
def cfg(tmp_path: Path) -> DictConfig:
    return small(tmp_path)


def test_null_is_not_measured_and_nan_is_measured_and_both_survive(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0, "loss": math.nan, "grad_norm": math.inf, "val_loss": None})
        writer.step({"step": 1, "loss": -math.inf, "grad_norm": 0.0, "val_loss": 1.0})
        writer.layers(0, {"grad_stream": np.array([math.nan, 1e-30, math.inf, 0.0])})
        writer.layers(1, {"stream_var": np.ones(4)})
        writer.finish("complete")
    steps = pq.read_table(writer.folder / "steps.parquet")
    assert str(steps["loss"].to_pylist()) == "[nan, -inf]"
    assert steps["grad_norm"].to_pylist() == [math.inf, 0.0]
    assert steps["val_loss"].to_pylist() == [None, 1.0]
    assert steps["val_loss"].null_count == 1
    assert steps["loss"].null_count == 0
    gradient = pq.read_table(writer.folder / "layers.parquet")["grad_stream"]
    assert gradient.null_count == 4
    assert str(gradient.to_pylist()) == f"[nan, {float(np.float32(1e-30))}, inf, 0.0, None, None, None, None]"


def test_a_quantity_of_blocks_is_null_at_the_last_stream_point(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, {"grad_wq": np.arange(3.0), "stream_var": np.arange(4.0), "nonfinite_grad": np.zeros(3)})
        writer.finish("complete")
    table = pq.read_table(writer.folder / "layers.parquet")
    assert table["layer"].to_pylist() == [0, 1, 2, 3]
    assert table["grad_wq"].to_pylist() == [0.0, 1.0, 2.0, None]
    assert table["stream_var"].to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert table["nonfinite_grad"].to_pylist() == [0, 0, 0, None]


def test_a_masked_entry_is_null(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, {"norm2_std_attn": np.ma.MaskedArray([1.0, math.nan, 3.0], mask=[True, False, False])})
        writer.finish("complete")
    found = pq.read_table(writer.folder / "layers.parquet")["norm2_std_attn"]
    assert str(found.to_pylist()) == "[None, nan, 3.0, None]"


@pytest.mark.parametrize("value", [1e-30, 1e30, 1.4e-45, float(np.float32(1) / np.float32(3))])
def test_a_float32_norm_survives_to_the_last_bit(cfg: DictConfig, value: float) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, {"grad_stream": np.full(4, value)})
        writer.finish("complete")
    assert pq.read_table(writer.folder / "layers.parquet")["grad_stream"].to_pylist() == [float(np.float32(value))] * 4


def test_tables_have_the_columns_and_types_of_the_schema(cfg: DictConfig) -> None:
    folder = finished(cfg)
    for name in ("steps", "layers"):
        found = pq.read_schema(folder / f"{name}.parquet")
        assert dict(zip(found.names, found.types, strict=True)) == column_types(name)


def test_floats_are_split_into_byte_streams_and_packed_with_zstd(cfg: DictConfig) -> None:
    group = pq.ParquetFile(finished(cfg) / "layers.parquet").metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "BYTE_STREAM_SPLIT" in columns["grad_stream"].encodings
    assert "BYTE_STREAM_SPLIT" not in columns["step"].encodings


def test_a_deep_and_long_run_stays_small(tmp_path: Path) -> None:
    deep = small(tmp_path, "model.depth=96")
    noise = np.random.default_rng(0)
    with RunWriter(deep, MANIFEST) as writer:
        for step in range(50):
            writer.layers(step, {name: np.exp(noise.normal(size=97)) for name in list(column_types("layers"))[2:6]})
        writer.finish("complete")
    assert (writer.folder / "layers.parquet").stat().st_size < 50 * 97 * 4 * 4 + 30_000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"grad_w9": np.ones(3)}, "no grad_w9 in table layers"),
        ({"grad_wq": np.ones(2)}, r"grad_wq has shape \(2,\); depth 3 has 4 points"),
        ({"nonfinite_grad": np.array([0, math.nan, 0])}, "nonfinite_grad of table layers: .* are not whole numbers"),
    ],
)
def test_a_column_that_the_schema_does_not_carry_is_an_error(
    cfg: DictConfig, columns: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises((KeyError, ValueError), match=message), RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, columns)
    assert read_state(run_folder(cfg)).state == "failed"


def test_a_second_part_of_a_step_adds_columns_and_never_overwrites(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(1, {"grad_wq": np.ones(3)})
        writer.layers(1, {"update_wq": np.full(3, 2.0)})
        with pytest.raises(ValueError, match="step 1 of table layers has grad_wq already"):
            writer.layers(1, {"grad_wq": np.zeros(3)})
        writer.finish("complete")
    table = pq.read_table(writer.folder / "layers.parquet")
    assert table["grad_wq"].to_pylist() == [1.0, 1.0, 1.0, None]
    assert table.num_rows == 4
    assert table["update_wq"].to_pylist() == [2.0, 2.0, 2.0, None]


def test_steps_rise() -> None:
    table = Table("steps")
    table.add(2, {"step": [2]})
    with pytest.raises(ValueError, match="step 1 of table steps comes after step 2"):
        table.add(1, {"step": [1]})


def test_writing_a_table_imports_no_pandas(tmp_path: Path) -> None:
    program = "import sys, fake_runs; from pathlib import Path; fake_runs.run(fake_runs.jobs(Path(sys.argv[1]), 1)[0]);"
    program += "sys.exit('pandas' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CONF.parent), str(CONF.parent / "tests")])}
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=False).returncode == 0


def test_a_flipped_bit_is_noticed(cfg: DictConfig) -> None:
    with RunWriter(cfg, MANIFEST) as writer:
        writer.layers(0, {"grad_stream": np.linspace(1.0, 2.0, 4)})
        writer.finish("complete")
    path = writer.folder / "layers.parquet"
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(0).column(file.schema_arrow.get_field_index("grad_stream"))
        middle = column.data_page_offset + column.total_compressed_size - 3
    data = bytearray(path.read_bytes())
    data[middle] ^= 1
    path.write_bytes(data)
    with (
        pytest.raises(OSError, match=r"(?i)checksum|crc|corrupt"),
        pq.ParquetFile(path, page_checksum_verification=True) as file,
    ):
        file.read()
