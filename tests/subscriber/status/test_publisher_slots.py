"""Answers about slots; a frozen publisher delays no scrape and has one thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.monitor_limits import (
    SLOT_FRESH_SECONDS,
)
from subscriber.status import publisher_slots
from subscriber.status.publisher_slots import PublisherSlots, SlotAnswer, ask_publisher
from tests.fix_publisher import Database
from tests.subscriber.status.subscribed import subscribed
from tests.waiting import wait_until
from tests.workers.maintained import Clock
from workers.publisher.slot_lag import SlotLag

LAG = SlotLag(True, 42)


@pytest.fixture
def sub(store: CatalogStore) -> Subscription:
    return replace(subscribed(store)[0], subslotname="mysub")


@pytest.fixture
def frozen() -> Iterator[threading.Event]:
    """Set at the end, so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


def test_the_answer_of_a_publisher_is_there_at_once(sub: Subscription) -> None:
    found = PublisherSlots(lambda _: LAG, Clock()).answers([sub])
    assert found == {sub.oid: SlotAnswer(True, LAG, 100.0)}


def test_only_enabled_subscriptions_with_a_slot_are_asked(sub: Subscription) -> None:
    asked: list[str] = []
    slots = PublisherSlots(lambda each: asked.append(each.subname))
    others = [
        replace(sub, oid=1, subenabled=False),
        replace(sub, oid=2, subslotname=None),
        replace(sub, oid=3, subcreate=SubCreate.DROPPING),
    ]
    assert slots.answers(others) == {}
    assert not asked


def test_a_publisher_that_is_away_is_an_answer_without_a_lag(sub: Subscription) -> None:
    def fail(_: Subscription) -> None:
        raise ConnectionFailure("could not connect")

    found = PublisherSlots(fail, Clock()).answers([sub])
    assert found == {sub.oid: SlotAnswer(False, None, 100.0)}


def test_a_frozen_publisher_delays_nobody_and_is_asked_once(
    sub: Subscription, frozen: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_slots, "SLOT_WAIT_SECONDS", 0.01)
    other = replace(sub, oid=sub.oid + 1)
    asked: list[int] = []

    def ask(each: Subscription) -> SlotLag:
        asked.append(each.oid)
        if each.oid == sub.oid:
            frozen.wait()
        return LAG

    slots = PublisherSlots(ask)
    for _ in range(100):
        slots.answers([sub, other])
    assert asked.count(sub.oid) == 1
    assert asked.count(other.oid) > 1
    wait_until(lambda: slots.answers([sub, other]).keys() == {other.oid}, 10)
    frozen.set()
    wait_until(lambda: slots.answers([sub, other]).keys() == {sub.oid, other.oid}, 10)


def test_an_old_answer_is_dropped(
    sub: Subscription, frozen: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lag of an hour ago would look like a healthy one."""
    monkeypatch.setattr(publisher_slots, "SLOT_WAIT_SECONDS", 0.0)
    clock, blocked = Clock(), False

    def ask(_: Subscription) -> SlotLag:
        if blocked:
            frozen.wait()
        return LAG

    slots = PublisherSlots(ask, clock)
    wait_until(lambda: slots.answers([sub]), 10)
    wait_until(lambda: not slots._asking[sub.oid].is_alive(), 10)
    blocked = True
    clock.now += SLOT_FRESH_SECONDS / 2
    assert slots.answers([sub])
    wait_until(lambda: slots._asking[sub.oid].is_alive(), 10)
    clock.now += SLOT_FRESH_SECONDS
    assert not slots.answers([sub])


@pytest.mark.postgres
def test_a_slot_of_a_real_publisher(database: Database, sub: Subscription) -> None:
    slot = f"{database.name}_slot"
    there = replace(sub, subconninfo=database.dsn, subslotname=slot)
    assert ask_publisher(there, Settings()) is None
    database.run(
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        "CREATE TABLE t AS SELECT generate_series(1, 1000)",
    )
    found = ask_publisher(there, Settings())
    assert found is not None
    assert (found.active, found.wal_status) == (False, "reserved")
    behind = database.value(
        "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots"
        f" WHERE slot_name = '{slot}'"
    )
    assert 0 < found.lag_bytes <= behind
    senders = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mysub metrics'"
    wait_until(lambda: database.value(senders) == 0, 10)
