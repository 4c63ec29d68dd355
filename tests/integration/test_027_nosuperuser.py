"""PostgreSQL's 027_nosuperuser: the right to write a table is lost; ``password_required``.

Natively the subscription's owner is a superuser no more; here the lake table's folders are not
writable any more. Left out is what only roles can show: S-027-4 and -6 to -10.

``password_required`` is about owners that are no superusers: natively the role
``regress_nosuper``, here the setting ``is_superuser = off``. Both ask a server that wants a
password, under an environment that has one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import psycopg
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import SubCreate, Subscription
from config.load import from_stored
from subscriber.commands.alter import alter_connection, alter_options, alter_refresh
from subscriber.commands.create_drop import create_subscription
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub
from tests.integration.flow import Flow, n_min_max
from tests.subscriber.twins import Around, statement
from tests.waiting import wait_until

pytestmark = pytest.mark.postgres

PASSWORD = "regress_secret"
TABLES = ("unpartitioned", "beside")
HASHED = ("hashpart", "hashpart_a", "hashpart_b")
ROLES = ("regress_alice", "regress_admin")


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Iterator[Flow]:
    """``beside`` stays writable; what was to be written to it waits all the same."""
    flow = make_flow(publisher, "t027")
    flow.both(
        "CREATE TABLE unpartitioned (i int)",
        "ALTER TABLE unpartitioned REPLICA IDENTITY FULL",
        "CREATE TABLE beside (i int PRIMARY KEY)",
    )
    _partitioned(flow)
    root = "WITH (publish_via_partition_root = true)"
    flow.pub.run(f"CREATE PUBLICATION pub FOR TABLE unpartitioned, beside, hashpart {root}")
    flow.sub.run(
        "CREATE ROLE regress_alice",
        "CREATE ROLE regress_admin LOGIN SUPERUSER",
        "GRANT USAGE, CREATE ON SCHEMA t027 TO regress_alice, regress_admin",
        *(f"ALTER TABLE {each} OWNER TO regress_alice" for each in ("unpartitioned", *HASHED)),
        "ALTER TABLE beside OWNER TO regress_admin",
    )
    try:
        name = flow.subscribe("sub", ["pub"], password_required=False)
        flow.sub.execute(f"ALTER SUBSCRIPTION {name}_native OWNER TO regress_admin")
        _loses_and_gets_back(flow, name)
        yield flow
        flow.drop(name)
    finally:
        flow.sub.run(
            *(f"REASSIGN OWNED BY {role} TO CURRENT_USER" for role in ROLES),
            *(f"DROP OWNED BY {role}" for role in ROLES),
            *(f"DROP ROLE {role}" for role in ROLES),
        )


def _partitioned(flow: Flow) -> None:
    """``hashpart``: a row that lies in one partition of the publisher's lies in the other here."""
    for database, remainders in ((flow.pub, (0, 1)), (flow.sub, (1, 0))):
        database.run(
            "CREATE TABLE hashpart (i int) PARTITION BY HASH (i)",
            *(
                f"CREATE TABLE {leaf} PARTITION OF hashpart"
                f" FOR VALUES WITH (MODULUS 2, REMAINDER {remainder})"
                for leaf, remainder in zip(HASHED[1:], remainders, strict=True)
            ),
            *(f"ALTER TABLE {each} REPLICA IDENTITY FULL" for each in HASHED),
        )


def _loses_and_gets_back(flow: Flow, name: str) -> None:
    flow.pub.run(
        "INSERT INTO unpartitioned VALUES (1), (3), (5)",
        "UPDATE unpartitioned SET i = 7 WHERE i = 1",
        "DELETE FROM unpartitioned WHERE i = 3",
        "INSERT INTO hashpart VALUES (101), (102), (103)",
        "UPDATE hashpart SET i = 120 WHERE i = 102",
        "DELETE FROM hashpart WHERE i = 101",
    )
    flow.checkpoint("before", *TABLES, "hashpart")
    flow.facts["stands before"] = _stands(flow, name)
    with _not_writable(flow.pgsub, _folder(flow.pgsub, *flow.qualified("unpartitioned"))):
        flow.sub.run("ALTER ROLE regress_admin NOSUPERUSER")
        flow.pub.execute(
            "INSERT INTO beside VALUES (1); UPDATE unpartitioned SET i = 9 WHERE i = 5"
        )
        flow.wait_failing(name)
        flow.record("revoked", *TABLES)
        flow.facts["stands revoked"] = _stands(flow, name)
        wait_until(lambda: _told(flow, name), 60, flow.pgsub.log_tail)
    flow.facts["log"] = flow.pgsub.log_tail(10_000)
    flow.facts["native log"] = flow.twin.server.log_file.read_text(errors="replace")
    flow.sub.run("ALTER ROLE regress_admin SUPERUSER")
    flow.checkpoint("given back", *TABLES)
    flow.facts["errors afterwards"] = _errors(flow, name)
    flow.facts["states"] = flow.same_letters(name)


