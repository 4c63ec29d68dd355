"""The layout of a relation: the columns in the lake table, and the key. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.namespace import qualified_name
from catalog.pg_subscription import TableOptions
from workers.changes.column_checks import check_columns, check_keys
from workers.changes.column_comments import is_clamped
from workers.changes.column_rules import hidden_key, is_no_key
from workers.changes.declared_type import type_of
from workers.changes.masked_columns import check_lake_types, masks_of
from workers.changes.relation_map import flags_key, key_ordinals, name_of
from workers.columnar.column_reader import Changes, Layout, MappedColumn
from workers.lake.sources import check_source_column
from workers.lake.table import SOURCE_COLUMN, LakeTable
from workers.lake.typemap import built_in_type
from workers.proto.messages import Relation
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL, Coverage


class PartOfIdentity(ObjectNotInPrerequisiteState):
    """A change names the row by a part of the replica identity, and rows may share the part.

    The change cannot be applied either after the publisher got a new identity. So the
    subscription has to be disabled before, and the table copied after.
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


@dataclass(frozen=True, slots=True)
class LaidOutRun:
    """Changes of a relation, and how the published columns become columns of the lake table.

    ``coverage`` says whether the relation's key columns are the whole replica identity.
    """

    relation: Relation
    changes: Changes
    coverage: Coverage
    layout: Layout

    @property
    def columns(self) -> tuple[str, ...]:
        """The lake's names of the published columns."""
        return tuple(column.name for column in self.layout.columns)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns; empty if rows are matched as a whole."""
        return self.names(self.layout.key)

    def names(self, ordinals: Sequence[int]) -> tuple[str, ...]:
        """The lake's names of some columns."""
        by_ordinal = {column.ordinal: column.name for column in self.layout.columns}
        return tuple(by_ordinal[ordinal] for ordinal in ordinals)

    def published_name(self, lake_column: str) -> str:
        """The publisher's name of a lake column, for CONTEXT."""
        by_name = {column.name: column.ordinal for column in self.layout.columns}
        return self.relation.columns[by_name[lake_column]].name


def layout_for(
    relation: Relation, table: LakeTable, options: TableOptions, coverage: Coverage
) -> Layout:
    """Return how the tuples of a relation become columns of the lake table.

    Raises 55000 with the name of every published column that the lake table lacks, as PostgreSQL
    does. A shared table must also have the source column, and must not generate the column. An
    column that is left out is in no layout, and must not be needed to find a row (22023).
    """
    key = key_ordinals(relation, coverage)
    for ordinal in key:
        if is_no_key(relation.columns[ordinal].name, options):
            table_name = qualified_name(relation.nspname, relation.relname)
            raise hidden_key(table_name, relation.columns[ordinal].name, options)
    names = options.lake_columns([column.name for column in relation.columns], table.ident)
    needed = list(names.values())
    if options.shared:
        check_source_column(".".join(name_of(relation)), needed)
        needed.append(SOURCE_COLUMN)
    check_columns(needed, table, options.generated, _known_types(relation, names, options))
    types = {column.name: column.type for column in table.columns}
    masks = masks_of(options)
    key_names = {
        names[each.name]
        for each in relation.columns
        if each.key and each.name in names and flags_key(relation)
    }
    check_lake_types(options, {name: types[lake] for name, lake in names.items()}, table.ident)
    return Layout(
        ncols=len(relation.columns),
        key=key,
        columns=tuple(
            MappedColumn(
                name,
                ordinal,
                types[name],
                masks.get(each.name),
                is_clamped(name, types[name], options, key_names),
            )
            for ordinal, each in enumerate(relation.columns)
            if (name := names.get(each.name)) is not None
        ),
        null_unrepresentable=options.on_unrepresentable == "null",
    )


def _known_types(
    relation: Relation, names: Mapping[str, str], options: TableOptions
) -> dict[str, pa.DataType]:
    """The lake types of a relation's columns, by lake name; without types that need a question."""
    as_text = options.on_unrepresentable == "text"
    found = {
        names[each.name]: built_in_type(each.typid, each.typmod, as_text=as_text)
        for each in relation.columns
        if each.name in names
    }
    found |= {lake: pa.string() for name, lake in names.items() if name in options.hashed}
    found |= {names[name]: type_of(name, options) for name, _ in options.types if name in names}
    return {name: type for name, type in found.items() if type is not None}


def other_keys(
    relation: Relation, table: LakeTable, options: TableOptions, coverage: Coverage
) -> tuple[tuple[int, ...], ...]:
    """Return the declared keys besides the replica identity, as ordinals (``check_keys``)."""
    ordinals = {column.name: n for n, column in enumerate(relation.columns)}
    check_keys(options, relation.replident, ordinals, table.ident)
    keys = [tuple(ordinals[name] for name in key) for key in options.keys]
    identity = set(key_ordinals(relation, coverage))
    return tuple(key for key in keys if set(key) != identity)


def check_updatable(relation: Relation, table: LakeTable, coverage: Coverage) -> None:
    """``check_relation_updatable``: an UPDATE or DELETE needs columns that find the row."""
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
