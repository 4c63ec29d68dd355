"""A table that got another name on the publisher: its rows go on, its names follow, over kills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, InsufficientPrivilege, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from config.guc import Settings
from config.monitor_limits import ALL_TABLES_SECONDS
from tests.workers.subscribed import Subscribed
from tests.workers.text_questions import TextPublisher
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.name_watch import NameWatch
from workers.apply.text_watch import TextWatch
from workers.changes.key_conflict import KeyConflict
from workers.changes.relation_map import RelName
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import Identity, LakeIdent
from workers.process import failpoints
from workers.process.worker_exit import WorkerExit
from workers.proto.messages import Insert, Message, Truncate, Update
from workers.tables.rename_tables import settle_renames
from workers.tables.rename_watch import RenameWatch

A, B, NEW = ("public", "a"), ("public", "b"), ("public", "new")
PLACES = (
    failpoints.RENAME_NOTED,
    failpoints.BEFORE_TABLE_RENAME,
    failpoints.TABLE_RENAMED,
    failpoints.RENAME_STORED,
)
OLD_ROW: list[Message] = [relation(1, "a", "id", "v"), Insert(1, row("1", "10"))]
NEW_ROW: list[Message] = [relation(1, "new", "id", "v"), Insert(1, row("2", "20"))]


@dataclass(slots=True)
class Publisher:
    """Tables by oid, and a worker of them; each ``start`` is the start of the next worker."""

    world: Subscribed
    tables: dict[int, RelName] = field(default_factory=lambda: {1: A, 2: B})
    settings: Settings = field(default_factory=Settings)
    asked: int = 0
    fails: bool = False
    locked: bool = False
    unpublished: frozenset[RelName] = frozenset()
    now: float = 0.0
    applier: Applier = field(init=False)
    watch: CatalogWatch = field(init=False)

    def __post_init__(self) -> None:
        for relid, (_, name) in self.tables.items():
            rel = self.world.rel(name)
            self.world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=relid)
        self.start()

    def start(self) -> None:
        world = self.world
        dest = MemoryDestination(world.lake, identity=Identity(world.sub.oid))
        world.sub = settle_renames(dest, world.store, world.sub)
        self.applier = world.worker(dest)
        self.applier.renames = RenameWatch(
            *(world.store, self.names, self.relids, self.published),
            *(lambda: self.settings, lambda: self.now),
        )
        self.watch = CatalogWatch(
            NameWatch(world.store, self.relids, lambda: 0.0),
            TextWatch(world.store, TextPublisher(), lambda: 0.0),
        )
        self.watch.text._due = 1.0

    def names(self, relids: Collection[int]) -> dict[int, RelName]:
        self.asked += 1
        if self.fails:
            raise ConnectionFailure("could not connect to the publisher")
        return {relid: name for relid, name in self.tables.items() if relid in relids}

    def relids(self, names: Collection[RelName]) -> dict[RelName, int]:
        return {name: relid for relid, name in self.tables.items() if name in names}

    def published(self) -> set[RelName] | None:
        return None if self.locked else set(self.tables.values()) - self.unpublished

    def apply(self, *transactions: list[Message], after: int = 0) -> None:
        self.applier.apply_batch(batch(*transactions, after=after))

    def turn(self, later: float = 0.0) -> None:
        """A batch boundary; a worker that ends has a successor."""
        self.now += later
        try:
            self.watch.turn(self.applier)
        except WorkerExit:
            self.start()


@pytest.fixture
def publisher(world: Subscribed) -> Publisher:
    return Publisher(world)


def lake_tables(world: Subscribed) -> set[str]:
    return {f"{ident}" for ident in world.lake.tables}


def test_rows_under_both_names_go_to_the_table_and_the_lake_table_is_renamed(
    world: Subscribed, publisher: Publisher
) -> None:
    before = world.rel("a")
    publisher.tables[1] = NEW
    publisher.apply(OLD_ROW, NEW_ROW)
    assert world.rows("a") == [(1, 10), (2, 20)]
    publisher.turn()
    rel = world.rel("new")
    assert (rel.srrelid, rel.epoch, rel.former_names) == (
        before.srrelid,
        before.epoch,
        ("public.a",),
    )
    assert lake_tables(world) == {"public.new", "public.b"}
    publisher.apply([NEW_ROW[0], Update(1, None, None, row("1", "11"))], after=200)
    assert world.rows("new") == [(1, 11), (2, 20)]
    (change,) = world.store.schema_changes()
    assert (change.lsn, change.changes) == (
        LSN(200),
        ('table "public.a" renamed to "public.new"',),
    )
    assert world.store.renames(world.sub.oid) == []


def test_a_name_that_changes_within_a_transaction(world: Subscribed, publisher: Publisher) -> None:
    """The order of the changes is the transaction's, also around a TRUNCATE."""
    publisher.tables[1] = NEW
    again: list[Message] = [relation(1, "a", "id", "v"), Update(1, None, None, row("2", "21"))]
    publisher.apply([*OLD_ROW, *NEW_ROW, *again])
    assert world.rows("a") == [(1, 10), (2, 21)]
    emptied: list[Message] = [*OLD_ROW[:1], Insert(1, row("3", "30")), NEW_ROW[0]]
    publisher.apply([*emptied, Truncate(False, False, (1,)), *NEW_ROW, *again], after=100)
    assert world.rows("a") == [(2, 21)]


