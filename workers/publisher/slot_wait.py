"""Say what the creation of a replication slot waits for.

A logical slot begins where no older transaction runs. So the publisher waits for the end of every
transaction that had changed something before, also of an idle or a prepared one. The walsender
answers nothing meanwhile; a second connection looks at the lock that the walsender waits for.

Trace: session 4711 has inserted a row and is idle. CREATE_REPLICATION_SLOT waits for transaction
735. After some seconds, and then once a minute, the second connection finds the lock and the
holder: "transaction 735 of PID 4711 (psql), open for 3600 s".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from workers.publisher.connect import connect_beside
from workers.publisher.connection import WalReceiverConn
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import query, to_text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitedTransaction:
    """A transaction that a slot's creation waits for: of a session, or prepared.

    ``seconds`` is None if the role may not see the session's times.
    """

    xid: str
    pid: int | None
    application: str | None
    gid: str | None
    seconds: int | None

    def __str__(self) -> str:
        if self.gid is not None:
            whose = f"prepared transaction {self.xid} ('{self.gid}')"
        elif self.pid is None:
            whose = f"transaction {self.xid}"
        else:
            name = f" ({self.application})" if self.application else ""
            whose = f"transaction {self.xid} of PID {self.pid}{name}"
        return whose if self.seconds is None else f"{whose}, open for {self.seconds} s"


def fetch_waited_transactions(conn: QueryConn, pid: int) -> list[WaitedTransaction]:
    """The transactions whose end the backend ``pid`` waits for; empty if there is none."""
    return [
        WaitedTransaction(
            to_text(row[0]),
            None if row[1] is None else int(row[1]),
            row[2],
            row[3],
            None if row[4] is None else int(row[4]),
        )
        for row in conn.exec(query("waited_transactions", pid=str(pid)))
    ]


@contextmanager
def telling_waits(
    sub: Subscription, conn: object, slot: str, tell: Callable[[str], None]
) -> Iterator[None]:
    """Call ``tell`` from time to time with what the creation of ``slot`` on ``conn`` waits for."""
    if not isinstance(conn, WalReceiverConn):
        yield
        return

    def look() -> None:
        with suppress(ReplicationError):  # the look is a service: the creation goes on
            beside = connect_beside(sub, conn, lambda: False)
            try:
                found = fetch_waited_transactions(beside, conn.pgconn.backend_pid)
            finally:
                beside.close()
            for each in found:
                log.info("action=slot_waits slot=%s for %s", slot, each)
                tell(f'replication slot "{slot}" waits for the end of {each}')

    conn.on_wait = look
    try:
        yield
    finally:
        conn.on_wait = None
