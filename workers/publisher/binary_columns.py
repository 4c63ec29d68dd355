"""Find out how to read each column of a table in binary form; ask the publisher if necessary.

``binary = true`` makes a publisher send every type that has a send function in binary form. Types
that are not built in are looked up in the publisher's catalog: when a table is copied, and when the
first change after a Relation message is applied. A column with an unknown binary form stops the
table at that time, before any value of the column is read.
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
from workers.publisher.connect import connect_beside
from workers.publisher.connection import WalReceiverConn
from workers.publisher.interfaces import QueryConn
from workers.publisher.publications import fetch_published_types
from workers.publisher.queries import query
from workers.publisher.remote_table import RemoteTable

FIRST_WITH_BINARY_COPY: Final = 16
"""PostgreSQL copies text from older publishers, even with ``binary = true``."""


def fetch_type_rows(conn: QueryConn, oids: Iterable[int]) -> dict[int, TypeRow]:
    """Ask the publisher's catalog for the types that are not built in, and for their parts."""
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
    """Columns of a relation have types with an unknown binary form."""


def column_forms(
    relation: str, columns: Sequence[tuple[str, int]], rows: Mapping[int, TypeRow]
) -> tuple[Form, ...]:
    """The form of each (name, type) column; raises 0A000 with the columns of unknown form."""
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
    """The form of each column of a binary COPY."""
    columns = [(column.name, column.type.oid) for column in remote.columns]
    rows = fetch_type_rows(conn, [oid for _, oid in columns])
    return column_forms(f"{remote.nspname}.{remote.relname}", columns, rows)


def known_forms(conn: QueryConn, remote: RemoteTable) -> tuple[Form, ...] | None:
    """The forms of a COPY that may be text instead: None if a form is unknown or text only."""
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
        """The compiled forms of the columns; raises 0A000 with the columns of unknown form."""
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
    """A stream in binary form cannot go on, and the subscription does not require binary form."""


def stream_forms(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool]
) -> BinaryForms | None:
    """The forms of an apply worker's stream; None for a stream in text form.

    As in a COPY, the worker asks for binary values even without ``binary``, if every published type
    can be read: they cost the publisher a quarter less time. ``conn`` does not stream yet; once the
    walsender's connection streams, types are looked up on a second connection.
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


def any_forms(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool]
) -> BinaryForms:
    """The forms of values that were received in binary form, whatever the stream's form is now."""
    return BinaryForms(partial(_ask, sub, conn, interrupted))


def catchup_forms(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool]
) -> BinaryForms | None:
    """The forms of a sync worker's stream; None for text.

    The stream is short and is not started again, so ``binary`` alone decides.
    """
    if not requires_binary(sub, conn.server_version):
        return None
    return BinaryForms(partial(_ask, sub, conn, interrupted))


def _is_steady(form: Form | None) -> bool:
    """True if the form is known, and cannot change while a column has the type.

    A composite type's attributes can be altered while a column has the type. Values that were
    written before are sent in the old form, and an attribute of equal width would be misread.
    """
    return form is not None and form.kind != RECORD


def _ask(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    oids: set[int],
) -> Mapping[int, TypeRow]:
    conn = connect_beside(sub, streaming, interrupted)
    try:
        return fetch_type_rows(conn, oids)
    finally:
        conn.close()


FIRST_WITH_BINARY: Final = 14


def requires_binary(sub: Subscription, server_version: int) -> bool:
    """True if the subscription requires binary form, and the publisher can send binary form."""
    return sub.subbinary and server_version >= FIRST_WITH_BINARY
