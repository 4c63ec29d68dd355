"""CREATE and check against real servers: what they refuse, and that nothing is left behind."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from config.guc import Settings
from config.subscription import CreateSubscriptionStmt
from subscriber.check import Checked, check_subscription
from subscriber.publisher import EmbeddedPublisher
from subscriber.real_site import connect_publisher
from subscriber.report import Notice
from subscriber.site import Site
from subscriber.subscriptioncmds import create_subscription, drop_subscription
from tests.fix_publisher import Database
from tests.subscriber.twins import Around, around, statement

pytestmark = pytest.mark.postgres

PASSWORD = "it's a \\ secret:"


@pytest.fixture(scope="module")
def closed() -> Iterator[EmbeddedPublisher]:
    """A server with passwords, one slot, and no logical decoding."""
    conf = {"wal_level": "replica", "max_replication_slots": 1}
    with EmbeddedPublisher(18, conf=conf, password=PASSWORD) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("CREATE PUBLICATION pub FOR TABLE t")
        yield server


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    made = around(tmp_path)
    object.__setattr__(made.site, "connect", connect_publisher)
    yield made
    made.store.close()


def refused(stmt: CreateSubscriptionStmt, world: Around) -> ReplicationError:
    """CREATE's error; and ``check`` lists at least that, so that nobody has to try."""
    with pytest.raises(ReplicationError) as caught:
        create_subscription(stmt, world.site)
    assert world.store.subscriptions() == []
    assert not list(world.site.data_dir.rglob("passfile/*"))
    assert not checked(stmt, world.site).ok
    assert PASSWORD not in caught.value.report()
    return caught.value


def checked(stmt: CreateSubscriptionStmt, site: Site) -> Checked:
    return check_subscription(stmt, site, Settings())


def texts(found: Checked) -> list[str]:
    return [f.primary for f in found.findings]


def quoted(server: EmbeddedPublisher, password: str = PASSWORD, **params: str) -> str:
    return server.conninfo(**params, password=password)


def test_wrong_password(closed: EmbeddedPublisher, world: Around) -> None:
    stmt = statement(connection=quoted(closed, "wrong"))
    error = refused(stmt, world)
    assert error.code == "08006"
    assert "password authentication failed" in (error.detail or "")


def test_wrong_database(closed: EmbeddedPublisher, world: Around) -> None:
    stmt = statement(connection=quoted(closed, dbname="nosuch"))
    assert 'database "nosuch" does not exist' in (refused(stmt, world).detail or "")


def test_unreachable(world: Around) -> None:
    error = refused(statement(connection="host=127.0.0.1 port=1"), world)
    assert error.code == "08006"


def test_wal_level(closed: EmbeddedPublisher, world: Around) -> None:
    stmt = statement(connection=quoted(closed))
    error = refused(stmt, world)
    assert error.code == "55000"
    assert "wal_level" in error.primary
    assert any("wal_level = replica" in text for text in texts(checked(stmt, world.site)))


def test_no_free_slot(database: Database, world: Around) -> None:
    with EmbeddedPublisher(18, conf={"max_replication_slots": 1}) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("CREATE PUBLICATION pub FOR TABLE t")
        server.execute("SELECT pg_create_physical_replication_slot('taken')")
        stmt = statement(connection=server.dsn)
        assert refused(stmt, world).code == "53400"
        assert "publisher has no free replication slots" in texts(checked(stmt, world.site))


def test_slot_exists(database: Database, world: Around) -> None:
    database.run("CREATE PUBLICATION pub FOR ALL TABLES")
    slot = f"s_{database.name}"
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    stmt = statement(connection=database.dsn, with_={"slot_name": slot})
    assert refused(stmt, world).code == "42710"
    count = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    assert database.value(count, (slot,)) == 1


def test_privileges(database: Database, world: Around) -> None:
    role = f"weak_{database.name}"
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub FOR TABLE t",
        f"CREATE ROLE {role} LOGIN",
    )
    stmt = statement(connection=database.server.conninfo(database.name, user=role))
    assert refused(stmt, world).code in ("42501", "08006")
    database.run(f"ALTER ROLE {role} REPLICATION")
    found = checked(stmt, world.site)
    assert [f.code for f in found.findings if isinstance(f, ReplicationError)] == ["42501"]
    assert 'permission denied for table "public.t"' in texts(found)
    database.run(f"GRANT SELECT ON t TO {role}")
    assert checked(stmt, world.site).ok
    database.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_create_and_drop_for_real(database: Database, world: Around) -> None:
    database.run(
        'CREATE TABLE "T t" (id int PRIMARY KEY, v text)',
        'CREATE PUBLICATION "it\'s" FOR TABLE "T t"',
    )
    slot = f"s_{database.name}"
    stmt = statement(
        connection=database.dsn, publication=["it's", "nosuch"], with_={"slot_name": slot}
    )
    assert checked(stmt, world.site).ok
    sub: Subscription = create_subscription(stmt, world.site)
    show = "SELECT plugin, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    assert database.execute(show, (slot,)) == [("pgoutput", str(sub.max_flush_lsn))]
    assert [rel.relname for rel in world.store.rels(sub.oid)] == ["T t"]
    assert world.said() == [
        'WARNING: publication "nosuch" does not exist on the publisher',
        f'NOTICE: created replication slot "{slot}" on publisher',
    ]
    again = checked(stmt, world.site)
    assert again.ok, again
    drop_subscription("mysub", world.site)
    assert database.execute(show, (slot,)) == []


def test_origin_none_warns_of_a_publisher_that_subscribes(
    database: Database, make_database: Callable[..., Database], world: Around
) -> None:
    upstream = make_database(database.server, "upstream")
    upstream.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION up FOR TABLE t")
    slot = f"up_{database.name}"
    upstream.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    options = f"slot_name = {slot}, create_slot = false, enabled = false"
    database.run(
        f"CREATE SUBSCRIPTION {slot} CONNECTION '{upstream.dsn}' PUBLICATION up WITH ({options})"
    )
    stmt = statement(
        connection=database.dsn, with_={"origin": "none", "slot_name": f"d_{database.name}"}
    )
    create_subscription(stmt, world.site)
    assert any("requested copy_data with origin = NONE" in text for text in world.said())
    drop_subscription("mysub", world.site)
    database.run(f"DROP SUBSCRIPTION {slot}")


def test_check_warns(world: Around) -> None:
    conf = {"max_slot_wal_keep_size": "1GB", "wal_sender_timeout": "5s", "max_wal_senders": 2}
    with EmbeddedPublisher(16, conf=conf) as server:
        server.execute("CREATE TABLE t (id int)")
        server.execute("CREATE PUBLICATION pub FOR TABLE t")
        found = checked(statement(connection=server.dsn), world.site)
        assert found.ok, found
        assert all(isinstance(finding, Notice) for finding in found.findings)
        assert texts(found) == [
            "publisher has 2 free WAL senders, 3 are needed while tables are synchronised",
            "publisher may invalidate a slot that is needed: max_slot_wal_keep_size = 1GB",
            "publisher's wal_sender_timeout (5s) is shorter than"
            " wal_receiver_status_interval (10s)",
            'table "public.t" has no replica identity and publishes updates or deletes',
        ]
