"""Positions of one server are not compared with those of another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.publisher.interfaces import SystemIdentity
from workers.publisher.replication_slots import RemoteSlot
from workers.publisher.same_server import check_publisher, highest_lsn, judge_server, start_position
from workers.publisher.timeline import TimeLineHistory, TimeLineHistoryEntry

SUB = Subscription(
    "my sub",
    "host=db",
    ("pub",),
    subslotname="mysub",
    sysid="1",
    timeline=2,
    datoid=16384,
    max_flush_lsn=LSN(500),
)
REL = SubscriptionRel(1, 2, SubRelState.READY, None, "public", "t", "public", "t")
SERVER = SystemIdentity("1", 2, LSN(1000), "db", 16384)
HINT = (
    "Copy the tables again with pgsub refresh 'my sub' --recopy, or go on without what is missing "
    "with pgsub accept-gap 'my sub'."
)


def slot(confirmed: int, **columns: Any) -> RemoteSlot:
    return replace(RemoteSlot(False, None, LSN(confirmed), is_pgoutput_here=True), **columns)


def history(**left: int) -> TimeLineHistory:
    """``t2=500``: timeline 2 was left at 500."""
    return tuple(TimeLineHistoryEntry(int(name[1:]), LSN(lsn)) for name, lsn in left.items())


def refused(
    sub: Subscription,
    identity: SystemIdentity = SERVER,
    found: RemoteSlot | None = None,
    timelines: TimeLineHistory = (),
    highest: int = 500,
) -> str:
    """The DETAIL."""
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        check_publisher(sub, LSN(highest), identity, timelines, found or slot(400))
    assert caught.value.code == "55000"
    assert (caught.value.hint or "").endswith(HINT)
    return f"{caught.value.primary}. {caught.value.detail}"


@pytest.mark.parametrize("confirmed", [400, 500])
def test_where_it_was_left(confirmed: int) -> None:
    check_publisher(SUB, LSN(500), SERVER, (), slot(confirmed))
    check_publisher(SUB, LSN(1000), SERVER, (), None)
    check_publisher(replace(SUB, sysid=None, timeline=None), LSN(500), SERVER, (), None)


def test_the_highest_position_is_of_whatever_stands_furthest() -> None:
    assert highest_lsn(SUB, LSN(7), []) == 500
    assert highest_lsn(SUB, LSN(501), [REL]) == 501
    ahead = replace(REL, lake_lsn=LSN(600))
    assert highest_lsn(SUB, LSN(501), [REL, ahead]) == 600
    assert highest_lsn(SUB, LSN(501), [REL, replace(ahead, suspend_time=1)]) == 501


# The server


@pytest.mark.parametrize("highest", [1001, 5000])
def test_a_publisher_that_lags_behind_what_was_received(highest: int) -> None:
    said = refused(SUB, highest=highest)
    assert f"from 0/3E8 to {LSN(highest)}" in said


def test_another_server() -> None:
    assert "identifier is 1, expected 2" in refused(replace(SUB, sysid="2"))
    # Its timelines and positions are compared with nothing.
    assert judge_server(replace(SUB, sysid="2"), LSN(5000), SERVER, history(t2=10)) is not None


def test_another_database() -> None:
    """Its positions fit, and so does the slot that was made there."""
    said = refused(SUB, replace(SERVER, dbname="other", datoid=16385))
    assert 'It is database "other" (OID 16385), expected OID 16384' in said
    misfit = judge_server(SUB, LSN(500), replace(SERVER, datoid=16385), ())
    assert misfit is not None
    assert misfit.fork is None


def test_a_database_that_was_renamed_or_is_not_known_yet() -> None:
    check_publisher(SUB, LSN(500), replace(SERVER, dbname="new"), (), slot(400))
    check_publisher(replace(SUB, datoid=None), LSN(500), SERVER, (), slot(400))


def test_an_older_timeline() -> None:
    said = refused(SUB, replace(SERVER, timeline=1))
    assert "It is on timeline 1; 0/1F4 was received on timeline 2." in said


@pytest.mark.parametrize("switch", [500, 501, 900])
def test_a_standby_that_had_everything_took_over(switch: int) -> None:
    promoted = replace(SERVER, timeline=3)
    check_publisher(SUB, LSN(500), promoted, history(t1=100, t2=switch), slot(400))
    later = replace(SERVER, timeline=7)
    check_publisher(SUB, LSN(500), later, history(t1=100, t2=switch, t5=950), slot(400))


@pytest.mark.parametrize("switch", [499, 0])
def test_a_standby_that_lagged_behind_took_over(switch: int) -> None:
    """Though it stands beyond our position by now."""
    said = refused(SUB, replace(SERVER, timeline=3), timelines=history(t1=100, t2=switch))
    assert f"committed from {LSN(switch)} to 0/1F4 is in the lake and not on it" in said
    misfit = judge_server(SUB, LSN(500), replace(SERVER, timeline=3), history(t2=switch))
    assert misfit is not None
    assert misfit.fork == switch


@pytest.mark.parametrize("timelines", [(), history(t1=900)])
def test_a_timeline_that_does_not_go_on_from_ours(timelines: TimeLineHistory) -> None:
    said = refused(SUB, replace(SERVER, timeline=3), timelines=timelines)
    assert "Timeline 2, on which 0/1F4 was received, is not in the history" in said


def test_a_subscription_that_has_no_timeline_yet_takes_any() -> None:
    check_publisher(replace(SUB, timeline=None), LSN(500), SERVER, (), slot(400))


# The slot


def test_a_slot_that_was_moved_on_by_somebody_else() -> None:
    said = refused(SUB, found=slot(900))
    assert "from 0/1F4 to 0/384 cannot be had any more" in said
    check_publisher(replace(SUB, max_flush_lsn=LSN(0)), LSN(0), SERVER, (), slot(900))


def test_a_slot_that_was_invalidated() -> None:
    said = refused(SUB, found=slot(400, invalidation="idle_timeout"))
    assert 'slot "mysub" was invalidated. The publisher gives idle_timeout as the reason.' in said
    assert "after 0/1F4" in said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            slot(400, is_pgoutput_here=False, plugin="wal2json", database="db"),
            'of wal2json in database "db"',
        ),
        (
            slot(400, is_pgoutput_here=False, plugin="pgoutput", database="x"),
            'of pgoutput in database "x"',
        ),
        (slot(0, is_pgoutput_here=False, confirmed_flush_lsn=None), "of no plugin in no database"),
    ],
)
def test_a_slot_that_is_not_ours(found: RemoteSlot, said: str) -> None:
    assert said in refused(SUB, found=found)


# Where to begin


def synced(floor: int, state: SubRelState = SubRelState.READY) -> SubscriptionRel:
    return replace(REL, floor=LSN(floor), srsubstate=state)


@pytest.mark.parametrize(
    ("rels", "start"),
    [
        ([], 500),
        ([synced(700)], 500),
        ([synced(300), synced(700)], 300),
        ([synced(300, SubRelState.SYNCDONE)], 300),
        ([synced(0, SubRelState.INIT), synced(0, SubRelState.DATASYNC)], 500),
    ],
)
def test_the_stream_is_asked_for_from_the_lowest_floor(
    rels: list[SubscriptionRel], start: int
) -> None:
    assert start_position(LSN(500), rels) == start
