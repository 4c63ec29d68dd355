"""A publisher that is restarted, gone, slow, impatient, or talks nonsense: nothing is lost."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
import pytest

from catalog.namespace import quote_qualified_identifier
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_subscription import sync_slot_name, system_identifier
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family, wait_confirmed
from tests.crash.proxy import Garble, Proxy
from tests.fix_publisher import Database, new_database
from tests.harness import CommandError
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.publisher.connect import connect

WIDE_ROWS = 6000
_number = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPublisher]:
    """A publisher that these tests may restart."""
    with EmbeddedPublisher(18, conf={"max_wal_size": "1GB"}) as made:
        yield made


@dataclass
class Subscribed:
    """A database with a keyed table ``t`` and a keyless one ``log``, and its subscription."""

    family: Family
    database: Database
    name: str

    @property
    def schema(self) -> str:
        return self.database.schema

    def subscribe(self, conninfo: str | None = None, **options: Any) -> None:
        """Create the subscription; the publication is of the whole schema."""
        self.database.execute(f"CREATE PUBLICATION pub FOR TABLES IN SCHEMA {self.schema}")
        self.family.create(self.name, conninfo or self.database.dsn, ["pub"], **options)

    def insert(self, count: int = 5) -> None:
        """One transaction on both tables."""
        values = f"SELECT g, 'v' FROM generate_series(1, {count}) g"
        self.database.execute(
            f"INSERT INTO log {values}; INSERT INTO t SELECT g.g + coalesce(m.m, 0), 'v'"
            f" FROM generate_series(1, {count}) g, (SELECT max(id) AS m FROM t) m;"
            " UPDATE t SET v = v || 'u' WHERE id % 3 = 0"
        )

    def confirmed(self, lsn: str | None = None) -> None:
        """All that is committed by now is in the lake."""
        wait_confirmed(self.family, self.database, self.name, lsn=lsn)

    def same(self, *tables: str) -> None:
        """The lake's rows are the publisher's."""
        for table in tables or ("t", "log"):
            ours = self.family.pgsub.rows(self.schema, table)
            assert ours == native_rows(self.database, f"{self.schema}.{table}"), table

    def rel(self, table: str) -> SubscriptionRel:
        """A table's row in the catalog."""
        subid = self.family.subid(self.name)
        store = CatalogStore.open(self.family.pgsub.data_dir)
        try:
            return next(rel for rel in store.rels(subid) if rel.relname == table)
        finally:
            store.close()

    def logged(self, *texts: str, since: int, times: int = 1) -> None:
        """Wait until the log says each of these."""
        for text in texts:
            self.family.wait_logged(text, since, 240, times)


@pytest.fixture
def subscribed(family: Family, server: EmbeddedPublisher) -> Iterator[Subscribed]:
    """Tables in a schema of the test's own; the test subscribes when it likes."""
    name = f"crash_pub_{next(_number)}"
    database = new_database(server, name, schema=name)
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE log (n int, v text)")
    made = Subscribed(family, database, name)
    made.insert()
    yield made
    family.failpoints.clear()
    if name in family.subscriptions:
        family.drop(name)
    database.drop()


# Restarts and absence


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_between_writing_and_publishing(
    subscribed: Subscribed, server: EmbeddedPublisher, mode: Literal["fast", "immediate"]
) -> None:
    failpoints = subscribed.family.failpoints
    subscribed.subscribe()
    subscribed.family.pgsub.wait(subscribed.name)
    failpoints.arm("apply.branches_written")
    subscribed.insert()
    failpoints.wait_held("apply.branches_written")
    server.restart(mode)
    subscribed.insert()
    failpoints.release("apply.branches_written")
    subscribed.insert()
    subscribed.confirmed()
    subscribed.same()


