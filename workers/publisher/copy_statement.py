"""Compose the COPY statement of a published table, as PostgreSQL's subscriber composes it.

``lock_statement`` is a SELECT that a copy sends where the role may not send LOCK TABLE.
"""

from __future__ import annotations

from catalog.namespace import quote_identifier, quote_qualified_identifier
from workers.publisher.remote_table import PLAIN_TABLE, Leaf, RemoteTable


def copy_statement(
    table: RemoteTable,
    *,
    leaf: Leaf | None = None,
    ctid_from: int | None = None,
    ctid_to: int | None = None,
    options: str = "(FORMAT csv)",
) -> str:
    """The COPY that reads the table's published columns and rows.

    With ``leaf`` the COPY reads one relation only. ``ctid_from`` is the first block to read,
    ``ctid_to`` the first block not to read. ``options`` follow ``TO STDOUT``.
    """
    target = quote_qualified_identifier(table.nspname, table.relname)
    if leaf is not None:
        target = quote_qualified_identifier(leaf.nspname, leaf.relname)
    columns = ", ".join(quote_identifier(column.name) for column in table.columns)
    tail = f"TO STDOUT {options}".rstrip()
    whole = ctid_from is None and ctid_to is None
    one_heap = leaf is not None or table.relkind == PLAIN_TABLE
    generated = any(column.generated for column in table.columns)
    if whole and one_heap and not table.row_filters and not generated:
        return f"COPY {target} ({columns}) {tail}" if columns else f"COPY {target} {tail}"
    conditions = []
    if table.row_filters:
        conditions.append(f"({' OR '.join(f'({text})' for text in table.row_filters)})")
    if ctid_from is not None:
        conditions.append(f"ctid >= '({ctid_from},0)'::pg_catalog.tid")
    if ctid_to is not None:
        conditions.append(f"ctid < '({ctid_to},0)'::pg_catalog.tid")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    only = "ONLY " if one_heap else ""
    # Only quoted names and the publisher's own filter expressions are put together here.
    select = f"SELECT {columns} FROM {only}{target}"  # noqa: S608  # see the line above
    return f"COPY ({select}{where}) {tail}"


def lock_statement(table: RemoteTable) -> str:
    """A SELECT that returns no row and takes the lock of a COPY, with the privileges of a COPY.

    PostgreSQL takes ACCESS SHARE on every table that a SELECT names, and on every partition while
    it plans the SELECT. The locks stay until the end of the transaction.
    """
    target = quote_qualified_identifier(table.nspname, table.relname)
    columns = ", ".join(quote_identifier(column.name) for column in table.columns)
    only = "ONLY " if table.relkind == PLAIN_TABLE else ""
    # Only quoted names are put together here.
    return f"SELECT {columns} FROM {only}{target} LIMIT 0"  # noqa: S608  # see the line above
