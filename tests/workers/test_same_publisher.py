"""Positions of one server are not compared with those of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.publication import RemoteSlot
from workers.same_publisher import check_publisher
from workers.walreceiver import SystemIdentity

SUB = Subscription(
    "mysub", "host=db", ("pub",), subslotname="mysub", sysid="1", max_flush_lsn=LSN(500)
)
REL = SubscriptionRel(1, 2, SubRelState.READY, None, "public", "t", "public", "t")
SERVER = SystemIdentity("1", 1, LSN(1000), "db")


def slot(confirmed: int) -> RemoteSlot:
    return RemoteSlot(active=False, active_pid=None, confirmed_flush_lsn=LSN(confirmed), ours=True)


@pytest.mark.parametrize("confirmed", [400, 500])
def test_where_it_was_left(confirmed: int) -> None:
    check_publisher(SUB, LSN(500), [REL], SERVER, slot(confirmed))
    check_publisher(replace(SUB, sysid=None), LSN(500), [], SERVER, None)


def test_a_slot_that_was_moved_on_by_somebody_else() -> None:
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        check_publisher(SUB, LSN(500), [REL], SERVER, slot(900))
    assert "0/384" in (caught.value.detail or "")
    assert "0/1F4" in (caught.value.detail or "")
    assert "pgsub drop" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("origin", "confirmed", "shown"), [(1001, 500, 0), (500, 1001, 0), (500, 500, 1001)]
)
def test_a_publisher_that_lags_behind_what_was_received(
    origin: int, confirmed: int, shown: int
) -> None:
    sub = replace(SUB, max_flush_lsn=LSN(confirmed))
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        check_publisher(sub, LSN(origin), [replace(REL, lake_lsn=LSN(shown))], SERVER, slot(400))
    assert "0/3E9 was received" in (caught.value.detail or "")


def test_another_server() -> None:
    with pytest.raises(ObjectNotInPrerequisiteState):
        check_publisher(replace(SUB, sysid="2"), LSN(0), [], SERVER, slot(400))
