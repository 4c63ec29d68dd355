"""Read the published parts of each table, and condense them to a fingerprint.

The keys of a copied table stay known only while the publications stay the same. A publication that
was changed and changed back between two looks may have left changes out. So the fingerprint holds
the actions, the row filters, and the version (``xmin``) of every catalog row that makes the table
part of a publication: a change that was taken back leaves other versions.

A copy also stores a digest of the key columns, with names and types, and the file of the table.
Both follow the fingerprint, for example ``iudt- @0123456789abcdef #fedcba9876543210 /16402``. An
ALTER COLUMN TYPE with USING gives the publisher's rows other keys and sends no change of a row; the
digest differs afterwards. A table that was ``UNLOGGED`` for a while sends no change either; the
table has another file afterwards (``workers.apply.table_files``). A fingerprint without the digest,
or without the file, was stored by an older version: the key, or the file, is not known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.namespace import quote_literal_list
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import query, to_number, to_text

TableName = tuple[str, str]

KeyColumn = tuple[str, int, int]
"""The name of a key column, the oid of the type, and the type modifier."""

_AT_COPY: Final = re.compile(r"(?: #(?P<key>[0-9a-f]{16}))?(?: /(?P<file>[0-9]+))?\Z")


@dataclass(frozen=True, slots=True)
class PublishedActions:
    """The kinds of changes that all publications of the subscription together publish of a table.

    ``viaroot`` is true if the changes of partitions are sent as those of their root.
    """

    insert: bool
    update: bool
    delete: bool
    truncate: bool
    viaroot: bool

    @property
    def complete(self) -> bool:
        """True if every kind of change arrives, so that the lake's rows follow the publisher's."""
        return self.insert and self.update and self.delete and self.truncate


@dataclass(frozen=True, slots=True)
class PublishedPart:
    """The part that one publication publishes of a table.

    ``version`` names the versions of the catalog rows that make the table part of it.
    """

    actions: tuple[bool, ...]
    row_filter: str | None
    version: str
    file: TableFile


@dataclass(frozen=True, slots=True)
class TableFile:
    """The file with the rows of a table (``pg_class.relfilenode``), 0 for a partitioned table.

    ``xid`` is the transaction, or the subtransaction, that wrote the table's row of ``pg_class``.
    """

    number: int
    xid: int


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """The present fingerprint and file of a published table."""

    fingerprint: str
    file: TableFile


def fetch_fingerprints(
    conn: QueryConn, publications: Sequence[str]
) -> dict[TableName, PublishedTable]:
    """Ask for the fingerprint and the file of every published table in one query.

    The fingerprints equal those of ``RemoteTable.fingerprint``.
    """
    published = fetch_parts(conn, publications)
    return {
        table: PublishedTable(
            fingerprint_of(
                combine_actions(parts),
                combine_filters(part.row_filter for part in parts),
                versions_of(parts),
            ),
            parts[0].file,
        )
        for table, parts in published.items()
    }


def fetch_parts(
    conn: QueryConn, publications: Sequence[str], relid: int = 0
) -> dict[TableName, list[PublishedPart]]:
    """Ask for the published parts of one table, or of all tables if ``relid`` is 0."""
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
    tables: dict[TableName, list[PublishedPart]] = {}
    for row in conn.exec(sql):
        actions = tuple(value == "t" for value in row[2:7])
        file = TableFile(to_number(row[9]), to_number(row[10]))
        part = PublishedPart(actions, row[7], to_text(row[8]), file)
        tables.setdefault((to_text(row[0]), to_text(row[1])), []).append(part)
    return tables


def combine_actions(parts: Sequence[PublishedPart]) -> PublishedActions:
    """The actions of all parts: a change is sent if at least one publication publishes its kind."""
    return PublishedActions(*(any(part.actions[n] for part in parts) for n in range(5)))


def combine_filters(filters: Iterable[str | None]) -> tuple[str, ...]:
    """The row filters to combine by OR; none if a publication sends the table without a filter."""
    different = set(filters)
    return tuple(sorted(text for text in different if text)) if None not in different else ()


def versions_of(parts: Sequence[PublishedPart]) -> tuple[str, ...]:
    """The sorted versions of the parts."""
    return tuple(sorted(part.version for part in parts))


def fingerprint_of(
    actions: PublishedActions, row_filters: Sequence[str], versions: Sequence[str]
) -> str:
    """The fingerprint as text, for example ``iud-- OR a > 5 @0123456789abcdef``."""
    flags = (actions.insert, actions.update, actions.delete, actions.truncate, actions.viaroot)
    letters = "".join(letter if flag else "-" for letter, flag in zip("iudtv", flags, strict=True))
    digest = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]
    return f"{' OR '.join([letters, *sorted(row_filters)])} @{digest}"


def key_digest(columns: Iterable[KeyColumn]) -> str:
    """Condense the columns of a key; the order of the columns makes no difference."""
    return hashlib.sha256(repr(sorted(columns)).encode()).hexdigest()[:16]


def with_key_digest(stored: str, digest: str) -> str:
    """The text that a copy stores, with another digest of the key."""
    return _at_copy(published_as(stored) or "", digest, stored_file(stored))


def with_file(stored: str, number: int) -> str:
    """The text that a copy stores, with another file of the table."""
    return _at_copy(published_as(stored) or "", stored_key_digest(stored), number)


def stored_key_digest(stored: str | None) -> str | None:
    """The digest of the key columns in a stored fingerprint; None if the key is not known."""
    found = _AT_COPY.search(stored or "")
    return found["key"] if found else None


def stored_file(stored: str | None) -> int | None:
    """The file of the table in a stored fingerprint; None if the file is not known."""
    found = _AT_COPY.search(stored or "")
    return int(found["file"]) if found and found["file"] else None


def published_as(stored: str | None) -> str | None:
    """The fingerprint of the publications in a stored fingerprint, without key and file."""
    return None if stored is None else _AT_COPY.sub("", stored, count=1)


def _at_copy(fingerprint: str, digest: str | None, file: int | None) -> str:
    key = "" if digest is None else f" #{digest}"
    return fingerprint + key + ("" if file is None else f" /{file}")
