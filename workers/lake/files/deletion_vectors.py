"""Deletion vectors: bitmaps of deleted positions in a Puffin file, from format 3 on.

A data file has at most one vector. A new vector holds all deletes of the data file and replaces the
vector before. The vectors of all data files of a batch stand in a single Puffin file; the table's
metadata says where in the file each vector begins.

The format follows Iceberg's specifications of tables and of Puffin. The bitmap is a 64-bit Roaring
bitmap in the portable form that CRoaring writes.

Trace: file ``a`` has a vector with position 1. A batch deletes row 4 of ``a`` and row 0 of ``b``.
A new Puffin file holds the vectors ``a: {1, 4}`` and ``b: {0}``; the commit replaces the vector of
``a``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

from workers.lake.files.position_deletes import NO_POSITIONS, RowPositions, read_deletes
from workers.lake.files.read_rows import Unreadable, reading
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import NewFile, Place
from workers.lake.storage.store import TableStore

_PUFFIN: Final = b"PFA1"
_VECTOR: Final = b"\xd1\xd3\x39\x64"
_POSITION_ID: Final = 2147483645


def write_vectors(
    table: TableLayout,
    positions: RowPositions,
    before: Mapping[str, Sequence[NewFile]],
    places: Mapping[str, Place | None] | None = None,
) -> list[NewFile]:
    """Write the vectors of several data files to a Puffin file. Returns an entry for each vector.

    A vector holds the new ``positions`` and the deletes of the data file ``before``. ``places`` are
    the data files' places.
    """
    path = table.new_path(suffix="-deletes", ending="puffin")
    content = bytearray(_PUFFIN)
    entries, blobs = [], []
    parsed = cache(
        partial(read_deletes, table.store)
    )  # a delete file may concern several data files
    for of in sorted(positions):
        bitmap = BitMap64(positions[of])
        for each in before.get(of, ()):
            with reading(table.store):
                bitmap |= (
                    _bitmap(table.store, each)
                    if each.vector
                    else BitMap64(parsed(each).get(of, NO_POSITIONS))
                )
        vector = _encode(bitmap)
        entries.append((of, len(content), len(vector), len(bitmap)))
        blobs.append(_blob(*entries[-1]))
        content += vector
    content += _footer(blobs)
    with table.store.create(path, len(content)) as file:
        file.write(content)
    return [
        NewFile(path, len(content), rows, of, vector=(start, size), place=(places or {}).get(of))
        for of, start, size, rows in entries
    ]


def _encode(bitmap: BitMap64) -> bytes:
    bitmap.run_optimize()
    vector = _VECTOR + bitmap.serialize()
    return len(vector).to_bytes(4, "big") + vector + zlib.crc32(vector).to_bytes(4, "big")


def _blob(of: str, start: int, size: int, rows: int) -> dict[str, Any]:
    return {
        "type": "deletion-vector-v1",
        "snapshot-id": -1,
        "sequence-number": -1,
        "fields": [_POSITION_ID],
        "offset": start,
        "length": size,
        "properties": {"referenced-data-file": of, "cardinality": str(rows)},
    }


def _footer(blobs: Sequence[dict[str, Any]]) -> bytes:
    payload = json.dumps({"blobs": blobs, "properties": {}}).encode()
    return _PUFFIN + payload + len(payload).to_bytes(4, "little") + bytes(4) + _PUFFIN


def read_vector(store: TableStore, file: NewFile) -> RowPositions:
    """Read a vector, of this process or of a foreign writer. Unreadable if damaged."""
    return {str(file.of): np.asarray(_bitmap(store, file).to_array(), np.int64)}


def _bitmap(store: TableStore, file: NewFile) -> BitMap64:
    start, size = file.vector or (0, 0)
    with store.errors(), store.open_input(file.path) as opened:
        opened.seek(start)
        content = opened.read(size)
    vector = content[4:-4]
    is_whole = len(content) == size and int.from_bytes(content[:4], "big") == len(vector)
    is_sound = zlib.crc32(vector) == int.from_bytes(content[-4:], "big")
    if not (is_whole and is_sound and vector.startswith(_VECTOR)):
        raise Unreadable
    return BitMap64.deserialize(vector[len(_VECTOR) :])
