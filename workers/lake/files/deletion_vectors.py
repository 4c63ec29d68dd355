"""Deletion vectors, which is how format 3 keeps deletes: bitmaps of positions in a Puffin file.

A data file has one at most, so the next one holds all of its deletes and replaces it; those of all
data files that a batch has deleted rows of are in one file. Readers are told by the metadata where
in the file each begins. After Iceberg's specifications of the table and of Puffin; a 64-bit Roaring
bitmap in its portable form is what CRoaring writes.
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
from workers.lake.staged_rows import NewFile
from workers.lake.storage.store import TableStore

_PUFFIN: Final = b"PFA1"
_VECTOR: Final = b"\xd1\xd3\x39\x64"
_POSITION_ID: Final = 2147483645


def write_vectors(
    table: TableLayout, places: RowPositions, before: Mapping[str, Sequence[NewFile]]
) -> list[NewFile]:
    """Vectors of data files, all in one file: what the metadata is to say of each of them.

    They hold ``places`` and what these data files' deletes held ``before``.
    """
    path = table.new_path(suffix="-deletes", ending="puffin")
    content = bytearray(_PUFFIN)
    found, told = [], []
    parsed = cache(partial(read_deletes, table.store))  # of several data files, each
    for of in sorted(places):
        bitmap = BitMap64(places[of])
        for each in before.get(of, ()):
            with reading(table.store):
                bitmap |= (
                    _bitmap(table.store, each)
                    if each.vector
                    else BitMap64(parsed(each.path).get(of, NO_POSITIONS))
                )
        vector = _encode(bitmap)
        found.append((of, len(content), len(vector), len(bitmap)))
        told.append(_told(*found[-1]))
        content += vector
    content += _footer(told)
    with table.store.create(path) as file:
        file.write(content)
    return [
        NewFile(path, len(content), rows, of, vector=(start, size))
        for of, start, size, rows in found
    ]


def _encode(bitmap: BitMap64) -> bytes:
    bitmap.run_optimize()
    vector = _VECTOR + bitmap.serialize()
    return len(vector).to_bytes(4, "big") + vector + zlib.crc32(vector).to_bytes(4, "big")


def _told(of: str, start: int, size: int, rows: int) -> dict[str, Any]:
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
    """What one holds, ours or another writer's; Unreadable where it is damaged."""
    return {str(file.of): np.asarray(_bitmap(store, file).to_array(), np.int64)}


def _bitmap(store: TableStore, file: NewFile) -> BitMap64:
    start, size = file.vector or (0, 0)
    with store.errors(), store.open_input(file.path) as opened:
        opened.seek(start)
        content = opened.read(size)
    vector = content[4:-4]
    whole = len(content) == size and int.from_bytes(content[:4], "big") == len(vector)
    sound = zlib.crc32(vector) == int.from_bytes(content[-4:], "big")
    if not (whole and sound and vector.startswith(_VECTOR)):
        raise Unreadable
    return BitMap64.deserialize(vector[len(_VECTOR) :])
