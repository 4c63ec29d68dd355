"""Deletion vectors: written, read back, damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.workers.lake.files.layouts import deleting, known, metadata, places
from workers.lake.files.deletion_vectors import read_vector, write_vectors
from workers.lake.files.read_rows import Unreadable
from workers.lake.files.table_layout import TableLayout
from workers.lake.storage.local_path import local_path
from workers.lake.storage.local_store import LocalStore


@pytest.fixture
def table(tmp_path: Path) -> TableLayout:
    return known(metadata(location=str(tmp_path)))


def test_a_vector_holds_all_that_its_data_file_has_lost(table: TableLayout) -> None:
    far = 5_000_000_000  # beyond what 32 bits tell
    first = write_vectors(table, {"a": places(1, 70_000, far), "b": places(0)}, {})
    assert [(each.of, each.rows) for each in first] == [("a", 3), ("b", 1)]
    assert len({each.path for each in first}) == 1
    (shared,) = deleting(table, "a", [4])
    again = write_vectors(table, {"a": places(2, 70_000)}, {"a": [first[0], shared]})
    assert [each.rows for each in again] == [5]
    assert read_vector(LocalStore(), again[0])["a"].tolist() == [1, 2, 4, 70_000, far]
    assert read_vector(LocalStore(), first[1])["b"].tolist() == [0]
    many = write_vectors(table, {"a": np.arange(0, 300_000, 3)}, {})
    assert read_vector(LocalStore(), many[0])["a"].tolist() == list(range(0, 300_000, 3))


@pytest.mark.parametrize("at", [0, 3, 5, 12, -1])
def test_a_damaged_vector_is_not_believed(table: TableLayout, at: int) -> None:
    (vector,) = write_vectors(table, {"a": places(1, 2, 3)}, {})
    assert vector.vector is not None
    start, size = vector.vector
    content = bytearray(local_path(vector.path).read_bytes())
    content[start + (at if at >= 0 else size + at)] ^= 1
    local_path(vector.path).write_bytes(content)
    with pytest.raises(Unreadable):
        read_vector(LocalStore(), vector)
    local_path(vector.path).write_bytes(content[: start + size - 1])
    with pytest.raises(Unreadable):
        read_vector(LocalStore(), vector)
