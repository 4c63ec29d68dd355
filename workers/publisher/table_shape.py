"""Ask the publisher for the present shape of a table: every column, and the files of the rows.

A Relation message tells that the columns changed. The shape tells what changed: a column keeps its
``attnum`` for ever, under every name and type, and a dropped column's number is never used again.
The files tell whether rows were rewritten between two questions. An ADD COLUMN with a volatile
default, for example, rewrites the table, and a later DROP DEFAULT leaves no other trace.

Columns and files come from one statement, so both are as of one moment. The statement reads
catalogs, and waits for no lock on a table. The size of a table, which is asked for before the table
is copied again, waits for a moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.errcodes import (
    INSUFFICIENT_PRIVILEGE,
    LOCK_NOT_AVAILABLE,
    OBJECT_NOT_IN_PREREQUISITE_STATE,
    UNDEFINED_TABLE,
    ReplicationError,
)
from catalog.namespace import quote_literal_list
from config.limits import LOCK_WAIT_SECONDS
from workers.publisher.interfaces import QueryConn, Row
from workers.publisher.queries import newest, query, to_number, to_text
from workers.publisher.remote_table import ColumnType, TypeRow, fetch_types, resolve_type

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
DDL_TRIGGERS: Final = {
    "pgsub_ddl_command_end": "ddl_command_end",
    "pgsub_sql_drop": "sql_drop",
    "pgsub_table_rewrite": "table_rewrite",
}
"""The event triggers that tell of changed tables, and their events."""

_NO_KEY: Final = (INSUFFICIENT_PRIVILEGE, UNDEFINED_TABLE, OBJECT_NOT_IN_PREREQUISITE_STATE)


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """A column that is not dropped. ``type`` is the type below all domains.

    ``computed`` says that the publisher computes the values: a generated or an identity column.
    ``has_missing`` says that rows from before the column show a stored default. ``stored`` is the
    text of the default, None if the partitions have several; ``stored_in`` are the relations that
    have it. ``version`` is the row version in the catalog: each ALTER COLUMN leaves another one.
    """

    attnum: int
    name: str
    typid: int
    typmod: int
    type: ColumnType
    computed: bool = False
    has_missing: bool = False
    version: str = ""
    stored: str | None = None
    stored_in: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table in the publisher's catalog. ``dropped`` are the numbers of dropped columns.

    ``files`` maps relations to file numbers: the table, or the partitions that store the rows.
    ``lists`` has the version of each catalog row that makes the table part of a publication, with a
    ``*`` for a row with a column list.
    """

    relid: int
    columns: tuple[ShapeColumn, ...]
    dropped: frozenset[int]
    files: Mapping[int, int]
    lists: str = ""


def fetch_shape(conn: QueryConn, relid: int, publications: Sequence[str]) -> TableShape | None:
    """The shape of a relation; None if the publisher has no such relation."""
    version = conn.server_version
    values = {"relid": str(relid), "publications": quote_literal_list(publications)}
    rows = conn.exec(
        query(
            "shape",
            relid=str(relid),
            tree=query("tree", relid=str(relid)),
            lists=query(newest("lists", version, 15, 10), **values),
            computed=query(newest("computed", version, 12, 10)),
            stored=query(newest("stored", version, 11, 10)),
        )
    )
    if not rows:
        return None
    types = fetch_types(conn, {to_number(row[2]) for row in rows if row[4] != "t"})
    return shape_of(relid, rows, types)


def shape_of(relid: int, rows: Sequence[Row], types: dict[int, TypeRow]) -> TableShape:
    """The shape of a relation by the rows of the question, and the types of the columns."""
    live = [row for row in rows if row[4] != "t"]
    files = (each.split(":") for each in (rows[0][7] or "").split())
    return TableShape(
        relid,
        tuple(
            ShapeColumn(
                attnum=to_number(row[0]),
                name=to_text(row[1]),
                typid=to_number(row[2]),
                typmod=to_number(row[3]),
                type=resolve_type(types, to_number(row[2]), to_number(row[3])),
                computed=row[5] == "t",
                has_missing=row[6] is not None,
                version=to_text(row[9]),
                stored=None if row[10] is None else only_element(row[10]),
                stored_in=frozenset(map(int, (row[6] or "").split())),
            )
            for row in live
        ),
        frozenset(to_number(row[0]) for row in rows if row[4] == "t"),
        {int(oid): int(file) for oid, file in files},
        rows[0][8] or "",
    )


def only_element(text: str) -> str:
    """The element of an array with a single one, from the text of the array.

    PostgreSQL puts an element with a special character into quotes, and a backslash before each
    quote and each backslash in it.
    """
    body = text[1:-1]
    return _ESCAPED.sub(r"\1", body[1:-1]) if body.startswith('"') else body


def fetch_triggers(conn: QueryConn) -> tuple[str, str] | None:
    """The versions of pgsub's event triggers, and the key of their messages.

    None unless all triggers are there and enabled, and the key can be read
    (``subscriber.commands.ddl_capture``).
    """
    rows = conn.exec(query("ddl_triggers"))
    if [row[0] for row in rows] != sorted(DDL_TRIGGERS):
        return None
    try:
        key = conn.exec(query("ddl_key"))
    except ReplicationError as error:
        if error.code in _NO_KEY:
            return None
        raise
    return " ".join(to_text(row[1]) for row in rows), to_text(key[0][0])


def fetch_largest(conn: QueryConn, relids: Sequence[int]) -> int:
    """The bytes of the largest of some tables by the statistics, without a wait for any lock."""
    listed = ", ".join(str(relid) for relid in (0, *relids))
    return to_number(conn.exec(query("largest_table", relids=listed))[0][0])


def fetch_size(conn: QueryConn, relid: int) -> int:
    """The bytes of the rows of a relation and its partitions; 0 if the relation is gone.

    While a table is locked exclusively, its statistics say how large it was.
    """
    tree = query("tree", relid=str(relid))
    conn.exec(f"SELECT pg_catalog.set_config('lock_timeout', '{LOCK_WAIT_SECONDS}s', false)")
    try:
        rows = conn.exec(query("table_size", tree=tree))
    except ReplicationError as error:
        if error.code != LOCK_NOT_AVAILABLE:
            raise
        rows = conn.exec(query("table_pages", tree=tree))
    return to_number(rows[0][0])
