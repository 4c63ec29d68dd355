"""How long a publisher may be silent, which a setting says: S-P-8, H-35.

The setting is that of the family that all flows share; each test puts back what it found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.proxy import Proxy
from tests.fix_publisher import Database, requested_publisher
from tests.harness import Pgsub
from tests.integration.wire import Conversation, WireTrace
from tests.twin import NativeTwin, native_rows
from tests.waiting import wait_until

GIVEN_UP = "6s"
RELOAD = "SELECT pg_reload_conf()"
TIMEOUT = "terminating logical replication worker due to timeout"


@contextmanager
def subscribed(pgsub: Pgsub, name: str, connection: str, **options: Any) -> Iterator[int]:
    """A subscription to publication pub for a while; its oid."""
    pgsub.create(name, connection, ["pub"], **options)
    try:
        [oid] = [row["oid"] for row in pgsub.status("pg_subscription") if row["subname"] == name]
        yield int(oid)
    finally:
        pgsub.drop(name)


def publish(made: Database, *tables: str) -> Database:
    """Make these tables, each with a row, and publication pub of them."""
    for table in tables:
        made.run(
            f"CREATE TABLE {table} (a int PRIMARY KEY, b int)", f"INSERT INTO {table} VALUES (1, 1)"
        )
    made.run(f"CREATE PUBLICATION pub FOR TABLE {', '.join(tables)}")
    return made


def walsender(database: Database, name: str) -> int:
    """The pid of the walsender that streams to a subscription."""
    streams = "SELECT pid FROM pg_stat_replication WHERE application_name = %s AND state = %s"
    found = wait_until(lambda: database.execute(streams, (name, "streaming")), 60, "it streams")
    return int(found[0][0])


def apply_errors(pgsub: Pgsub, name: str) -> int:
    stats = pgsub.status("pg_stat_subscription_stats")
    return sum(row["apply_error_count"] for row in stats if row["subname"] == name)


def streams(trace: WireTrace, name: str) -> list[Conversation]:
    """The conversations in which an apply worker was sent changes."""
    return [
        talk
        for talk in trace.conversations
        if talk.streaming and talk.startup.get("application_name") == name
    ]


@contextmanager
def natively(twin: NativeTwin, here: Database, name: str, connection: str) -> Iterator[None]:
    """The same on the twin, whose workers give a publisher up after ``GIVEN_UP``."""
    create = f"CREATE SUBSCRIPTION {name} CONNECTION '{connection}' PUBLICATION pub"
    here.execute(f"{create} WITH (streaming = on)")
    try:
        twin.wait_synced(here)
        here.run(f"ALTER SYSTEM SET wal_receiver_timeout = '{GIVEN_UP}'", RELOAD)
        yield
    finally:
        here.run("ALTER SYSTEM RESET wal_receiver_timeout", RELOAD)
        here.execute(f"DROP SUBSCRIPTION {name}")


def asked_when_silent(trace: WireTrace, name: str, number: int) -> int:
    """How often a conversation's client asked for a reply after it had heard the last."""
    said = streams(trace, name)[number].said
    heard = [at for at, each in enumerate(said) if each.kind in ("keepalive", "change")]
    asked = [each.values[-1] for each in said[heard[-1] :] if each.kind == "status"]
    return asked.count("1")


def test_s_p_8_a_walsender_that_stands_still(
    pgsub: Pgsub,
    twin: NativeTwin,
    publisher: EmbeddedPublisher,
    make_database: Callable[..., Database],
) -> None:
    """H-12: asked for a reply once, at half the timeout; given up at all of it. As natively."""
    name, native = "t_silent", "t_silent_native"
    database = publish(make_database(publisher, name, schema=name), "one")
    here = make_database(twin.server, native, schema=name)
    here.run("CREATE TABLE one (a int PRIMARY KEY, b int)")
    errors = "SELECT apply_error_count FROM pg_stat_subscription_stats WHERE subname = %s"
    trace, its_trace = WireTrace(), WireTrace()
    with (
        Proxy(database, trace) as proxy,
        Proxy(database, its_trace) as its,
        subscribed(pgsub, name, proxy.conninfo),
        natively(twin, here, native, its.conninfo),
    ):
        pgsub.wait(name)
        with pgsub.settings(wal_receiver_timeout=GIVEN_UP):
            before = apply_errors(pgsub, name), here.value(errors, (native,))
            pids = [walsender(database, each) for each in (name, native)]
            stopped = len(streams(trace, name)) - 1, len(streams(its_trace, native)) - 1
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                database.run("INSERT INTO one VALUES (2, 2)")
                wait_until(lambda: apply_errors(pgsub, name) > before[0], 60, pgsub.log_tail)
                wait_until(lambda: here.value(errors, (native,)) > before[1], 60, twin.log_tail)
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
        pgsub.wait(name)
        twin.wait_caught_up(database, native)
        asked = asked_when_silent(trace, name, stopped[0])
        its_asked = asked_when_silent(its_trace, native, stopped[1])
        rows = pgsub.rows(name, "one"), native_rows(here, "one")
    assert TIMEOUT in pgsub.log_tail(1000)
    assert TIMEOUT in twin.server.log_file.read_text(errors="replace")
    assert asked == 1
    # PostgreSQL looks once a second: a look shortly before half the time may be followed by one
    # behind the whole.
    assert its_asked in (0, 1)
    assert rows[0] == rows[1] == [(1, 1), (2, 2)]


@pytest.fixture(params=[pytest.param(15, id="pg15", marks=pytest.mark.matrix_only)])
def older(request: pytest.FixtureRequest) -> EmbeddedPublisher:
    """A publisher that sends no keepalive while it decodes what it will not send."""
    return requested_publisher(request)


def test_a_publisher_that_filters_for_long(
    pgsub: Pgsub, older: EmbeddedPublisher, make_database: Callable[..., Database]
) -> None:
    """H-35: each timeout is told and counted, and the HINT is the remedy."""
    name = "t_filters"
    database = publish(make_database(older, name, schema=name), "one")
    large = "SELECT n FROM generate_series(1, 1000000) n"
    database.run(f"CREATE MATERIALIZED VIEW large AS {large} WITH NO DATA")
    with subscribed(pgsub, name, database.dsn):
        pgsub.wait(name)
        often = f"{decoding(database, 'REFRESH MATERIALIZED VIEW large') / 6:.3f}s"
        pgsub.wait(name)
        with pgsub.settings(wal_receiver_timeout=often):
            errors = apply_errors(pgsub, name)
            database.run("REFRESH MATERIALIZED VIEW large", "INSERT INTO one VALUES (2, 2)")
            wait_until(lambda: apply_errors(pgsub, name) > errors + 1, 120, pgsub.log_tail)
            log = pgsub.log_tail(1000)
        pgsub.wait(name)
    assert TIMEOUT in log
    assert "HINT:  If it is alive but slow, raise wal_receiver_timeout." in log
    assert pgsub.rows(name, "one") == [(1, 1), (2, 2)]


def decoding(database: Database, statement: str) -> float:
    """How many seconds the server takes to decode what a statement writes."""
    slot = (database.name,)
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    database.run(statement)
    peek = "pg_logical_slot_peek_binary_changes(%s, NULL, NULL, {})"
    options = "'proto_version', '1', 'publication_names', 'pub'"
    begun = time.monotonic()
    database.execute(f"SELECT count(*) FROM {peek.format(options)}", slot)
    took = time.monotonic() - begun
    database.execute("SELECT pg_drop_replication_slot(%s)", slot)
    return took
