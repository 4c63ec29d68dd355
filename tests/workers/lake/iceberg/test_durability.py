"""When a table is synchronised, and what is stored of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from config.limits import OPEN_COMMITS
from tests.workers.lake.server.torn_tables import IDENT, TornLake
from workers.lake.connect.sessions import Sessions
from workers.lake.iceberg.durability import Durability
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import History
from workers.lake.metadata.table_state import TableState
from workers.lake.storage.file_system import FileSystem
from workers.lake.table import LakeIdent


class Described:
    """Tables, or none, with these folders."""

    def __init__(self, *folders: str) -> None:
        self.folders = folders
        self.asked: list[LakeIdent] = []

    def describe(self, ident: LakeIdent) -> TableState | None:
        self.asked.append(ident)
        return TableState((), History({}, {}), {}, self.folders) if ident == IDENT else None


@pytest.fixture
def synchronised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr(FileSystem, "synchronise", lambda each: calls.append(each.descriptor))
    return calls


def durability(
    tables: Described, sessions: Any = None, catalog_file: Path | None = None
) -> Durability:
    return Durability(cast("TableApi", tables), cast("Sessions", sessions), catalog_file)


def test_a_table_is_read_once(tmp_path: Path, synchronised: list[int]) -> None:
    tables = Described(str(tmp_path))
    found = durability(tables)
    for _ in range(2):
        assert found.make_durable([IDENT]) == {}
    assert (tables.asked, len(synchronised)) == ([IDENT], 2)


def test_spark_tells_the_folder_if_no_metadata_file_was_read(
    tmp_path: Path, synchronised: list[int]
) -> None:
    rows = {"col_name": ["Location", "# Detail", "Location"], "data_type": ["t", "", str(tmp_path)]}
    session = SimpleNamespace(query=lambda *_: pa.table(rows))
    found = durability(Described(), SimpleNamespace(get=lambda: session))
    found.make_durable([IDENT])
    assert len(synchronised) == 1


def test_a_table_that_is_gone_is_left_out(synchronised: list[int]) -> None:
    durability(Described()).make_durable([LakeIdent("public", "gone")])
    assert synchronised == []


def test_many_open_commits_are_synchronised(tmp_path: Path, synchronised: list[int]) -> None:
    found = durability(Described(str(tmp_path)))
    found.committed(IDENT, OPEN_COMMITS)
    assert synchronised == []
    found.committed(IDENT, 1)
    assert len(synchronised) == 1
    found.committed(IDENT, OPEN_COMMITS)
    found.make_durable([IDENT])
    found.committed(IDENT, OPEN_COMMITS)
    assert len(synchronised) == 2


def during_the_first(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> list[int]:
    """The synchronisations; something happens during the first one."""
    calls: list[int] = []

    def synchronise(_: FileSystem) -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            meanwhile()

    monkeypatch.setattr(FileSystem, "synchronise", synchronise)
    return calls


def test_commits_during_a_synchronisation_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread goes on meanwhile. Nobody knows what of its commits is on the disk."""
    found = durability(Described(str(tmp_path)))
    calls = during_the_first(monkeypatch, lambda: found.committed(IDENT, OPEN_COMMITS - 1))
    found.committed(IDENT, 1)
    found.make_durable([IDENT])
    assert len(calls) == 1
    found.committed(IDENT, 2)
    assert len(calls) == 2


def test_two_synchronisations_at_once_count_each_commit_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second thread begins and ends while the first thread waits for the disk."""
    found = durability(Described(str(tmp_path)))

    def second_thread() -> None:
        found.committed(IDENT, 2)
        found.make_durable([IDENT])

    calls = during_the_first(monkeypatch, second_thread)
    found.committed(IDENT, OPEN_COMMITS - 2)
    found.make_durable([IDENT])
    assert len(calls) == 2
    found.committed(IDENT, OPEN_COMMITS)
    assert len(calls) == 2
    found.committed(IDENT, 1)
    assert len(calls) == 3


def test_the_metadata_file_is_the_one_before_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit meanwhile may not be on the disk."""
    lake = TornLake(tmp_path)
    before = lake.pointer.location
    monkeypatch.setattr(FileSystem, "synchronise", lambda _: lake.append(1))
    found = durability(Described(str(tmp_path)), catalog_file=lake.file)
    assert found.make_durable([IDENT]) == {IDENT: before}
    assert lake.pointer.location != before
