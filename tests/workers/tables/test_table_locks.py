"""Workers of a data directory take turns at a shared table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure, InternalError, ReplicationError
from tests.workers.sharing import TARGET, A, Make, insert
from tests.workers.transactions import batch, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import LakeIdent, Stamp
from workers.proto.messages import Insert
from workers.tables import table_locks
from workers.tables.table_locks import TableLocks

OTHER = LakeIdent("public", "another")


class Meeting(MemoryDestination):
    """Lets others publish just before it does, so often."""

    def __init__(self, lake: MemoryLake, meets: Sequence[Callable[[], None]]) -> None:
        super().__init__(lake)
        self.meets = list(meets)

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        if self.meets:
            self.meets.pop(0)()
        return super().publish(ident, branch, stamp)


def test_batches_of_one_data_directory_take_turns(
    lake: MemoryLake, sharing: Make, tmp_path: Path
) -> None:
    one, two = (sharing(uuid, data_dir=tmp_path) for uuid in ("1", "2"))
    written: list[str] = []

    def note(who: str) -> Callable[[str], None]:
        return lambda operation: written.append(who) if operation == "create_branch" else None

    two_dest = MemoryDestination(lake, failpoint=note("two"))
    other = threading.Thread(
        target=lambda: two.worker(two_dest).apply_batch(batch([A, insert(2, 2)]))
    )
    dest = Meeting(lake, [other.start])
    dest.failpoint = note("one")
    one.worker(dest).apply_batch(batch([A, insert(1, 1)]))
    other.join()
    assert written == ["one", "two"]
    assert (one.rows(), two.rows()) == ([(1, 1)], [(2, 2)])


def test_a_failed_batch_lets_the_others_go_on(
    lake: MemoryLake, sharing: Make, tmp_path: Path
) -> None:
    one, two = (sharing(uuid, data_dir=tmp_path) for uuid in ("1", "2"))
    too_large = Insert(1, row("1", "99999999999"))
    with pytest.raises(ReplicationError, match="cannot hold"):
        one.worker().apply_batch(batch([A, too_large]))

    def die(operation: str) -> None:
        if operation == "publish":
            raise ConnectionFailure("gone")

    with pytest.raises(ConnectionFailure):
        one.worker(MemoryDestination(lake, failpoint=die)).apply_batch(batch([A, insert(1, 1)]))
    two.worker().apply_batch(batch([A, insert(2, 2)]))
    assert two.rows() == [(2, 2)]


def test_a_large_transaction_that_no_table_takes_lets_the_others_go_on(
    lake: MemoryLake, sharing: Make, tmp_path: Path
) -> None:
    """The publisher sends the transaction once more, and each table skips it."""
    one, two = (sharing(uuid, data_dir=tmp_path) for uuid in ("1", "2"))
    large = batch([A, *[insert(key, 0) for key in range(5)]])
    for _ in range(2):
        worker = one.worker()
        worker.work_mem = 1
        worker.apply_batch(large)
    worker.apply_batch(batch([insert(5, 0)], after=100))
    two.worker().apply_batch(batch([A, insert(6, 0)]))
    assert (len(one.rows()), two.rows()) == (6, [(6, 0)])


def test_a_worker_does_not_wait_for_a_lock_that_it_holds(tmp_path: Path) -> None:
    locks = TableLocks(tmp_path)
    locks.take([TARGET])
    with pytest.raises(InternalError, match="a lock that it holds"):
        locks.take([TARGET, OTHER])
    locks.release()
    locks.take([TARGET, OTHER])


def test_locks_are_taken_in_one_order(tmp_path: Path) -> None:
    """Two that want the same two tables, named the other way round, both get them."""
    first, second = TableLocks(tmp_path), TableLocks(tmp_path)
    rounds = 200
    done: list[str] = []

    def go(locks: TableLocks, idents: Sequence[LakeIdent], who: str) -> None:
        for _ in range(rounds):
            with locks.held(idents):
                done.append(who)

    threads = [
        threading.Thread(target=go, args=(first, [TARGET, OTHER], "first"), daemon=True),
        threading.Thread(target=go, args=(second, [OTHER, TARGET], "second"), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 2 * rounds


def test_a_holder_that_stands_still_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch never ends: who waits says so, and leaves no lock behind."""
    monkeypatch.setattr(table_locks, "TABLE_LOCK_SECONDS", 0.05)
    frozen, waiting = TableLocks(tmp_path), TableLocks(tmp_path)
    frozen.take([TARGET])
    with pytest.raises(ReplicationError, match="no turn at shared lake table") as caught:
        waiting.take([OTHER, TARGET])
    assert caught.value.code == "55P03"
    third = TableLocks(tmp_path)
    third.take([OTHER])
    third.release()
    frozen.release()
    waiting.take([OTHER, TARGET])
    waiting.release()
