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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.errcodes import FeatureNotSupported
from catalog.namespace import quote_literal_list
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import _number, _text, newest, query

TableName = tuple[str, str]


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


# Publications and their tables


def missing_publications(conn: QueryConn, publications: Sequence[str]) -> list[str]:
    """Q1: the named publications that the publisher does not have, in the order they are named."""
    rows = conn.exec(query("publications", publications=quote_literal_list(publications)))
    present = {row[0] for row in rows}
    return [name for name in publications if name not in present]


def fetch_table_list(conn: QueryConn, publications: Sequence[str]) -> list[TableName]:
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
    conn: QueryConn, publications: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Q3: (schema, table, publication) of published tables that the publisher itself subscribes
    to, or whose partitions or ancestors it does."""
    rows = conn.exec(query("other_origins", publications=quote_literal_list(publications)))
    return [(_text(row[0]), _text(row[1]), _text(row[2])) for row in rows]


def fetch_published_types(conn: QueryConn, publications: Sequence[str]) -> set[int]:
    """The types of the columns of everything that these publish, and perhaps of some more."""
    rows = conn.exec(query("published_types", publications=quote_literal_list(publications)))
    return {_number(row[0]) for row in rows}


def fetch_fingerprints(conn: QueryConn, publications: Sequence[str]) -> dict[TableName, str]:
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
    conn: QueryConn, publications: Sequence[str], relid: int = 0
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


def _different_column_lists(table: TableName) -> FeatureNotSupported:
    return FeatureNotSupported(
        "cannot use different column lists for table "
        f'"{table[0]}.{table[1]}" in different publications'
    )
