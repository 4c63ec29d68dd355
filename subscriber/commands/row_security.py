"""Warns of published tables whose rows the publisher may hide from a copy.

A copy reads with the role of the connection, and a policy of row security may hide rows from the
role. The stream knows no policies: logical decoding sends every change. So a copy may lack rows
without any error, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from catalog.namespace import qualified_name, quote_literal
from subscriber.messages import Notice, warning
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import to_text

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
