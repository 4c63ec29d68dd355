"""Tables that a power cut tore are set back to what is whole, before the server starts."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from catalog.errcodes import IoError, ReplicationError
from catalog.store_sqlite import CatalogStore
from tests.workers.lake.server.torn_tables import IDENT, TEARS, TornLake, cut, empty, missing
from workers.lake.server.set_back import set_embedded_tables_back, set_torn_tables_back
from workers.lake.storage.local_path import local_path


@pytest.fixture
def lake(tmp_path: Path) -> TornLake:
    return TornLake(tmp_path)


@pytest.mark.parametrize("tear", TEARS)
@pytest.mark.parametrize("kind", ["metadata", "manifest list", "manifest", "data file"])
@pytest.mark.parametrize("known", [True, False], ids=["with a base", "without"])
def test_a_torn_commit_is_undone(
    lake: TornLake,
    kind: str,
    tear: Callable[[Path], None],
    known: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    durable = lake.append(1)
    lake.append(2)
    tear(lake.last_files()[kind])
    set_torn_tables_back(lake.file, {IDENT: durable} if known else {})
    assert lake.pointer.location == durable
    assert lake.rows() == [1]
    (line,) = (each for each in caplog.records if "action=lake_set_back" in each.getMessage())
    assert Path(durable).name in line.getMessage()
    lake.append(3)
    set_torn_tables_back(lake.file, {IDENT: durable})
    assert lake.rows() == [1, 3]


def test_the_newest_whole_state_is_kept(lake: TornLake) -> None:
    durable = lake.append(1)
    newer = lake.append(2)
    for number in (3, 4):
        lake.append(number)
        empty(lake.last_files()["data file"])
    set_torn_tables_back(lake.file, {IDENT: durable})
    assert (lake.pointer.location, lake.rows()) == (newer, [1, 2])


def test_a_state_of_many_commits_is_looked_at_whole(lake: TornLake) -> None:
    """Iceberg has removed the metadata file that is on the disk: every file is looked at."""
    durable = lake.append(1)
    newer = lake.append(2)
    lake.append(3)
    torn = lake.last_files()["data file"]
    lake.append(4)
    empty(torn)
    missing(local_path(durable))
    set_torn_tables_back(lake.file, {IDENT: durable})
    assert (lake.pointer.location, lake.rows()) == (newer, [1, 2])


def test_the_file_of_a_refused_commit_does_not_count(lake: TornLake) -> None:
    """The refused commit was made beside the durable commit, from an earlier state."""
    earlier = local_path(lake.append(1))
    durable = lake.append(2)
    version = Path(durable).name.partition("-")[0]
    refused = earlier.with_name(f"{version}-{uuid4()}.metadata.json")
    shutil.copyfile(earlier, refused)
    later = local_path(durable).stat().st_mtime_ns + 1
    os.utime(refused, ns=(later, later))
    lake.append(3)
    empty(lake.last_files()["metadata"])
    set_torn_tables_back(lake.file, {IDENT: durable})
    assert (lake.pointer.location, lake.rows()) == (durable, [1, 2])


def test_a_table_is_not_set_back_behind_what_is_on_the_disk(
    lake: TornLake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.append(1)
    durable = lake.append(2)
    newest = lake.append(3)
    for each in (durable, newest):
        empty(local_path(each))
    set_torn_tables_back(lake.file, {IDENT: durable})
    assert lake.pointer.location == newest
    assert 'lake table "public.t" cannot be read' in "\n".join(caplog.messages)


def test_a_whole_table_stays(lake: TornLake, caplog: pytest.LogCaptureFixture) -> None:
    durable = lake.append(1)
    lake.append(2)
    for known in ({}, {IDENT: durable}, {IDENT: "file:/another/table.metadata.json"}):
        set_torn_tables_back(lake.file, known)
    assert lake.rows() == [1, 2]
    assert caplog.records == []


def test_what_is_on_the_disk_is_not_looked_at(lake: TornLake) -> None:
    durable = lake.append(1)
    cut(lake.last_files()["data file"])
    set_torn_tables_back(lake.file, {IDENT: durable})
    assert lake.pointer.location == durable


def test_old_files_are_not_looked_at(lake: TornLake) -> None:
    """They are as whole as the state that is known to be."""
    durable = lake.append(1)
    missing(lake.last_files()["data file"])
    newest = lake.append(2)
    set_torn_tables_back(lake.file, {IDENT: durable})
    assert lake.pointer.location == newest


def test_a_table_that_was_never_whole_leaves_the_catalog(
    lake: TornLake, caplog: pytest.LogCaptureFixture
) -> None:
    empty(local_path(lake.pointer.location))
    set_torn_tables_back(lake.file, {})
    assert lake.catalog.list_tables("public") == []
    assert "leaves the catalog" in "\n".join(caplog.messages)
    lake.catalog.create_table("public.t", pa.schema([("id", pa.int64())]))


def test_a_table_without_any_whole_state_is_told_and_left(
    lake: TornLake, caplog: pytest.LogCaptureFixture
) -> None:
    first = lake.pointer.location
    lake.append(1)
    for each in (first, lake.pointer.location):
        empty(local_path(each))
    set_torn_tables_back(lake.file, {})
    assert 'lake table "public.t" cannot be read' in "\n".join(caplog.messages)
    assert caplog.records[0].levelno == logging.WARNING
    assert lake.pointer.location != first


def test_the_states_that_are_on_the_disk_are_those_of_the_catalog(lake: TornLake) -> None:
    durable = lake.append(1)
    with closing(CatalogStore.open(lake.data_dir)) as store:
        store.put_lake_durable([(IDENT.schema, IDENT.table, durable)])
    lake.append(2)
    empty(lake.last_files()["metadata"])
    set_embedded_tables_back(lake.data_dir)
    assert lake.rows() == [1]


@pytest.mark.parametrize("commits", [0, 1])
def test_a_moved_lake_is_refused_and_not_taken_for_torn(tmp_path: Path, commits: int) -> None:
    """A new table of a user would leave the catalog: no file is at the former place."""
    lake = TornLake(tmp_path / "old")
    for number in range(commits):
        lake.append(number)
    before = lake.pointer
    lake.data_dir = lake.data_dir.rename(tmp_path / "new")
    with pytest.raises(ReplicationError, match="was moved") as caught:
        set_embedded_tables_back(lake.data_dir)
    assert caught.value.code == "55000"
    assert lake.pointer == before


def test_a_lake_that_was_never_used(tmp_path: Path) -> None:
    set_embedded_tables_back(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_catalog(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 100)
    with pytest.raises(IoError, match="could not use the lake's catalog"):
        set_torn_tables_back(tmp_path / "catalog.db", {})
