"""``password_required``, where the owner of subscriptions is no superuser.

Natively the role ``regress_nosuper``; here the setting ``is_superuser = off``. Both ask a server
that wants a password, under an environment that has one.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import SubCreate, Subscription
from config.load import from_stored
from subscriber.altercmds import alter_connection, alter_options, alter_refresh
from subscriber.publisher import EmbeddedPublisher
from subscriber.subscriptioncmds import create_subscription
from tests.fix_publisher import Database, new_database
from tests.subscriber.twins import Around, statement

pytestmark = pytest.mark.postgres

PASSWORD = "regress_secret"


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
        lambda: alter_refresh("mysub", world.site, copy_data=True),
        lambda: alter_connection("mysub", conninfo, world.site),
        lambda: create_subscription(statement("another", connection=conninfo), world.site),
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
    alter_connection("mysub", f"{conninfo} password={PASSWORD}", world.site)
    alter_refresh("mysub", world.site, copy_data=True)
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
            create_subscription(statement(connection=conninfo), world.site)
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
        lambda: create_subscription(free, world.site),
        lambda: alter_options("mysub", {"binary": True}, world.site),
        lambda: alter_refresh("mysub", world.site, copy_data=True),
    ):
        with pytest.raises(ReplicationError) as refused:
            command()
        assert said(refused.value) == theirs
    world.store.update_subscription(sub.oid, subpasswordrequired=True)
    with pytest.raises(ReplicationError) as refused:
        alter_options("mysub", {"password_required": False}, world.site)
    assert said(refused.value) == theirs
