"""Two sessions of a workload, on a publisher that faults may restart."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import psycopg
from psycopg import sql

from tests.fix_publisher import Database
from tests.waiting import wait_until

_LOCK_TIMEOUT: Final = "50ms"


class Sessions:
    """Two connections of a workload, made anew after the publisher ended them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connections: list[psycopg.Connection | None] = [None, None]

    def execute(self, session: int, statement: str) -> str | None:
        """Run one; the name of the error if it failed. Waits for a publisher that restarts."""
        try:
            self._get(session).execute(sql.SQL(statement))
        except psycopg.Error as error:
            return type(error).__name__
        return None

    def finish(self) -> None:
        """Commit what is open."""
        for session in (0, 1):
            self.execute(session, "COMMIT")

    def close(self) -> None:
        """End both; what is open is undone."""
        for connection in self._connections:
            if connection is not None:
                connection.close()

    def _get(self, session: int) -> psycopg.Connection:
        connection = self._connections[session]
        if connection is None or connection.closed:
            wait_until(lambda: answers(self._database), 60, "the publisher answers")
            connection = self._connections[session] = self._database.connect()
            connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
            connection.add_notice_handler(lambda _: None)
        return connection


def answers(database: Database) -> bool:
    """Whether the publisher lets somebody in."""
    with suppress(psycopg.OperationalError):
        database.execute("SELECT 1")
        return True
    return False