@pytest.mark.parametrize("place", PLACES)
def test_a_worker_that_dies_at_any_step_is_followed_by_one_that_goes_on(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    publisher.tables[1] = NEW
    publisher.apply(OLD_ROW, NEW_ROW)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", lambda at: die() if at == place else None)
        with pytest.raises(KeyboardInterrupt):
            publisher.turn()
    publisher.start()
    publisher.apply(OLD_ROW, NEW_ROW)  # sent again
    publisher.turn()
    publisher.apply([*NEW_ROW[:1], Insert(1, row("3", "30"))], after=200)
    assert world.rows("new") == [(1, 10), (2, 20), (3, 30)]
    assert lake_tables(world) == {"public.new", "public.b"}
    assert len(world.store.schema_changes()) == 1


def die() -> None:
    raise KeyboardInterrupt


def test_changes_of_the_past_find_the_table_by_its_oid(
    world: Subscribed, publisher: Publisher
) -> None:
    """The table was renamed twice before the first change under the first new name arrived."""
    publisher.tables[1] = ("other", "last")
    publisher.apply(NEW_ROW)
    publisher.turn()
    assert world.rel("last").former_names == ("public.a",)
    asked = publisher.asked
    for n in range(3):
        publisher.apply([*OLD_ROW[:1], Insert(1, row(f"{n + 5}", "0"))], after=100 * (n + 1))
        publisher.turn()
    assert len(world.lake.rows(LakeIdent("other", "last"))) == 4
    assert publisher.asked == asked + 1


def test_a_renamed_table_without_a_change_is_noticed_within_a_minute(
    world: Subscribed, publisher: Publisher
) -> None:
    publisher.tables[1] = NEW
    publisher.turn(ALL_TABLES_SECONDS / 2)
    assert world.rel("a")
    publisher.turn(ALL_TABLES_SECONDS / 2)
    assert world.rel("new")


def test_a_table_that_left_its_publication_keeps_its_name(
    world: Subscribed, publisher: Publisher
) -> None:
    """By ALTER TABLE SET SCHEMA, from a publication of a schema."""
    publisher.tables[1], publisher.unpublished = ("far", "a"), frozenset({("far", "a")})
    publisher.turn(ALL_TABLES_SECONDS)
    assert lake_tables(world) == {"public.a", "public.b"}
    assert world.store.renames(world.sub.oid) == []


def test_a_name_that_the_table_has_again_changes_nothing(
    world: Subscribed, publisher: Publisher
) -> None:
    publisher.apply(OLD_ROW, NEW_ROW)
    publisher.turn()
    assert lake_tables(world) == {"public.a", "public.b"}
    assert world.rows("a") == [(1, 10), (2, 20)]
    assert not world.store.schema_changes()


@pytest.mark.parametrize("swapped", [{3: A, 1: NEW}, {1: B, 2: A}, {1: B, 2: ("public", "c")}])
def test_another_table_under_a_subscribed_name_is_no_rename(
    world: Subscribed, publisher: Publisher, swapped: dict[int, RelName]
) -> None:
    publisher.tables |= swapped
    publisher.apply(NEW_ROW)
    publisher.turn(ALL_TABLES_SECONDS)
    assert world.store.renames(world.sub.oid) == []
    assert {rel.relname for rel in world.store.rels(world.sub.oid)} == {"a", "b"}
    assert lake_tables(world) == {"public.a", "public.b"}


def test_a_publisher_that_does_not_answer_is_asked_again(
    world: Subscribed, publisher: Publisher
) -> None:
    publisher.tables[1], publisher.fails = NEW, True
    publisher.apply(NEW_ROW)
    publisher.turn()
    publisher.fails = False
    publisher.turn(ALL_TABLES_SECONDS)
    assert world.rel("new")


def test_a_lock_that_hides_the_published_names_has_them_asked_again(
    world: Subscribed, publisher: Publisher
) -> None:
    """Once a minute, whatever comes meanwhile: not published is not the same as not known."""
    publisher.tables[1], publisher.locked = NEW, True
    for n in range(3):
        publisher.apply([*NEW_ROW[:1], Insert(1, row(f"{n}", "0"))], after=100 * n)
        publisher.turn()
    assert publisher.asked == 1
    assert world.rel("a")
    publisher.locked = False
    publisher.turn(ALL_TABLES_SECONDS)
    assert world.rel("new")


@pytest.mark.parametrize("mode", ["keep", "to"])
def test_the_lake_table_keeps_its_name(world: Subscribed, publisher: Publisher, mode: str) -> None:
    options: dict[str, Any] = {"to": ("public", "a")} if mode == "to" else {"on_rename": "keep"}
    world.declare("a", keys=(("v",),), **options)
    publisher.start()
    publisher.tables[1] = NEW
    publisher.apply(OLD_ROW, NEW_ROW)
    publisher.turn()
    rel = world.rel("new")
    assert (rel.lake_schema, rel.lake_table) == A
    found = world.sub.tables
    assert found.keys() == {"public.new"}
    assert (found["public.new"].to, found["public.new"].keys) == (A, (("v",),))
    publisher.apply([*NEW_ROW[:1], Insert(1, row("3", "30"))], after=200)
    assert world.rows("a") == [(1, 10), (2, 20), (3, 30)]


def test_a_name_that_is_taken_in_the_lake_leaves_the_lake_table_its_name(
    world: Subscribed, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    MemoryDestination(world.lake).lake.tables[LakeIdent(*NEW)] = world.lake.tables.pop(
        LakeIdent(*B)
    )
    publisher.tables[1] = NEW
    publisher.apply(OLD_ROW, NEW_ROW)
    publisher.turn()
    assert (world.rel("new").lake_schema, world.rel("new").lake_table) == A
    assert world.rows("a") == [(1, 10), (2, 20)]
    assert world.sub.tables["public.new"].to == A
    kept = 'lake table "public.a" of table "public.new" keeps its name'
    assert any(kept in each for each in caplog.messages)


@pytest.mark.parametrize(
    "options", [{"on_rename": "suspend"}, {"on_schema_change": "stop"}, {"shared": True}]
)
def test_what_is_not_followed_is_an_error(
    world: Subscribed, publisher: Publisher, options: dict[str, Any]
) -> None:
    world.declare("a", **options)
    publisher.start()
    publisher.tables[1] = NEW
    publisher.turn(ALL_TABLES_SECONDS)
    assert world.rel("a")
    if options == {"on_rename": "suspend"}:
        publisher.apply(NEW_ROW)
        assert world.rel("a").suspended
    elif not options.get("shared"):
        with pytest.raises(ReplicationError, match=r'"public\.new" does not exist'):
            publisher.apply(NEW_ROW)


def test_a_table_that_is_copied_again_meanwhile_is_left_alone(
    world: Subscribed, publisher: Publisher
) -> None:
    publisher.tables[1] = NEW
    publisher.apply(NEW_ROW)
    rel = world.rel("a")
    world.store.set_rel_state(
        *(rel.srsubid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS)
    )
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="later")
    publisher.turn()
    assert world.rel("a").epoch == "later"
    assert world.store.renames(world.sub.oid) == []


def insert(oid: int, name: str, number: int) -> list[Message]:
    return [relation(oid, name, "id", "v"), Insert(oid, row(str(number), str(number)))]


def test_a_queued_row_goes_by_its_oid_where_another_table_has_the_name_by_now(
    world: Subscribed, publisher: Publisher
) -> None:
    publisher.tables[1] = NEW
    publisher.turn(ALL_TABLES_SECONDS)
    publisher.tables[2] = A
    publisher.turn(ALL_TABLES_SECONDS)
    assert lake_tables(world) == {"public.new", "public.a"}
    publisher.apply(insert(1, "a", 7))  # from before both renames
    assert (world.rows("new"), world.rows("a")) == ([(7, 7)], [])


def test_a_queued_row_goes_by_its_oid_where_a_new_table_has_the_name_by_now(
    world: Subscribed, publisher: Publisher
) -> None:
    """A log that is renamed each night, and made again under its name."""
    publisher.tables[1] = NEW
    publisher.turn(ALL_TABLES_SECONDS)
    joined = SubscriptionRel(world.sub.oid, 0, SubRelState.INIT, None, *A, *A)
    world.store.insert_rel(joined)
    publisher.tables[9] = A
    publisher.start()
    publisher.apply(insert(1, "a", 7))
    assert world.rows("new") == [(7, 7)]


def test_rows_under_the_name_of_a_dropped_table_go_by_the_oid(
    world: Subscribed, publisher: Publisher
) -> None:
    del publisher.tables[1]
    publisher.tables[2] = A
    publisher.apply(insert(2, "b", 1), insert(2, "a", 2))
    publisher.tables[2] = NEW
    publisher.apply(insert(2, "new", 3), after=200)
    publisher.turn(ALL_TABLES_SECONDS)
    assert world.rows("new") == [(1, 1), (2, 2), (3, 3)]
    assert world.rows("a") == []


def test_an_oid_of_two_tables_follows_no_name(world: Subscribed, publisher: Publisher) -> None:
    """The one that was copied again under the name has the rows, the other one lacks some."""
    rel = world.rel("a")
    world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=2)
    del publisher.tables[1]
    publisher.tables[2] = A
    publisher.start()
    publisher.apply(insert(2, "a", 5))
    publisher.tables[2] = NEW
    with pytest.raises(ReplicationError) as error:
        publisher.apply(insert(2, "new", 6), after=200)
    assert error.value.code == "55000"
    publisher.turn(ALL_TABLES_SECONDS)
    assert lake_tables(world) == {"public.a", "public.b"}
    assert (world.rows("a"), world.rows("b")) == ([(5, 5)], [])


def test_an_announcement_under_the_new_name_has_the_publication_compared(
    world: Subscribed, publisher: Publisher
) -> None:
    """Otherwise a row that came into the filter would be there twice."""
    publisher.apply(insert(1, "a", 1))
    world.published = {NEW: "iudt- @changed", B: world.published[B]}
    publisher.tables[1] = NEW
    with pytest.raises(KeyConflict):
        publisher.apply(insert(1, "new", 1), after=100)
    assert world.rows("a") == [(1, 1)]


def test_a_catalog_that_refuses_leaves_the_lake_table_its_name(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InsufficientPrivilege("the role may not rename")

    monkeypatch.setattr(MemoryDestination, "rename_table", refuse)
    publisher.tables[1] = NEW
    publisher.turn(ALL_TABLES_SECONDS)
    assert lake_tables(world) == {"public.a", "public.b"}
    publisher.apply(NEW_ROW)
    assert world.rows("a") == [(2, 20)]
