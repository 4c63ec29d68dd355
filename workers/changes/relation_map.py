"""The relation map: which lake table and which layout a remote relation's changes have.

PostgreSQL's ``relation.c``. A Relation message announces oid, names, columns and the key flags of
a remote table before its first change and again after anything about it changed; the one in force
when a change was written is the one that describes its tuples. The target is resolved by name, and
the publisher's text is read as what the *lake's* column is, as PostgreSQL lets the subscriber's
column type parse it.
"""

from __future__ import annotations

from typing import Final

from catalog.errcodes import ProtocolViolation
from workers.proto.messages import Relation
from workers.publisher.replica_identity import Coverage

REPLICA_IDENTITY_FULL: Final = "f"

RelName = tuple[str, str]
"""(schema, table) on the publisher."""


class LogicalRepRelMap:
    """Remote relation oid → the Relation message in force."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}
        self._announced: set[Relation] = set()

    def copy(self) -> LogicalRepRelMap:
        """A map a batch may move forward and throw away if the batch fails."""
        twin = LogicalRepRelMap()
        twin._relations = dict(self._relations)
        twin._announced = set(self._announced)
        return twin

    def update(self, relation: Relation) -> bool:
        """``logicalrep_relmap_update``; False when an equal message is already in force."""
        self._announced.add(relation)
        if self._relations.get(relation.relid) == relation:
            return False
        self._relations[relation.relid] = relation
        return True

    def take_announced(self) -> set[Relation]:
        """The Relation messages that came since the last call, equal ones too."""
        announced, self._announced = self._announced, set()
        return announced

    def get(self, relid: int) -> Relation | None:
        """The message in force, if one came."""
        return self._relations.get(relid)

    def open(self, relid: int) -> Relation:
        """``logicalrep_rel_open``'s first half; 08P01 when no Relation message came."""
        return in_force(self._relations.get(relid), relid)


def in_force(relation: Relation | None, relid: int) -> Relation:
    """The Relation message that a change goes by; 08P01 when none came before it."""
    if relation is None:
        raise ProtocolViolation(
            f"no relation map entry for remote relation ID {relid}",
            detail="Before a change of a relation its relation message was expected.",
        )
    return relation


def name_of(relation: Relation) -> RelName:
    """The remote table's name."""
    return (relation.nspname, relation.relname)


def flags_key(relation: Relation) -> bool:
    """Are there columns that find a row? Not under REPLICA IDENTITY FULL, which flags them all."""
    return relation.replident != REPLICA_IDENTITY_FULL and any(
        column.key for column in relation.columns
    )


def key_ordinals(relation: Relation, coverage: Coverage) -> tuple[int, ...]:
    """Which columns find a row; empty under REPLICA IDENTITY FULL, which compares whole rows, and
    where they are only a part of the replica identity, which other rows may share."""
    if coverage is Coverage.PART or not flags_key(relation):
        return ()
    return tuple(n for n, column in enumerate(relation.columns) if column.key)
