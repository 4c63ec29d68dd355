from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, DuplicateTable, FeatureNotSupported, ObjectInUse
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream, Subscription
from subscriber.refresh import bring_in_line, refresh_publication
from subscriber.subscriptioncmds import create_subscription
from tests.subscriber.twins import (
    Around,
    LakeTwin,
    PublishedTable,
    WorkerTwin,
    around,
    statement,
)
from workers.lake.destination import LakeIdent, LakeTable


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
    assert world.events == []


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


def test_a_change_returns_when_the_workers_go_by_it(world: Around) -> None:
    bring_in_line(row(world), statement(with_={"streaming": "off"}), world.site)
    assert world.events == ["take effect"]
    world.workers[:] = [[WorkerTwin(row(world).oid)], []]
    bring_in_line(row(world), statement(with_={"enabled": False}), world.site)
    assert world.workers == []
    assert world.events == ["take effect"]


def test_a_worker_that_is_late_is_a_warning(world: Around) -> None:
    def late(_subid: int) -> None:
        raise ObjectInUse("a worker has not come to a batch boundary in time", hint="It will.")

    object.__setattr__(world.site, "take_effect", late)
    bring_in_line(row(world), statement(with_={"streaming": "off"}), world.site)
    assert world.said()[-1] == "WARNING: a worker has not come to a batch boundary in time"
    world.publisher.tables["b"] = PublishedTable()
    with pytest.raises(ObjectInUse):
        refresh_publication(
            row(world), world.publisher.connect(row(world)), world.site, copy_data=True
        )
    world.publisher.close()


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
    (gone,) = world.store.rels(row(world).oid)
    world.publisher.tables = {"b": PublishedTable(), "c": PublishedTable()}
    bring_in_line(row(world), statement(), world.site)
    assert names(world) == [("b", "i"), ("c", "i")]
    assert world.events == [f"stop {gone.srrelid}", "take effect"]
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


def test_no_worker_runs_while_a_table_joins_without_copy(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publisher.tables["b"] = PublishedTable()
    create_table = LakeTwin.create_table

    def look(lake: LakeTwin, *args: Any, **keys: Any) -> LakeTable:
        assert world.events == ["hold"]
        assert row(world).subenabled  # what is stored stays as it is: a crash needs no repair
        return create_table(lake, *args, **keys)

    monkeypatch.setattr(LakeTwin, "create_table", look)
    bring_in_line(row(world), statement(with_={"copy_data": False}), world.site)
    assert world.events == ["hold", "let go", "take effect"]


class Killed(BaseException):
    """Stands for SIGKILL."""


def test_killed_while_a_table_joins_without_copy(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publisher.tables["b"] = PublishedTable()
    no_copy = statement(with_={"copy_data": False})
    with monkeypatch.context() as patch:
        patch.setattr(LakeTwin, "create_table", _made_and_killed)
        with pytest.raises(Killed):
            bring_in_line(row(world), no_copy, world.site)
    assert names(world) == [("a", "i")]  # no row that no lake table stands behind
    assert row(world).subenabled
    assert LakeIdent("public", "b") in world.lake.tables
    bring_in_line(row(world), no_copy, world.site)
    assert names(world) == [("a", "i"), ("b", "r")]
    stamp = world.lake.tables[LakeIdent("public", "b")].stamp
    rel = world.store.rels(row(world).oid)[1]
    assert stamp is not None
    assert (stamp.epoch, stamp.lsn) == (rel.epoch, rel.lake_lsn)


def _made_and_killed(
    lake: LakeTwin, ident: LakeIdent, columns: Any, *, owner: str, **_: Any
) -> Any:
    lake.tables[ident] = LakeTable(ident, tuple(columns), owner, 1, None)
    raise Killed


def test_added_table_cannot_be_read(world: Around) -> None:
    world.publisher.tables["b"] = PublishedTable(readable=False)
    bring_in_line(row(world), statement(), world.site)
    assert names(world) == [("a", "i"), ("b", "i")]
    assert 'WARNING: permission denied for table "public.b"' in world.said()


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
    assert (rel.copied, (rel.fingerprint or "")[:17]) == (False, "iudt- OR (id > 5)")


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
        {"tables": {"public.a": {"shared": True}}},
    ],
)
def test_what_cannot_change(world: Around, keys: dict[str, Any]) -> None:
    before = row(world)
    with pytest.raises(FeatureNotSupported):
        bring_in_line(before, statement(**keys), world.site)
    assert row(world) == before
