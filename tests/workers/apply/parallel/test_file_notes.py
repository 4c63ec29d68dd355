"""What a dead worker had noted is removed by the next one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from catalog.errcodes import IoError, ReplicationError, RequiredProcessGone
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.apply.parallel.file_notes import FOLDER, FileNotes
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent

T, U = LakeIdent("public", "t"), LakeIdent("public", 'u "2"\n')


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    """The catalog of a data directory without a subscription."""
    with closing(CatalogStore.open(":memory:")) as found:
        yield found


def noted(folder: Path, subid: int = 1) -> str:
    note = FileNotes(folder, subid).new()
    for relid, ident in enumerate((T, U)):
        note.add(ident, relid)
        note.add(ident, relid)
    return note.file_id


def removed(dest: Destination) -> set[tuple[object, ...]]:
    discarding: Any = dest.discard_files
    calls = [call.args for call in discarding.call_args_list]
    assert len(calls) == len(set(calls))
    return set(calls)


def test_a_note_is_there_before_the_first_file_and_until_the_end(tmp_path: Path) -> None:
    note = FileNotes(tmp_path, 1).new()
    assert not (tmp_path / FOLDER).exists(), "no file, no note"
    note.add(T, 3)
    (path,) = (tmp_path / FOLDER).iterdir()
    assert path.name == f"1_{note.file_id}"
    assert path.stat().st_mode & 0o777 == 0o600
    note.forget()
    note.forget()
    assert not path.exists()


def test_a_note_is_on_the_disk_before_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of each table, and the names that lead to the note, once."""
    synced: list[tuple[str, bytes]] = []

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        synced.append((path.name, path.read_bytes() if path.is_file() else b""))

    monkeypatch.setattr(os, "fsync", fsync)
    note = FileNotes(tmp_path, 1).new()
    note.add(T, 3)
    line = b'["public", "t", 3]\n'
    assert synced == [(note.path.name, line), (FOLDER, b""), (tmp_path.name, b"")]
    note.add(T, 3)
    note.add(U, 4)
    name, lines = synced[3]
    assert (name, lines.count(b"\n"), len(synced)) == (note.path.name, 2, 4)


def test_a_line_that_the_disk_takes_in_part_is_an_error(
    tmp_path: Path, store: CatalogStore
) -> None:
    """And does not hide the tables that were noted."""
    note, dest = FileNotes(tmp_path, 1).new(), create_autospec(Destination, instance=True)
    note.add(T, 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (note.path.stat().st_size + 5, hard))
    try:
        with pytest.raises(IoError, match="could not write the spool"):
            note.add(U, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 1
    assert removed(dest) == {(T, note.file_id)}


def test_the_files_of_a_dead_worker_are_removed(tmp_path: Path, store: CatalogStore) -> None:
    file_id, dest = noted(tmp_path), create_autospec(Destination, instance=True)
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 1
    assert removed(dest) == {(T, file_id), (U, file_id)}
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 0


def test_other_subscriptions_notes_are_theirs_unless_they_are_gone(
    tmp_path: Path, store: CatalogStore
) -> None:
    other = store.insert_subscription(Subscription("s", "host=db", ("p",), subuuid="u"))
    noted(tmp_path, other.oid)
    gone, dest = noted(tmp_path, other.oid + 1), create_autospec(Destination, instance=True)
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 1
    assert {file_id for _, file_id in removed(dest)} == {gone}


def test_a_renamed_lake_table_s_files_are_found(tmp_path: Path, store: CatalogStore) -> None:
    sub = store.insert_subscription(Subscription("s", "host=db", ("p",), subuuid="u"))
    row = SubscriptionRel(sub.oid, 0, SubRelState.READY, None, "public", "t", "public", "now")
    rel = store.insert_rel(row)
    note, dest = FileNotes(tmp_path, sub.oid).new(), create_autospec(Destination, instance=True)
    note.add(T, rel.srrelid)
    dest.table.side_effect = lambda ident: None if ident == T else ident
    assert FileNotes(tmp_path, sub.oid).sweep(dest, store) == 1
    assert removed(dest) == {(LakeIdent("public", "now"), note.file_id)}


def test_a_table_that_is_gone_has_no_files(tmp_path: Path, store: CatalogStore) -> None:
    noted(tmp_path)
    dest = create_autospec(Destination, instance=True)
    dest.table.return_value = None
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 1
    assert removed(dest) == set()


def test_a_line_that_a_power_cut_left_incomplete_is_left_out(
    tmp_path: Path, store: CatalogStore
) -> None:
    file_id, dest = noted(tmp_path), create_autospec(Destination, instance=True)
    with (tmp_path / FOLDER / f"1_{file_id}").open("ab") as file:
        file.write(b'["public", "ha')
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 1
    assert len(removed(dest)) == 2


@pytest.mark.parametrize("damage", [b"\0\0\n", b"[]\n", b"7\n", b'{"a": 1}\n'])
def test_a_damaged_line_is_left_out(tmp_path: Path, store: CatalogStore, damage: bytes) -> None:
    """No worker could begin otherwise."""
    file_id, dest = noted(tmp_path), create_autospec(Destination, instance=True)
    with (tmp_path / FOLDER / f"1_{file_id}").open("ab") as file:
        file.write(damage)
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 1
    assert len(removed(dest)) == 2


def test_an_error_of_the_lake_leaves_the_note(tmp_path: Path, store: CatalogStore) -> None:
    noted(tmp_path)
    dest = create_autospec(Destination, instance=True)
    dest.discard_files.side_effect = ReplicationError("no")
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 0
    dest.discard_files.side_effect = RequiredProcessGone("the lake server is not running")
    with pytest.raises(RequiredProcessGone):
        FileNotes(tmp_path, 1).sweep(dest, store)
    dest.discard_files.side_effect = None
    assert FileNotes(tmp_path, 1).sweep(dest, store) == 1


def test_without_a_note_there_is_no_file(tmp_path: Path) -> None:
    (tmp_path / FOLDER).touch()
    with pytest.raises(IoError, match="could not write the spool"):
        FileNotes(tmp_path, 1).new().add(T, 3)
