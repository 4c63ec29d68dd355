"""The publisher is not the one it was, or the lake is not: an error with the gap, then a command.

Rule 8 with real servers: standbys that take over with everything and without, a slot made again,
a table set back. After ``accept-gap`` what comes later arrives exactly once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg
import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family, wait_confirmed
from tests.crash.standby import Pair, cut_off, follow, not_idle, promote
from tests.fix_publisher import Database, new_database
from tests.twin import NativeTwin, native_rows
from tests.waiting import wait_until
from workers.publisher.connect import connect
from workers.publisher.replication_slots import fetch_slot
from workers.publisher.sync_slot import create_sync_slot

MAKE_SLOT = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
_number = itertools.count(1)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with EmbeddedPublisher(18, conf={"max_wal_size": "1GB"}) as primary:
        yield Pair(primary)


@dataclass
class Subscribed:
    """A keyless table, so that a row that comes twice is there twice, and its subscription."""

    family: Family
    pair: Pair
    database: Database
    name: str

    def insert(self, *numbers: int, server: EmbeddedPublisher | None = None) -> None:
        database = self.on(server)
        for number in numbers:
            database.execute("INSERT INTO t VALUES (%s)", (number,))

    def on(self, server: EmbeddedPublisher | None) -> Database:
        return Database(server or self.pair.primary, self.database.name, self.database.schema)

    def rows(self) -> list[int]:
        return [row[0] for row in self.family.pgsub.rows(self.database.schema, "t")]

    def arrives(self, *numbers: int, server: EmbeddedPublisher | None = None) -> None:
        """What is committed by now is confirmed, and these are the rows, each once."""
        wait_confirmed(self.family, self.on(server), self.name)
        assert self.rows() == sorted(numbers)

    def logged(self, since: int, *texts: str) -> None:
        for text in texts:
            self.family.wait_logged(text, since, 120)

    def sub(self) -> Subscription:
        with closing(CatalogStore.open(self.family.pgsub.data_dir)) as store:
            found = store.subscription_by_name(self.name)
        assert found is not None
        return found

    def disable(self) -> None:
        self.family.pgsub.command("disable", self.name)

    def enable(self) -> None:
        self.family.pgsub.command("enable", self.name)

    def accept(self) -> str:
        """What the command said."""
        return self.family.pgsub.command("accept-gap", self.name).stderr


@pytest.fixture
def subscribed(family: Family, pair: Pair) -> Iterator[Subscribed]:
    """Row 1 is there, row 2 came by the stream."""
    name = f"worlds_{next(_number)}"
    database = new_database(pair.primary, name, schema=name)
    database.run(
        "CREATE TABLE t (n int)",
        "INSERT INTO t VALUES (1)",
        "CREATE PUBLICATION pub FOR TABLE t WITH (publish = 'insert')",
    )
    made = Subscribed(family, pair, database, name)
    family.create(name, pair.conninfo(database.name), ["pub"])
    family.pgsub.wait(name)
    made.insert(2)
    made.arrives(1, 2)
    yield made
    if name in family.subscriptions:
        family.drop(name)
    database.drop()


def test_a_standby_that_has_everything_takes_over(subscribed: Subscribed) -> None:
    """Nobody has to do anything; a slot on an idle standby is given up with the remedy."""
    pair = subscribed.pair
    with pair.standby() as standby:
        refused_on_an_idle_standby(subscribed, standby)
        pair.make_slot(standby, subscribed.database.name, subscribed.name)
        subscribed.insert(3)
        subscribed.arrives(1, 2, 3)
        pair.caught_up(standby)
        since = subscribed.family.log_size()
        pair.primary.halt("fast")
        promote(standby)
        subscribed.insert(4, server=standby)
        subscribed.arrives(1, 2, 3, 4, server=standby)
        subscribed.logged(since, "action=timeline")
        assert subscribed.sub().timeline == 2
        subscribed.family.drop(subscribed.name)


def test_a_standby_with_the_synchronised_slot_takes_over(subscribed: Subscribed) -> None:
    """``failover = true``: beside the native subscriber, which has to be told where to connect."""
    pair, name, native = subscribed.pair, subscribed.name, f"{subscribed.name}_native"
    subscribed.disable()
    subscribed.family.pgsub.command("alter", name, "SET", "(failover = true)")
    subscribed.enable()
    twin = NativeTwin()
    with twin.server:
        here = new_database(twin.server, name, schema=name)
        here.run("CREATE TABLE t (n int)")
        twin.subscribe(here, subscribed.database, native, ["pub"], failover="true")
        twin.wait_synced(here)
        with pair.standby(slot="standby") as standby:
            pair.synchronise(standby, name, native)
            subscribed.insert(3)
            subscribed.arrives(1, 2, 3)
            twin.wait_caught_up(subscribed.database, native)
            pair.caught_up(standby)
            pair.primary.halt("fast")
            promote(standby)
            heir = subscribed.on(standby)
            here.run(f"ALTER SUBSCRIPTION {native} CONNECTION '{heir.dsn}'")
            subscribed.insert(4, server=standby)
            subscribed.arrives(1, 2, 3, 4, server=standby)
            twin.wait_caught_up(heir, native)
            assert native_rows(here, "t") == [(number,) for number in subscribed.rows()]
            assert subscribed.sub().timeline == 2
            subscribed.family.drop(name)


def test_a_standby_that_we_read_from_is_promoted(family: Family, pair: Pair) -> None:
    """The stream does not end with it; the worker does, and goes on on the new timeline."""
    name = f"worlds_{next(_number)}"
    database = new_database(pair.primary, name, schema=name)
    database.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)", "CREATE TABLE u (n int)")
    database.run(f"CREATE PUBLICATION pub FOR TABLES IN SCHEMA {name}")
    with pair.standby() as standby:
        subscribed = Subscribed(family, pair, Database(standby, database.name, name), name)
        with not_idle(pair.primary):
            family.create(name, standby.conninfo(database.name), ["pub"])
            wait_until(lambda: set(family.states(name).values()) == {"r"}, 120, family.log_tail)
        subscribed.insert(2)
        wait_until(lambda: subscribed.rows() == [1, 2], 60, family.log_tail)
        since = family.log_size()
        cut_off(standby)
        promote(standby)
        subscribed.insert(3, server=standby)
        subscribed.arrives(1, 2, 3, server=standby)
        subscribed.logged(since, "its timeline has changed", "action=timeline")
        assert subscribed.sub().timeline == 2
        family.drop(name)
    database.drop()


def test_a_standby_that_we_read_from_follows_another_primary(family: Family, pair: Pair) -> None:
    """It stays a standby, and what it sends from then on is another timeline's."""
    name = f"worlds_{next(_number)}"
    database = new_database(pair.primary, name, schema=name)
    database.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
    database.run(f"CREATE PUBLICATION pub FOR TABLES IN SCHEMA {name}")
    with pair.standby() as heir, pair.standby(port=0) as standby:
        subscribed = Subscribed(family, pair, Database(heir, database.name, name), name)
        with not_idle(pair.primary):
            family.create(name, standby.conninfo(database.name), ["pub"])
            wait_until(lambda: set(family.states(name).values()) == {"r"}, 120, family.log_tail)
        subscribed.insert(2)
        wait_until(lambda: subscribed.rows() == [1, 2], 60, family.log_tail)
        since = family.log_size()
        pair.primary.halt("fast")  # both standbys have all of it then
        promote(heir)
        follow(standby, heir)
        subscribed.insert(3, server=heir)
        wait_until(lambda: subscribed.rows() == [1, 2, 3], 120, family.log_tail)
        subscribed.logged(since, "its timeline has changed", "action=timeline")
        assert subscribed.sub().timeline == 2
        family.pgsub.command("disable", name)
        family.pgsub.command("enable", name)  # nothing comes twice
        subscribed.insert(4, server=heir)
        wait_until(lambda: subscribed.rows() == [1, 2, 3, 4], 120, family.log_tail)
        family.drop(name)
    database.drop()


