"""CREATE and check against real servers: what goes through, and what is warned of."""

from collections.abc import Callable

import pytest

from catalog.pg_subscription import Subscription
from config.guc import Settings
from subscriber.commands.check import check_subscription
from subscriber.commands.create_drop import create_subscription, drop_subscription
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.messages import Notice
from tests.fix_publisher import Database
from tests.subscriber.twins import Around, statement

pytestmark = pytest.mark.postgres

NAME = "goes_through"


def test_create_and_drop_for_real(each_database: Database, world: Around) -> None:
    database = each_database
    database.run('CREATE TABLE "T t" (id int PRIMARY KEY, v text)')
    database.run('CREATE PUBLICATION "it\'s" FOR TABLE "T t"')
    stmt = statement(NAME, connection=database.dsn, publication=["it's", "nosuch"])
    sub: Subscription = create_subscription(stmt, world.context)
    show = "SELECT plugin, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    assert database.execute(show, (NAME,)) == [("pgoutput", str(sub.max_flush_lsn))]
    assert [rel.relname for rel in world.store.rels(sub.oid)] == ["T t"]
    assert world.said() == [
        'WARNING: publication "nosuch" does not exist on the publisher',
        f'NOTICE: created replication slot "{NAME}" on publisher',
    ]
    drop_subscription(NAME, world.context)
    assert database.execute(show, (NAME,)) == []


def test_origin_none_warns_of_a_publisher_that_subscribes(
    each_database: Database, make_database: Callable[..., Database], world: Around
) -> None:
    database = each_database
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    upstream = make_database(database.server, "upstream")
    upstream.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION up FOR TABLE t")
    slot = f"up_{database.name}"
    upstream.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    options = f"slot_name = {slot}, create_slot = false, enabled = false"
    database.run(
        f"CREATE SUBSCRIPTION {slot} CONNECTION '{upstream.dsn}' PUBLICATION up WITH ({options})"
    )
    stmt = statement(NAME, connection=database.dsn, with_={"origin": "none"})
    create_subscription(stmt, world.context)
    assert any("requested copy_data with origin = NONE" in text for text in world.said())
    drop_subscription(NAME, world.context)
    database.run(f"DROP SUBSCRIPTION {slot}")


def test_check_goes_through(each_database: Database, world: Around) -> None:
    each_database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    stmt = statement(connection=each_database.dsn)
    found = check_subscription(stmt, world.context, Settings())
    assert (found.ok, found.findings) == (True, ())


def test_check_warns(world: Around) -> None:
    conf: dict[str, str | int] = {
        "max_slot_wal_keep_size": "1GB",
        "wal_sender_timeout": "5s",
        "max_wal_senders": 2,
    }
    with EmbeddedPublisher(16, conf=conf) as server:
        server.execute("CREATE TABLE t (id int)")
        server.execute("CREATE PUBLICATION pub FOR TABLE t")
        found = check_subscription(statement(connection=server.dsn), world.context, Settings())
        assert found.ok, found
        assert all(isinstance(finding, Notice) for finding in found.findings)
        assert [finding.primary for finding in found.findings] == [
            "publisher has 2 free WAL senders, 3 are needed while tables are synchronised",
            "publisher may invalidate a slot that is needed: max_slot_wal_keep_size = 1GB",
            "publisher's wal_sender_timeout (5s) is shorter than"
            " wal_receiver_status_interval (10s)",
            'table "public.t" has no replica identity and publishes updates or deletes',
        ]
