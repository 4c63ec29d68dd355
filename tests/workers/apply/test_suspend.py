"""``on_error: suspend``: a table's error is the table's own; a death around it loses nothing."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    InternalError,
    ProtocolViolation,
    ReplicationError,
    ReplicationGap,
    ServerUnfit,
    TableRewritten,
    UndefinedTable,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from tests.workers.looping import Loop
from tests.workers.sharing import Make
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.suspend import may_suspend, suspend_tables
from workers.lake.effects import Counts
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, LakeColumn, LakeIdent
from workers.process import failpoints
from workers.proto.messages import Insert, Message, Truncate, Update

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
TOO_LARGE = "99999999999"


class Killed(BaseException):
    """The worker is dead from here on."""


def both(key: int, in_b: str = "0") -> list[Message]:
    """A transaction that inserts a row into both tables."""
    return [A, B, Insert(1, row(str(key), "0")), Insert(2, row(str(key), in_b))]


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


def branches(world: Subscribed, name: str) -> set[str]:
    return set(world.lake.tables[LakeIdent("public", name)].refs) - {MAIN}


@pytest.mark.parametrize("before", [0, 1, 3])
def test_the_others_go_on_without_the_table(world: Subscribed, before: int) -> None:
    """Of the transaction at fault nothing is visible in the table, nor of any later one."""
    world.declare("b", on_error="suspend")
    good = [both(n) for n in range(before)]
    after = [both(before + 1), both(before + 2)]
    world.worker().apply_batch(batch(*good, both(before, TOO_LARGE), *after))
    assert keys(world, "a") == list(range(before + 3))
    assert keys(world, "b") == list(range(before))
    assert world.position() == 100 * (before + 3)
    found = world.rel("b")
    assert (found.srsubstate, found.suspended, found.resuming) == ("r", True, False)
    assert (found.suspend_sqlstate, found.suspend_lsn) == ("22003", LSN(100 * (before + 1)))
    assert "cannot hold a value" in (found.suspend_error or "")
    assert TOO_LARGE not in (found.suspend_error or "")
    assert not branches(world, "b")
    assert not world.rel("a").suspended
    stats = world.store.subscription_stats(world.sub.oid)
    assert (stats.apply_error_count, stats.suspension_count) == (1, 1)


def test_a_successor_leaves_the_table_out(world: Subscribed) -> None:
    world.declare("b", on_error="suspend")
    world.worker().apply_batch(batch(both(0, TOO_LARGE)))
    world.worker().apply_batch(batch(both(1), after=100))
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1], [])


@pytest.mark.parametrize(
    "place",
    [
        failpoints.SUSPENDING,
        failpoints.SUSPENDED,
        "apply.branches_written",
        "apply.in_flight_stored",
        "apply.one_table_published",
        "apply.all_tables_published",
        "apply.origin_advanced",
    ],
)
def test_a_death_anywhere_loses_and_doubles_nothing(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The suspension is on the disk before any position that skips a change of the table."""
    world.declare("b", on_error="suspend")
    world.worker().apply_batch(batch(both(0)))
    transactions = [both(0), both(1, TOO_LARGE), both(2)]
    worker = world.worker()
    dead = False

    def reach(name: str) -> None:
        nonlocal dead
        if name == place and not dead:
            dead = True
            raise Killed

    monkeypatch.setattr(failpoints, "reach", reach)
    with pytest.raises(Killed):
        worker.apply_batch(batch(*transactions))
    assert world.rel("b").suspended or world.position() == 100
    world.worker().apply_batch(batch(*transactions))
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1, 2], [0])
    assert world.position() == 300
    assert world.rel("b").suspended
    assert not world.store.in_flight(world.sub.oid)


def test_the_default_of_the_file_counts_where_a_table_says_nothing(world: Subscribed) -> None:
    world.declare("a", on_error="stop")
    worker = world.worker()
    worker.default_on_error = "suspend"
    worker.apply_batch(batch(both(0, TOO_LARGE)))
    assert world.rel("b").suspended
    poison: list[Message] = [A, Insert(1, row("1", TOO_LARGE))]
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch(poison, after=100))
    assert caught.value.code == "22003"
    assert not world.rel("a").suspended


def test_both_tables_of_a_transaction_are_suspended_one_after_the_other(world: Subscribed) -> None:
    for name in ("a", "b"):
        world.declare(name, on_error="suspend")
    poison: list[Message] = [A, B, *(Insert(n, row("0", TOO_LARGE)) for n in (1, 2))]
    world.worker().apply_batch(batch(poison, both(1)))
    assert [world.rel(name).suspend_lsn for name in ("a", "b")] == [100, 100]
    assert world.store.subscription_stats(world.sub.oid).suspension_count == 2


