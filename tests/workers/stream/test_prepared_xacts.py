"""The files of prepared transactions: what is on the disk after each step, and after a death."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from workers.stream import prepared_xacts
from workers.stream.prepared_xacts import PreparedXact, PreparedXacts, gid_of

BEGIN, CHANGES, COMMIT = b"<begin>", b"changes", b"<commit>"
XACT = PreparedXact("a name", 7, LSN(99), LSN(100), 5, 3, (b"\0R",), binary=True)


def xacts(folder: Path) -> PreparedXacts:
    """As the next worker reads them."""
    return PreparedXacts(folder, "uuid", 16384)


def kept(folder: Path, xact: PreparedXact = XACT) -> PreparedXacts:
    found = xacts(folder)
    found.prepare(xact, [BEGIN, memoryview(CHANGES), COMMIT])
    found.make_durable()
    return found


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "prepared" / "uuid"))


def test_a_prepared_transaction_is_found_again(tmp_path: Path) -> None:
    kept(tmp_path)
    assert xacts(tmp_path).get(7) == XACT
    assert xacts(tmp_path).get(8) is None
    assert xacts(tmp_path).all() == [("pg_gid_16384_7", XACT)]
    assert names(tmp_path) == [gid_of(16384, 7)]


def test_nobody_else_may_read_the_rows(tmp_path: Path) -> None:
    kept(tmp_path)
    folder = tmp_path / "prepared" / "uuid"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "pg_gid_16384_7").stat().st_mode) == 0o600


def test_the_file_becomes_the_committed_transaction(tmp_path: Path) -> None:
    mapping, start = kept(tmp_path).commit(XACT, LSN(200), b"[begin]", b"[commit]")
    assert mapping[start:] == b"[begin]" + CHANGES + b"[commit]"
    assert names(tmp_path) == ["pg_gid_16384_7.committed_at_00000000000000C8"]
    again, start = xacts(tmp_path).commit(XACT, LSN(200), b"{begin}", b"{commit}")
    assert again[start:] == b"{begin}" + CHANGES + b"{commit}"


def test_what_is_finished_is_remembered(tmp_path: Path) -> None:
    found = kept(tmp_path)
    assert found.finished == 0
    found.commit(XACT, LSN(200), BEGIN, COMMIT)
    found.finish([XACT], LSN(200))
    assert (names(tmp_path), xacts(tmp_path).finished) == (["finished"], 200)
    found.finish([], LSN(150))
    assert xacts(tmp_path).finished == 200


def test_a_rollback_removes(tmp_path: Path) -> None:
    kept(tmp_path).rollback(XACT)
    assert (names(tmp_path), xacts(tmp_path).all()) == ([], [])


def test_another_prepare_of_the_number_takes_its_place(tmp_path: Path) -> None:
    found = kept(tmp_path)
    found.commit(XACT, LSN(200), BEGIN, COMMIT)
    later = replace(XACT, prepare_lsn=LSN(299), end_lsn=LSN(300))
    found.prepare(later, [])
    assert (found.get(7), names(tmp_path)) == (later, ["pg_gid_16384_7"])


@pytest.mark.parametrize(
    ("origin", "left"), [(199, 1), (200, 0), (300, 0)], ids=["before", "at", "behind"]
)
def test_a_sweep_removes_what_the_lake_has(tmp_path: Path, origin: int, left: int) -> None:
    """A worker died behind the lake's commit; the COMMIT PREPARED does not come again."""
    found = kept(tmp_path)
    found.commit(XACT, LSN(200), BEGIN, COMMIT)
    xacts(tmp_path).sweep(LSN(origin))
    assert len(xacts(tmp_path).all()) == left
    assert xacts(tmp_path).finished == (0 if left else 200)


def test_a_sweep_leaves_what_is_prepared_and_removes_halves(tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / "prepared" / "uuid" / "pg_gid_16384_8.new").write_bytes(b"{")
    xacts(tmp_path).sweep(LSN(1_000))
    assert names(tmp_path) == ["pg_gid_16384_7"]


def test_a_sweep_of_nothing_makes_nothing(tmp_path: Path) -> None:
    xacts(tmp_path).sweep(LSN(1_000))
    xacts(tmp_path).forget_behind(LSN(1))
    assert not (tmp_path / "prepared").exists()


def test_what_a_lost_server_prepared_is_forgotten(tmp_path: Path) -> None:
    found = kept(tmp_path)
    found.prepare(replace(XACT, xid=8, end_lsn=LSN(300)), [])
    found.finish([], LSN(400))
    found.forget_behind(LSN(200))
    assert (names(tmp_path), found.finished) == (["finished", "pg_gid_16384_7"], 200)
    found.forget()
    assert (found.all(), found.finished) == ([], 0)


def test_a_catalog_that_was_rebuilt_may_number_the_subscription_otherwise(tmp_path: Path) -> None:
    kept(tmp_path)
    rebuilt = PreparedXacts(tmp_path, "uuid", 16390)
    rebuilt.prepare(XACT, [])
    assert rebuilt.all() == [("pg_gid_16384_7", XACT)]
    rebuilt.commit(XACT, LSN(200), BEGIN, COMMIT)
    rebuilt.finish([XACT], LSN(200))
    assert names(tmp_path) == ["finished"]


def test_a_damaged_file_is_an_error_that_shows_no_value(tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / "prepared" / "uuid" / "pg_gid_16384_7").write_bytes(b'{"gid": "secret"}\n')
    with pytest.raises(ReplicationError, match="could not read prepared transaction") as caught:
        xacts(tmp_path).all()
    assert caught.value.code == "58030"
    assert "secret" not in caught.value.report()


def test_a_disk_that_refuses_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "prepared" / "uuid" / "pg_gid_16384_7.new").mkdir(parents=True)
    with pytest.raises(ReplicationError, match="could not write prepared transaction") as caught:
        kept(tmp_path)
    assert caught.value.code == "58030"


def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose names are brought onto the disk, as they come."""
    folders: list[Path] = []
    monkeypatch.setattr(prepared_xacts, "_sync_folder", folders.append)
    return folders


def test_what_a_dead_predecessor_kept_is_durable_before_it_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = synced(monkeypatch)
    xacts(tmp_path).prepare(XACT, [])  # killed before the folder is on the disk
    again = xacts(tmp_path)
    again.prepare(XACT, [])
    again.make_durable()
    assert folders == [again.folder, again.folder.parent, tmp_path]
    again.make_durable()
    assert len(folders) == 3


def test_so_is_a_rollback_that_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path).rollback(XACT)
    folders = synced(monkeypatch)
    again = xacts(tmp_path)
    assert again.get(7) is None
    again.make_durable()
    assert again.folder in folders
