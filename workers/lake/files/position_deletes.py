"""Position deletes: which rows of which file are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from workers.lake.files.table_layout import FIELD_ID, TableLayout
from workers.lake.staged_rows import NewFile
from workers.lake.storage.store import TableStore

_FILE_PATH_ID: Final = b"2147483546"
_POSITION_ID: Final = b"2147483545"
_BITS: Final = 40

Array = npt.NDArray[np.int64]


# -- deletes --------------------------------------------------------------------------------------

_NAMES: Final = pa.dictionary(pa.int32(), pa.string())
_DELETES: Final = pa.schema(
    [
        pa.field("file_path", _NAMES, False, {FIELD_ID: _FILE_PATH_ID}),
        pa.field("pos", pa.int64(), False, {FIELD_ID: _POSITION_ID}),
    ]
)
_REPEATED: Final[Any] = ["file_path"]
RowPositions = Mapping[str, Array]
NO_POSITIONS: Final[Array] = np.empty(0, np.int64)


def by_file(paths: Any, positions: Any) -> RowPositions:
    """Rows by the data file they are in, in any order and as often as they are."""
    encoded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    # One number for a place: there are no files of 2^40 rows, nor so many of them.
    places = _sorted((encoded.indices.to_numpy().astype(np.int64) << _BITS) | positions.to_numpy())
    parts = np.split(places, np.flatnonzero(np.diff(places >> _BITS)) + 1)
    return {
        encoded.dictionary[int(part[0] >> _BITS)].as_py(): part & ((1 << _BITS) - 1)
        for part in parts
        if len(part)
    }


def together(all_places: Iterable[RowPositions]) -> RowPositions:
    """The rows of all of them."""
    found: dict[str, list[Array]] = {}
    for places in all_places:
        for path, positions in places.items():
            found.setdefault(path, []).append(positions)
    return {path: _sorted(np.concatenate(parts)) for path, parts in found.items()}


def _sorted(numbers: Array) -> Array:
    """Each once; NumPy's ``unique`` does not see that they are, or nearly, in order already."""
    rising = numbers[1:] > numbers[:-1]
    if rising.all():
        return numbers
    numbers = np.sort(numbers, kind="stable")
    first = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first]


def write_deletes(files: TableLayout, places: RowPositions) -> NewFile:
    """The places of deleted rows; where all are in one data file, the file says so."""
    names = sorted(places)  # by file and position: readers rely on it
    codes = np.repeat(np.arange(len(names), dtype=np.int32), [len(places[each]) for each in names])
    rows = pa.Table.from_arrays(
        [
            pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())),
            pa.array(np.concatenate([places[each] for each in names])),
        ],
        schema=_DELETES,
    )
    path = files.new_path(suffix="-deletes")
    with files.store.create(path) as file:
        pq.write_table(
            rows,
            file,
            compression="zstd",
            compression_level=1,
            use_dictionary=_REPEATED,
            store_schema=False,
        )
        of = names[0] if len(names) == 1 else None
        return NewFile(path, file.tell(), len(codes), of)


def read_deletes(store: TableStore, path: str) -> RowPositions:
    """The places in a file of deletes, ours or another writer's."""
    with store.errors(), store.open_input(path) as file:
        found = pq.read_table(file, columns=["file_path", "pos"], read_dictionary=["file_path"])
    return by_file(found["file_path"].unify_dictionaries().combine_chunks(), found["pos"])
