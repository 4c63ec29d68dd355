"""ALTER and DROP where the statement on the publisher matters; the lake is a twin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError, ReplicationGap
from catalog.pg_replication_origin import origin_name
from subscriber.commands.alter import (
    alter_connection,
    alter_enabled,
    alter_options,
    alter_publications,
    alter_refresh,
)
from subscriber.commands.create_drop import create_subscription, drop_subscription
from subscriber.commands.recopy import recopy_tables
from tests.fix_publisher import Database, requested_publisher
from tests.subscriber.twins import Around, statement
from tests.twin import NativeTwin
from workers.publisher.connect import connect
from workers.publisher.connection import WalReceiverConn
from workers.publisher.identify import identify_publisher

pytestmark = pytest.mark.postgres

NAME = "altered"
QUOTED = 'it\'s "quoted"'


def failover(database: Database) -> Any:
    return database.value(f"SELECT failover FROM pg_replication_slots WHERE slot_name = '{NAME}'")


def slots(database: Database) -> list[str]:
    rows = database.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = %s", (database.name,)
    )
    return [row[0] for row in rows]


def test_the_properties_of_a_slot(database: Database, world: Around) -> None:
    """A-3, A-4: they are the publisher's, and the catalog follows."""
    database.run("CREATE PUBLICATION pub")
    create_subscription(statement(NAME, connection=database.dsn), world.context)
    with pytest.raises(ReplicationError, match='cannot set option "failover" for enabled'):
        alter_options(NAME, {"failover": True}, world.context)
    alter_enabled(NAME, False, world.context)
    for value in (True, False, True):
        alter_options(NAME, {"failover": value, "two_phase": False}, world.context)
        sub = world.store.subscription_by_name(NAME)
        assert (failover(database), sub and sub.subfailover) == (value, value)
    drop_subscription(NAME, world.context)
    assert slots(database) == []


def test_a_slot_that_somebody_reads_from(
    database: Database, world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subscriber.commands.leaked_slots.SLOT_RELEASE_SECONDS", 0.0)
    database.run("CREATE PUBLICATION pub")
    stmt = statement(NAME, connection=database.dsn, with_={"enabled": False})
    create_subscription(stmt, world.context)
    with closing(connect(database.dsn, "reader")) as reader:
        options = {"proto_version": "1", "publication_names": "pub"}
        reader.start_streaming(NAME, reader.identify_system().xlogpos, options)
        with pytest.raises(ConnectionFailure, match="is active for PID") as caught:
            alter_options(NAME, {"failover": True}, world.context)
    assert f'could not alter replication slot "{NAME}" on publisher' in caught.value.primary
    sub = world.store.subscription_by_name(NAME)
    assert (failover(database), sub and sub.subfailover) == (False, False)


@pytest.fixture(params=[16])
def old(request: pytest.FixtureRequest, make_database: Callable[..., Database]) -> Database:
    return make_database(requested_publisher(request), "alter_old")


def test_an_older_publisher_has_no_such_property(old: Database, world: Around) -> None:
    old.run("CREATE PUBLICATION pub")
    stmt = statement(NAME, connection=old.dsn, with_={"enabled": False})
    create_subscription(stmt, world.context)
    with pytest.raises(ReplicationError, match="publisher of version 16") as caught:
        alter_options(NAME, {"failover": True}, world.context)
    assert caught.value.code == "0A000"
    alter_options(NAME, {"failover": False, "two_phase": False}, world.context)
    drop_subscription(NAME, world.context)
    assert slots(old) == []


def test_s_100_12_drop_of_a_slot_that_never_was(
    database: Database, world: Around, twin: NativeTwin, make_database: Callable[..., Database]
) -> None:
    """D-4; and the way out, which leaves a slot of that name alone."""
    stmt = statement(NAME, connection=database.dsn, with_={"connect": False})
    create_subscription(stmt, world.context)
    with pytest.raises(ConnectionFailure, match=f'slot "{NAME}" does not exist') as caught:
        drop_subscription(NAME, world.context)
    native = make_database(twin.server, "alter_native")
    twin.subscribe(native, database, NAME, ["pub"], connect="false")
    with pytest.raises(psycopg.Error) as refused:
        native.execute(f"DROP SUBSCRIPTION {NAME}")
    native.run(f"ALTER SUBSCRIPTION {NAME} SET (slot_name = NONE)", f"DROP SUBSCRIPTION {NAME}")
    theirs = (refused.value.diag.message_primary or "").replace(": ERROR:  ", ": ")
    assert (caught.value.code, caught.value.primary) == (refused.value.sqlstate, theirs)
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (NAME,))
    alter_options(NAME, {"slot_name": None}, world.context)
    drop_subscription(NAME, world.context)
    assert (world.store.subscriptions(), slots(database)) == ([], [NAME])


