"""What the subscriber asks the publisher about publications and tables.

The queries are PostgreSQL's own subscriber's, per publisher version, and three of ours: what a
column's type is made of (domains and arrays resolved), what a table's publications publish (the
fingerprint a copied table is trusted by), and a partitioned table's leaves. They run on a
walsender connection whose search_path is empty and which takes the simple protocol only: every
name is put in as a literal or identifier quoted here.

=====  =====================================  ========================================
query  asks                                   differs by publisher version
=====  =====================================  ========================================
Q1     which publications exist               no
Q2     which tables they publish              16: one set over all; 15: column lists
Q3     which of these another origin writes   no
Q4     a table's oid, identity, kind          no
Q5     its column list                        asked from 15 on
Q6     its columns                            18: generated ones too; 12: not those
Q7     its row filters                        asked from 15 on
=====  =====================================  ========================================
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Final, Protocol

from catalog.errcodes import FeatureNotSupported, ProtocolViolation, UndefinedObject
from catalog.namespace import (
    quote_identifier,
    quote_literal,
    quote_literal_list,
    quote_qualified_identifier,
)
from workers.lake.destination import LakeColumn
from workers.lake.typemap import lake_type

PLAIN_TABLE: Final = "r"
PARTITIONED_TABLE: Final = "p"

_VARIABLE: Final = re.compile(r"(?<!:):([a-z_]+)")

Row = tuple[str | None, ...]
TableName = tuple[str, str]


class PublisherConn(Protocol):
    """The part of a walsender connection that asks questions."""

    @property
    def server_version(self) -> int:
        """The major version."""

    def exec(self, sql: str) -> list[Row]:
        """Run a query; its rows as text, NULL as None."""


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
class PublishedActions:
    """What the subscription's publications together publish of a table."""

    insert: bool
    update: bool
    delete: bool
    truncate: bool
    viaroot: bool

    @property
    def complete(self) -> bool:
        """Every kind of change arrives, so the lake's rows follow the publisher's."""
        return self.insert and self.update and self.delete and self.truncate


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

    def lake_columns(self, *, as_text: bool = False) -> tuple[LakeColumn, ...]:
        """The columns of a new lake table; all nullable, since the publisher's rules are its own.

        ``as_text`` (``on_unrepresentable: text``) keeps every type some of whose values a lake
        column cannot hold as exact text.
        """
        return tuple(
            LakeColumn(column.name, lake_type(column.type, as_text=as_text))
            for column in self.columns
        )

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


def _read_queries() -> dict[str, str]:
    text = resources.files("workers").joinpath("publication.sql").read_text(encoding="utf-8")
    text = "".join(line for line in text.splitlines(True) if not re.match("-- (?!name: )", line))
    blocks = text.split("-- name: ")[1:]
    return {name: sql.strip() for name, _, sql in (block.partition("\n") for block in blocks)}


_SQL: Final = _read_queries()


def query(name: str, **values: str) -> str:
    """A statement of ``publication.sql`` with its variables replaced by finished SQL text."""
    return _VARIABLE.sub(lambda match: values[match[1]], _SQL[name])


def newest(name: str, server_version: int, *versions: int) -> str:
    """The variant of a query for this publisher: the newest that is not newer than it."""
    return f"{name}_{max(v for v in versions if v <= max(server_version, min(versions)))}"


# Publications and their tables


def missing_publications(conn: PublisherConn, publications: Sequence[str]) -> list[str]:
    """Q1: the named publications that the publisher does not have, in the order they are named."""
    rows = conn.exec(query("publications", publications=quote_literal_list(publications)))
    present = {row[0] for row in rows}
    return [name for name in publications if name not in present]


def fetch_table_list(conn: PublisherConn, publications: Sequence[str]) -> list[TableName]:
    """Q2: (schema, table) of everything published, by name.

    0A000 where publications list different columns of one table, as PostgreSQL has it.
    """
    name = newest("tables", conn.server_version, 16, 15, 13, 10)
    names = quote_literal_list(publications)
    values = {
        "publications": names,
        "listed_ancestor": query("listed_ancestor", publications=names),
    }
    tables: list[TableName] = []
    for row in conn.exec(query(name, **values)):
        table = (_text(row[0]), _text(row[1]))
        if table in tables[-1:]:
            raise _different_column_lists(table)
        tables.append(table)
    return tables


