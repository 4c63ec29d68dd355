"""The relation map: which lake table and which layout a remote relation's changes have.

PostgreSQL's ``relation.c``. A Relation message announces oid, names, columns and the key flags of
a remote table before its first change and again after anything about it changed; the one in force
when a change was written is the one that describes its tuples. The target is resolved by name, and
the publisher's text is read as what the *lake's* column is, as PostgreSQL lets the subscriber's
column type parse it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Final

from catalog.errcodes import (
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    ProtocolViolation,
    UndefinedColumn,
)
from catalog.namespace import qualified_name
from catalog.pg_subscription import TableOptions
from workers.columnar.columns import Layout, MappedColumn
from workers.lake.counts import LakeIdent
from workers.lake.destination import SOURCE_COLUMN, Generated, LakeTable
from workers.proto.messages import Relation
from workers.replica_identity import Coverage
from workers.shared_targets import check_source_column

REPLICA_IDENTITY_FULL: Final = "f"

RelName = tuple[str, str]
"""(schema, table) on the publisher."""


class PartOfIdentity(ObjectNotInPrerequisiteState):
    """A change names its row by a part of the replica identity, which other rows may share.

    Nor can it be applied once the publisher has another identity: the subscription has to be
    stopped before, and the table copied after.
    """

    def __init__(self, relation: Relation, table: LakeTable) -> None:
        name = qualified_name(relation.nspname, relation.relname)
        super().__init__(
            "publisher did not send replica identity column expected by the logical replication "
            f'target relation "{table.ident}"',
            detail="A part of the replica identity is not published, and rows may share the rest.",
            hint="Disable the subscription. On the publisher, publish the whole replica identity "
            f"of {name}, give it another one, or ALTER TABLE ... REPLICA IDENTITY FULL. Then pgsub "
            f"refresh NAME --recopy {shlex.quote(name)}, and enable the subscription.",
        )


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


def layout_for(
    relation: Relation, table: LakeTable, options: TableOptions, coverage: Coverage
) -> Layout:
    """How this relation's tuples become this lake table's columns.

    Raises 55000 naming every published column the lake table lacks, as PostgreSQL does. In a shared
    table what says where a row came from must be there, too, and must not be generated.
    """
    published = [column.name for column in relation.columns]
    needed = published
    if options.shared:
        check_source_column(".".join(name_of(relation)), published)
        needed = [*published, SOURCE_COLUMN]
    check_columns(needed, table, options.generated)
    types = {column.name: column.type for column in table.columns}
    return Layout(
        ncols=len(relation.columns),
        key=key_ordinals(relation, coverage),
        columns=tuple(
            MappedColumn(name=column.name, ordinal=ordinal, type=types[column.name])
            for ordinal, column in enumerate(relation.columns)
        ),
        null_unrepresentable=options.on_unrepresentable == "null",
    )


def other_keys(
    relation: Relation, table: LakeTable, options: TableOptions, coverage: Coverage
) -> tuple[tuple[int, ...], ...]:
    """The declared keys besides the replica identity, as ordinals; see ``check_keys``."""
    ordinals = {column.name: n for n, column in enumerate(relation.columns)}
    check_keys(options, relation.replident, ordinals, table.ident)
    keys = [tuple(ordinals[name] for name in key) for key in options.keys]
    identity = set(key_ordinals(relation, coverage))
    return tuple(key for key in keys if set(key) != identity)


def check_keys(
    options: TableOptions, replident: str, published: Collection[str], ident: LakeIdent
) -> None:
    """Declared keys are of published columns (42703), of a table whose rows a key finds (0A000)."""
    if not options.keys:
        return
    if replident == REPLICA_IDENTITY_FULL:
        raise FeatureNotSupported(
            f'keys of lake table "{ident}" cannot be checked under REPLICA IDENTITY FULL',
            hint="Give the table another replica identity on the publisher, or leave keys out.",
        )
    for name in (name for key in options.keys for name in key):
        if name not in published:
            raise UndefinedColumn(
                f'column "{name}" of a key of lake table "{ident}" is not published',
                hint="Correct keys of the table in the configuration.",
            )


def check_columns(published: Sequence[str], table: LakeTable, generated: Generated = ()) -> None:
    """Every published column must be in the lake table, and must not be generated there.

    55000 naming all that are not, or are. What is generated must be there, too.
    """
    known = {column.name for column in table.columns}
    missing = [name for name in published if name not in known]
    if missing:
        columns = _listed(missing)
        raise ObjectNotInPrerequisiteState(
            f'logical replication target relation "{table.ident}" is missing replicated {columns}',
            hint="Add to the lake table what is missing with ALTER TABLE ... ADD COLUMN in pgsub "
            "sql, or leave it out of the publication.",
        )
    check_generated(published, generated, table.ident)
    absent = [name for name, _ in generated if name not in known]
    if absent:
        columns = _listed(absent)
        raise ObjectNotInPrerequisiteState(
            f'lake table "{table.ident}" is missing generated {columns}',
            hint="Add to it what is missing with ALTER TABLE ... ADD COLUMN in pgsub sql; pgsub "
            "refresh NAME --recopy TABLE computes it for rows that are there.",
        )


def check_generated(published: Sequence[str], generated: Generated, ident: LakeIdent) -> None:
    """What is published must not be generated here as well; 55000 naming all that is."""
    names = {name for name, _ in generated}
    both = [name for name in published if name in names]
    if both:
        columns = _listed(both)
        raise ObjectNotInPrerequisiteState(
            f'logical replication target relation "{ident}" has incompatible generated {columns}',
            hint="Leave them out of generated of the table in the configuration, or out of the "
            "publication.",
        )


def _listed(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'}: " + ", ".join(f'"{n}"' for n in names)


def check_updatable(relation: Relation, table: LakeTable, coverage: Coverage) -> None:
    """``check_relation_updatable``: an UPDATE or DELETE needs something to find its row by."""
    if relation.replident == REPLICA_IDENTITY_FULL or key_ordinals(relation, coverage):
        return
    if coverage is Coverage.PART:
        raise PartOfIdentity(relation, table)
    raise ObjectNotInPrerequisiteState(
        f'logical replication target relation "{table.ident}" has neither REPLICA IDENTITY index '
        "nor PRIMARY KEY column and published relation does not have REPLICA IDENTITY FULL",
        hint=f"On the publisher, give the table {relation.nspname}.{relation.relname} a primary "
        "key, or ALTER TABLE ... REPLICA IDENTITY FULL.",
    )
