"""What a batch leaves besides rows: nothing staged, and a word about rows it did not find."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from tests.workers.subscribed import COLUMNS, Subscribed
from tests.workers.synchronised import Killed, Late
from tests.workers.transactions import batch, relation, row
from workers.lake.effects import Counts, Effect
from workers.lake.memory.destination import MemoryDestination, MemoryLake
from workers.lake.table import Identity, LakeColumn, LakeIdent, LakeTable, Stamp
from workers.process import failpoints
from workers.proto.messages import Delete, Insert, Message, Update

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
FULL = relation(1, "a", "id", "v", identity="f")
TOO_LARGE = "99999999999"


def missing(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Kind and count of each line about rows that were not found."""
    lines = [record.getMessage() for record in caplog.records]
    found = [line.split() for line in lines if line.startswith("action=conflict")]
    return [
        " ".join(word for word in words if word.startswith(("count=", "conflict=")))
        for words in found
    ]


def in_full(kind: str, old: tuple[str, str], new: tuple[str, str] = ("", "")) -> Message:
    if kind == "U":
        return Update(1, "O", row(*old), row(*new))
    return Delete(1, "O", row(*old))


def test_rows_that_were_not_found_are_counted_in_one_line_a_table(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1), (2, 2))
    world.worker().apply_batch(
        batch(
            [A, Delete(1, "K", row("1", "")), Update(1, None, None, row("1", "5"))],
            [Delete(1, "K", row("1", "")), Update(1, None, None, row("8", "5"))],
            [Update(1, None, None, row("9", "987654321")), Delete(1, "K", row("7", ""))],
            [B, Insert(2, row("1", "1")), Update(1, None, None, row("2", "3"))],
        )
    )
    assert missing(caplog) == [
        "count=3 conflict=update_missing",
        "count=2 conflict=delete_missing",
    ]
    assert "987654321" not in caplog.text
    assert world.rows("a") == [(2, 3)]


def test_whole_rows_that_were_not_found_are_counted_too(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """H-32: an old row that does not fit what is here is a miss that is told."""
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1), (1, 1))
    gone = in_full("D", ("1", "1"))
    moved = in_full("U", ("4", "4"), ("5", "5"))
    world.worker().apply_batch(batch([FULL, gone, gone, gone, moved]))
    assert missing(caplog) == [
        "count=1 conflict=update_missing",
        "count=1 conflict=delete_missing",
    ]
    assert world.rows("a") == []


def test_what_somebody_took_away_at_the_last_moment_was_not_found(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """``main`` has moved, so the batch is written again; what it finds then counts."""
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1), (2, 2), (3, 3))
    world.put("b", (1, 1))

    class Overtaken(MemoryDestination):
        refused = 0

        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            if ident.table == "a" and not self.refused:
                self.refused += 1
                world.put("a", (2, 2))
            return super().publish(ident, branch, stamp)

    world.worker(Overtaken(world.lake)).apply_batch(
        batch(
            [A, Delete(1, "K", row("1", "")), Update(1, None, None, row("3", "5"))],
            [B, Delete(2, "K", row("1", ""))],
        )
    )
    assert missing(caplog) == [
        "count=1 conflict=update_missing",
        "count=1 conflict=delete_missing",
    ]
    stats = world.store.subscription_stats(world.sub.oid)
    assert (stats.confl_update_missing, stats.confl_delete_missing) == (1, 1)
    assert (world.rows("a"), world.rows("b")) == ([(2, 2)], [])


