"""A published table as the publisher's catalog describes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from catalog.errcodes import ProtocolViolation, UndefinedObject
from catalog.namespace import MESSAGES_TABLE, quote_literal, quote_literal_list
from workers.proto.message_rows import MESSAGES
from workers.publisher.fingerprint import (
    PublishedActions,
    TableName,
    combine_actions,
    combine_filters,
    fetch_parts,
    fingerprint_of,
    key_digest,
    versions_of,
    with_file,
    with_key_digest,
)
from workers.publisher.interfaces import QueryConn, Row
from workers.publisher.publications import different_column_lists
from workers.publisher.queries import newest, query, to_number, to_text
from workers.publisher.replica_identity import (
    REPLICA_IDENTITY_FULL,
    fetch_identities,
    key_under_full,
)

PLAIN_TABLE: Final = "r"
PARTITIONED_TABLE: Final = "p"
BASE_TYPE: Final = "b"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column's values: never a domain; ``element`` is set for an array.

    ``typmod`` applies to this type; below a domain the domain's typmod counts. ``typtype`` is the
    column of pg_type (b base, c composite, e enum, m multirange, p pseudo, r range). ``delimiter``
    separates values of the type in an array's text; for a domain the domain's delimiter counts.
    """

    oid: int
    typmod: int
    nspname: str
    typname: str
    typtype: str
    element: ColumnType | None = None
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class RemoteColumn:
    """A published column; ``in_key`` is true for a column of the replica identity index.

    ``atttypid`` and ``atttypmod`` are the declared type, which a Relation message sends. ``type``
    is the type below all domains.
    """

    attnum: int
    name: str
    in_key: bool
    generated: bool
    type: ColumnType
    atttypid: int = 0
    atttypmod: int = -1


@dataclass(frozen=True, slots=True)
class RemoteTable:
    """A published table in the publisher's present catalog; ``columns`` are sorted by attnum.

    ``row_filters`` are combined by OR; an empty tuple stands for every row. ``versions`` has a text
    for each publication of the table; the text changes with every change of the publication, or of
    the table's membership. ``identity`` counts the columns of the replica identity index, published
    or not. ``key_under_full`` is the primary key that finds rows under REPLICA IDENTITY FULL.
    ``file`` is the number of the file with the rows, 0 for a partitioned table. ``nulled`` lists
    published columns that are NULL in the lake.
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
    key_under_full: frozenset[str] = frozenset()
    file: int = 0
    nulled: tuple[RemoteColumn, ...] = ()

    @property
    def publishes_everything(self) -> bool:
        """True if every kind of change arrives: then a copied table's keys stay the publisher's.

        A row filter does no harm as long as the filter stays the same: an UPDATE into the filter
        arrives as an INSERT of a row that the lake lacks, an UPDATE out of the filter as a DELETE.
        A partitioned table never counts: TRUNCATE, DROP or DETACH of one partition removes rows of
        the table, and the publisher sends no change for them.
        """
        return self.actions.complete and self.relkind == PLAIN_TABLE

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the replica identity index; empty unless every column is published.

        No two rows share the values of a whole key. A column list may leave out a part of the key,
        and before version 18 generated columns are left out.
        """
        key = tuple(column.name for column in self.columns if column.in_key)
        return key if len(key) == self.identity else ()

    @property
    def fingerprint(self) -> str:
        """A text that changes whenever the published rows do: by actions, root or row filters."""
        return fingerprint_of(self.actions, self.row_filters, self.versions)

    @property
    def fingerprint_at_copy(self) -> str:
        """The fingerprint with the digest of the key columns that find rows, and the file."""
        found = [c for c in self.columns if c.in_key or c.name in self.key_under_full]
        key = [(c.name, c.atttypid, c.atttypmod) for c in found]
        return with_file(with_key_digest(self.fingerprint, key_digest(key)), self.file)


