"""Prepared transactions onto the lake in memory: each once, and nobody sees one before its commit.

``Worlds`` replaces the worker at will, as a kill would: nothing but catalog, lake and files stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import TwoPhaseState
from catalog.pg_subscription_rel import SubRelState
from tests.workers.prepared import Unit, commit, plain, prepare, received, rollback
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import relation, row
from workers.apply import two_phase
from workers.apply.apply_batch import Applier
from workers.apply.two_phase import TwoPhase, asks_two_phase, enable_two_phase
from workers.process import failpoints
from workers.process.worker_exit import WorkerExit
from workers.proto.messages import Delete, Insert, Truncate, Update
from workers.publisher.binary_columns import BinaryForms, RestartAsText
from workers.stream import prepared_xacts
from workers.stream.batch import Batch
from workers.stream.prepared_xacts import PreparedXacts

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
MB = 1 << 20


def a(key: int, value: int = 0) -> Insert:
    return Insert(1, row(str(key), str(value)))


@dataclass
class Publisher:
    """Sends units to one worker after another; the lake and the files stay."""

    world: Subscribed
    folder: Path
    worker: TwoPhase | None = None
    applier: Any = None
    xacts: PreparedXacts = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        sub = self.world.sub
        self.xacts = PreparedXacts(self.folder, sub.subuuid, sub.oid)
        self.applier = self.world.worker()
        self.xacts.sweep(self.world.position())
        forms = BinaryForms(lambda _: {})
        self.worker = TwoPhase(self.applier, self.xacts, lambda: forms)

    def send(self, *units: Unit, max_bytes: int = MB) -> int:
        assert self.worker is not None
        return self.worker.apply_batch(received(*units), max_bytes)

    def keys(self, name: str = "a") -> list[int]:
        return [found[0] for found in self.world.rows(name)]

    def files(self) -> list[str]:
        """What is prepared, as the next worker would find it; no file is left without one."""
        folder, sub = self.xacts.folder, self.world.sub
        found = sorted(name for name, _ in PreparedXacts(self.folder, sub.subuuid, sub.oid).all())
        names = set(os.listdir(folder)) if folder.exists() else set()
        assert bool(names - {"ended"}) == bool(found)
        return found


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    world = Subscribed()
    yield Publisher(world, tmp_path)
    world.close()


def test_rows_are_seen_after_the_commit_and_not_before(publisher: Publisher) -> None:
    first = publisher.send(plain(100, A, a(1)), prepare(200, 7, a(2), a(3)), plain(300, a(4)))
    assert (first, publisher.keys()) == (0, [1, 4])
    assert publisher.files() == [f"pg_gid_{publisher.world.sub.oid}_7"]
    assert publisher.send(commit(400, 7)) == 2
    assert publisher.keys() == [1, 2, 3, 4]
    assert publisher.files() == []
    assert publisher.world.position() == 400


def test_rows_of_a_rollback_are_never_seen(publisher: Publisher) -> None:
    publisher.send(prepare(100, 7, A, a(1)))
    publisher.send(rollback(200, 7, 100), plain(300, a(2)))
    assert (publisher.keys(), publisher.files()) == ([2], [])


def test_prepared_and_ended_in_one_batch(publisher: Publisher) -> None:
    """Without a file where the COMMIT PREPARED follows at once, with one elsewhere."""
    publisher.send(
        prepare(100, 7, A, a(1)),
        commit(200, 7),
        prepare(300, 8, a(2)),
        prepare(400, 9, a(3)),
        commit(500, 8),
        plain(600, a(4)),
        rollback(700, 9, 400),
    )
    assert (publisher.keys(), publisher.files()) == ([1, 2, 4], [])
    assert publisher.world.position() == 600


def test_the_next_worker_finds_what_was_prepared(publisher: Publisher) -> None:
    """The relation was announced to the dead worker alone."""
    publisher.send(plain(100, A, a(1)), prepare(200, 7, a(2)))
    publisher.restart()
    publisher.send(commit(300, 7))
    assert (publisher.keys(), publisher.files()) == ([1, 2], [])
    publisher.send(plain(400, A, a(3)))
    assert publisher.keys() == [1, 2, 3]


def test_a_prepare_that_comes_again_is_kept_once(publisher: Publisher) -> None:
    publisher.send(prepare(100, 7, A, a(1)))
    (before,) = publisher.xacts.folder.glob("group_*")
    inode = before.stat().st_ino
    publisher.restart()
    publisher.send(prepare(100, 7, A, a(1)))
    assert before.stat().st_ino == inode
    publisher.send(prepare(100, 7, A, a(1)), commit(200, 7))
    assert (publisher.keys(), publisher.files()) == ([1], [])


def test_both_come_again_after_the_end(publisher: Publisher) -> None:
    """A publisher that crashed forgets what was confirmed."""
    units = (prepare(100, 7, A, a(1)), plain(150, a(2)), commit(200, 7))
    publisher.send(*units)
    publisher.restart()
    publisher.send(*units)
    assert (publisher.keys(), publisher.files()) == ([1, 2], [])


def test_the_commit_alone_comes_again_after_the_end(publisher: Publisher) -> None:
    """No table took the transaction, so no position says that it is over."""
    publisher.send(prepare(100, 7, relation(9, "elsewhere", "id"), Insert(9, row("1"))))
    publisher.send(commit(200, 7))
    assert publisher.world.position() == 0
    publisher.restart()
    publisher.send(commit(200, 7), plain(300, A, a(1)))
    assert publisher.keys() == [1]


def test_an_end_without_a_begin_is_a_prepared_transaction_without_changes(
    publisher: Publisher,
) -> None:
    """As 18.4 sends one; its COMMIT PREPARED finds it."""
    whole = prepare(200, 7)
    alone = Unit(whole.messages[1:], 199, 200)
    publisher.send(plain(100, A, a(1)), alone, plain(300, a(2)))
    publisher.send(commit(400, 7), plain(500, a(3)))
    assert (publisher.keys(), publisher.files()) == ([1, 2, 3], [])


def test_s_021_2_a_disk_that_refuses_stops_before_anything_is_confirmed(
    publisher: Publisher,
) -> None:
    """The subscriber cannot prepare; it goes on with the transaction once it can."""
    publisher.send(plain(100, A, a(1)))
    name = f"pg_gid_{publisher.world.sub.oid}_7"
    in_the_way = publisher.xacts.folder / "group_1.new"
    in_the_way.mkdir(parents=True)
    units = (plain(200, A, a(2)), prepare(300, 7, a(3)))
    with pytest.raises(ReplicationError, match="could not write prepared transaction"):
        publisher.send(*units)
    assert publisher.world.position() == 100
    in_the_way.rmdir()
    publisher.restart()
    publisher.send(*units)
    assert (publisher.keys(), publisher.files()) == ([1, 2], [name])
    publisher.send(commit(400, 7))
    assert publisher.keys() == [1, 2, 3]


PLACES = [*failpoints.PREPARE, *failpoints.COMMIT_PREPARED, *failpoints.ROLLBACK_PREPARED]


class Killed(BaseException):
    """The end of a worker."""


@pytest.mark.parametrize("place", [*PLACES, "apply.all_tables_published", "apply.origin_advanced"])
def test_a_death_at_each_step_neither_loses_nor_doubles(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """What is not confirmed comes again; the files of the dead worker are all that is known."""
    first = [plain(100, A, a(1)), prepare(200, 7, a(2)), prepare(250, 8, a(8)), plain(300, a(3))]
    second = [commit(400, 7), plain(450, a(4)), rollback(500, 8, 250), plain(600, a(5))]

    def die(name: str) -> None:
        if name == place:
            monkeypatch.setattr(failpoints, "reach", lambda _: None)
            raise Killed

    died = False
    monkeypatch.setattr(failpoints, "reach", die)
    for batch in (first, second):
        try:
            publisher.send(*batch)
        except Killed:
            died = True
            publisher.restart()
            from_here = publisher.world.position()
            again = [unit for unit in batch if unit.end_lsn > from_here]
            if again:
                publisher.send(*again)
    assert died
    publisher.restart()
    assert (publisher.keys(), publisher.files()) == ([1, 2, 3, 4, 5], [])


def test_the_relation_of_the_prepare_reads_the_rows(publisher: Publisher) -> None:
    """Others are announced meanwhile, and stay in force behind the commit."""
    turned = relation(1, "a", "v", "id")
    publisher.send(plain(100, A, a(1, 10)), prepare(200, 7, a(2, 20)))
    publisher.send(plain(300, turned, Insert(1, row("30", "3"))))
    publisher.send(commit(400, 7), plain(500, Insert(1, row("40", "4"))))
    assert publisher.world.rows("a") == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_a_relation_that_is_announced_in_a_prepared_transaction_holds_outside(
    publisher: Publisher,
) -> None:
    publisher.send(plain(50, B), prepare(100, 7, A, a(1)), plain(200, a(2)), prepare(300, 8, a(3)))
    assert publisher.keys() == [2]
    publisher.send(rollback(400, 7, 100), commit(500, 8))
    assert publisher.keys() == [2, 3]


def test_a_truncate_is_the_commit_s(publisher: Publisher) -> None:
    publisher.send(plain(100, A, a(1)), prepare(200, 7, Truncate(False, False, (1,)), a(2)))
    publisher.send(plain(300, a(3)))
    assert publisher.keys() == [1, 3]
    publisher.send(commit(400, 7), plain(500, a(4)))
    assert publisher.keys() == [2, 4]


def test_changes_of_one_row_apply_in_the_order_of_the_commits(publisher: Publisher) -> None:
    update = Update(1, None, None, row("1", "20"))
    publisher.send(plain(100, A, a(1, 10)), prepare(200, 7, update), plain(300, a(2)))
    publisher.send(plain(350, Delete(1, "K", row("2", ""))), commit(400, 7))
    assert publisher.world.rows("a") == [(1, 20)]


@pytest.mark.parametrize("max_bytes", [200, MB])
def test_steps_hold_so_many_bytes_at_most(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """One transaction after the other, or all at once."""
    many = [prepare(100 + n, n, *([A] if n == 1 else []), a(n)) for n in range(1, 20)]
    publisher.send(*many)
    steps: list[int] = []
    apply = Applier.apply_batch

    def counted(applier: Applier, batch: Batch) -> None:
        steps.append(batch.ntxns)
        apply(applier, batch)

    monkeypatch.setattr(Applier, "apply_batch", counted)
    publisher.send(*(commit(1_000 + n, n) for n in range(1, 20)), max_bytes=max_bytes)
    assert publisher.keys() == list(range(1, 20))
    assert steps == ([1] * 19 if max_bytes == 200 else [19])


@pytest.mark.parametrize("group", [MB, 500], ids=["shares a file", "has a file"])
@pytest.mark.parametrize("work_mem", [200, MB])
def test_a_large_transaction_is_written_in_slices(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, work_mem: int, group: int
) -> None:
    for module in (two_phase, prepared_xacts):
        monkeypatch.setattr(module, "PREPARED_GROUP_BYTES", group)
    publisher.applier.work_mem = work_mem
    publisher.send(prepare(100, 7, A, *(a(n) for n in range(50))))
    publisher.send(commit(200, 7), max_bytes=100)
    assert publisher.keys() == list(range(50))


def test_a_table_that_was_copied_meanwhile_has_the_rows_from_the_copy(
    publisher: Publisher,
) -> None:
    """The gate looks at the COMMIT PREPARED, as the copy's snapshot did."""
    world = publisher.world
    publisher.send(prepare(100, 7, A, B, a(1), Insert(2, row("1", "0"))))
    publisher.restart()
    for name, lsn in (("a", 150), ("b", 250)):
        synced = replace(world.rel(name), srsubstate=SubRelState.SYNCDONE, srsublsn=LSN(lsn))
        publisher.applier.rels["public", name] = synced
    publisher.send(commit(200, 7))
    assert (publisher.keys("a"), publisher.keys("b")) == ([1], [])