def test_a_batch_that_found_every_row_says_nothing(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    world.worker().apply_batch(
        batch([A, Insert(1, row("1", "1")), Update(1, None, None, row("1", "2"))])
    )
    assert missing(caplog) == []


def test_nothing_stays_staged_after_a_batch(world: Subscribed) -> None:
    world.put("a", (1, 1), (2, 2))
    dest = MemoryDestination(world.lake)
    world.worker(dest).apply_batch(
        batch(
            [FULL, in_full("U", ("1", "1"), ("1", "5")), in_full("D", ("2", "2"))],
            [Insert(1, row("3", "3")), in_full("D", ("9", "9"))],
            [B, Insert(2, row("1", "1")), Update(2, None, None, row("4", "4"))],
        )
    )
    assert (world.rows("a"), world.rows("b")) == ([(1, 5), (3, 3)], [(1, 1)])
    assert dest.staged == 0


@pytest.mark.parametrize("fails", ["write_branch", "count", "create_branch", "publish"])
def test_nothing_stays_staged_when_the_lake_fails(world: Subscribed, fails: str) -> None:
    world.put("a", (1, 1))

    def fail(operation: str) -> None:
        if operation == fails and dest.staged:
            raise ReplicationError("no space left", sqlstate="53100")

    dest = MemoryDestination(world.lake, failpoint=fail)
    with pytest.raises(ReplicationError, match="no space left"):
        world.worker(dest).apply_batch(
            batch(
                [FULL, in_full("U", ("1", "1"), ("1", "5")), Insert(1, row("3", "3"))],
                [B, Insert(2, row("1", "1"))],
            )
        )
    assert dest.staged == 0
    assert (world.rows("a"), world.rows("b")) == ([(1, 1)], [])


@pytest.mark.parametrize(("together", "asked"), [(1, [1, 1]), (10, [2])])
def test_what_was_found_is_asked_for_several_tables_at_a_time(
    world: Subscribed,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    together: int,
    asked: list[int],
) -> None:
    calls: list[int] = []

    class Watched(MemoryDestination):
        def count(self, effects: Sequence[Effect]) -> list[Counts]:
            calls.append(len(effects))
            return super().count(effects)

    monkeypatch.setattr("workers.tables.write_batch.COUNT_AT_ONCE_TABLES", together)
    caplog.set_level(logging.INFO, "workers")
    world.put("a", (1, 1))
    world.worker(Watched(world.lake)).apply_batch(
        batch([A, Update(1, None, None, row("1", "5")), B, Delete(2, "K", row("7", ""))])
    )
    assert calls == asked
    assert missing(caplog) == ["count=1 conflict=delete_missing"]
    told = [record.getMessage() for record in caplog.records]
    assert any('on relation "public.b": conflict=delete_missing' in line for line in told)
    assert world.rows("a") == [(1, 5)]


@pytest.mark.parametrize("together", [1, 10])
@pytest.mark.parametrize("before", [0, 2])
def test_a_key_that_two_rows_turn_out_to_have_is_cut_down_to_its_transaction(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, together: int, before: int
) -> None:
    """Nobody knew until the MERGE had matched both, when other tables were written as well."""
    monkeypatch.setattr("workers.tables.write_batch.COUNT_AT_ONCE_TABLES", together)
    world.put("a", *((n, 0) for n in range(before)))
    left = [(before, 0), (before, 1), (before + 1, 0)]
    world.put("b", *((n, 0) for n in range(before)), *left)
    dest = MemoryDestination(world.lake)
    transactions: list[list[Message]] = [
        [A, Insert(1, row(str(10 + n), "1")), B, Delete(2, "K", row(str(n), ""))]
        for n in range(before + 2)
    ]
    with pytest.raises(ReplicationError, match=r"key \(id\) is not unique") as caught:
        world.worker(dest).apply_batch(batch(*transactions))
    assert caught.value.code == "23505"
    assert f"in transaction {before + 1}," in caught.value.context[0]
    assert world.position() == 100 * before
    assert world.rows("b") == left
    assert [key for key, _ in world.rows("a") if key >= 10] == [10 + n for n in range(before)]
    assert dest.staged == 0


def test_a_second_row_that_came_at_the_last_moment_is_not_published(world: Subscribed) -> None:
    """``main`` has moved, so the batch is written again, and matches two rows for one change."""
    world.put("a", (1, 1), (2, 2))

    class Overtaken(MemoryDestination):
        refused = 0

        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            if not self.refused:
                self.refused += 1
                world.put("a", (1, 1), (1, 9), (2, 2))
            return super().publish(ident, branch, stamp)

    dest = Overtaken(world.lake)
    with pytest.raises(ReplicationError, match=r"key \(id\) is not unique"):
        world.worker(dest).apply_batch(batch([A, Update(1, None, None, row("1", "5"))]))
    assert dest.refused == 1
    assert world.rows("a") == [(1, 1), (1, 9), (2, 2)]
    assert world.position() == 0
    assert dest.staged == 0


def test_nothing_stays_staged_of_a_table_one_of_whose_values_does_not_fit(
    world: Subscribed,
) -> None:
    dest = MemoryDestination(world.lake)
    wider = relation(1, "a", "id", "v", key="v")
    with pytest.raises(ReplicationError, match="cannot hold a value"):
        world.worker(dest).apply_batch(
            batch(
                [
                    A,
                    Insert(1, row("1", "1")),
                    Update(1, None, None, row("7", "1")),
                    wider,
                    Insert(1, row("2", TOO_LARGE)),
                ]
            )
        )
    assert dest.staged == 0


def test_the_origin_names_the_commit_that_completed_it(world: Subscribed) -> None:
    world.worker().apply_batch(batch([A, B, Insert(1, row("1", "1")), Insert(2, row("1", "1"))]))
    (origin,) = world.store.origins()
    shown = [MemoryDestination(world.lake).table(LakeIdent("public", name)) for name in ("a", "b")]
    commits = [f"snapshot {table.snapshot_id} of {table.ident}" for table in shown if table]
    assert origin.remote_lsn == 100
    assert origin.local_lsn in commits


def test_a_commit_whose_outcome_had_to_be_read_is_named_by_its_position(
    world: Subscribed,
) -> None:
    class Silent(MemoryDestination):
        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            super().publish(ident, branch, stamp)
            return None

    world.worker(Silent(world.lake)).apply_batch(batch([A, Insert(1, row("1", "1"))]))
    (origin,) = world.store.origins()
    assert origin.local_lsn == "LSN 0/64 of public.a"


class Counting(MemoryDestination):
    """Remembers which tables were read."""

    def __init__(self, lake: MemoryLake) -> None:
        super().__init__(lake, identity=Identity(1, 7))
        self.read: list[str] = []

    def table(self, ident: LakeIdent) -> LakeTable | None:
        self.read.append(ident.table)
        return super().table(ident)


def test_a_table_is_read_when_its_first_change_comes_and_after_its_row_changed(
    world: Subscribed,
) -> None:
    """What a sync worker does to a table after the apply worker's start must be seen."""
    dest = Counting(world.lake)
    worker = world.worker(dest)
    assert dest.read == []
    # While this worker runs, a sync worker makes the table anew: other columns, another position.
    rel, ident = world.rel("a"), LakeIdent("public", "a")
    columns = (*COLUMNS, LakeColumn("w", pa.int32()))
    synced = LSN(5000)
    stamp = Stamp(origin_name(rel.srsubid), synced, "another", synced)
    dest.drop_table(ident)
    dest.create_table(ident, columns, owner="u", relid=rel.srrelid, stamp=stamp)
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="another", lake_lsn=synced)
    dest.read.clear()
    worker.read_rels()
    wide = relation(1, "a", "id", "v", "w")
    before = batch([wide, Insert(1, row("1", "1", "1"))])
    after = batch([wide, Insert(1, row("2", "2", "2"))], after=int(synced))
    assert before.last_end < synced < after.last_end
    worker.apply_batch(before)
    worker.apply_batch(after)
    assert world.rows("a") == [(2, 2, 2)]
    assert dest.read == ["a", "a"]  # the second time with its branch
    # And once more when the row changes under a worker that has read the table.
    dest.drop_table(ident)
    stamp = replace(stamp, epoch="3", lsn=after.last_end)
    dest.create_table(ident, COLUMNS, owner="u", relid=rel.srrelid, stamp=stamp)
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="3")
    dest.read.clear()
    worker.read_rels()
    worker.apply_batch(batch([A, Insert(1, row("3", "3"))], after=int(synced) + 100))
    assert world.rows("a") == [(3, 3)]
    assert dest.read == ["a", "a"]