def test_a_publisher_that_is_gone_for_a_while(
    subscribed: Subscribed, server: EmbeddedPublisher
) -> None:
    """It goes while a table is being copied and another has changes under way."""
    failpoints, since = subscribed.family.failpoints, subscribed.family.log_size()
    failpoints.arm("tablesync.copied")
    subscribed.subscribe()
    failpoints.wait_held("tablesync.copied", 240)
    subscribed.insert()
    server.halt("immediate")
    failpoints.release("tablesync.copied")
    subscribed.logged("could not connect to the publisher", since=since, times=3)
    server.start()
    subscribed.insert()
    subscribed.family.pgsub.wait(subscribed.name)
    subscribed.same()


# The slot


def test_a_slot_that_somebody_else_streams_from(subscribed: Subscribed) -> None:
    """55006 until he is gone; it is not confirmed by him, so nothing is skipped."""
    pgsub = subscribed.family.pgsub
    subscribed.subscribe()
    pgsub.wait(subscribed.name)
    pgsub.command("disable", subscribed.name)
    wait_until(lambda: subscribed.family.apply_pid(subscribed.name) is None, 60)
    options = {"proto_version": "4", "publication_names": "pub"}
    with closing(connect(subscribed.database.dsn, "somebody")) as other:
        since = subscribed.family.log_size()
        other.start_streaming(subscribed.name, InvalidXLogRecPtr, options)
        pgsub.command("enable", subscribed.name)
        subscribed.insert()
        subscribed.logged("sqlstate=55006", since=since, times=2)
    subscribed.confirmed()
    subscribed.same()


def test_a_sync_slot_whose_name_is_taken(subscribed: Subscribed) -> None:
    """55006 as long as a living session of somebody else has it; then the copy is made."""
    pgsub, since = subscribed.family.pgsub, subscribed.family.log_size()
    subscribed.subscribe(enabled=False)
    store = CatalogStore.open(pgsub.data_dir)
    sub = store.subscription_by_name(subscribed.name)
    store.close()
    assert sub is not None
    slot = sync_slot_name(sub.oid, subscribed.rel("t").srrelid, system_identifier(sub))
    with closing(connect(subscribed.database.dsn, "somebody")) as other:
        other.create_slot(slot, temporary=True, snapshot="nothing")
        pgsub.command("enable", subscribed.name)
        subscribed.logged("sqlstate=55006", slot, since=since)
    pgsub.wait(subscribed.name)
    subscribed.same()


def _drop_slot(database: Database, slot: str) -> bool:
    """Terminate who streams from it and drop it, if nobody is quicker."""
    terminate = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE {}"
    database.execute(terminate.format("slot_name = %s AND active"), (slot,))
    try:
        database.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    except psycopg.errors.ObjectInUse:
        return False
    return True


def test_a_slot_that_is_dropped_under_us(subscribed: Subscribed) -> None:
    """An error with its name, told once; the subscription can be dropped without its slot."""
    subscribed.subscribe()
    subscribed.family.pgsub.wait(subscribed.name)
    since = subscribed.family.log_size()
    wait_until(lambda: _drop_slot(subscribed.database, subscribed.name), 60, pause=0.01)
    subscribed.logged("sqlstate=42704", f'replication slot "{subscribed.name}"', since=since)
    rows = subscribed.family.pgsub.rows(subscribed.schema, "t")
    subscribed.insert()
    assert subscribed.family.pgsub.rows(subscribed.schema, "t") == rows
    with pytest.raises(CommandError, match="could not drop replication slot"):
        subscribed.family.pgsub.drop(subscribed.name)
    subscribed.family.pgsub.command("drop", "--leave-slot", subscribed.name)
    del subscribed.family.subscriptions[subscribed.name]
    with pytest.raises(CommandError, match="42704"):
        subscribed.family.pgsub.wait(subscribed.name)


def test_a_slot_made_again_is_refused(subscribed: Subscribed) -> None:
    """It begins where it was made: what was committed before that would be missing in silence."""
    subscribed.subscribe()
    subscribed.family.pgsub.wait(subscribed.name)
    subscribed.family.pgsub.command("disable", subscribed.name)
    wait_until(lambda: _drop_slot(subscribed.database, subscribed.name), 60)
    rows = subscribed.family.pgsub.rows(subscribed.schema, "t")
    subscribed.insert()
    make = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
    subscribed.database.execute(make, (subscribed.name,))
    subscribed.insert()
    since = subscribed.family.log_size()
    subscribed.family.pgsub.command("enable", subscribed.name)
    subscribed.logged("sqlstate=55000", "was moved on by somebody else", since=since)
    assert subscribed.family.pgsub.rows(subscribed.schema, "t") == rows
    subscribed.family.drop(subscribed.name)


