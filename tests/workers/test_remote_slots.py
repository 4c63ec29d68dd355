"""Replication slots as servers of all versions show them."""

import pytest

from catalog.pg_lsn import LSN
from tests.workers.publisher.test_publications import ScriptedPublisher
from workers.publisher.interfaces import Row
from workers.publisher.replication_slots import RemoteSlot, fetch_slot, is_in_recovery

SOUND: Row = ("reserved", None, "false")


def fetched(*row: str | None) -> RemoteSlot | None:
    return fetch_slot(ScriptedPublisher(18, {"pg_replication_slots": [tuple(row)]}), "mysub")


def test_a_slot() -> None:
    slot = fetched("pgoutput", "logical", "shop", "t", "77", "0/19BD9E8", "shop", *SOUND)
    assert slot is not None
    assert (slot.active, slot.active_pid, slot.ours) == (True, 77, True)
    assert (slot.confirmed_flush_lsn, slot.invalidation) == (LSN.parse("0/19BD9E8"), None)
    assert fetch_slot(ScriptedPublisher(18, {}), "mysub") is None


@pytest.mark.parametrize(
    ("plugin", "kind", "database"),
    [
        ("test_decoding", "logical", "shop"),
        ("pgoutput", "logical", "other"),
        (None, "physical", None),
    ],
)
def test_a_slot_that_is_not_ours(plugin: str | None, kind: str, database: str | None) -> None:
    slot = fetched(plugin, kind, database, "f", None, None, "shop", *SOUND)
    assert slot is not None
    assert (slot.ours, slot.plugin, slot.database) == (False, plugin, database)


@pytest.mark.parametrize(
    ("validity", "invalidation"),
    [
        ((None, None, None), None),  # 10 to 12
        (("reserved", None, None), None),
        (("unreserved", None, None), None),
        (("lost", None, None), "wal_removed"),  # 13 to 15
        (("reserved", None, "true"), "recovery_conflict"),  # 16
        (("lost", "idle_timeout", "false"), "idle_timeout"),  # 17 and later
        (("reserved", "rows_removed", "true"), "rows_removed"),
    ],
)
def test_an_invalidated_slot(validity: Row, invalidation: str | None) -> None:
    slot = fetched("pgoutput", "logical", "shop", "f", None, "0/1", "shop", *validity)
    assert slot is not None
    assert slot.invalidation == invalidation


@pytest.mark.parametrize("standby", [True, False])
def test_a_standby(standby: bool) -> None:
    conn = ScriptedPublisher(18, {"pg_is_in_recovery": [("t" if standby else "f",)]})
    assert is_in_recovery(conn) is standby