def refused_on_an_idle_standby(subscribed: Subscribed, standby: EmbeddedPublisher) -> None:
    with (
        subscribed.database.connect() as writer,
        writer.transaction(),
        closing(connect(standby.conninfo(subscribed.database.name), "x")) as conn,
    ):
        writer.execute("SELECT pg_current_xact_id()")  # whatever is logged meanwhile is too little
        # What was logged before this transaction would be enough: the slot begins behind it.
        subscribed.database.execute("SELECT pg_logical_emit_message(true, '', '')")
        subscribed.pair.caught_up(standby)
        with pytest.raises(ObjectNotInPrerequisiteState, match="create_slot_timeout") as refused:
            create_sync_slot(conn, "pg_1_sync_2_3", timeout=0.5)
        assert "pg_log_standby_snapshot()" in (refused.value.hint or "")
        conn.command("ROLLBACK")
        assert fetch_slot(conn, "pg_1_sync_2_3") is None


def test_a_standby_that_lagged_behind_takes_over(subscribed: Subscribed) -> None:
    """Row 3 was received and never reached it: it stays in the lake, and nothing comes twice."""
    pair = subscribed.pair
    with pair.standby() as standby:
        cut_off(standby)
        subscribed.insert(3)
        subscribed.arrives(1, 2, 3)
        pair.primary.halt("immediate")
        highest = subscribed.sub().max_flush_lsn
        since = subscribed.family.log_size()
        promote(standby)
        subscribed.insert(4, server=standby)  # before there is a slot: nobody can send it
        subscribed.on(standby).execute(MAKE_SLOT, (subscribed.name,))
        subscribed.insert(5, server=standby)
        subscribed.logged(
            since,
            "sqlstate=55000",
            "is behind what this subscription received from its predecessor",
            f" to {highest} is in the lake and not on it",
            f"pgsub refresh {subscribed.name} --recopy",
            f"pgsub accept-gap {subscribed.name}",
        )
        assert subscribed.rows() == [1, 2, 3]
        said = subscribed.accept()
        assert f" to {highest} is in the lake and not on it" in said
        subscribed.insert(6, server=standby)
        subscribed.arrives(1, 2, 3, 5, 6, server=standby)
        assert subscribed.sub().timeline == 2
        assert "there is no gap to accept" in _refused(subscribed)
        subscribed.family.drop(subscribed.name)


