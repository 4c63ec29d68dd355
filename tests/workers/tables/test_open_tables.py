"""When a table is read; a table that was set back, and rows of another writer, are noticed."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from tests.workers.subscribed import COLUMNS, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import Identity, LakeColumn, LakeIdent, LakeTable, Stamp
from workers.proto.messages import Insert, Message

A = relation(1, "a", "id", "v")
TOO_LARGE = "99999999999"


class Counting(MemoryDestination):
    """Remembers which tables were read."""

    def __init__(self, lake: MemoryLake) -> None:
        super().__init__(lake, identity=Identity(1))
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


def insert(relid: int, key: int) -> Insert:
    return Insert(relid, row(str(key), "0"))


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


def refused(world: Subscribed, *transactions: list[Message]) -> ReplicationError:
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(*transactions))
    return caught.value


def test_rows_of_others_under_a_branch_that_was_given_up(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new branch stands on them, so that no publication would ever be refused for their sake."""
    worker = world.worker()
    spoiled = {world.rel("a").srrelid}
    monkeypatch.setattr(worker.writer.maintenance, "maintain_changed_tables", lambda *_: spoiled)
    worker.apply_batch(batch([A, insert(1, 1)]))
    worker.writer.maintain_changed_tables(worker.rels.values())
    world.put("a", (1, 0), (2, 7))
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch([A, insert(1, 1)], [insert(1, 2)]))
    assert caught.value.code == "23505", "written again, with a look at the keys"
    error = refused(world, [A, insert(1, 1)], [insert(1, 2)])
    assert (error.code, world.rows("a")) == ("23505", [(1, 0), (2, 7)])


def test_rows_of_others_before_the_first_branch(world: Subscribed) -> None:
    """They come when the position was read and the branch is not there yet."""

    class Late(MemoryDestination):
        def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
            if ident.table == "a":
                world.put("a", (1, 7))
            super().create_branch(ident, branch, at)

    with pytest.raises(ReplicationError) as caught:
        world.worker(Late(world.lake)).apply_batch(batch([A, insert(1, 1)]))
    assert caught.value.code == "23505"
    assert refused(world, [A, insert(1, 1)]).code == "23505"


def test_what_is_looked_for_anyway_is_remembered_too(world: Subscribed) -> None:
    """The option may go, and with time the snapshot that says whose the rows were."""
    world.declare("a", on_key_conflict="error")
    world.put("a", (2, 7))
    world.worker().apply_batch(batch([A, insert(1, 1)]))
    assert keys(world, "a") == [1, 2]
    assert not world.rel("a").copied
