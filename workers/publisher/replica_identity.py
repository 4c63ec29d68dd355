"""Whether the key flags of a Relation message are all of a table's replica identity.

A publication may leave out a part of it: with a column list, as long as it publishes no UPDATE and
no DELETE; before version 18 also where a column of the identity is generated. The Relation message
shows nothing of that, its flags look like a whole key:

    PRIMARY KEY (shop, number), list (shop, total)    R shop*, total    I (1, 10)  I (1, 20)

Taken for a key, ``shop`` would have the second row stop, or with ``on_key_conflict: overwrite``
take the place of the first. So the publisher is asked, whenever it announces a relation, what the
identity has. It answers with what is so now, while the message is as old as the change behind it:
flags that fit neither the whole identity nor what is sent of it now are from another time, and
then nothing is known. A key is looked for all the same, for two rows of one key would be worse; but
a row that has it is an error and is not overwritten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from catalog.namespace import quote_literal_list
from workers.proto.messages import Relation
from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import newest, query

Identities = Mapping[int, Mapping[str, bool]]
"""Oid of a relation → each column of its replica identity, and whether it is sent."""


class Coverage(Enum):
    """What a relation's key flags are of its replica identity."""

    WHOLE = "whole"
    PART = "part"
    UNKNOWN = "unknown"


def fetch_identities(
    conn: QueryConn, publications: Sequence[str], relids: Collection[int]
) -> dict[int, dict[str, bool]]:
    """The identities as they are now; a relation that has none, or is gone, is left out."""
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


def coverage(relation: Relation, identity: Mapping[str, bool] | None) -> Coverage:
    """What the relation's flags are of the identity that the publisher says it has."""
    flagged = {column.name for column in relation.columns if column.key}
    if not identity:
        return Coverage.UNKNOWN
    if flagged == identity.keys():
        return Coverage.WHOLE
    sent = {name for name, is_sent in identity.items() if is_sent}
    # A column that is not sent now and is in the message was sent then: it was no part of the key.
    announced = {column.name for column in relation.columns}
    part = flagged == sent and announced.isdisjoint(identity.keys() - sent)
    return Coverage.PART if part else Coverage.UNKNOWN
