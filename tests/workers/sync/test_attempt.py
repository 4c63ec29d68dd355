"""An attempt to copy a table begins: its catalog row, and the undo of the attempt before."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SyncSlot
from catalog.pg_subscription_rel import SubscriptionRel
from tests.workers.copied_table import BRANCH, context, copied
from tests.workers.subscribed import EPOCH, Subscribed
from workers.lake.effects import ListFiles
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import ancestors_of
from workers.lake.segment import Segment
from workers.lake.table import LakeIdent, Stamp
from workers.process.worker_process import WorkerProcess
from workers.sync.attempt import begin_attempt
from workers.sync.attempt_check import store_publication
from workers.tables.maintenance.expired_files import list_expired

S_LSN = LSN(700)
IDENT = LakeIdent("public", "a")


def begin(world: Subscribed, rel: SubscriptionRel, dest: MemoryDestination) -> SubscriptionRel:
    """What the next sync worker does first."""
    process = cast("WorkerProcess", SimpleNamespace(store=world.store))
    return begin_attempt(context(process, world, dest), rel)


def test_a_copy_in_the_place_of_another_is_taken_back_as_a_first_one_is(world: Subscribed) -> None:
    """Killed between the fast-forward and s: the old rows are there again, then it goes on."""
    world.put("a", (1, 1), (2, 2))
    rel, dest = copied(world)
    rel = world.store.update_rel(
        rel.srsubid,
        rel.srrelid,
        recopy=True,
        base_snapshot=world.lake.tables[LakeIdent("public", "a")].refs["main"],
    )
    dest.drop_branches(LakeIdent("public", "a"))
    dest.create_branch(LakeIdent("public", "a"), BRANCH)
    stamp = Stamp("pg_16384", S_LSN, EPOCH, rel.floor)
    emptied = Segment(columns=("id", "v"), truncate=True)
    dest.write(LakeIdent("public", "a"), BRANCH, [emptied], stamp)
    dest.publish(LakeIdent("public", "a"), BRANCH, stamp)
    assert world.rows("a") == []
    again = begin(world, rel, dest)
    assert world.rows("a") == [(1, 1), (2, 2)]
    assert again.recopy
    assert again.epoch != EPOCH


def test_who_begins_goes_by_what_the_catalog_says_then(world: Subscribed) -> None:
    """The command came after the worker had read the row, and before it stored d."""
    rel, dest = copied(world)
    world.store.update_rel(rel.srsubid, rel.srrelid, recopy=True, epoch="the command's")
    assert begin(world, rel, dest).recopy


def test_an_attempt_has_its_number_and_starts_from_what_main_has(world: Subscribed) -> None:
    rel, dest = copied(world)
    rel = world.store.update_rel(rel.srsubid, rel.srrelid, attempt=3, lake_lsn=S_LSN)
    again = begin(world, rel, dest)
    main = dest.table(IDENT)
    assert main is not None
    assert (again.srsubstate, again.attempt, again.base_snapshot) == ("d", 4, main.snapshot_id)
    assert (again.lake_lsn, again.copied) == (InvalidXLogRecPtr, False)
    assert world.rel("a") == again


def test_an_attempt_drops_the_branch_of_the_attempt_before(world: Subscribed) -> None:
    rel, dest = copied(world)
    begin(world, rel, dest)
    assert BRANCH not in world.lake.tables[IDENT].refs


def test_rows_that_no_attempt_published_stay(world: Subscribed) -> None:
    """Main is at the position of another copy id: the rows are not of the attempt before."""
    rel, dest = copied(world)
    stamp = Stamp("pg_16384", S_LSN, EPOCH, rel.floor)
    dest.write(IDENT, BRANCH, [], stamp)
    dest.publish(IDENT, BRANCH, stamp)
    world.put("a", (1, 1), ours=True)
    rel = world.store.update_rel(rel.srsubid, rel.srrelid, epoch="never published")
    begin(world, rel, dest)
    assert world.rows("a") == [(1, 1)]


def test_a_published_copy_without_a_base_cannot_be_taken_back(world: Subscribed) -> None:
    rel, dest = copied(world)
    stamp = Stamp("pg_16384", S_LSN, EPOCH, rel.floor)
    dest.write(IDENT, BRANCH, [], stamp)
    dest.publish(IDENT, BRANCH, stamp)
    with pytest.raises(ObjectNotInPrerequisiteState, match="cannot be taken back"):
        begin(world, rel, dest)
    assert world.rel("a") == rel


@pytest.mark.parametrize("kind", [SyncSlot.PERMANENT, SyncSlot.TEMPORARY])
def test_only_a_permanent_slot_has_an_origin(world: Subscribed, kind: SyncSlot) -> None:
    rel, dest = copied(world)
    name = origin_name(rel.srsubid, rel.srrelid)
    if kind is SyncSlot.TEMPORARY:
        world.store.origin_create(name)  # of an attempt with a permanent slot
    world.sub = world.store.update_subscription(
        rel.srsubid, sync_slot=kind, subuuid=str(uuid.uuid4())
    )
    begin(world, rel, dest)
    assert (world.store.origin_by_name(name) is not None) == (kind is SyncSlot.PERMANENT)


def test_attempts_that_fail_leave_neither_snapshots_nor_branches(world: Subscribed) -> None:
    """Killed in the copy, or an error of the catch-up: nobody was publishing, so no fence."""
    rel, dest = copied(world)
    table = world.lake.tables[IDENT]
    before = set(table.snapshots)
    for n in range(5):
        branch = f"pgsub_1_1_{n}"
        dest.create_branch(IDENT, branch)
        stamp = Stamp("pg_16384", S_LSN, rel.epoch or "", rel.floor)
        dest.write(IDENT, branch, [], stamp)
        dest.write(IDENT, branch, [], replace(stamp, lsn=LSN(800)))
        rel = begin(world, rel, dest)
        assert (set(table.snapshots), set(table.refs)) == (before, {"main"})


def test_an_attempt_that_was_about_to_publish_is_fenced(world: Subscribed) -> None:
    rel, dest = copied(world)
    process = cast("WorkerProcess", SimpleNamespace(store=world.store))
    store_publication(context(process, world, dest), rel, S_LSN)
    main = world.lake.tables[IDENT].refs["main"]
    again = begin(world, world.rel("a"), dest)
    assert world.lake.tables[IDENT].refs["main"] > main
    assert again.lake_lsn == InvalidXLogRecPtr


def test_a_copy_that_was_published_and_taken_back_leaves_no_snapshot(world: Subscribed) -> None:
    rel, dest = copied(world)
    table = world.lake.tables[IDENT]
    base = table.refs["main"]
    rel = world.store.update_rel(rel.srsubid, rel.srrelid, base_snapshot=base, lake_lsn=S_LSN)
    stamp = Stamp("pg_16384", S_LSN, EPOCH, rel.floor)
    dest.write(IDENT, BRANCH, [Segment(columns=("id", "v"), truncate=True)], stamp)
    dest.publish(IDENT, BRANCH, stamp)
    begin(world, rel, dest)
    main = [each.snapshot_id for each in ancestors_of(table, "main")]
    assert set(table.snapshots) == set(main)
    assert base in main


@pytest.mark.parametrize("published", [True, False])
def test_files_of_a_copy_that_readers_may_have_seen_are_listed_for_the_grace(
    world: Subscribed, published: bool
) -> None:
    rel, _ = copied(world)
    if published:
        rel = world.store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=S_LSN)

    class Listing(MemoryDestination):
        def discard_copy(
            self, ident: LakeIdent, copy_id: str, list_files: ListFiles | None = None
        ) -> None:
            super().discard_copy(ident, copy_id, list_files)
            if list_files is not None:
                list_files("the table", ["a file"])

    begin(world, rel, Listing(world.lake))
    lists = world.store.expired_files_of_table("public", "a")
    found = [(each.subid, each.table_uuid, each.files) for each in lists]
    assert found == ([(rel.srsubid, "the table", ["a file"])] if published else [])


def test_files_that_no_snapshot_had_go_and_those_on_a_list_wait_for_readers(
    world: Subscribed,
) -> None:
    """The publication of rows that waited for it was refused, or the worker was killed before."""

    class Removing(MemoryDestination):
        removed: tuple[str, set[str]] | None = None

        def discard_files(self, ident: LakeIdent, file_id: str, kept: Collection[str] = ()) -> None:
            assert ident == IDENT
            self.removed = file_id, set(kept)

    rel, _ = copied(world)
    rel = world.store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=S_LSN)
    list_expired(world.store, rel.srsubid, IDENT, "uuid", ["s3://b/t/listed.parquet"])
    dest = Removing(world.lake)
    assert begin(world, rel, dest).epoch != EPOCH
    assert dest.removed == (EPOCH, {"s3://b/t/listed.parquet"})


def test_an_attempt_that_published_nothing_lists_nothing(world: Subscribed) -> None:
    class NeverAsked(MemoryDestination):
        def discard_files(self, ident: LakeIdent, file_id: str, kept: Collection[str] = ()) -> None:
            raise AssertionError

    rel, _ = copied(world)
    assert rel.lake_lsn == InvalidXLogRecPtr
    assert begin(world, rel, NeverAsked(world.lake)).epoch != EPOCH