def test_a_slot_that_is_invalidated(subscribed: Subscribed, server: EmbeddedPublisher) -> None:
    """WAL that we still need was removed: an error that says so, never a gap in silence."""
    pgsub = subscribed.family.pgsub
    subscribed.subscribe()
    pgsub.wait(subscribed.name)
    pgsub.command("disable", subscribed.name)
    wait_until(lambda: subscribed.family.apply_pid(subscribed.name) is None, 60)
    subscribed.insert()
    lost = "SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = %s"
    server.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    server.execute("SELECT pg_reload_conf()")
    try:

        def is_lost() -> bool:
            subscribed.database.run("SELECT pg_switch_wal()", "SELECT txid_current()", "CHECKPOINT")
            return bool(server.execute(lost, (subscribed.name,))[0][0])

        wait_until(is_lost, 60)
    finally:
        server.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        server.execute("SELECT pg_reload_conf()")
    since = subscribed.family.log_size()
    pgsub.command("enable", subscribed.name)
    subscribed.logged("sqlstate=55000", subscribed.name, since=since)
    subscribed.family.drop(subscribed.name)


# Time limits of the publisher


def _role(server: EmbeddedPublisher, name: str, settings: dict[str, str]) -> None:
    server.execute(f"CREATE ROLE {name} SUPERUSER LOGIN")
    for setting, value in settings.items():
        server.execute(f"ALTER ROLE {name} SET {setting} = '{value}'")


def _pass_time(database: Database, seconds: float) -> None:
    """Until the publisher's clock is so much further."""
    begun = database.value("SELECT clock_timestamp()")
    later = "SELECT clock_timestamp() > %s::timestamptz + make_interval(secs => %s)"
    wait_until(lambda: database.value(later, (begun, seconds)), seconds + 30, pause=0.1)