def messages_as_table() -> RemoteTable:
    """The logical messages, as a published table that has inserts only."""
    columns = tuple(
        RemoteColumn(
            attnum=number,
            name=column.name,
            in_key=False,
            generated=False,
            type=ColumnType(column.typid, column.typmod, "pg_catalog", "", BASE_TYPE),
            atttypid=column.typid,
        )
        for number, column in enumerate(MESSAGES.columns, 1)
    )
    return RemoteTable(
        *MESSAGES_TABLE,
        relid=MESSAGES.relid,
        relkind=PLAIN_TABLE,
        relreplident=MESSAGES.replident,
        columns=columns,
        row_filters=(),
        actions=PublishedActions(
            insert=True, update=False, delete=False, truncate=False, viaroot=False
        ),
    )


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that stores rows of a table: a plain table, or a partition."""

    relid: int
    nspname: str
    relname: str
    relkind: str


def fetch_remote_table_info(
    conn: QueryConn, nspname: str, relname: str, publications: Sequence[str]
) -> RemoteTable:
    """Ask for one published table, by Q4 to Q7 and pgsub's additional queries.

    Raises 42704 if the table does not exist, 0A000 if publications list different columns of it.
    """
    rows = conn.exec(query("relation", schema=quote_literal(nspname), table=quote_literal(relname)))
    if not rows:
        raise UndefinedObject(f'table "{nspname}.{relname}" not found on publisher')
    relid, relreplident, relkind = to_number(rows[0][0]), to_text(rows[0][1]), to_text(rows[0][2])
    values = {"relid": str(relid), "publications": quote_literal_list(publications)}
    parts = fetch_parts(conn, publications, relid).get((nspname, relname), [])
    has_lists = conn.server_version >= 15
    listed = _column_list(conn, (nspname, relname), values) if has_lists else None
    columns, identity = _columns(conn, relid, listed)
    qualified = conn.exec(query("row_filters", **values)) if has_lists else []  # Q7
    full = relreplident == REPLICA_IDENTITY_FULL
    keys = fetch_identities(conn, publications, [relid]) if full else {}
    return RemoteTable(
        nspname=nspname,
        relname=relname,
        relid=relid,
        relkind=relkind,
        relreplident=relreplident,
        columns=columns,
        row_filters=combine_filters(row[0] for row in qualified),
        actions=combine_actions(parts),
        versions=versions_of(parts),
        identity=identity,
        key_under_full=key_under_full(keys.get(relid), [column.name for column in columns]),
        file=to_number(rows[0][3]),
    )


def fetch_relids(conn: QueryConn, names: Collection[TableName]) -> dict[TableName, int]:
    """Ask for the oids of tables by name; leaves out names that no table has."""
    listed = ", ".join(f"({quote_literal(a)}, {quote_literal(b)})" for a, b in names)
    rows = conn.exec(query("relids", names=listed)) if names else []
    return {(to_text(row[0]), to_text(row[1])): to_number(row[2]) for row in rows}


def fetch_names(conn: QueryConn, relids: Collection[int]) -> dict[int, TableName]:
    """Ask for the present names of tables by oid; leaves out oids that no table has."""
    listed = ", ".join(map(str, sorted(relids)))
    rows = conn.exec(query("relation_names", relids=listed)) if relids else []
    return {to_number(row[0]): (to_text(row[1]), to_text(row[2])) for row in rows}


def fetch_leaves(conn: QueryConn, table: RemoteTable) -> list[Leaf]:
    """The relations that store the table's rows, sorted by oid: a copy locks and reads them."""
    if table.relkind != PARTITIONED_TABLE:
        return [Leaf(table.relid, table.nspname, table.relname, table.relkind)]
    rows = conn.exec(query("leaves", relid=str(table.relid)))
    return [Leaf(to_number(r[0]), to_text(r[1]), to_text(r[2]), to_text(r[3])) for r in rows]


def can_lock(conn: QueryConn, leaves: Sequence[Leaf]) -> bool:
    """True if the role has SELECT on every relation as a whole: LOCK TABLE takes no less."""
    relids = ", ".join(str(leaf.relid) for leaf in leaves)
    return not leaves or conn.exec(query("not_lockable", relids=relids))[0][0] == "0"


