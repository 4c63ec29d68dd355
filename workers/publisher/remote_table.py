"""A published table as the publisher's catalog describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from catalog.errcodes import ProtocolViolation, UndefinedObject
from catalog.namespace import quote_literal, quote_literal_list
from workers.publisher.interfaces import QueryConn
from workers.publisher.publications import (
    PublishedActions,
    TableName,
    _different_column_lists,
    _filters,
    _fingerprint,
    _published,
    _together,
    _versions,
)
from workers.publisher.queries import _number, _text, newest, query

PLAIN_TABLE: Final = "r"
PARTITIONED_TABLE: Final = "p"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type as its values are written: never a domain; ``element`` is set for an array.

    ``typmod`` is what applies to this type, taken from the domain where one hides it. ``typtype``
    is pg_type's (b base, c composite, e enum, m multirange, p pseudo, r range).
    """

    oid: int
    typmod: int
    nspname: str
    typname: str
    typtype: str
    element: ColumnType | None = None


@dataclass(frozen=True, slots=True)
class RemoteColumn:
    """A published column; ``in_key``: of the replica identity index."""

    attnum: int
    name: str
    in_key: bool
    notnull: bool
    generated: bool
    type: ColumnType


@dataclass(frozen=True, slots=True)
class RemoteTable:
    """A published table as the publisher has it now; ``columns`` by attnum.

    ``row_filters`` are OR'd; none means every row. ``versions`` has a text for each publication of
    the table, another one whenever the publication or the table's place in it was changed.
    ``identity`` is how many columns the replica identity index has, published or not.
    """

    nspname: str
    relname: str
    relid: int
    relkind: str
    relreplident: str
    columns: tuple[RemoteColumn, ...]
    row_filters: tuple[str, ...]
    actions: PublishedActions
    versions: tuple[str, ...] = ()
    identity: int = 0

    @property
    def publishes_everything(self) -> bool:
        """Every kind of change arrives, so a copied table's keys stay the publisher's.

        That holds with a row filter too, as long as it stays the same: an UPDATE into the filter
        arrives as an INSERT of a row that is not here, one out of it as a DELETE. It does not for
        a partitioned table: what TRUNCATE, DROP or DETACH of one partition does to the table's
        rows is never sent.
        """
        return self.actions.complete and self.relkind == PLAIN_TABLE

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that no two of its rows share: the replica identity index, if all of it is
        published. A column list may leave out a part, and before 18 generated columns are."""
        key = tuple(column.name for column in self.columns if column.in_key)
        return key if len(key) == self.identity else ()

    @property
    def fingerprint(self) -> str:
        """Changes whenever what is published of the rows did: actions, root, row filters."""
        return _fingerprint(self.actions, self.row_filters, self.versions)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that stores rows of a table: the table itself, or a partition."""

    relid: int
    nspname: str
    relname: str
    relkind: str


def fetch_remote_table_info(
    conn: QueryConn, nspname: str, relname: str, publications: Sequence[str]
) -> RemoteTable:
    """Q4 to Q7 and ours: one published table.

    42704 if it is not there, 0A000 where publications list different columns of it.
    """
    rows = conn.exec(query("relation", schema=quote_literal(nspname), table=quote_literal(relname)))
    if not rows:
        raise UndefinedObject(f'table "{nspname}.{relname}" not found on publisher')
    relid, relreplident, relkind = _number(rows[0][0]), _text(rows[0][1]), _text(rows[0][2])
    values = {"relid": str(relid), "publications": quote_literal_list(publications)}
    parts = _published(conn, publications, relid).get((nspname, relname), [])
    has_lists = conn.server_version >= 15
    listed = _column_list(conn, (nspname, relname), values) if has_lists else None
    columns, identity = _columns(conn, relid, listed)
    qualified = conn.exec(query("row_filters", **values)) if has_lists else []  # Q7
    return RemoteTable(
        nspname=nspname,
        relname=relname,
        relid=relid,
        relkind=relkind,
        relreplident=relreplident,
        columns=columns,
        row_filters=_filters(row[0] for row in qualified),
        actions=_together(parts),
        versions=_versions(parts),
        identity=identity,
    )


def fetch_leaves(conn: QueryConn, table: RemoteTable) -> list[Leaf]:
    """The relations that store the table's rows, by oid: what a copy locks and reads."""
    if table.relkind != PARTITIONED_TABLE:
        return [Leaf(table.relid, table.nspname, table.relname, table.relkind)]
    rows = conn.exec(query("leaves", relid=str(table.relid)))
    return [Leaf(_number(r[0]), _text(r[1]), _text(r[2]), _text(r[3])) for r in rows]


def is_rewritten(conn: QueryConn, leaves: Sequence[Leaf]) -> bool:
    """Whether a relation lives in another file than the transaction's snapshot knew."""
    relids = ", ".join(str(leaf.relid) for leaf in leaves)
    return bool(leaves) and conn.exec(query("rewritten", relids=relids))[0][0] != "0"


def _column_list(
    conn: QueryConn, table: TableName, values: dict[str, str]
) -> frozenset[int] | None:
    """Q5: the published attribute numbers, None for all."""
    rows = conn.exec(query("column_list", **values))
    if len(rows) > 1:
        raise _different_column_lists(table)
    if not rows or rows[0][0] is None:
        return None
    return frozenset(int(attnum) for attnum in rows[0][0].split())


def _columns(
    conn: QueryConn, relid: int, listed: frozenset[int] | None
) -> tuple[tuple[RemoteColumn, ...], int]:
    """Q6, without what the column list leaves out, and with types resolved; and how many columns
    the replica identity has."""
    name = newest("columns", conn.server_version, 18, 12, 10)
    found = conn.exec(query(name, relid=str(relid)))
    rows = [row for row in found if listed is None or _number(row[0]) in listed]
    types = _fetch_types(conn, {_number(row[2]) for row in rows})
    columns = tuple(
        RemoteColumn(
            attnum=_number(row[0]),
            name=_text(row[1]),
            type=_resolve(types, _number(row[2]), _number(row[3])),
            notnull=row[4] == "t",
            in_key=row[5] == "t",
            generated=row[6] == "t",
        )
        for row in rows
    )
    return columns, int(found[0][7] or 0) if found else 0


@dataclass(frozen=True, slots=True)
class _TypeRow:
    """pg_type, as far as it matters here; ``basetype`` and ``element`` are 0 for none."""

    nspname: str
    typname: str
    typtype: str
    basetype: int
    typtypmod: int
    element: int


def _fetch_types(conn: QueryConn, oids: set[int]) -> dict[int, _TypeRow]:
    if not oids:
        return {}
    rows = conn.exec(query("types", types=", ".join(map(str, sorted(oids)))))
    return {
        _number(row[0]): _TypeRow(
            nspname=_text(row[1]),
            typname=_text(row[2]),
            typtype=_text(row[3]),
            basetype=_number(row[4]),
            typtypmod=_number(row[5]),
            element=_number(row[6]),
        )
        for row in rows
    }


def _resolve(types: dict[int, _TypeRow], oid: int, typmod: int) -> ColumnType:
    """``getBaseTypeAndTypmod``, and the same for an array's elements, whose typmod it carries."""
    row = types.get(oid)
    if row is None:
        raise ProtocolViolation(f"publisher has no type with OID {oid}")
    while row.basetype:
        oid, typmod = row.basetype, row.typtypmod
        row = types[oid]
    column = ColumnType(oid, typmod, row.nspname, row.typname, row.typtype)
    if not row.element:
        return column
    return replace(column, element=_resolve(types, row.element, typmod))
