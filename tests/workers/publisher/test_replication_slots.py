"""ALTER_REPLICATION_SLOT as it is sent."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from workers.publisher.interfaces import Row
from workers.publisher.replication_slots import alter_slot


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