def is_rewritten(conn: QueryConn, leaves: Sequence[Leaf]) -> bool:
    """True if a relation has a new file since the transaction's snapshot was taken."""
    relids = ", ".join(str(leaf.relid) for leaf in leaves)
    return bool(leaves) and conn.exec(query("rewritten", relids=relids))[0][0] != "0"


def is_renamed(conn: QueryConn, remote: RemoteTable) -> bool:
    """True if a column has another name than in the transaction's snapshot."""
    return conn.exec(query("renamed", relid=str(remote.relid)))[0][0] != "0"


def _column_list(
    conn: QueryConn, table: TableName, values: dict[str, str]
) -> frozenset[int] | None:
    """Q5: the published attribute numbers; None for all."""
    rows = conn.exec(query("column_list", **values))
    if len(rows) > 1:
        raise different_column_lists(table)
    if not rows or rows[0][0] is None:
        return None
    return frozenset(int(attnum) for attnum in rows[0][0].split())


def _columns(
    conn: QueryConn, relid: int, listed: frozenset[int] | None
) -> tuple[tuple[RemoteColumn, ...], int]:
    """Q6: the listed columns with resolved types, and the number of columns in the identity."""
    name = newest("columns", conn.server_version, 18, 12, 10)
    found = conn.exec(query(name, relid=str(relid)))
    rows = [row for row in found if listed is None or to_number(row[0]) in listed]
    types = fetch_types(conn, {to_number(row[2]) for row in rows})
    columns = tuple(
        RemoteColumn(
            attnum=to_number(row[0]),
            name=to_text(row[1]),
            type=resolve_type(types, to_number(row[2]), to_number(row[3])),
            in_key=row[5] == "t",
            generated=row[6] == "t",
            atttypid=to_number(row[2]),
            atttypmod=to_number(row[3]),
        )
        for row in rows
    )
    return columns, int(found[0][7] or 0) if found else 0


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A row of pg_type; ``basetype`` and ``element`` are 0 for none."""

    nspname: str
    typname: str
    typtype: str
    basetype: int
    typtypmod: int
    element: int
    delimiter: str


def fetch_types(conn: QueryConn, oids: Collection[int]) -> dict[int, TypeRow]:
    """Ask for types, with the types that domains and arrays are made of."""
    if not oids:
        return {}
    return types_of(conn.exec(query("types", types=", ".join(map(str, sorted(oids))))))


def types_of(rows: Iterable[Row]) -> dict[int, TypeRow]:
    """The types by the rows of the question, by oid."""
    return {
        to_number(row[0]): TypeRow(
            nspname=to_text(row[1]),
            typname=to_text(row[2]),
            typtype=to_text(row[3]),
            basetype=to_number(row[4]),
            typtypmod=to_number(row[5]),
            element=to_number(row[6]),
            delimiter=to_text(row[7]),
        )
        for row in rows
    }


def fetch_delimiters(conn: QueryConn, oids: Collection[int]) -> dict[int, str]:
    """Ask for the delimiter of the elements; leaves out types without elements, or dropped."""
    types = fetch_types(conn, set(oids))
    resolved = {oid: resolve_type(types, oid, -1).element for oid in oids if oid in types}
    return {oid: element.delimiter for oid, element in resolved.items() if element is not None}


def resolve_type(types: dict[int, TypeRow], oid: int, typmod: int) -> ColumnType:
    """Resolve domains (``getBaseTypeAndTypmod``), and the elements of an array.

    The typmod of an array applies to the elements.
    """
    row = types.get(oid)
    if row is None:
        raise ProtocolViolation(f"publisher has no type with OID {oid}")
    delimiter = row.delimiter
    while row.basetype:
        oid, typmod = row.basetype, row.typtypmod
        row = types[oid]
    column = ColumnType(oid, typmod, row.nspname, row.typname, row.typtype, delimiter=delimiter)
    if not row.element:
        return column
    return replace(column, element=resolve_type(types, row.element, typmod))
