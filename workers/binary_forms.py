"""How the columns of a table are read in binary form, asked of the publisher where need be.

``binary = true`` makes a publisher send every type that has a send function in binary form. What
is not built in is looked up in its catalog when a table is copied, and when the first change under
a Relation message is to be applied; a column whose binary form is unknown here stops the table
then, before any of its values is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from catalog.errcodes import FeatureNotSupported
from catalog.pg_subscription import Subscription
from workers.columnar.binary_catalog import TEXT_ONLY, Form, TypeRow, form_of, unknown_types
from workers.columnar.columns import BINARY_HINT
from workers.proto.messages import Relation
from workers.publication import PublisherConn, RemoteTable, query
from workers.stream import connect_publisher, streams_binary

FIRST_WITH_BINARY_COPY: Final = 16
"""PostgreSQL copies text from older publishers, also with ``binary = true``."""


def fetch_type_rows(conn: PublisherConn, oids: Iterable[int]) -> dict[int, TypeRow]:
    """What the publisher's catalog says of types that are not built in, and of their parts."""
    unknown = unknown_types(oids)
    if not unknown:
        return {}
    rows: dict[int, TypeRow] = {}
    for row in conn.exec(query("binary_types", types=", ".join(map(str, sorted(unknown))))):
        oid, base, send, output, parts, separator = (value or "" for value in row)
        rows[int(oid)] = TypeRow(
            oid=int(oid),
            base=int(base),
            send=send,
            output=output,
            parts=tuple(int(part) for part in parts.split()),
            separator=separator,
        )
    return rows


def column_forms(
    relation: str, columns: Sequence[tuple[str, int]], rows: Mapping[int, TypeRow]
) -> tuple[Form, ...]:
    """The form of each (name, type) column; 0A000 naming those whose form is unknown."""
    forms = [form_of(oid, rows) for _, oid in columns]
    unread = [name for (name, _), form in zip(columns, forms, strict=True) if form is None]
    if unread:
        names = ", ".join(f'"{name}"' for name in unread)
        raise FeatureNotSupported(
            f'cannot read table "{relation}" in binary format',
            detail=f"The binary form of the type of these columns is not known: {names}.",
            hint=BINARY_HINT,
        )
    return tuple(form for form in forms if form is not None)


def copy_forms(conn: PublisherConn, remote: RemoteTable) -> tuple[Form, ...]:
    """How a COPY's columns are read."""
    columns = [(column.name, column.type.oid) for column in remote.columns]
    rows = fetch_type_rows(conn, [oid for _, oid in columns])
    return column_forms(f"{remote.nspname}.{remote.relname}", columns, rows)


def known_forms(conn: PublisherConn, remote: RemoteTable) -> tuple[Form, ...] | None:
    """The same where text may be copied instead: None if one is unknown or cannot be sent."""
    try:
        forms = copy_forms(conn, remote)
    except FeatureNotSupported:
        return None
    return None if TEXT_ONLY in forms else forms


class BinaryForms:
    """The forms of relations in a stream; ``ask`` looks types up that are not built in.

    ``folder`` is for rewritten rows that are too large for memory.
    """

    def __init__(
        self, ask: Callable[[set[int]], Mapping[int, TypeRow]], folder: Path | None = None
    ) -> None:
        self.folder = folder
        self._ask = ask
        self._rows: dict[int, TypeRow] = {}
        self._asked: set[int] = set()

    def of(self, relation: Relation) -> tuple[Form, ...]:
        """The form of each column; 0A000 naming those whose form is unknown."""
        columns = [(column.name, column.typid) for column in relation.columns]
        unknown = unknown_types(oid for _, oid in columns) - self._asked
        if unknown:
            self._rows |= self._ask(unknown)
            self._asked |= unknown
        return column_forms(f"{relation.nspname}.{relation.relname}", columns, self._rows)


def stream_forms(
    sub: Subscription, server_version: int, interrupted: Callable[[], bool], folder: Path
) -> BinaryForms | None:
    """For a worker's stream; None where it is text.

    Types are asked for on a connection of its own: the walsender's is streaming.
    """
    if not streams_binary(sub, server_version):
        return None

    def ask(oids: set[int]) -> dict[int, TypeRow]:
        conn = connect_publisher(sub, sub.subname, interrupted, replication=False)
        try:
            return fetch_type_rows(conn, oids)
        finally:
            conn.close()

    return BinaryForms(ask, folder)