def test_a_walsender_is_kept_alive_while_the_lake_is_busy(
    subscribed: Subscribed, server: EmbeddedPublisher
) -> None:
    failpoints, timeout = subscribed.family.failpoints, 1.0
    role = f"impatient_{subscribed.name}"
    _role(server, role, {"wal_sender_timeout": f"{timeout:g}s"})
    subscribed.subscribe(server.conninfo(subscribed.database.name, user=role))
    subscribed.family.pgsub.wait(subscribed.name)
    streams = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    since, walsender = subscribed.family.log_size(), server.execute(streams, (subscribed.name,))
    assert walsender[0][0] is not None
    failpoints.arm("apply.branches_written")
    subscribed.insert()
    failpoints.wait_held("apply.branches_written")
    held = subscribed.database.lsn()  # it ends there or before, and is not durable
    subscribed.insert()
    _pass_time(subscribed.database, 3 * timeout)
    assert server.execute(streams, (subscribed.name,)) == walsender
    confirmed = (
        "SELECT confirmed_flush_lsn < %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    )
    assert server.execute(confirmed, (held, subscribed.name)) == [(True,)]
    failpoints.release("apply.branches_written")
    subscribed.confirmed()
    subscribed.same()
    assert server.execute(streams, (subscribed.name,)) == walsender
    assert "ERROR" not in subscribed.family.log_since(since)


def _paused(subscribed: Subscribed) -> list[dict[str, Any]]:
    """The rows of its spools that are full."""
    rows = subscribed.family.pgsub.status("spools")
    return [row for row in rows if row["subname"] == subscribed.name and row["paused_since"]]


def test_a_walsender_is_kept_alive_while_the_spool_is_full(
    subscribed: Subscribed, server: EmbeddedPublisher
) -> None:
    """Nothing is read for three times what the walsender waits for a sign of life."""
    family, timeout = subscribed.family, 1.0
    role = f"patient_{subscribed.name}"
    _role(server, role, {"wal_sender_timeout": f"{timeout:g}s"})
    subscribed.subscribe(server.conninfo(subscribed.database.name, user=role))
    family.pgsub.wait(subscribed.name)
    sender = (
        "SELECT pid, write_lsn, reply_time, write_lsn < sent_lsn FROM pg_stat_replication"
        " JOIN pg_replication_slots ON active_pid = pid WHERE slot_name = %s"
    )
    since = family.log_size()
    family.configure(spool_max_size="1MB")
    try:
        subscribed.logged("settings changed: spool_max_size", since=since)
        family.failpoints.arm("apply.branches_written")
        subscribed.insert()
        family.failpoints.wait_held("apply.branches_written")
        # The first fills the spool; the second does not fit into what lies between, either.
        for rows in (2_000, 20_000):
            subscribed.database.execute(
                f"INSERT INTO log SELECT g, repeat('w', 1000) FROM generate_series(1, {rows}) g"
            )
        full = "SELECT wait_event = 'WalSenderWriteData' FROM pg_stat_activity WHERE pid = %s"
        ((pid, *_),) = server.execute(sender, (subscribed.name,))
        wait_until(lambda: server.execute(full, (pid,)) == [(True,)], 60, family.log_tail)
        ((_, written, replied, _),) = server.execute(sender, (subscribed.name,))
        _pass_time(subscribed.database, 3 * timeout)
        ((still, then, later, behind),) = server.execute(sender, (subscribed.name,))
        assert (still, then, behind) == (pid, written, True), "paused, and alive"
        assert later > replied, "by what it says unasked"
        (told,) = wait_until(lambda: _paused(subscribed), 60, family.log_tail)
        assert (told["relid"], told["spool_max_size"]) == (None, 2**20)
        assert 2**20 < told["spool_bytes"] < 10 * 2**20, "of 22 MB that it might have read"
        paused = "reading from the publisher is paused"
        assert paused in family.pgsub.command("status").stdout
        assert family.log_since(since).count(paused) == 1
        family.failpoints.release("apply.branches_written")
        subscribed.confirmed()
        assert server.execute(sender, (subscribed.name,))[0][0] == pid
        subscribed.logged("reading from the publisher goes on", since=since)
        wait_until(lambda: not _paused(subscribed), 60, family.log_tail)
        assert paused not in family.pgsub.command("status").stdout
    finally:
        family.configure()
    subscribed.same()
    assert "ERROR" not in family.log_since(since)


def _wide_table(database: Database) -> None:
    """A table of several ranges."""
    database.run(
        "CREATE TABLE wide (id int PRIMARY KEY, v text)",
        f"INSERT INTO wide SELECT g, repeat('w', 200) FROM generate_series(1, {WIDE_ROWS}) g",
    )


def test_time_limits_of_the_role_do_not_end_a_copy(
    subscribed: Subscribed, server: EmbeddedPublisher
) -> None:
    """Every table is copied by its first attempt, though a session is idle for long."""
    limits = (
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "transaction_timeout",
    )
    role, limit = f"hasty_{subscribed.name}", 0.4
    _role(server, role, dict.fromkeys(limits, f"{limit * 1000:g}ms"))
    _wide_table(subscribed.database)
    failpoints = subscribed.family.failpoints
    failpoints.arm("tablesync.copied")
    subscribed.subscribe(server.conninfo(subscribed.database.name, user=role))
    failpoints.wait_held("tablesync.copied", 240)
    _pass_time(subscribed.database, 3 * limit)
    failpoints.release("tablesync.copied")
    subscribed.family.pgsub.wait(subscribed.name)
    subscribed.same("t", "log", "wide")
    assert [subscribed.rel(table).attempt for table in ("t", "log", "wide")] == [1, 1, 1]


# Nonsense on the wire

GARBLES: dict[str, Garble] = {
    "unknown message": lambda payload: payload[:25] + b"\xff" + payload[26:],
    "cut off": lambda payload: payload[:-3],
    "bytes too many": lambda payload: payload + b"\x00\x00",
    "more columns than there are": lambda payload: payload[:31] + b"\x7f\xff" + payload[33:],
    "unknown kind of value": lambda payload: payload[:33] + b"?" + payload[34:],
    "unknown relation": lambda payload: payload[:26] + b"\xff\xff\xff\xfe" + payload[30:],
    "length beyond the message": lambda payload: payload[:34] + b"\x7f\xff\xff\xff" + payload[38:],
}


def test_garbage_is_a_protocol_violation_and_nothing_is_lost(subscribed: Subscribed) -> None:
    with Proxy(subscribed.database) as proxy:
        subscribed.subscribe(proxy.conninfo)
        subscribed.family.pgsub.wait(subscribed.name)
        for number, garble in enumerate(GARBLES.values(), 1):
            since = subscribed.family.log_size()
            proxy.garble_next(garble)
            subscribed.insert()
            subscribed.logged("sqlstate=08P01", since=since)
            subscribed.logged("HINT:  Nothing of it was applied.", since=since)
            assert proxy.garbled == number
            subscribed.insert()
            subscribed.confirmed()
        subscribed.same()
        subscribed.family.drop(subscribed.name)


# Rewriting a table while it is copied

REWRITES = {
    "VACUUM FULL": "VACUUM FULL wide",
    "ALTER TYPE": "ALTER TABLE wide ALTER id TYPE bigint",
}


def _rewrite(database: Database, *statements: str) -> threading.Thread:
    def run() -> None:
        with suppress(psycopg.errors.LockNotAvailable):
            database.run(*statements)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("gives_up", [True, False], ids=["gives up", "stays"])
def test_who_waits_to_rewrite_a_table_under_copy(subscribed: Subscribed, gives_up: bool) -> None:
    """It stands before the locks of later ranges: the copy waits a while, then lets it pass."""
    database = subscribed.database
    _wide_table(database)
    waits = (
        "SELECT count(*) FROM pg_locks WHERE relation = %s::regclass"
        " AND mode = 'AccessExclusiveLock' AND NOT granted"
    )
    since = subscribed.family.log_size()
    with Proxy(database) as proxy:
        hold = proxy.hold_answers("_copy")
        subscribed.subscribe(proxy.conninfo)
        assert hold.arrived.wait(240), subscribed.family.log_tail()
        patience = "SET lock_timeout = '2s'" if gives_up else "SET lock_timeout = 0"
        thread = _rewrite(database, patience, REWRITES["ALTER TYPE"])
        wait_until(lambda: database.value(waits, (f"{subscribed.schema}.wide",)), 60)
        hold.release()
        if not gives_up:
            subscribed.logged("sqlstate=55P03", since=since)
            thread.join(60)
            assert not thread.is_alive(), "the rewrite goes on"
        subscribed.family.pgsub.wait(subscribed.name)
        thread.join(60)
        subscribed.same("t", "log", "wide")
        assert subscribed.rel("wide").attempt == (1 if gives_up else 2)
        subscribed.family.drop(subscribed.name)


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewrite_before_the_lock_is_noticed(subscribed: Subscribed, rewrite: str) -> None:
    """Between the snapshot and the lock nothing keeps it away; the copy is made again."""
    _wide_table(subscribed.database)
    wide = quote_qualified_identifier(subscribed.schema, "wide")
    since = subscribed.family.log_size()
    with Proxy(subscribed.database) as proxy:
        hold = proxy.hold_statement(f"LOCK TABLE ONLY {wide}")
        subscribed.subscribe(proxy.conninfo)
        assert hold.arrived.wait(240), subscribed.family.log_tail()
        subscribed.database.run(REWRITES[rewrite])
        hold.release()
        subscribed.logged("was rewritten while it was copied", since=since)
        subscribed.family.pgsub.wait(subscribed.name)
        subscribed.same("t", "log", "wide")
        assert subscribed.rel("wide").attempt == 2
        subscribed.family.drop(subscribed.name)