def test_a_table_set_back_under_a_worker_is_noticed(world: Subscribed) -> None:
    """A batch that fails gives the branch up; the next one would begin where main was set back."""
    dest = MemoryDestination(world.lake)
    worker, ident = world.worker(dest), LakeIdent("public", "a")
    worker.apply_batch(batch([A, Insert(1, row("1", "1"))]))
    old = dest.table(ident)
    assert old is not None
    assert old.snapshot_id is not None
    worker.apply_batch(batch([A, Insert(1, row("2", "2"))], after=100))
    dest.rollback(ident, old.snapshot_id)
    bad = batch([A, Insert(1, row("3", "3"))], [A, Insert(1, row("4", TOO_LARGE))], after=200)
    with pytest.raises(ReplicationError, match="behind what was published to it") as caught:
        worker.apply_batch(bad)
    assert caught.value.code == "55000"
    assert world.rows("a") == [(1, 1)], "nothing was added to it"


def test_a_table_set_back_before_its_first_batch_is_noticed(world: Subscribed) -> None:
    """Opened for changes that it had already: its branch would begin where main was set back."""
    dest = MemoryDestination(world.lake)
    ident = LakeIdent("public", "a")
    old = dest.table(ident)
    assert old is not None
    assert old.snapshot_id is not None
    first = batch([A, Insert(1, row("1", "1"))])
    world.worker().apply_batch(first)
    heir = world.worker(dest)
    heir.apply_batch(first)
    dest.rollback(ident, old.snapshot_id)
    with pytest.raises(ReplicationError, match="behind what was published to it") as caught:
        heir.apply_batch(batch([A, Insert(1, row("2", "2"))], after=200))
    assert caught.value.code == "55000"
    assert world.rows("a") == []


@pytest.mark.parametrize("place", ["apply.before_fence", "apply.fenced"])
def test_a_late_fast_forward_is_seen_or_does_not_land(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its worker died while it published; the heir fences the table before it reads a position."""
    late = Late(world.lake, at=1)
    changes = batch([A, Insert(1, row("1", "1"))], [A, Insert(1, row("2", "2"))])
    with pytest.raises(Killed):
        world.worker(late).apply_batch(changes)
    assert world.rows("a") == []
    reached: list[str] = []

    def arrive(at: str) -> None:
        reached.append(at)
        if at != place:
            return
        if place == "apply.before_fence":
            late.land()
            return
        with pytest.raises(ReplicationError, match="main was moved") as caught:
            late.land()
        assert caught.value.code == "40001"

    monkeypatch.setattr(failpoints, "reach", arrive)
    heir = world.worker()
    assert reached == ["apply.before_fence", "apply.fenced"]
    assert world.store.in_flight(world.sub.oid) == []
    heir.apply_batch(changes)
    assert world.rows("a") == [(1, 1), (2, 2)]
