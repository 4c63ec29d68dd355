"""Read the published parts of each table, and condense them to a fingerprint.

The keys of a copied table stay known only while the publications stay the same. A publication that
was changed and changed back between two looks may have left changes out. So the fingerprint holds
the actions, the row filters, and the version (``xmin``) of every catalog row that makes the table
part of a publication: a change that was taken back leaves other versions.

A copy also stores a digest of the key columns, with names and types. The digest follows the
fingerprint, for example ``iudt- @0123456789abcdef #fedcba9876543210``. An ALTER COLUMN TYPE with
USING gives the publisher's rows other keys and sends no change of a row; the digest differs
afterwards. A fingerprint without the digest was stored by an older version: the key is not known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.namespace import quote_literal_list
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import query, to_text

TableName = tuple[str, str]

KeyColumn = tuple[str, int, int]
"""The name of a key column, the oid of the type, and the type modifier."""

_KEY_DIGEST: Final = re.compile(r" #([0-9a-f]{16})\Z")


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


def fetch_fingerprints(conn: QueryConn, publications: Sequence[str]) -> dict[TableName, str]:
    """Ask for the fingerprint of every published table in one query.

    The fingerprints equal those of ``RemoteTable.fingerprint``.
    """
    published = fetch_parts(conn, publications)
    return {
        table: fingerprint_of(
            combine_actions(parts),
            combine_filters(part.row_filter for part in parts),
            versions_of(parts),
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
        part = PublishedPart(tuple(value == "t" for value in row[2:7]), row[7], to_text(row[8]))
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


def with_key_digest(fingerprint: str, digest: str) -> str:
    """The text that a copy stores: the fingerprint of the publications, then the key's digest."""
    return f"{fingerprint} #{digest}"


def stored_key_digest(stored: str | None) -> str | None:
    """The digest of the key columns in a stored fingerprint; None if the key is not known."""
    found = _KEY_DIGEST.search(stored or "")
    return found[1] if found else None


def published_as(stored: str | None) -> str | None:
    """The fingerprint of the publications in a stored fingerprint, without the key's digest."""
    return None if stored is None else _KEY_DIGEST.sub("", stored)
