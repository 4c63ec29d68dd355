"""Find out whether the key flags of a Relation message cover a table's whole replica identity.

A publication may leave out a part of the identity: with a column list, if the publication publishes
no UPDATE and no DELETE; before version 18 also if a column of the identity is generated. The
Relation message does not show the omission, the flags look like a whole key:

    PRIMARY KEY (shop, number), list (shop, total)    R shop*, total    I (1, 10)  I (1, 20)

If ``shop`` counted as the key, the second row would stop the worker, or would replace the first row
with ``on_key_conflict: overwrite``. The worker therefore asks the publisher for the columns of the
identity, whenever the publisher announces a relation. The answer describes the present, while the
message is as old as the change after the message. Flags that fit neither the whole identity nor the
part that is sent now are from another time: the coverage is unknown. The worker then still looks up
inserted keys, because two rows with one key would be worse; but an existing row with the key is an
error, and the worker does not overwrite the row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final

from catalog.namespace import quote_literal_list
from workers.proto.messages import Relation
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import newest, query

REPLICA_IDENTITY_FULL: Final = "f"
"""``relreplident`` of a table whose old rows are whole."""

Identities = Mapping[int, Mapping[str, bool]]
"""Oid of a relation → column of the replica identity → True if the column is sent.

Under REPLICA IDENTITY FULL the columns of the primary key, if the key is checked at once. Besides
the columns there may be ``OTHER_LEAF``, also without any column."""

OTHER_LEAF: Final = ""
"""Stands among the columns of a partitioned table under REPLICA IDENTITY FULL: some partition logs
another identity, so an old row may have nothing but the partition's key. No column has the name.
The value is True if the identity of a partition lacks a column of the primary key."""


class Coverage(Enum):
    """The part of a relation's replica identity that the key flags cover."""

    WHOLE = "whole"
    PART = "part"
    UNKNOWN = "unknown"


def fetch_identities(
    conn: QueryConn, publications: Sequence[str], relids: Collection[int]
) -> dict[int, dict[str, bool]]:
    """Ask for the present identities.

    The result leaves out a relation with neither a column in the identity nor ``OTHER_LEAF``.
    """
    version = conn.server_version
    names = quote_literal_list(publications)
    rows = conn.exec(
        query(
            "identities",
            relids=", ".join(str(relid) for relid in sorted(relids)),
            key=query(newest("key", version, 11, 10)),
            sent=query(
                newest("sent", version, 18, 15, 12, 10),
                listed=query("listed", publications=names),
                in_publication=query("in_publication"),
                publications=names,
            ),
        )
    )
    found: dict[int, dict[str, bool]] = {}
    for relid, column, sent in rows:
        found.setdefault(int(relid or 0), {})[column or ""] = sent == "t"
    return found


def key_under_full(identity: Mapping[str, bool] | None, columns: Collection[str]) -> frozenset[str]:
    """The primary key of a table under REPLICA IDENTITY FULL, or empty.

    Empty, too, if a column of the key is not sent, or is missing in what a partition logs.

    The native subscriber finds a row by the primary key of its own table, before whole rows.
    """
    key = _columns(identity)
    usable = all(key.values()) and key.keys() <= set(columns)
    return frozenset(key) if usable and not (identity or {}).get(OTHER_LEAF) else frozenset()


def coverage(relation: Relation, identity: Mapping[str, bool] | None) -> Coverage:
    """Compare a relation's key flags with the identity that the publisher reports."""
    flagged = {column.name for column in relation.columns if column.key}
    known = _columns(identity)
    whole = known.keys()
    if not whole:
        return Coverage.UNKNOWN
    if flagged == whole:
        return Coverage.WHOLE
    sent = {name for name, is_sent in known.items() if is_sent}
    # A column that is in the message but is not sent now was sent then, and was not in the key.
    announced = {column.name for column in relation.columns}
    part = flagged == sent and announced.isdisjoint(whole - sent)
    return Coverage.PART if part else Coverage.UNKNOWN


def _columns(identity: Mapping[str, bool] | None) -> dict[str, bool]:
    """The columns of an identity, without ``OTHER_LEAF``."""
    return {name: sent for name, sent in (identity or {}).items() if name != OTHER_LEAF}
