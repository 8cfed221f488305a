"""Rows of a table of results/schema.json on their way to a Parquet file."""

import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.config import CONF

SCHEMA_FILE = CONF.parent / "results" / "schema.json"
KEYS = ("step", "layer")  # index the rows; given with every addition


class Column(NamedTuple):
    """Values of some rows; where `null` is true nothing was measured and the value means nothing."""

    values: npt.NDArray[Any]
    null: npt.NDArray[np.bool_]


@cache
def column_types(table: str) -> dict[str, pa.DataType]:
    """Arrow type of each column of a table, in the order of results/schema.json."""
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return {name: pa.type_for_alias(column["dtype"]) for name, column in schema["tables"][table]["columns"].items()}


def column(values: npt.ArrayLike, dtype: npt.DTypeLike) -> Column:
    """Cast to a dtype. Masked entries are null, NaN stays NaN, and what float32 cannot hold is infinite."""
    null = np.ma.getmaskarray(np.ma.asarray(values))
    data = np.where(null, 0, np.ma.getdata(values)) if null.any() else np.asarray(values)
    if np.dtype(dtype).kind == "i" and not np.array_equal(data, np.trunc(data)):
        raise ValueError(f"{data} are not whole numbers")
    with np.errstate(over="ignore"):
        return Column(data.astype(dtype), null)


def nothing(rows: int, dtype: npt.DTypeLike) -> Column:
    """Rows in which a column was not measured."""
    return Column(np.zeros(rows, dtype), np.ones(rows, bool))


class Table:
    """Blocks of rows in rising order of their step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: int | None = None  # step of the last block
        self._types = column_types(name)
        self._blocks: list[dict[str, Column]] = []

    def add(self, step: int, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Add a block of rows; a second one of the same step adds columns to the first.

        Raises KeyError for a column that the schema lacks, ValueError for a step out of order or a column given twice.
        """
        if unknown := sorted(columns.keys() - self._types.keys()):
            raise KeyError(
                f"results/schema.json has no {', '.join(unknown)} in table {self.name}; known are {list(self._types)}"
            )
        if self.last is not None and step < self.last:
            raise ValueError(f"step {step} of table {self.name} comes after step {self.last}; steps rise")
        block = self._blocks[-1] if step == self.last else {}
        if twice := sorted(columns.keys() & block.keys() - set(KEYS)):
            raise ValueError(f"step {step} of table {self.name} has {', '.join(twice)} already")
        cast = {name: self._cast(name, values) for name, values in columns.items()}
        if step != self.last:
            self._blocks.append(block)
        block.update(cast)
        self.last = step

    def measured(self, name: str) -> npt.NDArray[Any]:
        """All values of a column that were measured, in order."""
        joined = self._joined(name)
        return joined.values[~joined.null]

    def parquet(self) -> bytes:
        """The table as a Parquet file: zstd, floats with their bytes split into streams."""
        floats = [name for name, kind in self._types.items() if pa.types.is_floating(kind)]
        arrays = [self._arrow(name, kind) for name, kind in self._types.items()]
        buffer = io.BytesIO()
        pq.write_table(
            pa.Table.from_arrays(arrays, names=list(self._types)),
            buffer,
            compression="zstd",
            use_dictionary=[name for name in self._types if name not in floats],
            column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
            write_page_checksum=True,  # so that a flipped bit is noticed when read
        )
        return buffer.getvalue()

    def _joined(self, name: str) -> Column:
        dtype = self._types[name].to_pandas_dtype()
        parts = [block.get(name) or nothing(len(block["step"].values), dtype) for block in self._blocks]
        parts.append(nothing(0, dtype))
        return Column(np.concatenate([part.values for part in parts]), np.concatenate([part.null for part in parts]))

    def _arrow(self, name: str, kind: pa.DataType) -> pa.Array:
        values, null = self._joined(name)
        present = np.packbits(~null, bitorder="little")
        # not pa.array, which would import pandas to see whether it got a Series: half a second a run
        return pa.Array.from_buffers(kind, len(values), [pa.py_buffer(present), pa.py_buffer(values)])

    def _cast(self, name: str, values: npt.ArrayLike) -> Column:
        try:
            return column(values, self._types[name].to_pandas_dtype())
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} of table {self.name}: {error}") from error