def test_a_conflict_suspends_and_is_counted(world: Subscribed) -> None:
    world.declare("b", on_error="suspend")
    world.distrust("b")
    world.put("b", (1, 7))
    world.worker().apply_batch(batch(both(0), both(1), both(2)))
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1, 2], [0, 1])
    assert world.rel("b").suspend_sqlstate == "23505"
    assert world.store.subscription_stats(world.sub.oid).confl_insert_exists == 1


def test_a_key_of_several_rows_names_its_table(world: Subscribed) -> None:
    """The lake counts the matched rows of several tables at once, and names none."""
    world.declare("b", on_error="suspend")
    world.put("b", (1, 7), (1, 8))
    world.put("a", (1, 7))
    update: list[Message] = [A, B, *(Update(n, None, None, row("1", "9")) for n in (1, 2))]
    world.worker().apply_batch(batch(update))
    assert world.rows("a") == [(1, 9)]
    assert world.rows("b") == [(1, 7), (1, 8)]
    assert world.rel("b").suspended


def test_a_renamed_table_suspends(world: Subscribed) -> None:
    world.declare("b", on_error="suspend")
    rel = world.rel("b")
    world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=2)
    renamed = replace(B, relname="c")
    gone: list[Message] = [A, renamed, Insert(1, row("1", "0")), Insert(2, row("1", "0"))]
    world.worker().apply_batch(batch(both(0), gone, [renamed, Truncate(False, False, (2,))]))
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1], [0])
    assert (world.rel("b").suspend_sqlstate, world.rel("b").suspend_lsn) == ("55000", 200)


def test_a_lake_table_that_is_gone_or_lacks_a_column_suspends(world: Subscribed) -> None:
    """Every transaction before the first change of the table is published before."""
    world.declare("b", on_error="suspend")
    world.declare("a", on_error="suspend")
    del world.lake.tables[LakeIdent("public", "b")]
    only_a: list[Message] = [A, Insert(1, row("7", "0"))]
    world.worker().apply_batch(batch(only_a, both(0), both(1)))
    assert (world.rel("b").suspend_sqlstate, world.rel("b").suspend_lsn) == ("42P01", 200)
    wider = relation(1, "a", "id", "v", "w")
    world.worker().apply_batch(batch([wider, Insert(1, row("8", "0", "x"))], after=300))
    assert world.rel("a").suspend_sqlstate == "55000"
    assert keys(world, "a") == [0, 1, 7]
    assert world.position() == 300


def test_a_list_with_another_delimiter_suspends(world: Subscribed) -> None:
    import pyarrow as pa

    world.declare("b", on_error="suspend")
    table = world.lake.tables[LakeIdent("public", "b")]
    table.columns = (table.columns[0], LakeColumn("v", pa.list_(pa.int32())))
    columns = (B.columns[0], replace(B.columns[1], typid=70000))
    world.delimiters[70000] = ":"
    other = replace(B, columns=columns)
    world.worker().apply_batch(batch([A, other, *both(0)[2:]]))
    assert (world.rel("b").suspend_sqlstate, keys(world, "a")) == ("0A000", [0])


def test_an_error_of_the_lake_alone_suspends_nothing(world: Subscribed) -> None:
    class Broken(MemoryDestination):
        def count(self, effects: object) -> list[Counts]:
            raise ConnectionFailure("the lake is gone")

    world.declare("b", on_error="suspend")
    with pytest.raises(ConnectionFailure):
        world.worker(Broken(world.lake)).apply_batch(batch(both(0), both(1)))
    assert not world.rel("b").suspended


def test_a_missing_lake_table_suspends_the_table_if_the_others_are_there(
    world: Subscribed,
) -> None:
    """A wrong catalog lacks every table: then no position may move on."""
    world.declare("a", on_error="suspend")
    world.declare("b", on_error="suspend")
    tables = world.lake.tables
    there = tables.pop(LakeIdent("public", "a"))
    del tables[LakeIdent("public", "b")]
    with pytest.raises(UndefinedTable):
        world.worker().apply_batch(batch(both(0)))
    assert not world.rel("a").suspended
    assert not world.rel("b").suspended
    tables[LakeIdent("public", "a")] = there
    world.worker().apply_batch(batch(both(0)))
    assert (world.rel("a").suspended, world.rel("b").suspended) == (False, True)
    assert keys(world, "a") == [0]


