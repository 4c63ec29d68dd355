"""Batches onto the lake in memory: whole transactions, each once, also around a poisonous one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import (
    Stream,
    SubCreate,
    TableOptions,
    TwoPhaseState,
)
from config.limits import PUBLISH_ATTEMPTS
from subscriber.status.view_columns import PG_SUBSCRIPTION
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply import apply_batch, progress, reload
from workers.apply.reload import reread_subscription
from workers.lake.effects import Effect
from workers.lake.memory.destination import MemoryDestination
from workers.lake.refusals import changed_meanwhile
from workers.lake.table import LakeIdent, Stamp
from workers.process.work_done import WorkDone
from workers.process.worker_exit import WorkerExit
from workers.proto.messages import Insert, Message, Truncate, Update
from workers.publisher.fingerprint import PublishedTable
from workers.tables import write_batch

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
TOO_LARGE = "99999999999"


def both(key: int, in_a: str = "0", in_b: str = "0") -> list[Message]:
    """A transaction that inserts a row into both tables."""
    return [A, B, Insert(1, row(str(key), in_a)), Insert(2, row(str(key), in_b))]


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


@pytest.mark.parametrize("poison", [(TOO_LARGE, "0"), ("0", TOO_LARGE)], ids=["in a", "in b"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_poison_value_stops_its_transaction_and_no_other_before_it(
    world: Subscribed, poison: tuple[str, str], before: int
) -> None:
    """H-1, H-2: the origin stands at the end of the last whole transaction."""
    good = [both(n) for n in range(before)]
    after = [both(before + 1), both(before + 2)]
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(*good, both(before, *poison), *after))
    assert_stopped_at(world, caught.value, before, "22003")
    world.worker().apply_batch(batch(*good, both(before), *after))
    assert keys(world, "a") == keys(world, "b") == list(range(before + 3))
    assert world.position() == 100 * (before + 3)


def assert_stopped_at(world: Subscribed, error: ReplicationError, before: int, code: str) -> None:
    """``before`` transactions are in both tables, the next one in neither, and it is named."""
    assert error.code == code
    assert f"in transaction {before + 1}, finished at 0/{100 * before + 99:X}" in error.context[0]
    assert keys(world, "a") == keys(world, "b") == list(range(before))
    assert world.position() == 100 * before
    assert not world.store.in_flight(world.sub.oid)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_an_error_of_the_lake_is_cut_down_to_its_transaction(
    world: Subscribed, before: int
) -> None:
    world.distrust("b")
    world.put("b", (before, 7))
    transactions = [both(n) for n in range(before + 3)]
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(*transactions))
    world.put("b", *((key, 0) for key in range(before)))  # the row in the way is removed
    assert_stopped_at(world, caught.value, before, "23505")
    world.worker().apply_batch(batch(*transactions))
    assert keys(world, "a") == keys(world, "b") == list(range(before + 3))


class Interfered(MemoryDestination):
    """A lake in which somebody else commits just before a table is published."""

    before_publish: Callable[[str], None] = staticmethod(lambda _table: None)

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        self.before_publish(ident.table)
        return super().publish(ident, branch, stamp)


def test_an_error_while_publishing_is_left_to_the_successor(world: Subscribed) -> None:
    """Half of the tables show the batch by then, so it must not be cut and applied again."""
    world.distrust("b")
    dest = Interfered(world.lake)
    worker = world.worker(dest)

    def interfere(table: str) -> None:
        if table == "b" and not world.rows("b"):
            world.put("b", (2, 7))

    dest.before_publish = interfere
    transactions = [both(n) for n in range(4)]
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch(*transactions))
    assert caught.value.code == "23505"
    assert keys(world, "a") == [0, 1, 2, 3]
    assert world.position() == 0
    world.put("b")
    world.worker().apply_batch(batch(*transactions))
    assert keys(world, "a") == keys(world, "b") == [0, 1, 2, 3]


def test_a_row_that_somebody_else_added_is_met(world: Subscribed) -> None:
    """As natively; without a look at the lake its key would be there twice."""
    world.worker().apply_batch(batch(both(0)))
    world.put("a", (0, 0), (2, 7))
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(both(0), both(1), both(2)))
    assert "finished at 0/12B" in caught.value.context[0]
    assert caught.value.code == "23505"
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1, 2], [0, 1])
    assert (world.rel("a").copied, world.rel("b").copied) == (False, True)


def test_a_row_that_somebody_else_adds_beside_a_batch_is_met(world: Subscribed) -> None:
    """What is staged takes the table for ours alone, so it is not written again as it is."""
    dest = Interfered(world.lake)
    worker = world.worker(dest)
    worker.apply_batch(batch(both(0)))

    def interfere(table: str) -> None:
        if table == "a" and keys(world, "a") == [0]:
            world.put("a", (0, 0), (1, 7))

    dest.before_publish = interfere
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch(both(0), both(1)))
    assert caught.value.code == "40001"
    assert world.rows("a") == [(0, 0), (1, 7)]
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(both(0), both(1)))
    assert caught.value.code == "23505"
    assert world.rows("a") == [(0, 0), (1, 7)]


def test_what_a_table_holds_already_is_skipped_in_that_table_only(world: Subscribed) -> None:
    transactions: Sequence[list[Message]] = [both(n) for n in range(3)]

    def die(table: str) -> None:
        if table == "b":
            raise ReplicationError("the lake server died", sqlstate="08006")

    dest = Interfered(world.lake)
    worker = world.worker(dest)
    dest.before_publish = die
    with pytest.raises(ReplicationError, match="died"):
        worker.apply_batch(batch(*transactions))
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1, 2], [])
    world.worker().apply_batch(batch(*transactions, both(3)))
    assert keys(world, "a") == keys(world, "b") == [0, 1, 2, 3]


def test_what_came_before_a_table_joined_is_skipped_in_it(world: Subscribed) -> None:
    """b joined without a copy at the end of the second transaction; its rows were loaded."""
    world.store.update_rel(world.sub.oid, world.rel("b").srrelid, floor=LSN(200), copied=False)
    world.put("b", (0, 0), (1, 0))
    world.worker().apply_batch(batch(*[both(n) for n in range(4)]))
    assert keys(world, "a") == keys(world, "b") == [0, 1, 2, 3]


def test_a_table_published_otherwise_is_not_trusted_any_more(world: Subscribed) -> None:
    worker = world.worker()
    both = batch([A, Insert(1, row("1", "0"))], [A, Insert(1, row("1", "5"))])
    worker.apply_batch(both.part(0, 1))
    # Its DELETE was not published; now everything is again, and the relation is announced anew.
    world.published["public", "a"] = "iudt- @2"
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(both.part(1, 2))
    assert caught.value.code == "23505"
    assert world.rows("a") == [(1, 0)]
    assert (world.rel("a").copied, world.rel("a").fingerprint) == (False, "iudt- @2")
    assert world.rel("b").copied


def test_a_table_that_is_not_published_now_is_not_trusted(world: Subscribed) -> None:
    worker = world.worker()
    del world.published["public", "a"]
    worker.apply_batch(batch([A, Insert(1, row("1", "0"))]))
    assert not world.rel("a").copied


def test_the_publisher_is_asked_only_when_a_relation_is_announced(world: Subscribed) -> None:
    worker = world.worker()
    asked = []

    def published() -> dict[tuple[str, str], PublishedTable]:
        asked.append(1)
        return world.published_tables()

    worker.checks.published = published
    both = batch([A, Insert(1, row("1", "0"))], [Insert(1, row("2", "0"))])
    worker.apply_batch(both.part(0, 1))
    worker.apply_batch(both.part(1, 2))
    assert len(asked) == 1
    assert keys(world, "a") == [1, 2]


def test_a_key_that_comes_twice_is_found_however_the_batch_is_cut(world: Subscribed) -> None:
    """Row 1 is there, and an INSERT of it comes after its UPDATE: a DELETE did not arrive."""
    world.put("a", (1, 10))
    update = Update(1, None, None, row("1", "11"))
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch([A, update], [Insert(1, row("1", "12"))]))
    assert caught.value.code == "23505"
    assert world.rows("a") == [(1, 11)]
    assert not world.rel("a").copied
    with pytest.raises(ReplicationError):
        world.worker().apply_batch(batch([A, update], [Insert(1, row("1", "12"))]))
    assert world.rows("a") == [(1, 11)]


def test_behind_a_truncate_in_the_same_batch_too(world: Subscribed) -> None:
    """The lake is not asked then, for nothing is there: the batch itself shows the key twice."""
    world.put("a", (7, 70))
    begun: list[Message] = [A, Truncate(False, False, (1,)), Insert(1, row("1", "10"))]
    received = batch([*begun, Update(1, None, None, row("1", "11"))], [Insert(1, row("1", "12"))])
    for _ in range(2):
        with pytest.raises(ReplicationError) as caught:
            world.worker().apply_batch(received)
        assert caught.value.code == "23505"
        assert "in transaction 2, finished at" in caught.value.context[0]
        assert (world.rows("a"), world.position()) == ([(1, 11)], 100)
        assert not world.rel("a").copied
    assert world.rel("b").copied


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("subconninfo", "host=other"),
        ("subname", "renamed"),
        ("subslotname", "other"),
        ("subbinary", True),
        ("substream", Stream.OFF),
        ("subpasswordrequired", False),
        ("suborigin", "none"),
        ("subowner", 11),
        ("subpublications", ("other",)),
        ("passfile", "/other"),
        ("password_env", "OTHER"),
        ("tables", {"public.a": TableOptions(on_key_conflict="error")}),
    ],
)
def test_a_change_that_starts_the_worker_again(world: Subscribed, column: str, value: Any) -> None:
    """H-37."""
    world.store.update_subscription(world.sub.oid, **{column: value})
    with pytest.raises(WorkerExit, match=f"has changed: {column}$"):
        reread_subscription(world.store, world.sub)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("subsynccommit", "off"),
        ("subdisableonerr", True),
        ("subrunasowner", True),
        ("subskiplsn", LSN(7)),
        ("subfailover", True),
        ("subtwophasestate", TwoPhaseState.PENDING),
        ("max_flush_lsn", LSN(7)),
    ],
)
def test_a_change_that_the_worker_takes_over(world: Subscribed, column: str, value: Any) -> None:
    """H-37."""
    changed = world.store.update_subscription(world.sub.oid, **{column: value})
    assert reread_subscription(world.store, world.sub) == changed != world.sub


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"subenabled": False}, "was disabled"),
        ({"subcreate": SubCreate.DROPPING}, "was removed"),
        ({"subenabled": False, "subname": "x"}, "was disabled"),
    ],
)
def test_a_change_that_ends_the_worker(
    world: Subscribed, changes: dict[str, Any], said: str
) -> None:
    """H-37."""
    world.store.update_subscription(world.sub.oid, **changes)
    with pytest.raises(WorkerExit, match=said):
        reread_subscription(world.store, world.sub)


def test_what_is_changed_only_while_disabled_needs_no_restart_and_the_rest_is_looked_at() -> None:
    """A column of PostgreSQL's that is in neither list would be changed unseen."""
    seen_otherwise = {"oid", "subdbid", "subenabled"}
    taken_over = {
        "subsynccommit",
        "subdisableonerr",
        "subrunasowner",
        "subskiplsn",
        "subfailover",
        "subtwophasestate",
    }
    assert set(list(PG_SUBSCRIPTION)[:18]) - set(reload._RESTART_ON) == taken_over | seen_otherwise


