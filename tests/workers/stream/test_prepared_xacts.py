"""Prepared transactions on the disk: what is there after each step, and after a death."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from config.monitor_limits import PREPARED_GROUP_BYTES
from tests.workers.prepared import keep
from workers.process import failpoints
from workers.stream import prepared_xacts
from workers.stream.prepared_groups import Ended, PreparedXact
from workers.stream.prepared_xacts import PreparedXacts

BEGIN, CHANGES, COMMIT = b"<begin>", b"changes", b"<commit>"
RECORDS = (BEGIN, CHANGES, COMMIT)
XACT = PreparedXact("a name", 7, LSN(99), LSN(100), 5, 3, (b"\0R",), binary=True)
NEXT = replace(XACT, gid="next", xid=8, prepare_lsn=LSN(109), end_lsn=LSN(110))


def xacts(folder: Path) -> PreparedXacts:
    """As the next worker reads them."""
    return PreparedXacts(folder, "uuid", 16384)


def kept(folder: Path, *several: PreparedXact) -> PreparedXacts:
    found = xacts(folder)
    keep(found, *(several or (XACT,)), records=RECORDS)
    return found


def committed(folder: Path, *several: PreparedXact) -> PreparedXacts:
    """All of them are kept, and a COMMIT PREPARED of the first is noted."""
    found = kept(folder, *(several or (XACT,)))
    found.commit(several[0] if several else XACT, LSN(200))
    found.make_durable()
    return found


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "prepared" / "uuid"))


def prepared(folder: Path) -> list[str]:
    """The names of what the next worker finds."""
    return [name for name, _ in xacts(folder).all()]


def test_a_prepared_transaction_is_found_again(tmp_path: Path) -> None:
    kept(tmp_path)
    assert xacts(tmp_path).get(7) == XACT
    assert xacts(tmp_path).get(8) is None
    assert xacts(tmp_path).all() == [("pg_gid_16384_7", XACT)]


def test_the_transactions_of_a_batch_share_a_file(tmp_path: Path) -> None:
    kept(tmp_path, XACT, NEXT)
    assert names(tmp_path) == ["group_1"]
    assert xacts(tmp_path).all() == [("pg_gid_16384_7", XACT), ("pg_gid_16384_8", NEXT)]
    third = replace(NEXT, xid=9)
    keep(xacts(tmp_path), third)
    assert names(tmp_path) == ["group_1", "group_2"]
    assert prepared(tmp_path) == ["pg_gid_16384_7", "pg_gid_16384_8", "pg_gid_16384_9"]


def test_one_of_them_ends_and_the_others_stay(tmp_path: Path) -> None:
    third = replace(NEXT, xid=9)
    found = kept(tmp_path, XACT, NEXT, third)
    found.rollback(NEXT)
    found.make_durable()
    assert prepared(tmp_path) == ["pg_gid_16384_7", "pg_gid_16384_9"]
    found.commit(XACT, LSN(200))
    found.make_durable()
    found.finish([XACT], LSN(200))
    assert prepared(tmp_path) == ["pg_gid_16384_9"]
    assert names(tmp_path) == ["ended", "group_1"]
    last = xacts(tmp_path)
    last.rollback(third)
    last.make_durable()
    assert names(tmp_path) == ["ended"]


def test_a_group_is_small_and_a_large_transaction_is_alone(tmp_path: Path) -> None:
    found = xacts(tmp_path)
    large = b"x" * (PREPARED_GROUP_BYTES + 1)
    found.prepare(XACT, len(BEGIN), [BEGIN])
    found.prepare(NEXT, len(large), [large])
    found.prepare(replace(NEXT, xid=9), len(BEGIN), [BEGIN])
    found.make_durable()
    assert names(tmp_path) == ["group_1", "group_2", "group_3"]


def test_nobody_else_may_read_the_rows(tmp_path: Path) -> None:
    committed(tmp_path)
    folder = tmp_path / "prepared" / "uuid"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in names(tmp_path)}
    assert modes == {"group_1": 0o600, "ended": 0o600}


def test_the_changes_become_the_committed_transaction(tmp_path: Path) -> None:
    kept(tmp_path, NEXT, XACT)
    for found in (xacts(tmp_path), xacts(tmp_path)):
        changes = found.changes_of(XACT, len(BEGIN), len(COMMIT))
        assert changes.tobytes() == CHANGES
        mapping, start = found.rewritten(XACT, b"[begin]", b"[commit]")
        assert mapping[start:] == b"[begin]" + CHANGES + b"[commit]"
        assert found.size_of(XACT) == len(mapping) - start
        assert found.changes_of(NEXT, 0, 0).tobytes() == b"".join(RECORDS)


def test_what_is_finished_is_remembered(tmp_path: Path) -> None:
    found = committed(tmp_path)
    assert found.finished == 0
    found.finish([XACT], LSN(200))
    assert (names(tmp_path), xacts(tmp_path).finished) == (["ended"], 200)
    found.finish([], LSN(150))
    assert xacts(tmp_path).finished == 200


def test_a_rollback_removes(tmp_path: Path) -> None:
    found = kept(tmp_path)
    found.rollback(XACT)
    found.make_durable()
    assert (names(tmp_path), xacts(tmp_path).all()) == (["ended"], [])


def test_a_rollback_in_a_group_that_is_being_written_stays(tmp_path: Path) -> None:
    """The batch before is finished meanwhile, and another transaction joins the group."""
    size = sum(map(len, RECORDS))
    found = xacts(tmp_path)
    found.prepare(XACT, size, RECORDS)
    found.rollback(XACT)
    found.finish([], LSN(50))
    found.prepare(NEXT, size, RECORDS)
    found.make_durable()
    assert [xact for _, xact in xacts(tmp_path).all()] == [NEXT]


def test_another_prepare_of_the_number_takes_its_place(tmp_path: Path) -> None:
    found = committed(tmp_path)
    later = replace(XACT, prepare_lsn=LSN(299), end_lsn=LSN(300))
    keep(found, later)
    assert (found.get(7), names(tmp_path)) == (later, ["ended", "group_2"])
    assert xacts(tmp_path).all() == [("pg_gid_16384_7", later)]


def test_a_number_that_comes_again_in_a_batch_has_another_group(tmp_path: Path) -> None:
    """A group has one end for a number."""
    found = xacts(tmp_path)
    later = replace(XACT, prepare_lsn=LSN(299), end_lsn=LSN(300))
    keep(found, XACT, later, NEXT)
    assert prepared(tmp_path) == ["pg_gid_16384_8", "pg_gid_16384_7"]
    assert xacts(tmp_path).get(7) == later


@pytest.mark.parametrize(
    ("origin", "left"), [(199, 1), (200, 0), (300, 0)], ids=["before", "at", "behind"]
)
def test_a_sweep_removes_what_the_lake_has(tmp_path: Path, origin: int, left: int) -> None:
    """A worker died behind the lake's commit; the COMMIT PREPARED does not come again."""
    committed(tmp_path, XACT, NEXT)
    xacts(tmp_path).sweep(LSN(origin))
    assert len(prepared(tmp_path)) == left + 1
    assert xacts(tmp_path).finished == (0 if left else 200)


