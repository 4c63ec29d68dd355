"""How the columns of a table are read in binary form, asked of the publisher where need be.

``binary = true`` makes a publisher send every type that has a send function in binary form. What
is not built in is looked up in its catalog when a table is copied, and when the first change under
a Relation message is to be applied; a column whose binary form is unknown here stops the table
then, before any of its values is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from catalog.errcodes import FeatureNotSupported
from catalog.pg_subscription import Subscription
from workers.columnar.binary.containers import RECORD
from workers.columnar.binary.forms import (
    TEXT_ONLY,
    Form,
    Nodes,
    TypeRow,
    compile_forms,
    form_of,
    unknown_types,
)
from workers.columnar.column_reader import BINARY_HINT
from workers.proto.messages import Relation
from workers.publisher.connect import connect_publisher, with_host_of
from workers.publisher.connection import WalReceiverConn
from workers.publisher.interfaces import QueryConn
from workers.publisher.publications import fetch_published_types
from workers.publisher.queries import query
from workers.publisher.remote_table import RemoteTable

FIRST_WITH_BINARY_COPY: Final = 16
"""PostgreSQL copies text from older publishers, also with ``binary = true``."""


def fetch_type_rows(conn: QueryConn, oids: Iterable[int]) -> dict[int, TypeRow]:
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


class UnknownForm(FeatureNotSupported):
    """Columns of a relation are of types whose binary form is not known here."""


def column_forms(
    relation: str, columns: Sequence[tuple[str, int]], rows: Mapping[int, TypeRow]
) -> tuple[Form, ...]:
    """The form of each (name, type) column; 0A000 naming those whose form is unknown."""
    forms = [form_of(oid, rows) for _, oid in columns]
    unread = [name for (name, _), form in zip(columns, forms, strict=True) if form is None]
    if unread:
        names = ", ".join(f'"{name}"' for name in unread)
        raise UnknownForm(
            f'cannot read table "{relation}" in binary format',
            detail=f"The binary form of the type of these columns is not known: {names}.",
            hint=BINARY_HINT,
        )
    return tuple(form for form in forms if form is not None)


def copy_forms(conn: QueryConn, remote: RemoteTable) -> tuple[Form, ...]:
    """How a COPY's columns are read."""
    columns = [(column.name, column.type.oid) for column in remote.columns]
    rows = fetch_type_rows(conn, [oid for _, oid in columns])
    return column_forms(f"{remote.nspname}.{remote.relname}", columns, rows)


def known_forms(conn: QueryConn, remote: RemoteTable) -> tuple[Form, ...] | None:
    """The same where text may be copied instead: None if one is unknown or cannot be sent."""
    try:
        forms = copy_forms(conn, remote)
    except FeatureNotSupported:
        return None
    return None if TEXT_ONLY in forms else forms


class BinaryForms:
    """How to read each relation of a stream; ``ask`` looks up types that are not built in.

    ``binary_required`` is true if the subscription says ``binary = true``. Without this option a
    stream is in binary form because binary costs both ends less, and may be started again as text.
    """

    def __init__(
        self, ask: Callable[[set[int]], Mapping[int, TypeRow]], *, binary_required: bool = True
    ) -> None:
        self.binary_required = binary_required
        self._ask = ask
        self._rows: dict[int, TypeRow] = {}
        self._asked: set[int] = set()
        self._nodes: dict[Relation, Nodes] = {}

    def of(self, relation: Relation) -> Nodes:
        """What reads its columns; 0A000 naming those whose form is unknown."""
        if relation not in self._nodes:
            self._nodes[relation] = compile_forms(self._forms(relation))
        return self._nodes[relation]

    def _forms(self, relation: Relation) -> tuple[Form, ...]:
        columns = [(column.name, column.typid) for column in relation.columns]
        unknown = unknown_types(oid for _, oid in columns) - self._asked
        if unknown:
            self._rows |= self._ask(unknown)
            self._asked |= unknown
        forms = column_forms(f"{relation.nspname}.{relation.relname}", columns, self._rows)
        if not self.binary_required and not all(map(_is_steady, forms)):
            raise UnknownForm("a composite type may be altered")
        return forms


class RestartAsText(Exception):  # noqa: N818 - no error: the stream is started again
    """A stream in binary form cannot go on; nobody has insisted on one."""


def stream_forms(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool]
) -> BinaryForms | None:
    """For an apply worker's stream; None where it is to be text.

    As in a COPY, binary values are asked for whatever ``binary`` says, if all that is published
    can be read: the publisher takes a quarter less for them. Types are asked for on a connection
    of its own once the walsender's is streaming; ``conn`` is not yet.
    """
    ask = partial(_ask, sub, conn, interrupted)
    if requires_binary(sub, conn.server_version):
        return BinaryForms(ask)
    if conn.server_version < FIRST_WITH_BINARY_COPY:
        return None
    oids = fetch_published_types(conn, sub.subpublications)
    rows = fetch_type_rows(conn, oids)
    if not all(_is_steady(form_of(oid, rows)) for oid in oids):
        return None
    return BinaryForms(ask, binary_required=False)


def catchup_forms(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool]
) -> BinaryForms | None:
    """For a sync worker's stream, which is short and is not started again: as ``binary`` says."""
    if not requires_binary(sub, conn.server_version):
        return None
    return BinaryForms(partial(_ask, sub, conn, interrupted))


def _is_steady(form: Form | None) -> bool:
    """Whether a form is known, and stays what it is while columns are of its type.

    The attributes of a composite type may be altered then: what was written before is sent in the
    old form, and one that is as wide would be read as another value.
    """
    return form is not None and form.kind != RECORD


def _ask(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    oids: set[int],
) -> Mapping[int, TypeRow]:
    there = with_host_of(sub, streaming)
    conn = connect_publisher(there, sub.subname, interrupted, replication=False)
    try:
        return fetch_type_rows(conn, oids)
    finally:
        conn.close()


FIRST_WITH_BINARY: Final = 14


def requires_binary(sub: Subscription, server_version: int) -> bool:
    """Whether the user wants a stream in binary form, and the publisher has one."""
    return sub.subbinary and server_version >= FIRST_WITH_BINARY
