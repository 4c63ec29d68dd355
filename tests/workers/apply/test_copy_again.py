"""A table whose change cannot be followed is taken out and marked to be copied again."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from config.monitor_limits import ALL_TABLES_SECONDS
from tests.workers.apply.test_follow_schema import (
    WIDER,
    A,
    Publisher,
    die,
    publisher,
    remember,
    rows,
    shape,
    worker,
)
from tests.workers.subscribed import Subscribed
from tests.workers.text_questions import TextPublisher
from tests.workers.transactions import batch, relation, row
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.name_watch import NameWatch
from workers.apply.text_watch import TextWatch
from workers.process import failpoints
from workers.proto.messages import Insert, Message
from workers.publisher.changing_text import TextTypes

__all__ = ["publisher"]


def copied_once(world: Subscribed) -> None:
    """The rows of table ``a`` are those of a copy of relation 1."""
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, remote_relid=1)


REWRITTEN: list[Message] = [WIDER, Insert(1, row("3", "30", "300"))]


def test_what_cannot_be_followed_is_copied_again(world: Subscribed, publisher: Publisher) -> None:
    remember(world, publisher)
    copied_once(world)
    epoch = world.rel("a").epoch
    publisher.shape = shape("id", "v", "w", file=6)
    old: list[Message] = [A, Insert(1, row("2", "20"))]
    later: list[Message] = [WIDER, Insert(1, row("4", "40", "400"))]
    worker(world, publisher).apply_batch(batch(old, REWRITTEN, later, after=100))
    rel = world.rel("a")
    assert (rel.srsubstate, rel.suspended, rel.resuming, rel.recopy) == ("i", True, True, True)
    assert rel.suspend_lsn == LSN(300)
    assert rel.epoch != epoch
    assert [each["id"] for each in rows(world)] == [1, 2]
    (change,) = world.store.schema_changes()
    assert (change.lsn, change.copies, change.copied) == (LSN(300), True, None)
    assert "rewritten" in change.changes[0]


@pytest.mark.parametrize("place", [failpoints.SUSPENDING, failpoints.SUSPENDED])
def test_a_worker_that_dies_around_the_decision_is_followed_by_one_that_goes_on(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    remember(world, publisher)
    copied_once(world)
    publisher.shape = shape("id", "v", "w", file=6)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", lambda at: die() if at == place else None)
        with pytest.raises(KeyboardInterrupt):
            worker(world, publisher).apply_batch(batch(REWRITTEN, after=100))
    worker(world, publisher).apply_batch(batch(REWRITTEN, after=100))
    assert world.rel("a").resuming
    assert len(world.store.schema_changes()) == 1


def test_another_table_under_the_name_is_copied(world: Subscribed, publisher: Publisher) -> None:
    remember(world, publisher)
    copied_once(world)
    other = relation(9, "a", "id", "v")
    worker(world, publisher).apply_batch(batch([other, Insert(9, row("7", "70"))], after=100))
    assert world.rel("a").resuming
    assert [each["id"] for each in rows(world)] == [1]


def test_a_large_table_is_suspended_with_its_size(
    world: Subscribed, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    remember(world, publisher)
    copied_once(world)
    publisher.bytes = 30 * 2**30
    publisher.shape = shape("id", "v", "w", file=6)
    worker(world, publisher).apply_batch(batch(REWRITTEN, after=100))
    rel = world.rel("a")
    assert rel.awaits_resume
    assert rel.suspend_error is not None
    assert "too large to be copied again" in rel.suspend_error
    said = " ".join(f"{r.getMessage()} {r.__dict__.get('DETAIL', '')}" for r in caplog.records)
    assert "30 GB" in said
    assert "27 min" in said
    assert "pgsub resume mysub public.a" in " ".join(
        str(r.__dict__.get("HINT", "")) for r in caplog.records
    )


@pytest.mark.parametrize("options", [{"adopt": True}, {"columns": (("v", "v"),)}])
def test_a_copy_that_would_do_harm_or_not_help_is_left_to_the_user(
    world: Subscribed, publisher: Publisher, options: dict[str, Any]
) -> None:
    """Rows of an adopted table may be the lake's alone; the configuration names a column."""
    remember(world, publisher)
    copied_once(world)
    world.declare("a", **options)
    publisher.shape = shape("id", "x", "w", file=6)
    changed: list[Message] = [relation(1, "a", "id", "x", "w"), Insert(1, row("3", "30", "300"))]
    with pytest.raises(ReplicationError, match="cannot be followed"):
        worker(world, publisher).apply_batch(batch(changed, after=100))
    assert not world.rel("a").suspended


def test_another_table_is_copied_without_a_change_of_a_row(
    world: Subscribed, publisher: Publisher
) -> None:
    remember(world, publisher)
    copied_once(world)
    now = [0.0]
    watch = CatalogWatch(
        NameWatch(world.store, lambda _: {("public", "a"): 3}, lambda: now[0]),
        TextWatch(world.store, TextPublisher({1: TextTypes()}), lambda: now[0]),
    )
    applier = worker(world, publisher)
    applier.decided_lsn = LSN(700)
    applier.read_rels()
    watch.turn(applier)
    now[0] = ALL_TABLES_SECONDS
    watch.turn(applier)
    rel = world.rel("a")
    assert (rel.resuming, rel.suspend_lsn, rel.other_relid) == (True, LSN(700), None)
    assert applier.rels["public", "a"] == rel


def test_a_column_that_was_dropped_and_added_again(world: Subscribed, publisher: Publisher) -> None:
    remember(world, publisher)
    copied_once(world)
    now = [0.0]
    found = {1: TextTypes(numbers={"id": 1, "v": 2})}
    watch = CatalogWatch(
        NameWatch(world.store, lambda _: {}, lambda: now[0]),
        TextWatch(world.store, TextPublisher(found), lambda: now[0]),
    )
    applier = worker(world, publisher)
    applier.read_rels()
    watch.turn(applier)
    found[1] = TextTypes(numbers={"id": 1, "v": 3})
    now[0] = ALL_TABLES_SECONDS
    watch.turn(applier)
    assert world.rel("a").resuming
    (change,) = world.store.schema_changes()
    assert 'column "v" was dropped and added again' in change.changes[0]


def test_a_worker_that_dies_before_the_decision_leaves_the_change_to_its_successor(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event comes again: what is stored as told is never acted on."""
    remember(world, publisher)
    copied_once(world)
    now, found = [0.0], {1: TextTypes(numbers={"id": 1, "v": 2})}

    def live() -> None:
        watch = CatalogWatch(
            NameWatch(world.store, lambda _: {}, lambda: now[0]),
            TextWatch(world.store, TextPublisher(found), lambda: now[0]),
        )
        applier = worker(world, publisher)
        applier.read_rels()
        now[0] += ALL_TABLES_SECONDS
        watch.turn(applier)

    live()
    found[1] = TextTypes(numbers={"id": 1, "v": 3})
    with monkeypatch.context() as patch:
        patch.setattr(
            failpoints, "reach", lambda at: die() if at == failpoints.SUSPENDING else None
        )
        with pytest.raises(KeyboardInterrupt):
            live()
    assert not world.rel("a").resuming
    live()
    assert world.rel("a").resuming
