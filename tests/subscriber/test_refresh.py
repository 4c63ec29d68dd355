from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, DuplicateTable, FeatureNotSupported
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream, Subscription
from subscriber.refresh import bring_in_line
from subscriber.subscriptioncmds import create_subscription
from tests.subscriber.twins import Around, PublishedTable, WorkerTwin, around, statement
from workers.lake.destination import LakeIdent


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    made = around(tmp_path)
    create_subscription(statement(), made.site)
    made.notices.clear()
    made.wakes.clear()
    yield made
    made.store.close()
    assert made.publisher.connections == 0


def row(world: Around) -> Subscription:
    found = world.store.subscription_by_name("mysub")
    assert found is not None
    return found


def names(world: Around) -> list[tuple[str, str]]:
    return [(rel.relname, rel.srsubstate) for rel in world.store.rels(row(world).oid)]


def test_nothing_to_do(world: Around) -> None:
    before = row(world)
    assert bring_in_line(before, statement(), world.site) == before
    assert (row(world), world.said()) == (before, [])


def test_changed_options(world: Around) -> None:
    changed = bring_in_line(
        row(world),
        statement(
            connection="host=other",
            with_={"streaming": "off", "disable_on_error": True, "enabled": False},
            tables={"public.a": {"on_unrepresentable": "null"}},
        ),
        world.site,
    )
    assert changed == row(world)
    assert (changed.subconninfo, changed.substream, changed.subenabled) == (
        "host=other",
        Stream.OFF,
        False,
    )
    assert world.said() == [
        'NOTICE: subscription "mysub" was brought in line:'
        " conninfo, disableonerr, enabled, stream, tables"
    ]
    assert world.wakes


def test_enabled_is_left_alone_unless_said(world: Around) -> None:
    world.store.update_subscription(row(world).oid, subenabled=False)
    bring_in_line(row(world), statement(), world.site)
    assert not row(world).subenabled
    bring_in_line(row(world), statement(with_={"enabled": True}), world.site)
    assert row(world).subenabled


def test_new_password(world: Around) -> None:
    with_password = statement(connection="host=db dbname=shop password=one")
    first = bring_in_line(row(world), with_password, world.site).passfile
    assert bring_in_line(row(world), with_password, world.site).passfile == first
    second = statement(connection="host=db dbname=shop password=two")
    changed = bring_in_line(row(world), second, world.site).passfile
    assert first is not None
    assert changed is not None
    assert not Path(first).exists()
    assert Path(changed).read_text() == "*:*:*:*:two\n"
    assert bring_in_line(row(world), statement(), world.site).passfile is None
    assert not Path(changed).exists()


def test_tables_come_and_go(world: Around) -> None:
    world.publisher.tables = {"b": PublishedTable(), "c": PublishedTable()}
    bring_in_line(row(world), statement(), world.site)
    assert names(world) == [("b", "i"), ("c", "i")]
    assert world.said() == [
        'NOTICE: table "public.b" added to subscription "mysub"',
        'NOTICE: table "public.c" added to subscription "mysub"',
        'NOTICE: table "public.a" removed from "mysub"',
    ]


def test_table_added_without_copy(world: Around) -> None:
    world.store.update_subscription(row(world).oid, max_flush_lsn=LSN(500))
    world.store.origin_advance(f"pg_{row(world).oid}", LSN(400), "x")
    world.publisher.tables["b"] = PublishedTable()
    bring_in_line(row(world), statement(with_={"copy_data": False}), world.site)
    assert names(world) == [("a", "i"), ("b", "r")]
    stamp = world.lake.tables[LakeIdent("public", "b")].stamp
    assert stamp is not None
    assert (stamp.lsn, stamp.floor) == (LSN(500), LSN(500))
    assert world.store.rels(row(world).oid)[1].floor == LSN(500)


def test_worker_stands_still_while_a_table_joins_without_copy(world: Around) -> None:
    sub = row(world)
    world.publisher.tables["b"] = PublishedTable()
    running = [WorkerTwin(sub.oid)]
    world.workers[:] = [running, running, []]
    bring_in_line(sub, statement(with_={"copy_data": False}), world.site)
    assert world.workers == []
    assert row(world).subenabled
    assert len(world.wakes) == 3


def test_added_table_exists_in_the_lake(world: Around) -> None:
    world.lake.add("b")
    world.publisher.tables["b"] = PublishedTable()
    with pytest.raises(DuplicateTable):
        bring_in_line(row(world), statement(), world.site)
    assert names(world) == [("a", "i")]


def test_table_comes_back(world: Around) -> None:
    own = row(world).subuuid
    world.publisher.tables = {"b": PublishedTable()}
    bring_in_line(row(world), statement(), world.site)
    world.lake.add("a", owner=own)
    world.publisher.tables = {"a": PublishedTable(), "b": PublishedTable()}
    bring_in_line(row(world), statement(), world.site)
    assert names(world) == [("a", "i"), ("b", "i")]


def test_publication_publishes_something_else(world: Around) -> None:
    (rel,) = world.store.rels(row(world).oid)
    world.store.update_rel(rel.srsubid, rel.srrelid, copied=True)
    bring_in_line(row(world), statement(), world.site)
    assert world.store.rels(row(world).oid)[0].copied
    world.publisher.tables["a"].row_filter = "(id > 5)"
    bring_in_line(row(world), statement(), world.site)
    (rel,) = world.store.rels(row(world).oid)
    assert (rel.copied, rel.fingerprint) == (False, "iudt- OR (id > 5)")


def test_publisher_away(world: Around) -> None:
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    bring_in_line(row(world), statement(with_={"streaming": "on"}), world.site)
    assert row(world).substream is Stream.ON
    assert "were not refreshed: connection refused" in world.said()[-1]


@pytest.mark.parametrize(
    "keys",
    [
        {"with_": {"failover": True}},
        {"with_": {"slot_name": "other"}},
        {"tables": {"public.a": {"to": "x.y"}}},
    ],
)
def test_what_cannot_change(world: Around, keys: dict[str, Any]) -> None:
    before = row(world)
    with pytest.raises(FeatureNotSupported):
        bring_in_line(before, statement(**keys), world.site)
    assert row(world) == before
