"""PostgreSQL's checks by their codes (A-2 to A-13), its words and its order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream, Subscription, TwoPhaseState
from config.statements import PublicationAction
from subscriber.commands.alter_rules import (
    check_enable,
    check_refresh,
    check_role,
    check_skip,
    merge_publications,
    options_change,
)

ON = Subscription("mysub", "host=db", ("one", "two"), subslotname="slot")
OFF = replace(ON, subenabled=False)
BARE = replace(OFF, subslotname=None)
PREPARES = replace(ON, subtwophasestate=TwoPhaseState.ENABLED)


def change(
    sub: Subscription, *, running: bool = False, prepared: bool = False, **options: Any
) -> Any:
    return options_change(sub, options, running=lambda: running, prepared=lambda: prepared)


@pytest.mark.parametrize(
    ("sub", "options", "running", "code", "said"),
    [
        #
        (ON, {"slot_name": None}, False, "55000", "cannot set slot_name = NONE for enabled"),
        #
        (ON, {"failover": True}, False, "55000", 'cannot set option "failover" for enabled'),
        (ON, {"failover": False}, False, "55000", 'cannot set option "failover" for enabled'),
        (ON, {"two_phase": True}, False, "55000", 'cannot set option "two_phase" for enabled'),
        (ON, {"two_phase": False}, False, "55000", 'cannot set option "two_phase" for enabled'),
        #
        (BARE, {"failover": True}, False, "55000", "does not have a slot name"),
        (BARE, {"two_phase": False}, False, "55000", "does not have a slot name"),
        # A-5, and that A-4 comes first
        (OFF, {"two_phase": False, "slot_name": "x"}, False, "42601", "at the same time"),
        (BARE, {"two_phase": False, "slot_name": "x"}, False, "55000", "not have a slot name"),
        #
        (OFF, {"two_phase": False}, True, "55000", "worker is still running"),
        (OFF, {"two_phase": True}, True, "55000", "worker is still running"),
        (BARE, {"two_phase": True}, True, "55000", "worker is still running"),
        (BARE, {"two_phase": True, "failover": True}, False, "55000", '"failover" for a sub'),
        #
        (ON, {"create_slot": False}, False, "42601", 'subscription parameter: "create_slot"'),
        (ON, {"connect": False}, False, "42601", 'subscription parameter: "connect"'),
        (ON, {"enabled": False}, False, "42601", 'subscription parameter: "enabled"'),
        (ON, {"copy_data": False}, False, "42601", 'subscription parameter: "copy_data"'),
    ],
)
def test_options_that_are_refused(
    sub: Subscription, options: dict[str, Any], running: bool, code: str, said: str
) -> None:
    with pytest.raises(ReplicationError, match=said) as caught:
        change(sub, running=running, **options)
    assert caught.value.code == code


def test_options_become_columns() -> None:
    found = change(ON, streaming=Stream.OFF, slot_name="other", origin="none")
    columns = {"substream": Stream.OFF, "subslotname": "other", "suborigin": "none"}
    assert (found.columns, found.concerns_slot) == (columns, False)
    assert change(OFF, slot_name=None).columns == {"subslotname": None}


def test_options_of_the_slot() -> None:
    found = change(OFF, failover=True)
    assert (found.columns, found.failover, found.two_phase) == ({"subfailover": True}, True, None)
    found = change(OFF, two_phase=False)
    assert found.columns == {"subtwophasestate": TwoPhaseState.DISABLED}
    assert (found.failover, found.two_phase, found.concerns_slot) == (None, False, True)


@pytest.mark.parametrize("sub", [OFF, BARE], ids=["with slot", "without slot"])
def test_two_phase_is_pending_at_first(sub: Subscription) -> None:
    """The worker turns on the slot's property, once every table is ready."""
    found = change(sub, two_phase=True, prepared=True)
    assert found.columns == {"subtwophasestate": TwoPhaseState.PENDING}
    assert (found.two_phase, found.concerns_slot, found.needs_rest) == (None, False, True)