def tables_of_other_origins(
    conn: PublisherConn, publications: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Q3: (schema, table, publication) of published tables that the publisher itself subscribes
    to, or whose partitions or ancestors it does."""
    rows = conn.exec(query("other_origins", publications=quote_literal_list(publications)))
    return [(_text(row[0]), _text(row[1]), _text(row[2])) for row in rows]


def fetch_published_types(conn: PublisherConn, publications: Sequence[str]) -> set[int]:
    """The types of the columns of everything that these publish, and perhaps of some more."""
    rows = conn.exec(query("published_types", publications=quote_literal_list(publications)))
    return {_number(row[0]) for row in rows}


def fetch_remote_table_info(
    conn: PublisherConn, nspname: str, relname: str, publications: Sequence[str]
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


def fetch_leaves(conn: PublisherConn, table: RemoteTable) -> list[Leaf]:
    """The relations that store the table's rows, by oid: what a copy locks and reads."""
    if table.relkind != PARTITIONED_TABLE:
        return [Leaf(table.relid, table.nspname, table.relname, table.relkind)]
    rows = conn.exec(query("leaves", relid=str(table.relid)))
    return [Leaf(_number(r[0]), _text(r[1]), _text(r[2]), _text(r[3])) for r in rows]


def is_rewritten(conn: PublisherConn, leaves: Sequence[Leaf]) -> bool:
    """Whether a relation lives in another file than the transaction's snapshot knew."""
    relids = ", ".join(str(leaf.relid) for leaf in leaves)
    return bool(leaves) and conn.exec(query("rewritten", relids=relids))[0][0] != "0"


def _column_list(
    conn: PublisherConn, table: TableName, values: dict[str, str]
) -> frozenset[int] | None:
    """Q5: the published attribute numbers, None for all."""
    rows = conn.exec(query("column_list", **values))
    if len(rows) > 1:
        raise _different_column_lists(table)
    if not rows or rows[0][0] is None:
        return None
    return frozenset(int(attnum) for attnum in rows[0][0].split())


def _columns(
    conn: PublisherConn, relid: int, listed: frozenset[int] | None
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


def fetch_fingerprints(conn: PublisherConn, publications: Sequence[str]) -> dict[TableName, str]:
    """The fingerprint of every published table, as ``RemoteTable`` has it, in one query."""
    published = _published(conn, publications)
    return {
        table: _fingerprint(
            _together(parts), _filters(part.row_filter for part in parts), _versions(parts)
        )
        for table, parts in published.items()
    }


@dataclass(frozen=True, slots=True)
class _Part:
    """What one publication publishes of a table."""

    actions: tuple[bool, ...]
    row_filter: str | None
    version: str


def _published(
    conn: PublisherConn, publications: Sequence[str], relid: int = 0
) -> dict[TableName, list[_Part]]:
    """Of one table, or (0) of all."""
    version = conn.server_version
    relations = query("with_ancestors") if version >= 13 else "gpt.relid"
    since = {"rel_versions": 10, "namespace_versions": 15, "inherits_versions": 13}
    parts = [name for name, first in since.items() if version >= first]
    sql = query(
        "published",
        publications=quote_literal_list(publications),
        relid=str(relid),
        truncate="p.pubtruncate" if version >= 11 else "false",
        viaroot="p.pubviaroot" if version >= 13 else "false",
        qual="pg_catalog.pg_get_expr(gpt.qual, gpt.relid)" if version >= 15 else "NULL",
        versions=", ".join(f"({query(part, relations=relations)})" for part in parts),
    )
    tables: dict[TableName, list[_Part]] = {}
    for row in conn.exec(sql):
        part = _Part(tuple(value == "t" for value in row[2:7]), row[7], _text(row[8]))
        tables.setdefault((_text(row[0]), _text(row[1])), []).append(part)
    return tables


def _together(parts: Sequence[_Part]) -> PublishedActions:
    """A change is sent if one publication publishes its kind."""
    return PublishedActions(*(any(part.actions[n] for part in parts) for n in range(5)))


def _filters(filters: Iterable[str | None]) -> tuple[str, ...]:
    """The filters to OR; none as soon as one publication sends the table without."""
    different = set(filters)
    return tuple(sorted(text for text in different if text)) if None not in different else ()


def _versions(parts: Sequence[_Part]) -> tuple[str, ...]:
    return tuple(sorted(part.version for part in parts))


def _fingerprint(
    actions: PublishedActions, row_filters: Sequence[str], versions: Sequence[str]
) -> str:
    flags = (actions.insert, actions.update, actions.delete, actions.truncate, actions.viaroot)
    letters = "".join(letter if flag else "-" for letter, flag in zip("iudtv", flags, strict=True))
    digest = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]
    return f"{' OR '.join([letters, *sorted(row_filters)])} @{digest}"


@dataclass(frozen=True, slots=True)
class _TypeRow:
    """pg_type, as far as it matters here; ``basetype`` and ``element`` are 0 for none."""

    nspname: str
    typname: str
    typtype: str
    basetype: int
    typtypmod: int
    element: int


def _fetch_types(conn: PublisherConn, oids: set[int]) -> dict[int, _TypeRow]:
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


# COPY


def copy_statement(
    table: RemoteTable,
    *,
    leaf: Leaf | None = None,
    ctid_from: int | None = None,
    ctid_to: int | None = None,
    options: str = "(FORMAT csv)",
) -> str:
    """The COPY that reads the table's published columns and rows, as PostgreSQL builds it.

    With ``leaf`` it reads that relation only; with ``ctid_from`` the blocks from there on, with
    ``ctid_to`` those before. ``options`` follow ``TO STDOUT``.
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


def _different_column_lists(table: TableName) -> FeatureNotSupported:
    return FeatureNotSupported(
        "cannot use different column lists for table "
        f'"{table[0]}.{table[1]}" in different publications'
    )


def _text(value: str | None) -> str:
    if value is None:
        raise ProtocolViolation("publisher answered a catalog query with NULL")
    return value


def _number(value: str | None) -> int:
    return int(_text(value))
