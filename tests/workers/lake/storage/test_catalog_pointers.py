"""The pointers of the embedded catalog's file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.workers.lake.server.torn_tables import IDENT, TornLake
from workers.lake.storage.catalog_pointers import CatalogPointers
from workers.lake.table import LakeIdent


def test_the_metadata_files_of_some_tables(tmp_path: Path) -> None:
    lake = TornLake(tmp_path)
    first = lake.pointer.location
    second = lake.append(1)
    pointers = CatalogPointers(lake.file)
    assert pointers.of([IDENT, LakeIdent("public", "missing")]) == {IDENT: second}
    assert [(each.location, each.previous) for each in pointers.all()] == [(second, first)]


def test_a_pointer_is_set_only_if_nobody_moved_it(tmp_path: Path) -> None:
    lake = TornLake(tmp_path)
    first = lake.pointer
    second = lake.append(1)
    pointers = CatalogPointers(lake.file)
    pointers.set(first, None)
    assert lake.pointer.location == second
    pointers.set(lake.pointer, first.location)
    assert lake.pointer == first
    pointers.set(first, None)
    assert pointers.all() == []


def test_a_missing_file_has_none(tmp_path: Path) -> None:
    pointers = CatalogPointers(tmp_path / "catalog.db")
    assert pointers.of([IDENT]) == {}
    with pytest.raises(sqlite3.Error):
        pointers.all()
    assert list(tmp_path.iterdir()) == []
