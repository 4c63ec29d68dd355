"""The relation map: the name and the columns of each remote relation.

PostgreSQL's ``relation.c``. A Relation message announces oid, names, columns and key flags of a
remote table, before the first change of the table and again after any change of the definition.
The last message before a change describes the tuples of the change. The target table is found by
name. The relation of logical messages is never announced, and is in force from the start. The type
of the *lake's* column says how the publisher's text is read, as in PostgreSQL the
type of the subscriber's column.
"""

from __future__ import annotations

from catalog.errcodes import ProtocolViolation
from workers.changes.captured_shape import ToldInStream
from workers.proto.message_rows import MESSAGES
from workers.proto.messages import Relation
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL, Coverage

RelName = tuple[str, str]
"""(schema, table) on the publisher."""


class LogicalRepRelMap:
    """Remote relation oid → the Relation message in force; ``told`` is what triggers tell."""

    def __init__(self) -> None:
        self.told = ToldInStream()
        self._relations: dict[int, Relation] = {MESSAGES.relid: MESSAGES}
        self._announced: set[Relation] = set()

    def copy(self) -> LogicalRepRelMap:
        """Copy the map: a batch moves one map forward, and the other is kept if the batch fails."""
        twin = LogicalRepRelMap()
        twin.told = self.told.copy()
        twin._relations = dict(self._relations)
        twin._announced = set(self._announced)
        return twin

    def update(self, relation: Relation) -> bool:
        """``logicalrep_relmap_update``; False when an equal message is already in force.

        The newest of equal messages is kept: a table that is announced again may have changed.
        """
        self._announced.add(relation)
        before = self._relations.get(relation.relid)
        self._relations[relation.relid] = relation
        return before != relation

    def take_announced(self) -> set[Relation]:
        """Return all Relation messages since the last call, also messages without a change."""
        announced, self._announced = self._announced, set()
        return announced

    def get(self, relid: int) -> Relation | None:
        """The message in force, if one came."""
        return self._relations.get(relid)

    def open(self, relid: int) -> Relation:
        """``logicalrep_rel_open``'s first half; 08P01 when no Relation message came."""
        return in_force(self._relations.get(relid), relid)


def in_force(relation: Relation | None, relid: int) -> Relation:
    """Return the Relation message of a change; 08P01 if no message came before the change."""
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
    """True if key columns find a row; REPLICA IDENTITY FULL flags all columns, and none does."""
    return relation.replident != REPLICA_IDENTITY_FULL and any(
        column.key for column in relation.columns
    )


def flagged_key(relation: Relation) -> list[tuple[str, int, int]]:
    """Return the key columns: name, type oid, type modifier. Empty if no columns find a row."""
    if not flags_key(relation):
        return []
    return [(c.name, c.typid, c.typmod) for c in relation.columns if c.key]


def key_ordinals(relation: Relation, coverage: Coverage) -> tuple[int, ...]:
    """Return the columns that find a row.

    Empty under REPLICA IDENTITY FULL, which compares whole rows. Empty too if the columns are only
    a part of the replica identity, because rows may share the part.
    """
    if coverage is Coverage.PART or not flags_key(relation):
        return ()
    return tuple(n for n, column in enumerate(relation.columns) if column.key)