def test_a_commit_that_a_standby_s_commit_takes_the_place_of(publisher: Publisher) -> None:
    """The worker died behind the note of the one; the origin is past it when the other comes."""
    publisher.send(prepare(100, 7, A, a(1)))
    (_, xact), *_ = publisher.xacts.all()
    publisher.xacts.commit(xact, LSN(200))
    publisher.xacts.make_durable()
    publisher.restart()
    publisher.send(plain(300, A, a(2)))
    publisher.restart()
    publisher.send(commit(400, 7))
    assert (publisher.keys(), publisher.files()) == ([1, 2], [])


def test_a_commit_without_its_prepare_is_an_error(publisher: Publisher) -> None:
    with pytest.raises(ReplicationError, match="does not exist") as caught:
        publisher.send(plain(100, A, a(1)), commit(200, 7), plain(300, a(2)))
    oid = publisher.world.sub.oid
    assert caught.value.primary == (
        f'prepared transaction with identifier "pg_gid_{oid}_7" does not exist'
    )
    assert caught.value.code == "42704"
    assert "0/C7" in (caught.value.detail or "")
    assert (publisher.keys(), publisher.world.position()) == ([1], 100)
    skip(publisher, 199)
    publisher.send(commit(200, 7), plain(300, A, a(2)))
    assert publisher.keys() == [1, 2]
    stored = publisher.world.store.subscription(oid)
    assert stored is not None
    assert stored.subskiplsn == 0


