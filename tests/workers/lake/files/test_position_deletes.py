"""Delete files of positions: grouped, written, read back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import IoError
from tests.workers.lake.files.layouts import (
    FIELD_ID,
)
from workers.lake.files.position_deletes import (
    RowPositions,
    merge_positions,
    positions_by_file,
    read_deletes,
    write_deletes,
)
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import NewFile
from workers.lake.storage.local_path import local_path
from workers.lake.storage.local_store import LocalStore

PLACES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ç", "file:/x y"]), st.integers(0, 2**40 - 1)), max_size=40
)


def as_places(places: Iterable[tuple[str, int]]) -> Any:
    paths, positions = zip(*places, strict=True) if places else ((), ())
    return positions_by_file(pa.array(paths, pa.string()), pa.array(positions, pa.int64()))


def plain(places: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The same in plain Python."""
    found: dict[str, list[int]] = {}
    for path, at in sorted(set(places)):
        found.setdefault(path, []).append(at)
    return found


def lists(places: RowPositions) -> dict[str, list[int]]:
    return {path: positions.tolist() for path, positions in places.items()}


@settings(deadline=None, max_examples=100)
@given(PLACES, PLACES)
def test_places_by_file_are_each_file_s_in_order_and_each_once(
    one: list[tuple[str, int]], two: list[tuple[str, int]]
) -> None:
    places = as_places(one), as_places(two)
    assert [lists(each) for each in places] == [plain(one), plain(two)]
    assert lists(merge_positions(places)) == plain(one + two)
    assert lists(merge_positions([])) == {}


@pytest.mark.parametrize("count", [1, 50_000])
@pytest.mark.parametrize("names", [["x"], ["y", "x", "é z"]], ids=["one file", "several"])
def test_deletes_are_read_as_they_were_written(
    files: TableLayout, names: list[str], count: int
) -> None:
    places = {
        f"{files.location}/data/{name}.parquet": np.arange(count, dtype=np.int64) * (n + 1)
        for n, name in enumerate(names)
    }
    file = write_deletes(files, places)
    assert (file.rows, file.size) == (count * len(names), local_path(file.path).stat().st_size)
    assert file.of == (next(iter(places)) if len(names) == 1 else None)
    for path in (file.path, f"file:{file.path}"):
        found = read_deletes(LocalStore(), replace(file, path=path))
        assert found.keys() == places.keys()
        assert all((found[each] == places[each]).all() for each in places)


def test_a_file_of_deletes_is_one_by_the_specification(files: TableLayout) -> None:
    """Sorted by file, then by position; its fields are known by their ids."""
    one, two = np.array([1, 5], np.int64), np.array([0], np.int64)
    file = write_deletes(files, {"/y": one, "/x": two})
    parquet: Any = pq.ParquetFile(local_path(file.path))
    fields = parquet.schema_arrow
    assert {field.name: int(field.metadata[FIELD_ID]) for field in fields} == {
        "file_path": 2147483546,
        "pos": 2147483545,
    }
    assert not any(field.nullable for field in fields)
    found = [tuple(row.values()) for row in parquet.read().to_pylist()]
    assert found == [("/x", 0), ("/y", 1), ("/y", 5)]
    statistics = parquet.metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max) == ("/x", "/y")


def test_a_file_that_is_lost_is_not_one_of_the_staging_folder(files: TableLayout) -> None:
    with pytest.raises(IoError) as error:
        read_deletes(files.store, NewFile(f"{files.location}/data/none.parquet", 10, 1))
    assert error.value.code == "58030"
    assert "staging" not in error.value.report()