def _stands(flow: Flow, name: str) -> dict[str, Any]:
    """How far it is: the origin, the confirmed position, what readers see."""
    [oid] = [row["oid"] for row in flow.pgsub.status("pg_subscription") if row["subname"] == name]
    origins = flow.pgsub.status("pg_replication_origin_status")
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    return {
        "origin": [row["remote_lsn"] for row in origins if row["external_id"] == f"pg_{oid}"],
        "confirmed": flow.pub.value(confirmed, (name,)),
        "snapshots": [
            flow.pgsub.iceberg_table(*flow.qualified(table)).metadata.current_snapshot_id
            for table in TABLES
        ],
    }


def _errors(flow: Flow, name: str) -> list[dict[str, Any]]:
    return [row for row in flow.pgsub.status("last_errors") if row["subname"] == name]


def _told(flow: Flow, name: str) -> bool:
    """Whether the error was there at both looks: a worker that gets on takes it back."""
    flow.facts["errors"] = _errors(flow, name)
    flow.facts["shown"] = flow.pgsub.command("status").stdout
    errors = flow.facts["errors"]
    return bool(errors) and all(each["message"] in flow.facts["shown"] for each in errors)


def _folder(pgsub: Pgsub, schema: str, table: str) -> Path:
    """Where a lake table's files are."""
    return Path(urlparse(pgsub.iceberg_table(schema, table).location()).path)


@contextmanager
def _not_writable(pgsub: Pgsub, folder: Path) -> Iterator[None]:
    """What is in the folder can be read, and nothing can be added or removed."""
    if _may_write_anywhere(pgsub.launcher.pid):
        pytest.skip("this user may write where permissions forbid it")
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for each in folders:
        each.chmod(0o555)
    try:
        yield
    finally:
        for each in folders:
            each.chmod(0o755)


def _may_write_anywhere(pid: int) -> bool:
    """Whether a process has CAP_DAC_OVERRIDE; without ``/proc``, whether root runs it."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return os.geteuid() == 0
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status.read_text(), re.M)
    return found is not None and bool(int(found[1], 16) & 2)


def test_s_027_1_what_a_superuser_s_subscription_wrote(flow: Flow) -> None:
    assert n_min_max(flow.same("before", "unpartitioned")) == (2, 5, 7)


def test_s_027_5_under_the_root_into_other_partitions(flow: Flow) -> None:
    assert n_min_max(flow.same("before", "hashpart")) == (2, 103, 120)
    published, replicated = (
        [each.execute(f"SELECT i FROM {leaf} ORDER BY i") for leaf in HASHED[1:]]
        for each in (flow.pub, flow.sub)
    )
    assert published == replicated[::-1]


def test_s_027_2_without_the_right_to_write_an_error_and_no_progress(flow: Flow) -> None:
    """Nothing of the transaction is there, nor confirmed; it is tried again and again."""
    assert flow.same("before", "unpartitioned") == [(5,), (7,)]
    assert flow.same("revoked", "unpartitioned") == [(5,), (7,)]
    assert flow.same("revoked", "beside") == []
    assert flow.facts["stands revoked"] == flow.facts["stands before"]
    assert 'role "regress_admin" cannot SET ROLE to "regress_alice"' in flow.facts["native log"]


def test_s_027_2_the_error_is_told(flow: Flow) -> None:
    [error] = flow.facts["errors"]
    assert error["sqlstate"] == "58030"
    assert error["message"].startswith("the lake's storage failed while ")
    assert "Permission denied" in error["detail"]
    said = f"sqlstate={error['sqlstate']} {error['message']}"
    assert flow.facts["log"].count(said) > 1
    assert f"ERROR:  {error['sqlstate']}: {error['message']}" in flow.facts["shown"]


def test_s_027_3_given_back_it_catches_up_by_itself(flow: Flow) -> None:
    assert flow.same("given back", "unpartitioned") == [(7,), (9,)]
    assert flow.same("given back", "beside") == [(1,)]
    assert flow.facts["errors afterwards"] == []
    assert set(flow.facts["states"].values()) == {"r"}


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedPublisher]:
    """A server that lets in who knows the password, and a role that may make subscriptions."""
    with EmbeddedPublisher(18, password=PASSWORD) as server:
        server.execute(f"CREATE ROLE regress_nosuper LOGIN PASSWORD '{PASSWORD}'")
        server.execute("GRANT pg_create_subscription TO regress_nosuper")
        server.execute("GRANT CREATE ON DATABASE postgres TO regress_nosuper")
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("CREATE PUBLICATION pub FOR TABLE t")
        yield server


def without_password(server: EmbeddedPublisher) -> str:
    """How to reach it, but for the password."""
    return f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"


def native(server: EmbeddedPublisher, sql: str) -> tuple[str | None, ...]:
    """What the server says to its role that is no superuser: SQLSTATE, words, DETAIL."""
    dsn = f"host=127.0.0.1 port={server.port} user=regress_nosuper dbname=postgres"
    try:
        with psycopg.connect(dsn, password=PASSWORD, autocommit=True) as connection:
            connection.execute(sql.encode())
    except psycopg.Error as error:
        return error.diag.sqlstate, error.diag.message_primary, error.diag.message_detail
    return ()


def subscribed(world: Around, conninfo: str) -> Subscription:
    """A subscription that was made when nobody asked for a password, enabled."""
    row = Subscription(
        "mysub", conninfo, ("pub",), subslotname="mysub", subcreate=SubCreate.READY, subuuid="u"
    )
    stored = world.store.insert_subscription(row)
    no_superuser(world)
    return stored


def no_superuser(world: Around) -> None:
    settings = from_stored({"settings": {"is_superuser": False}})
    world.store.put_settings(settings.stored())


def said(error: ReplicationError) -> tuple[str | None, ...]:
    return error.code, error.primary, error.detail


NATIVE = (
    "CREATE SUBSCRIPTION regress_sub CONNECTION '{}' PUBLICATION pub"
    " WITH (create_slot = false, enabled = false, copy_data = false)"
)


def test_s_027_11_the_environment_s_password_does_not_do(
    strict: EmbeddedPublisher, world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-43: with PGPASSWORD libpq would get in, so the connection string is looked at."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    conninfo = without_password(strict)
    sub = subscribed(world, conninfo)
    theirs = native(strict, NATIVE.format(conninfo))
    assert theirs[0] == "2F003"
    for command in (
        lambda: alter_refresh("mysub", world.context, copy_data=True),
        lambda: alter_connection("mysub", conninfo, world.context),
        lambda: create_subscription(statement("another", connection=conninfo), world.context),
    ):
        with pytest.raises(ReplicationError) as refused:
            command()
        assert said(refused.value) == theirs
    assert world.store.subscriptions() == [sub]


def test_s_027_12_a_password_in_the_connection_string_does(
    strict: EmbeddedPublisher, world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H-43: and it is the one that is used, whatever the environment has."""
    monkeypatch.setenv("PGPASSWORD", "another one")
    conninfo = without_password(strict)
    subscribed(world, conninfo)
    assert native(strict, NATIVE.format(f"{conninfo} password={PASSWORD}")) == ()
    alter_connection("mysub", f"{conninfo} password={PASSWORD}", world.context)
    alter_refresh("mysub", world.context, copy_data=True)
    (sub,) = world.store.subscriptions()
    assert [rel.relname for rel in world.store.rels(sub.oid)] == ["t"]
    strict.execute("ALTER SUBSCRIPTION regress_sub SET (slot_name = NONE)")
    strict.execute("DROP SUBSCRIPTION regress_sub")