@pytest.mark.parametrize("state", [TwoPhaseState.PENDING, TwoPhaseState.ENABLED])
def test_two_phase_stays_while_transactions_are_prepared(state: TwoPhaseState) -> None:
    """A-7"""
    sub = replace(OFF, subtwophasestate=state)
    with pytest.raises(ReplicationError, match="when prepared transactions exist") as caught:
        change(sub, two_phase=False, prepared=True)
    assert caught.value.code == "55000"
    assert change(sub, two_phase=False).two_phase is False
    assert change(OFF, two_phase=False, prepared=True).two_phase is False


def test_publications_are_set_added_and_dropped() -> None:
    assert merge_publications(ON, "set", ["three"]) == ("three",)
    assert merge_publications(ON, "add", ["three", "four"]) == ("one", "two", "three", "four")
    assert merge_publications(ON, "drop", ["one"]) == ("two",)


@pytest.mark.parametrize(
    ("action", "named", "code", "said"),
    [
        ("set", ["x", "x"], "42710", 'publication name "x" used more than once'),
        ("add", ["x", "x"], "42710", 'publication name "x" used more than once'),
        ("drop", ["one", "one"], "42710", 'publication name "one" used more than once'),
        ("add", ["x", "two"], "42710", 'publication "two" is already in subscription "mysub"'),
        ("drop", ["one", "x"], "42P17", 'publication "x" is not in subscription "mysub"'),
        ("drop", ["two", "one"], "42P17", "cannot drop all the publications from a subscription"),
    ],
)
def test_publications_that_are_refused(
    action: PublicationAction, named: list[str], code: str, said: str
) -> None:
    """A-12."""
    with pytest.raises(ReplicationError, match=said) as caught:
        merge_publications(ON, action, named)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("sub", "action", "code", "said", "hint"),
    [
        #
        (OFF, None, "55000", "REFRESH is not allowed for disabled", "pgsub enable mysub"),
        (OFF, "set", "55000", "with refresh is not allowed", "SET PUBLICATION ... WITH (refresh"),
        (OFF, "add", "55000", "with refresh is not allowed", "ADD PUBLICATION ... WITH (refresh"),
        (OFF, "drop", "55000", "with refresh is not allowed", "DROP PUBLICATION ... WITH (ref"),
        #
        (PREPARES, None, "42601", "REFRESH with copy_data is not allowed", "copy_data = false"),
        (PREPARES, "add", "55000", "and copy_data is not allowed", "ADD PUBLICATION with refresh"),
        # A-9 comes before A-10
        (replace(PREPARES, subenabled=False), None, "55000", "for disabled", "pgsub enable"),
    ],
)
def test_refreshes_that_are_refused(
    sub: Subscription, action: PublicationAction | None, code: str, said: str, hint: str
) -> None:
    with pytest.raises(ReplicationError, match=said) as caught:
        check_refresh(sub, action, copy_data=True)
    assert caught.value.code == code
    assert hint in (caught.value.hint or "")


def test_a_refresh_without_copy_goes_with_two_phase() -> None:
    check_refresh(PREPARES, None, copy_data=False)
    check_refresh(PREPARES, "set", copy_data=False)


def test_where_a_transaction_to_skip_may_finish() -> None:
    """A-13: equal to the origin is allowed, as the next commit record may start there."""
    assert check_skip(None, LSN(500)) == LSN(0)
    assert check_skip(LSN(500), LSN(500)) == LSN(500)
    assert check_skip(LSN(5), LSN(0)) == LSN(5)
    for lsn, said in ((LSN(0), "invalid WAL location"), (LSN(499), "must be greater than origin")):
        with pytest.raises(ReplicationError, match=said) as caught:
            check_skip(lsn, LSN(500))
        assert caught.value.code == "22023"


def test_enable_needs_a_slot() -> None:
    """A-8."""
    check_enable(OFF)
    with pytest.raises(ReplicationError, match="does not have a slot name") as caught:
        check_enable(BARE)
    assert caught.value.code == "55000"


def test_there_is_one_role() -> None:
    check_role(None)
    check_role("postgres")
    with pytest.raises(ReplicationError, match='role "alice" does not exist') as caught:
        check_role("alice")
    assert caught.value.code == "42704"