def test_applied_transactions_and_rows_are_counted_once_however_a_batch_is_cut(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that fails and is cut counts nothing; its smaller parts do."""
    done = WorkDone()
    for module in (apply_batch, progress, write_batch):
        monkeypatch.setattr(module, "DONE", done)
    good = [both(n) for n in range(3)]
    with pytest.raises(ReplicationError):
        world.worker().apply_batch(batch(*good, both(3, TOO_LARGE), both(4)))
    sums = done.sums()
    assert (sums["transactions"], sums["rows"]) == (3, {"insert": 6})
    assert "batch" not in sums["durations"]
    world.worker().apply_batch(batch(*good, both(3)))
    sums = done.sums()
    assert sums["rows"] == {"insert": 8}
    assert sum(sums["durations"]["batch"]["counts"]) == 1
    assert sum(sums["durations"]["publish"]["counts"]) == 2
    assert sum(sums["durations"]["lake_commit"]["counts"]) >= 4


@pytest.mark.parametrize(("refusals", "code"), [(1, None), (PUBLISH_ATTEMPTS, None), (99, "40001")])
def test_a_batch_beside_another_writer_is_written_again(
    world: Subscribed, refusals: int, code: str | None
) -> None:
    """Of table b, which somebody gave a column, say; table a was written by then."""
    left = refusals

    class Changed(MemoryDestination):
        def write_sources(self, ident: LakeIdent, *given: Any, **more: Any) -> list[Effect]:
            nonlocal left
            if ident.table == "b" and left:
                left -= 1
                raise changed_meanwhile(ident)
            return super().write_sources(ident, *given, **more)

    dest = Changed(world.lake)
    worker = world.worker(dest)
    if code is None:
        worker.apply_batch(batch(both(0), both(1)))
        assert keys(world, "a") == keys(world, "b") == [0, 1]
        left = refusals
        worker.apply_batch(batch(both(2), after=200))
        assert keys(world, "a") == keys(world, "b") == [0, 1, 2], "it counts anew for every batch"
    else:
        with pytest.raises(ReplicationError) as caught:
            worker.apply_batch(batch(both(0)))
        assert caught.value.code == code
        assert left == 99 - 1 - PUBLISH_ATTEMPTS
    assert dest.staged == 0


@pytest.mark.parametrize("harm", ["left", "dropped", "set back"])
def test_a_batch_is_written_again_whatever_became_of_a_table_that_it_does_not_touch(
    world: Subscribed, harm: str
) -> None:
    """Table b left the subscription and was dropped, or was dropped or set back alone."""
    armed = False

    class Changed(MemoryDestination):
        def write_sources(self, ident: LakeIdent, *given: Any, **more: Any) -> list[Effect]:
            nonlocal armed
            if armed:
                armed = False
                raise changed_meanwhile(ident)
            return super().write_sources(ident, *given, **more)

    worker = world.worker(Changed(world.lake))
    b = world.lake.tables[LakeIdent("public", "b")]
    empty = b.refs["main"]
    worker.apply_batch(batch(both(0)))
    if harm == "left":
        world.store.delete_rel(world.sub.oid, world.rel("b").srrelid)
        worker.read_rels()
    if harm == "set back":
        b.refs["main"] = empty
    else:
        del world.lake.tables[LakeIdent("public", "b")]
    armed = True
    worker.apply_batch(batch([A, Insert(1, row("1", "0"))], after=100))
    assert not armed
    assert keys(world, "a") == [0, 1]
    if harm != "left":
        with pytest.raises(ReplicationError) as caught:
            worker.apply_batch(batch([B, Insert(2, row("1", "0"))], after=200))
        assert caught.value.code == {"dropped": "42P01", "set back": "55000"}[harm]
