"""Keys of rows that were written here: a look-up does not open the file; no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import IoError
from tests.workers.lake.files.layouts import known, metadata, rows
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.find_rows import RowLookup
from workers.lake.files.keys import written_keys
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.keys.written_keys import WrittenKeys
from workers.lake.files.table_layout import TableLayout
from workers.lake.files.write_rows import write_rows
from workers.lake.staged_rows import LiveFile, NewFile
from workers.lake.storage.local_path import local_path


def layout(folder: Path, *types: Any, **changes: Any) -> TableLayout:
    return known(metadata(*types, location=str(folder), **changes))


def write(files: TableLayout, cache: KeyCache, *parts: tuple[Any, str]) -> list[NewFile]:
    """Each part is rows and the name of the key."""
    keys, written = WrittenKeys(cache), list[NewFile]()
    batches = [
        batch
        for given, name in parts
        for batch in keys.watched(files, (name,) if name else (), [given])
    ]
    write_rows(files, batches, written.append)
    keys.store(written)
    return written


def look_up(files: TableLayout, cache: KeyCache, file: NewFile, *ids: int) -> list[int]:
    """Positions of keys, with the file gone from the disk."""
    local_path(file.path).unlink()
    searched = pa.table({"k": range(len(ids)), "b0": pa.array(ids, pa.int64())})
    lookup = RowLookup(files, ("a",), searched, cache=cache)
    found = lookup.find([LiveFile(file.path, file.rows)], DeletedRowsCache())
    return sorted(int(str(each)) for each in found["p"].to_pylist())


def test_keys_are_found_without_the_file(tmp_path: Path) -> None:
    files, cache = layout(tmp_path), KeyCache()
    (file,) = write(files, cache, (rows(files, 7, 1), "a"), (rows(files, -3), "a"))
    assert look_up(files, cache, file, 1, -3, 8) == [1, 2]


def test_keys_that_are_no_numbers_are_found_too(tmp_path: Path) -> None:
    files, cache = layout(tmp_path), KeyCache()
    keys, written = WrittenKeys(cache), list[NewFile]()
    given = [rows(files, 7, 1), rows(files, 7)]
    write_rows(files, list(keys.watched(files, ("b", "a"), given)), written.append)
    keys.store(written)
    (file,) = written
    texts = given[0].column("b").to_pylist()
    local_path(file.path).unlink()
    searched = pa.table({"k": [0, 1], "b0": pa.array(texts), "b1": pa.array([7, 8], pa.int64())})
    lookup = RowLookup(files, ("b", "a"), searched, cache=cache)
    found = lookup.find([LiveFile(file.path, file.rows)], DeletedRowsCache())
    assert found.select(["k", "p"]).to_pylist() == [{"k": 0, "p": 0}, {"k": 0, "p": 2}]


@pytest.mark.parametrize("names", [("a", ""), ("", "a"), ("b",), ("a", "b"), ("none",)], ids=str)
def test_other_keys_are_left_to_the_look_ups(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Keyless rows in the file, or rows with another key."""
    files, cache = layout(tmp_path), KeyCache()
    (file,) = write(files, cache, *((rows(files, n), name) for n, name in enumerate(names)))
    with pytest.raises(IoError):
        look_up(files, cache, file, 0)


def test_no_more_rows_than_a_look_up_always_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, cache = layout(tmp_path), KeyCache()
    monkeypatch.setattr(written_keys, "ALWAYS_READ_ROWS", 3)
    (file,) = write(files, cache, (rows(files, 1, 2), "a"), (rows(files, 3, 4), "a"))
    with pytest.raises(IoError):
        look_up(files, cache, file, 1)


def test_rows_that_do_not_stay_in_their_order(tmp_path: Path) -> None:
    order = [{"order-id": 1, "fields": [_sorted_by(11)]}]
    files = layout(tmp_path, sort_orders=order, default_sort_order_id=1)
    assert files.order, "or the test tests nothing"
    cache = KeyCache()
    (file,) = write(files, cache, (rows(files, 7, 1), "a"))
    with pytest.raises(IoError):
        look_up(files, cache, file, 1)


def _sorted_by(field_id: int) -> dict[str, Any]:
    words = {"transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    return {"source-id": field_id, **words}
