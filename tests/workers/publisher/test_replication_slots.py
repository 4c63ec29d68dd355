"""Replication slots: read from servers of all versions, and altered."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.interfaces import Row
from workers.publisher.replication_slots import RemoteSlot, alter_slot, fetch_slot, is_in_recovery


class Conn:
    server_version = 18

    def __init__(self, error: ReplicationError | None = None) -> None:
        self.sent: list[str] = []
        self._error = error

    def exec(self, sql: str) -> list[Row]:
        self.sent.append(sql)
        if self._error is not None:
            raise self._error
        return []


@pytest.mark.parametrize(
    ("failover", "two_phase", "options"),
    [
        (True, None, "FAILOVER true"),
        (None, False, "TWO_PHASE false"),
        (False, True, "FAILOVER false, TWO_PHASE true"),
    ],
)
def test_what_is_sent(failover: bool | None, two_phase: bool | None, options: str) -> None:
    conn = Conn()
    alter_slot(conn, "my_slot", failover=failover, two_phase=two_phase)
    assert conn.sent == [f"ALTER_REPLICATION_SLOT my_slot ( {options} )"]


def test_the_publisher_refuses() -> None:
    conn = Conn(ReplicationError("it is active for PID 7", hint="Wait.", sqlstate="55006"))
    with pytest.raises(ReplicationError, match=r"could not alter .* on publisher: it is") as caught:
        alter_slot(conn, "s", failover=True)
    assert (caught.value.code, caught.value.hint) == ("08006", "Wait.")


SOUND: Row = ("reserved", None, "false")


def fetched(*row: str | None) -> RemoteSlot | None:
    return fetch_slot(ScriptedPublisher(18, {"pg_replication_slots": [tuple(row)]}), "mysub")


def test_a_slot() -> None:
    slot = fetched("pgoutput", "logical", "shop", "t", "77", "0/19BD9E8", "shop", *SOUND)
    assert slot is not None
    assert (slot.active, slot.active_pid, slot.is_pgoutput_here) == (True, 77, True)
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
    assert (slot.is_pgoutput_here, slot.plugin, slot.database) == (False, plugin, database)


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
