"""Ask the publisher on a second connection while the first connection streams.

A walsender that streams takes no queries. The second connection goes to the host that the first
connection reached: another host, a standby that lags, would answer from an older catalog.

Most questions open and end a session, too slowly for a question before each batch: a
``KeptSession`` stays open between questions. The session opens at the first question for a mark,
and opens anew after a loss: the publisher or a proxy may end a quiet session. Between two questions
the session holds no transaction and no lock. A worker without tables that need marks keeps no
session: a question for types opens a session of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeVar

from catalog.errcodes import LOCK_NOT_AVAILABLE, ReplicationError
from catalog.pg_subscription import Subscription
from config.limits import LOCK_WAIT_SECONDS
from workers.publisher.changing_text import (
    TextType,
    TextTypes,
    fetch_moved_partitions,
    fetch_text_mark,
    fetch_text_types,
)
from workers.publisher.connect import connect_beside
from workers.publisher.connection import WalReceiverConn
from workers.publisher.fingerprint import PublishedTable, TableName, fetch_fingerprints
from workers.publisher.remote_table import fetch_delimiters, fetch_names, fetch_relids
from workers.publisher.replica_identity import Identities, fetch_identities
from workers.publisher.table_shape import TableShape, fetch_shape, fetch_size

T = TypeVar("T")

_LOCK_TIMEOUT: Final = (
    f"SELECT pg_catalog.set_config('lock_timeout', '{LOCK_WAIT_SECONDS}s', false)"
)


def fetch_published(
    sub: Subscription, streaming: WalReceiverConn, interrupted: Callable[[], bool]
) -> dict[TableName, PublishedTable] | None:
    """Ask for the fingerprint and the file of every published table.

    None while a table is locked exclusively: the fingerprints are not known now. Waiting for the
    lock could last for ever: the holder may be waiting for the subscription's confirmation
    (TRUNCATE under synchronous_standby_names).
    """
    with closing(connect_beside(sub, streaming, interrupted)) as conn:
        try:
            conn.exec(_LOCK_TIMEOUT)
            return fetch_fingerprints(conn, sub.subpublications)
        except ReplicationError as error:
            if error.code != LOCK_NOT_AVAILABLE:
                raise
            return None


def ask_identities(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    relids: Collection[int],
) -> Identities:
    """Ask for the replica identities of relations; the query waits for no lock."""
    with closing(connect_beside(sub, streaming, interrupted)) as conn:
        return fetch_identities(conn, sub.subpublications, relids)


def ask_delimiters(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    oids: Collection[int],
) -> dict[int, str]:
    """Ask what separates the elements of array types; the query waits for no lock."""
    with closing(connect_beside(sub, streaming, interrupted)) as conn:
        return fetch_delimiters(conn, oids)


def ask_relids(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    names: Collection[TableName],
) -> dict[TableName, int]:
    """Ask for the oids of tables by name; the query waits for no lock."""
    with closing(connect_beside(sub, streaming, interrupted)) as conn:
        return fetch_relids(conn, names)


def ask_names(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    relids: Collection[int],
) -> dict[int, TableName]:
    """Ask for the names of tables by oid; the query waits for no lock."""
    with closing(connect_beside(sub, streaming, interrupted)) as conn:
        return fetch_names(conn, relids)


def ask_shape(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    relid: int,
) -> TableShape | None:
    """Ask for the present shape of a relation; the queries wait for no lock on a table."""
    with closing(connect_beside(sub, streaming, interrupted)) as conn:
        return fetch_shape(conn, relid, sub.subpublications)


def ask_size(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    relid: int,
) -> int:
    """Ask for the bytes of a table; the query waits a moment for a lock at most."""
    with closing(connect_beside(sub, streaming, interrupted)) as conn:
        return fetch_size(conn, relid)


@dataclass(slots=True)
class KeptSession:
    """The session beside the stream ``streaming``; one thread at a time asks."""

    sub: Subscription
    streaming: WalReceiverConn
    interrupted: Callable[[], bool]
    _conn: WalReceiverConn | None = None

    def text_types(self, relids: Collection[int]) -> Mapping[int, TextTypes]:
        """The enums and composites of relations; the queries wait for no lock."""
        return self._ask_once(lambda conn: fetch_text_types(conn, relids))

    def text_mark(self, types: Mapping[int, TextType]) -> str:
        """A hash of all texts that values of the types may have; the query waits for no lock."""
        return self._ask(lambda conn: fetch_text_mark(conn, types))

    def moved_partitions(self, came: Collection[int], went: Collection[int]) -> list[str]:
        """Partitions, attached with rows or detached; waits a moment for locks on partitions."""
        return self._ask_once(lambda conn: fetch_moved_partitions(conn, came, went))

    def _ask_once(self, question: Callable[[WalReceiverConn], T]) -> T:
        """Ask, and end the session again if the question has opened the session."""
        was_open = self._conn is not None
        try:
            return self._ask(question)
        finally:
            if not was_open:
                self.close()

    def _ask(self, question: Callable[[WalReceiverConn], T]) -> T:
        was_open = self._conn is not None
        try:
            return question(self._opened())
        except ReplicationError:
            self.close()
            if not was_open or self.interrupted():
                raise
        return question(self._opened())

    def _opened(self) -> WalReceiverConn:
        if self._conn is None:
            self._conn = connect_beside(self.sub, self.streaming, self.interrupted)
        return self._conn

    def close(self) -> None:
        """End the session; the next question opens another one."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