def test_a_sweep_leaves_what_is_prepared_and_removes_halves(tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / "prepared" / "uuid" / "group_2.new").write_bytes(b"{")
    xacts(tmp_path).sweep(LSN(1_000))
    assert names(tmp_path) == ["group_1"]


def test_a_sweep_removes_a_group_that_a_dead_worker_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends were on the disk. They stay until the group is gone, and no longer."""
    found = committed(tmp_path)

    def die(name: str) -> None:
        if name == "apply.finished_stored":
            raise InterruptedError

    monkeypatch.setattr(failpoints, "reach", die)
    with pytest.raises(ReplicationError):
        found.finish([XACT], LSN(200))
    assert (names(tmp_path), prepared(tmp_path)) == (["ended", "group_1"], [])
    xacts(tmp_path).sweep(LSN(0))
    assert names(tmp_path) == ["ended"]
    again = kept(tmp_path)
    assert again.all() == xacts(tmp_path).all() == [("pg_gid_16384_7", XACT)]


def test_a_group_of_the_same_number_is_not_ended_by_an_older_one(tmp_path: Path) -> None:
    """The ends of a group that is gone may be on the disk still."""
    found = committed(tmp_path)
    found.finish([XACT], LSN(200))
    assert '"1"' in (tmp_path / "prepared" / "uuid" / "ended").read_text()
    keep(xacts(tmp_path), XACT)
    assert (names(tmp_path), prepared(tmp_path)) == (["ended", "group_2"], ["pg_gid_16384_7"])


@pytest.mark.parametrize("origin", [0, 199])
def test_a_sweep_forgets_a_commit_that_the_lake_does_not_have(tmp_path: Path, origin: int) -> None:
    """A standby without that COMMIT PREPARED took over; its own comes at 400."""
    committed(tmp_path, XACT, NEXT)
    xacts(tmp_path).sweep(LSN(origin))
    xacts(tmp_path).sweep(LSN(300))
    again = xacts(tmp_path)
    assert again.get(7) == XACT
    again.commit(XACT, LSN(400))
    again.make_durable()
    xacts(tmp_path).sweep(LSN(400))
    assert (prepared(tmp_path), xacts(tmp_path).finished) == (["pg_gid_16384_8"], 400)


def test_a_skip_of_a_prepare_that_comes_again_is_kept(tmp_path: Path) -> None:
    """The PREPARE was kept and not confirmed, and a SKIP names the transaction since."""
    found = kept(tmp_path, NEXT, XACT)
    skipped = replace(XACT, skipped=True)
    keep(found, skipped, records=RECORDS)
    for each in (found, xacts(tmp_path)):
        assert (each.get(7), each.get(8)) == (skipped, NEXT)
        assert each.changes_of(skipped, 0, 0).tobytes() == b"".join(RECORDS)
    keep(found, XACT)
    assert found.get(7) == xacts(tmp_path).get(7) == skipped, "it stays skipped"


def test_equal_relations_are_in_memory_once(tmp_path: Path) -> None:
    """Transactions that were prepared in different batches, and read from different files."""
    found = kept(tmp_path, replace(XACT, relations=(bytes([82] * 100),)))
    keep(found, replace(NEXT, relations=(bytes([82] * 100),)))
    for each in (found, xacts(tmp_path)):
        assert len({id(raw) for _, xact in each.all() for raw in xact.relations}) == 1


def test_a_user_rolls_back_what_the_publisher_forgot(tmp_path: Path) -> None:
    kept(tmp_path, XACT, NEXT)
    (tmp_path / "prepared" / "uuid" / "pg_gid_16384_7.rolled_back").touch()
    xacts(tmp_path).sweep(LSN(0))
    assert (names(tmp_path), prepared(tmp_path)) == (["ended", "group_1"], ["pg_gid_16384_8"])


def test_a_sweep_of_nothing_makes_nothing(tmp_path: Path) -> None:
    xacts(tmp_path).sweep(LSN(1_000))
    xacts(tmp_path).forget_behind(LSN(1), LSN(1))
    xacts(tmp_path).forget()
    assert not (tmp_path / "prepared").exists()


def test_what_a_lost_server_prepared_is_forgotten(tmp_path: Path) -> None:
    found = kept(tmp_path, XACT, replace(NEXT, end_lsn=LSN(300)))
    found.finish([], LSN(400))
    found.forget_behind(LSN(200), LSN(200))
    assert (prepared(tmp_path), xacts(tmp_path).finished) == (["pg_gid_16384_7"], 200)
    found.forget()
    assert (found.all(), found.finished) == ([], 0)


@pytest.mark.parametrize(("lake", "left"), [(199, [XACT]), (200, [])], ids=["without", "with"])
def test_a_commit_that_a_lost_server_had_is_forgotten(
    tmp_path: Path, lake: int, left: list[PreparedXact]
) -> None:
    """Its successor commits once more, or the lake has the rows, and would have them twice."""
    committed(tmp_path).forget_behind(LSN(150), LSN(lake))
    found = xacts(tmp_path)
    found.sweep(LSN(1_000))
    assert [xact for _, xact in found.all()] == left


def test_a_commit_that_the_successor_has_too_is_kept(tmp_path: Path) -> None:
    """It may come again, finds its transaction, and the tables skip it."""
    committed(tmp_path).forget_behind(LSN(200), LSN(250))
    found = xacts(tmp_path)
    found.sweep(LSN(100))
    assert found.get(7) == XACT


def test_a_catalog_that_was_rebuilt_may_number_the_subscription_otherwise(tmp_path: Path) -> None:
    kept(tmp_path)
    rebuilt = PreparedXacts(tmp_path, "uuid", 16390)
    rebuilt.prepare(XACT, 0, [])
    assert rebuilt.all() == [("pg_gid_16384_7", XACT)]
    rebuilt.commit(XACT, LSN(200))
    rebuilt.finish([XACT], LSN(200))
    assert names(tmp_path) == ["ended"]


def test_a_thread_finishes_while_the_worker_prepares(tmp_path: Path) -> None:
    """Each of both changes what both write."""
    found = xacts(tmp_path)
    many = [replace(XACT, xid=n, prepare_lsn=LSN(n), end_lsn=LSN(n + 1)) for n in range(1, 60)]
    for first in range(0, 50, 10):
        group = many[first : first + 10]
        keep(found, *group)
        for each in group[:9]:
            found.commit(each, LSN(1_000 + each.xid))
        found.make_durable()
        thread = threading.Thread(target=found.finish, args=(group[:9], LSN(1_000 + first + 9)))
        thread.start()
        keep(found, many[50 + first // 10])
        thread.join()
    left = [*(10, 20, 30, 40, 50), *(51, 52, 53, 54, 55)]
    assert prepared(tmp_path) == [f"pg_gid_16384_{xid}" for xid in left]
    assert xacts(tmp_path).finished == 1_049


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / "prepared" / "uuid" / "group_1").write_bytes(b"{}")
    with pytest.raises(ReplicationError, match="could not read prepared transactions"):
        xacts(tmp_path).all()


def test_a_disk_that_refuses_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "prepared" / "uuid" / "group_1.new").mkdir(parents=True)
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
    def die(name: str) -> None:
        if name == "apply.group_named":
            raise InterruptedError

    monkeypatch.setattr(failpoints, "reach", die)
    with pytest.raises(ReplicationError):
        kept(tmp_path)
    monkeypatch.undo()
    folders = synced(monkeypatch)
    again = xacts(tmp_path)
    keep(again, XACT)
    assert names(tmp_path) == ["group_1"]
    assert folders == [again.folder, again.folder.parent, tmp_path]
    again.make_durable()
    assert len(folders) == 3


@pytest.mark.parametrize("step", ["sweep", "forget_behind"])
def test_a_removal_is_on_the_disk_before_its_ends_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A dead worker removed a group. A power cut would bring the group back, without the ends."""
    committed(tmp_path, XACT).finish([XACT], LSN(200))
    keep(xacts(tmp_path), NEXT)
    found, steps = xacts(tmp_path), list[str]()
    monkeypatch.setattr(prepared_xacts, "_sync_folder", lambda _: steps.append("sync"))
    monkeypatch.setattr(Ended, "write", lambda *_: steps.append("ends"))
    if step == "sweep":
        (found.folder / "pg_gid_16384_8.rolled_back").touch()
        found.sweep(LSN(0))
    else:
        found.forget_behind(LSN(1), LSN(1))
    assert steps[:2] == ["sync", "ends"]


def test_what_is_forgotten_does_not_come_back_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, folders = kept(tmp_path), synced(monkeypatch)
    found.forget()
    assert folders == [found.folder.parent]


def test_so_is_a_rollback_that_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path).rollback(XACT)
    folders = synced(monkeypatch)
    again = xacts(tmp_path)
    again.rollback(XACT)
    again.make_durable()
    assert again.folder in folders


def test_a_batch_waits_for_the_disk_as_often_as_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    kept(tmp_path)
    once = len(calls)
    calls.clear()
    kept(tmp_path, *(replace(XACT, xid=n) for n in range(100, 200)))
    assert len(calls) <= once