def test_what_may_suspend(world: Subscribed) -> None:
    world.declare("b", on_error="suspend")
    a, b = world.rel("a"), world.rel("b")

    def answer(error: ReplicationError, *tables: SubscriptionRel) -> bool:
        error.tables = tables
        return may_suspend(error, world.sub, "stop")

    assert answer(ReplicationError("x", sqlstate="22003"), b)
    assert not answer(ReplicationError("x", sqlstate="22003"), a)
    assert not answer(ReplicationError("x", sqlstate="22003"), a, b)
    assert not answer(ReplicationError("x", sqlstate="22003"))
    assert not answer(ReplicationError("x", sqlstate="53100"), b)
    assert not answer(ConnectionFailure("x"), b)
    assert not answer(InternalError("x"), b)
    assert not answer(ReplicationGap("x"), b)
    assert not answer(TableRewritten("x"), b)
    assert not answer(ServerUnfit("a jar is missing"), b)
    assert not answer(ReplicationError("the password was changed", sqlstate="28P01"), b)
    assert not answer(ProtocolViolation("x"), b)


def test_a_table_that_a_command_took_over_meanwhile_stays_as_it_is(world: Subscribed) -> None:
    """A resume that comes beside the failure of an old copy is not undone."""
    error = ReplicationError("x", sqlstate="22003")
    error.tables = (world.rel("b"),)
    rel = world.store.update_rel(world.sub.oid, world.rel("b").srrelid, epoch="another")
    assert not suspend_tables(world.store, world.sub, error, is_copy=False)
    assert world.rel("b") == rel
    assert world.store.subscription_stats(world.sub.oid).suspension_count == 0


def test_a_recopy_beside_the_error_is_followed(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.declare("b", on_error="suspend")
    worker = world.worker()
    relid = world.rel("b").srrelid

    def reach(name: str) -> None:
        if name == failpoints.SUSPENDING:
            world.store.set_rel_state(
                world.sub.oid, relid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS
            )
            world.store.update_rel(world.sub.oid, relid, epoch="another", recopy=True)

    monkeypatch.setattr(failpoints, "reach", reach)
    worker.apply_batch(batch(both(0, TOO_LARGE), both(1)))
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1], [])
    assert (world.rel("b").suspended, world.rel("b").srsubstate) == (False, "i")


def test_the_log_has_the_whole_error_and_the_remedy(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    world.declare("b", on_error="suspend")
    with caplog.at_level(logging.WARNING):
        world.worker().apply_batch(batch(both(0, TOO_LARGE)))
    error, suspended = caplog.records
    assert "sqlstate=22003" in error.getMessage()
    assert 'for replication target relation "public.b" column "v"' in vars(error)["CONTEXT"]
    assert 'table "public.b" is suspended' in suspended.getMessage()
    assert "pgsub resume mysub public.b" in vars(suspended)["HINT"]


def test_a_reload_from_suspend_to_stop_stops_at_the_next_error(loop: Loop) -> None:
    loop.say(batch_max_rows=1, default_on_error="suspend")
    loop.run(both(0, TOO_LARGE))
    assert loop.world.rel("b").suspended
    assert loop.receiver.durable == [100]
    loop.process.link.shutdown_requested.clear()
    loop.say(batch_max_rows=1, default_on_error="stop")
    with pytest.raises(ReplicationError):
        loop.run([A], [A, Insert(1, row("1", TOO_LARGE))])
    assert not loop.world.rel("a").suspended


@pytest.mark.parametrize("work_mem", [1, 100])
def test_a_transaction_in_slices_leaves_nothing_of_the_table(
    world: Subscribed, work_mem: int
) -> None:
    """Slices before the one at fault are on the table's branch already."""
    world.declare("b", on_error="suspend")
    worker = world.worker()
    worker.work_mem = work_mem
    long: list[Message] = [
        A,
        B,
        *(Insert(n, row(str(key), "0")) for key in range(6) for n in (1, 2)),
    ]
    worker.apply_batch(batch([*long, Insert(2, row("7", TOO_LARGE)), Insert(1, row("7", "0"))]))
    assert (keys(world, "a"), keys(world, "b")) == ([0, 1, 2, 3, 4, 5, 7], [])
    assert world.rel("b").suspended
    assert not branches(world, "b")


def test_a_source_of_a_shared_table_is_suspended_alone(sharing: Make) -> None:
    one = sharing("u", "a", "b", on_error="suspend")
    one.worker().apply_batch(batch(both(0), both(1, TOO_LARGE), both(2)))
    assert (one.rel("a").suspended, one.rel("b").suspended) == (False, True)
    assert (one.rows("a"), one.rows("b")) == ([(0, 0), (1, 0), (2, 0)], [(0, 0)])
