"""Which leaked slot a command may drop, and through which connection string."""

from __future__ import annotations

from dataclasses import replace

from catalog.leaked_slot import leaked_slot
from catalog.pg_subscription import Subscription, sync_slot_name

SUB = Subscription("mysub", "host=a", ("pub",), oid=16406, sysid="7000", datoid=5)
MOVED = replace(SUB, subconninfo="host=b")
MAIN_SLOT = leaked_slot(SUB, "mysub", "could not connect")
SYNC_SLOT = leaked_slot(SUB, sync_slot_name(16406, 16399, "7329764006882527550"), "in use")


def test_a_message_names_the_slot_and_the_reason() -> None:
    assert MAIN_SLOT.stays == ('replication slot "mysub" stays on the publisher: could not connect')


def test_only_a_sync_slot_has_a_number_of_its_own() -> None:
    assert SYNC_SLOT.has_subscription_number
    assert not MAIN_SLOT.has_subscription_number


def test_a_sync_slot_is_dropped_through_any_connection_string() -> None:
    assert SYNC_SLOT.is_dropped_through(SUB)
    assert SYNC_SLOT.is_dropped_through(MOVED)


def test_a_main_slot_is_dropped_through_the_old_connection_string_only() -> None:
    assert MAIN_SLOT.is_dropped_through(SUB)
    assert MAIN_SLOT.is_on(MOVED)
    assert not MAIN_SLOT.is_dropped_through(MOVED)


def test_another_server_or_database_has_no_such_slot() -> None:
    assert not SYNC_SLOT.is_on(replace(SUB, sysid="7001"))
    assert not SYNC_SLOT.is_on(replace(SUB, datoid=6))
    assert replace(SYNC_SLOT, datoid=None).is_on(replace(SUB, datoid=6))


def test_without_a_system_identifier_the_connection_string_decides() -> None:
    unknown = leaked_slot(replace(SUB, sysid=None), SYNC_SLOT.slot_name, "")
    assert unknown.sysid == ""
    assert unknown.is_on(SUB)
    assert not unknown.is_on(MOVED)
    assert not SYNC_SLOT.is_on(replace(MOVED, sysid=None))