def test_a_server_restored_from_a_backup(subscribed: Subscribed) -> None:
    """On the same timeline, with an earlier end: row 3 was received and is not on it."""
    pair = subscribed.pair
    backup = pair.backup()
    for _ in range(2):  # far beyond what the restored one writes
        pair.primary.execute("SELECT pg_current_xact_id()")
        pair.primary.execute("SELECT pg_switch_wal()")
    subscribed.insert(3)
    subscribed.arrives(1, 2, 3)
    since = subscribed.family.log_size()
    with pair.restored(backup) as restored:
        highest = subscribed.sub().max_flush_lsn
        subscribed.on(restored).execute(MAKE_SLOT, (subscribed.name,))  # none is in a backup
        subscribed.insert(4, server=restored)
        subscribed.logged(
            since,
            "sqlstate=55000",
            "the publisher is behind what this subscription received from it",
            "It was restored from a backup",
            f"pgsub refresh {subscribed.name} --recopy",
            f"pgsub accept-gap {subscribed.name}",
        )
        assert subscribed.rows() == [1, 2, 3]
        said = subscribed.accept()
        assert f"{highest} was received" in said
        assert "from where they parted" in said
        subscribed.insert(5, server=restored)  # a new slot: the other may stand before the backup
        subscribed.arrives(1, 2, 3, 5, server=restored)
        subscribed.family.drop(subscribed.name)


def _refused(subscribed: Subscribed) -> str:
    return subscribed.family.pgsub.command("accept-gap", subscribed.name, status=1).stderr


def _drop_slot(subscribed: Subscribed) -> bool:
    try:
        subscribed.database.execute("SELECT pg_drop_replication_slot(%s)", (subscribed.name,))
    except psycopg.errors.ObjectInUse:
        return False
    return True


@pytest.mark.parametrize("again", [True, False], ids=["made again", "dropped"])
def test_a_slot_that_was_dropped(subscribed: Subscribed, again: bool) -> None:
    subscribed.disable()
    wait_until(lambda: _drop_slot(subscribed), 60)
    subscribed.insert(3)
    if again:
        subscribed.database.execute(MAKE_SLOT, (subscribed.name,))
        subscribed.insert(4)
    since = subscribed.family.log_size()
    subscribed.enable()
    subscribed.logged(
        since, f"sqlstate={'55000' if again else '42704'}", f"pgsub accept-gap {subscribed.name}"
    )
    assert subscribed.rows() == [1, 2]
    said = subscribed.accept()
    assert "are not received" in said
    assert f'"{subscribed.database.schema}.t"' in said
    subscribed.insert(5)
    subscribed.arrives(1, 2, *([4] if again else []), 5)


def test_a_table_that_was_set_back(subscribed: Subscribed) -> None:
    """Row 2 is gone with the snapshot; the table goes on without it."""
    schema = subscribed.database.schema
    subscribed.disable()
    wait_until(lambda: subscribed.family.apply_pid(subscribed.name) is None, 60)
    snapshots = subscribed.family.pgsub.iceberg_table(schema, "t").snapshots()
    of_one_row = [s for s in snapshots if s.summary and s.summary["total-records"] == "1"]
    before = of_one_row[-1].snapshot_id
    subscribed.family.pgsub.command(
        "sql", f"CALL lake.system.rollback_to_snapshot('{schema}.t', {before})"
    )
    assert subscribed.rows() == [1]
    subscribed.insert(3)
    since = subscribed.family.log_size()
    subscribed.enable()
    subscribed.logged(
        since,
        "sqlstate=55000",
        f'lake table "{schema}.t" is behind what was published to it',
        f"pgsub accept-gap {subscribed.name}",
    )
    assert subscribed.rows() == [1]
    said = subscribed.accept()
    assert f'table "{schema}.t": changes from ' in said
    subscribed.insert(4)
    subscribed.arrives(1, 3, 4)