def test_the_number_of_another_prepare_is_no_prepare(publisher: Publisher) -> None:
    """Left by a server that is lost: the number came again, with another name or position."""
    publisher.send(prepare(100, 7, A, a(1)))
    with pytest.raises(ReplicationError, match="does not exist"):
        publisher.send(commit(200, 7, gid="another"))
    publisher.restart()
    publisher.send(rollback(300, 7, 250))
    assert publisher.files() == [f"pg_gid_{publisher.world.sub.oid}_7"]
    publisher.send(prepare(400, 7, A, a(2)))
    publisher.send(commit(500, 7))
    assert (publisher.keys(), publisher.files()) == ([2], [])


def skip(publisher: Publisher, lsn: int) -> None:
    world = publisher.world
    world.sub = world.store.update_subscription(world.sub.oid, subskiplsn=LSN(lsn))
    publisher.restart()


@pytest.mark.parametrize("lsn", [99, 199], ids=["of the prepare", "of the commit"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after the prepare"])
def test_skip_drops_the_changes_and_not_the_transaction(
    publisher: Publisher, lsn: int, before: bool
) -> None:
    """H-41: the COMMIT PREPARED of a skipped transaction finds it."""
    if before:
        skip(publisher, lsn)
    publisher.send(prepare(100, 7, A, a(1)))
    assert publisher.files() == [f"pg_gid_{publisher.world.sub.oid}_7"]
    if not before:
        skip(publisher, lsn)
    publisher.send(commit(200, 7), plain(300, A, a(2)))
    assert (publisher.keys(), publisher.files()) == ([2], [])
    found = publisher.world.store.subscription(publisher.world.sub.oid)
    assert found is not None
    assert found.subskiplsn == 0


def test_a_skipped_prepare_directly_before_its_commit(publisher: Publisher) -> None:
    skip(publisher, 99)
    publisher.send(prepare(100, 7, A, a(1)), commit(200, 7), plain(300, a(2)))
    assert (publisher.keys(), publisher.files()) == ([2], [])


def test_a_skip_of_a_prepare_that_was_kept_and_not_confirmed(publisher: Publisher) -> None:
    """The PREPARE comes again, and takes the SKIP."""
    publisher.send(prepare(100, 7, A, a(1)))
    skip(publisher, 99)
    publisher.send(prepare(100, 7, A, a(1)))
    publisher.send(commit(200, 7), plain(300, A, a(2)))
    assert (publisher.keys(), publisher.files()) == ([2], [])


def test_a_poisonous_row_stops_at_the_commit(publisher: Publisher) -> None:
    publisher.send(prepare(100, 7, A, Insert(1, row("1", "99999999999"))), plain(200, a(2)))
    with pytest.raises(ReplicationError) as caught:
        publisher.send(commit(300, 7))
    assert caught.value.code == "22003"
    assert "in transaction 7, finished at 0/12B" in caught.value.context[0]
    skip(publisher, 299)
    publisher.send(commit(300, 7))
    assert (publisher.keys(), publisher.files()) == ([2], [])


def test_values_in_another_form_than_the_stream_s(publisher: Publisher) -> None:
    """Prepared while the stream was text, committed while it is binary, and the reverse."""
    publisher.send(prepare(100, 7, A, a(1)))
    publisher.restart()
    publisher.applier.binary = BinaryForms(lambda _: {})
    publisher.send(commit(200, 7), prepare(300, 8, A))
    assert publisher.keys() == [1]
    assert publisher.applier.binary is not None
    publisher.restart()
    publisher.send(commit(400, 8))
    assert publisher.applier.binary is None


def test_a_type_that_cannot_be_read_in_binary_form_is_noticed_at_the_prepare(
    publisher: Publisher,
) -> None:
    """Later the publisher could not send the transaction as text."""
    unknown = replace(A, columns=tuple(replace(each, typid=99_999) for each in A.columns))
    publisher.applier.binary = BinaryForms(lambda _: {}, binary_required=False)
    with pytest.raises(RestartAsText):
        publisher.send(prepare(100, 7, unknown, a(1)))
    assert publisher.files() == []


def test_two_phase_is_enabled_when_all_tables_are_ready(publisher: Publisher) -> None:
    world = publisher.world
    sub = replace(world.sub, subtwophasestate=TwoPhaseState.PENDING)
    rels = world.store.rels(sub.oid)
    assert asks_two_phase(sub, rels, 15)
    assert not asks_two_phase(sub, rels, 14)
    assert not asks_two_phase(sub, [], 18)
    syncing = replace(rels[0], srsubstate=SubRelState.SYNCDONE)
    assert not asks_two_phase(sub, [syncing, *rels[1:]], 18)
    for state in (TwoPhaseState.DISABLED, TwoPhaseState.ENABLED):
        assert not asks_two_phase(replace(sub, subtwophasestate=state), rels, 18)
    assert enable_two_phase(world.store, sub).subtwophasestate is TwoPhaseState.ENABLED
    stored = world.store.subscription(sub.oid)
    assert stored is not None
    assert stored.subtwophasestate is TwoPhaseState.ENABLED


def test_the_worker_ends_when_the_last_table_is_ready(publisher: Publisher) -> None:
    assert publisher.worker is not None
    publisher.worker.restart_when_ready()
    publisher.applier.sub = replace(publisher.applier.sub, subtwophasestate=TwoPhaseState.PENDING)
    with pytest.raises(WorkerExit, match="will restart so that two_phase can be enabled"):
        publisher.worker.restart_when_ready()