def test_another_database_of_the_same_server(
    database: Database, make_database: Callable[..., Database], world: Around
) -> None:
    """Its positions fit, and its slot does; what is in it is not what was received."""
    other = make_database(database.server, "another")
    for each in (database, other):
        each.run("CREATE TABLE t (id int)", "CREATE PUBLICATION pub FOR TABLE t")
    create_subscription(statement(NAME, connection=database.dsn), world.context)
    other.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", ("there",))
    alter_connection(NAME, other.dsn, world.context)
    alter_options(NAME, {"slot_name": "there"}, world.context)
    with closing(connect(other.dsn, NAME)) as conn, pytest.raises(ReplicationGap) as caught:
        meet(conn, world)
    assert "leads to another database" in caught.value.primary
    assert f'It is database "{other.name}"' in (caught.value.detail or "")
    recopy_tables(NAME, [], world.context)
    with closing(connect(other.dsn, NAME)) as conn:
        meet(conn, world)
    drop_subscription(NAME, world.context)
    assert slots(other) == []


def test_a_database_that_was_renamed(
    database: Database, make_database: Callable[..., Database], world: Around
) -> None:
    old = make_database(database.server, "before")
    old.run("CREATE PUBLICATION pub")
    create_subscription(statement(NAME, connection=old.dsn), world.context)
    new = Database(old.server, f"{old.name}_after", old.schema)
    database.execute(f'ALTER DATABASE "{old.name}" RENAME TO "{new.name}"')
    alter_connection(NAME, new.dsn, world.context)
    with closing(connect(new.dsn, NAME)) as conn:
        meet(conn, world)
    drop_subscription(NAME, world.context)
    database.execute(f'ALTER DATABASE "{new.name}" RENAME TO "{old.name}"')  # to be dropped


def meet(conn: WalReceiverConn, world: Around) -> None:
    """What a worker does when it has connected."""
    (sub,) = world.store.subscriptions()
    at = world.store.origin_lsn(origin_name(sub.oid))
    identify_publisher(conn, world.store, sub, at)


def test_s_007_3_4_publications_and_their_tables(database: Database, world: Around) -> None:
    """S-007-3, S-007-4, H-25, H-38: names are names, and the refresh is of the whole list."""
    literal, identifier = QUOTED.replace("'", "''"), QUOTED.replace('"', '""')
    database.run(
        "CREATE TABLE one (id int PRIMARY KEY)",
        "CREATE TABLE both_have (id int PRIMARY KEY)",
        f'CREATE TABLE "{identifier}" (id int PRIMARY KEY)',
        "CREATE PUBLICATION pub FOR TABLE one, both_have",
        f'CREATE PUBLICATION "{identifier}" FOR TABLE "{identifier}", both_have',
    )
    assert database.value(f"SELECT count(*) FROM pg_publication WHERE pubname = '{literal}'") == 1
    sub = create_subscription(statement(NAME, connection=database.dsn), world.context)

    def tables() -> set[str]:
        return {rel.relname for rel in world.store.rels(sub.oid)}

    alter_publications(NAME, "add", [QUOTED], world.context, refresh=True, copy_data=True)
    assert tables() == {"one", "both_have", QUOTED}
    alter_publications(NAME, "drop", ["pub"], world.context, refresh=True, copy_data=True)
    assert tables() == {"both_have", QUOTED}
    world.notices.clear()
    alter_publications(NAME, "add", ["x", "y"], world.context, refresh=True, copy_data=True)
    assert world.said() == ['WARNING: publications "x", "y" do not exist on the publisher']
    alter_publications(NAME, "set", ["z"], world.context, refresh=True, copy_data=True)
    assert tables() == set()
    drop_subscription(NAME, world.context)


def test_s_030_7_8_the_origin_warning_is_about_new_tables(
    database: Database, make_database: Callable[..., Database], world: Around
) -> None:
    upstream = make_database(database.server, "upstream")
    for each in (database, upstream):
        each.run("CREATE TABLE t (id int)", 'CREATE TABLE "tab\'le" (id int)')
    upstream.run('CREATE PUBLICATION up FOR TABLE t, "tab\'le"')
    slot = f"up_{database.name}"
    upstream.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    options = f"slot_name = {slot}, create_slot = false, enabled = false"
    database.run(
        "CREATE PUBLICATION pub FOR TABLE t WITH (publish = insert)",
        f"CREATE SUBSCRIPTION {slot} CONNECTION '{upstream.dsn}' PUBLICATION up WITH ({options})",
    )
    stmt = statement(NAME, connection=database.dsn, with_={"origin": "none"})
    create_subscription(stmt, world.context)
    warned = f'WARNING: subscription "{NAME}" requested copy_data with origin = NONE but'
    assert sum(said.startswith(warned) for said in world.said()) == 1
    world.notices.clear()
    alter_refresh(NAME, world.context, copy_data=True)
    assert world.said() == []
    database.run('ALTER PUBLICATION pub ADD TABLE "tab\'le"')
    alter_refresh(NAME, world.context, copy_data=True)
    assert sum(said.startswith(warned) for said in world.said()) == 1
    drop_subscription(NAME, world.context)
    database.run(f"DROP SUBSCRIPTION {slot}")
