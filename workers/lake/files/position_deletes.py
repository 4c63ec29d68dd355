"""Delete files of positions: Parquet files that list deleted rows by data file and position.

A delete file has two columns: the path of a data file, and the position of a deleted row in the
data file. In memory the same is a ``RowPositions``: for each data file an array of positions,
ascending and without duplicates.

Trace: rows 5 and 1 of ``a``, row 0 of ``b`` and again row 5 of ``a`` were found.
``positions_by_file`` gives ``{a: [1, 5], b: [0]}``. The delete file has the rows (a, 1), (a, 5),
(b, 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from config.limits import ROW_GROUP_ROWS
from workers.lake.files.table_layout import FIELD_ID, TableLayout
from workers.lake.staged_rows import NewFile, Place
from workers.lake.storage.store import TableStore

_FILE_PATH_ID: Final = b"2147483546"
_POSITION_ID: Final = b"2147483545"
"""Field ids of the two columns, from Iceberg's specification."""
_BITS: Final = 40
"""Bits of a position when file and position share a number: no file has 2^40 rows."""

Array = npt.NDArray[np.int64]

_PATHS: Final = pa.dictionary(pa.int32(), pa.string())
_DELETES: Final = pa.schema(
    [
        pa.field("file_path", _PATHS, False, {FIELD_ID: _FILE_PATH_ID}),
        pa.field("pos", pa.int64(), False, {FIELD_ID: _POSITION_ID}),
    ]
)
_DICTIONARY_COLUMNS: Final[Any] = ["file_path"]
"""Positions never repeat, so a dictionary of positions would only cost."""
RowPositions = Mapping[str, Array]
"""Rows by data file: positions, ascending and without duplicates."""
NO_POSITIONS: Final[Array] = np.empty(0, np.int64)


def positions_by_file(paths: Any, positions: Any) -> RowPositions:
    """Group rows by data file. The input may be unordered and have duplicates."""
    encoded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    numbers = _sorted((encoded.indices.to_numpy().astype(np.int64) << _BITS) | positions.to_numpy())
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers >> _BITS)) + 1)
    return {
        encoded.dictionary[int(part[0] >> _BITS)].as_py(): part & ((1 << _BITS) - 1)
        for part in parts
        if len(part)
    }


def merge_positions(groups: Iterable[RowPositions]) -> RowPositions:
    """The union of several groups of rows."""
    found: dict[str, list[Array]] = {}
    for rows in groups:
        for path, positions in rows.items():
            found.setdefault(path, []).append(positions)
    return {path: _sorted(np.concatenate(parts)) for path, parts in found.items()}


def _sorted(numbers: Array) -> Array:
    """Sort and drop duplicates. NumPy's ``unique`` is slow on numbers that are nearly in order."""
    rising = numbers[1:] > numbers[:-1]
    if rising.all():
        return numbers
    numbers = np.sort(numbers, kind="stable")
    first = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first]


def write_deletes(
    files: TableLayout, positions: RowPositions, place: Place | None = None
) -> NewFile:
    """Write a delete file. Rows of a single data file are referenced as such (``NewFile.of``).

    All data files have the place ``place``.
    """
    names = sorted(positions)  # readers rely on the order by file and position
    codes = np.repeat(
        np.arange(len(names), dtype=np.int32), [len(positions[each]) for each in names]
    )
    rows = pa.Table.from_arrays(
        [
            pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())),
            pa.array(np.concatenate([positions[each] for each in names])),
        ],
        schema=_DELETES,
    )
    path = files.new_path(suffix="-deletes")
    with files.store.create(path, rows.nbytes) as file:
        pq.write_table(
            rows,
            file,
            compression="zstd",
            compression_level=1,
            use_dictionary=_DICTIONARY_COLUMNS,
            row_group_size=ROW_GROUP_ROWS,
            store_schema=False,
        )
        of = names[0] if len(names) == 1 else None
        return NewFile(path, file.tell(), len(codes), of, place=place)


def read_deletes(store: TableStore, file: NewFile) -> RowPositions:
    """Read a delete file, of this process or of a foreign writer."""
    with store.errors(), store.open_input(file.path, file.size) as opened:
        found = pq.read_table(opened, columns=["file_path", "pos"], read_dictionary=["file_path"])
    return positions_by_file(found["file_path"].unify_dictionaries().combine_chunks(), found["pos"])
