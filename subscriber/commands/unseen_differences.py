"""Warns of published tables whose rows in the lake may come to differ without any error.

A copy reads with the role of the connection, and a policy of row security may hide rows from the
role. The stream knows no policies: logical decoding sends every change. So a copy may lack rows
without any error, as in PostgreSQL.

The text of an enum, of a composite or of the name of an object may change on the publisher, and the
publisher sends no change of a row (``workers.publisher.changing_text``). The native subscriber has
types of its own; the lake has the text of the day. A worker notices a change of an enum, a
composite or a name. The warnings are about what no worker can mend: a row that is found by such a
column, and names of objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from catalog.namespace import qualified_name, quote_literal
from subscriber.commands.table_mapping import MappedTable
from subscriber.messages import Notice, warning
from workers.publisher.changing_text import (
    COMPOSITE,
    ENUM,
    is_compared_name,
    is_name_of_object,
)
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import to_text
from workers.publisher.remote_table import ColumnType
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL

FIRST_WITH_PARTITION_TREE: Final = 12


def row_security_warnings(conn: QueryConn, tables: Sequence[tuple[str, str]]) -> Iterator[Notice]:
    """A warning for each table, given by schema and name, with row security for the role.

    PostgreSQL exempts a superuser, a role with BYPASSRLS, and the owner of a table without FORCE. A
    large partitioned table is copied by partition, so the row security of a partition counts too.
    """
    if not tables:
        return
    named = ", ".join(
        f"({quote_literal(schema)}, {quote_literal(name)})" for schema, name in tables
    )
    parts = _PARTS if conn.server_version >= FIRST_WITH_PARTITION_TREE else ""
    for row in conn.exec(_HIDDEN.format(named=named, parts=parts)):
        nspname, relname, role, row_security = map(to_text, row)
        table = qualified_name(nspname, relname)
        if row_security == "off":
            yield warning(
                f'row security of table "{table}" applies to role "{role}"; its copy will fail',
                detail="The connection has row_security = off.",
                hint=f'On the publisher: ALTER ROLE "{role}" BYPASSRLS.',
            )
        else:
            yield warning(
                f'row security of table "{table}" applies to role "{role}"; its copy may lack rows',
                detail="The copy brings the rows that the policies let the role see, the stream "
                "every change.",
                hint=f'On the publisher: ALTER ROLE "{role}" BYPASSRLS. With '
                "options='-c row_security=off' in the connection the copy fails instead.",
            )


_PARTS: Final = (
    " OR EXISTS (SELECT FROM pg_catalog.pg_partition_tree(c.oid) t "
    "WHERE pg_catalog.row_security_active(t.relid))"
)

_HIDDEN: Final = (
    "SELECT n.nspname, c.relname, current_user, pg_catalog.current_setting('row_security') "
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE (n.nspname, c.relname) IN ({named}) "
    "AND (pg_catalog.row_security_active(c.oid){parts}) ORDER BY 1, 2"
)


def changing_text_warnings(mapped: Iterable[MappedTable]) -> Iterator[Notice]:
    """Warnings about text that may change without an event, where a worker cannot help."""
    for table in mapped:
        remote = table.remote
        changes = remote.actions.update or remote.actions.delete
        whole_rows = remote.relreplident == REPLICA_IDENTITY_FULL and not remote.key_under_full
        for column in remote.columns:
            innermost = column.type.element or column.type
            in_key = column.in_key or column.name in remote.key_under_full or whole_rows
            if is_name_of_object(column.type.oid):
                yield _names_of_objects(table.name, column.name, column.type.oid)
            elif changes and in_key and innermost.typtype in (ENUM, COMPOSITE):
                yield _changing_key(table.name, column.name, innermost)


def _names_of_objects(table: str, column: str, oid: int) -> Notice:
    if is_compared_name(oid):
        noticed = "the log and pgsub status tell of the renaming within ten seconds"
    else:
        noticed = "no worker notices"
    return warning(
        f'column "{column}" of table "{table}" has names of objects, which may be renamed',
        detail="The lake holds the names as text. After a renaming of an object the publisher "
        f"sends no change of a row; {noticed}.",
        hint=f"After a renaming: pgsub refresh NAME --recopy {table}. Or publish another column.",
    )


def _changing_key(table: str, column: str, type: ColumnType) -> Notice:
    name = qualified_name(type.nspname, type.typname)
    if type.typtype == ENUM:
        kind, altered = "enum", "RENAME VALUE"
    else:
        kind, altered = "composite type", "ADD ATTRIBUTE or DROP ATTRIBUTE"
    return warning(
        f'column "{column}" of {kind} "{name}" finds rows of table "{table}", and its text may '
        "change without an event",
        detail=f"The lake holds the text. After ALTER TYPE ... {altered} an UPDATE or DELETE does "
        "not find the rows from before.",
        hint=f"After such a change: pgsub refresh NAME --recopy {table}. Or give the table a "
        "replica identity without the column.",
    )