def test_a_server_that_does_not_ask_for_the_password(
    publisher: EmbeddedPublisher, world: Around
) -> None:
    """Let in by what the machine is, nobody has shown that he may."""
    database = new_database(publisher, "nosuperuser")
    database.run(
        "CREATE ROLE regress_nosuper LOGIN IN ROLE pg_create_subscription",
        f"GRANT CREATE ON DATABASE {database.name} TO regress_nosuper",
        "CREATE PUBLICATION pub",
    )
    try:
        conninfo = f"{database.dsn} password={PASSWORD}"
        theirs = native_in(database, NATIVE.format(conninfo))
        no_superuser(world)
        with pytest.raises(ReplicationError) as refused:
            create_subscription(statement(connection=conninfo), world.context)
        assert said(refused.value) == theirs
        assert theirs[0] == "2F003"
        assert world.store.subscriptions() == []
    finally:
        database.run("DROP OWNED BY regress_nosuper", "DROP ROLE regress_nosuper")
        database.drop()


def native_in(database: Database, sql: str) -> tuple[str | None, ...]:
    """``native``, on a server that asks for no password."""
    try:
        with database.server.connect(database.name, user="regress_nosuper") as connection:
            connection.execute(sql.encode())
    except psycopg.Error as error:
        return error.diag.sqlstate, error.diag.message_primary, error.diag.message_detail
    return ()


def test_who_is_no_superuser_does_not_do_without(strict: EmbeddedPublisher, world: Around) -> None:
    """C-7 and A-1: made, turned off, or altered afterwards."""
    conninfo = without_password(strict)
    with_ = "WITH (connect = false, slot_name = NONE, password_required = false)"
    theirs = native(
        strict, f"CREATE SUBSCRIPTION regress_free CONNECTION '{conninfo}' PUBLICATION pub {with_}"
    )
    assert theirs[0] == "42501"
    sub = subscribed(world, conninfo)
    world.store.update_subscription(sub.oid, subpasswordrequired=False)
    free = statement("another", connection=conninfo, with_={"password_required": False})
    for command in (
        lambda: create_subscription(free, world.context),
        lambda: alter_options("mysub", {"binary": True}, world.context),
        lambda: alter_refresh("mysub", world.context, copy_data=True),
    ):
        with pytest.raises(ReplicationError) as refused:
            command()
        assert said(refused.value) == theirs
    world.store.update_subscription(sub.oid, subpasswordrequired=True)
    with pytest.raises(ReplicationError) as refused:
        alter_options("mysub", {"password_required": False}, world.context)
    assert said(refused.value) == theirs
