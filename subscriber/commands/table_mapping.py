"""Maps published tables to lake tables, and finds every reason against the mapping.

CREATE raises the first finding, ``pgsub check`` lists all findings.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from catalog.errcodes import (
    WRONG_OBJECT_TYPE,
    DuplicateTable,
    FeatureNotSupported,
    InsufficientPrivilege,
    ObjectInUse,
    ReplicationError,
)
from catalog.namespace import MESSAGES_TABLE, qualified_name
from catalog.pg_subscription import Subscription, TableOptions, options_of
from catalog.store_sqlite import CatalogStore
from config.subscription import mapped_twice
from subscriber.messages import Notice, warning
from workers.changes.column_rules import key_errors, taken_columns
from workers.lake.refusals import element_names, reserved_names
from workers.lake.sources import source_column_taken, source_of
from workers.lake.table import SHARED, SOURCE_COLUMN, LakeIdent, LakeTable
from workers.proto.message_rows import FIRST_WITH_MESSAGES
from workers.publisher.interfaces import QueryConn
from workers.publisher.publications import (
    fetch_table_list,
    missing_on_publisher,
    missing_publications,
    tables_of_other_origins,
)
from workers.publisher.remote_table import (
    PARTITIONED_TABLE,
    PLAIN_TABLE,
    RemoteTable,
    fetch_remote_table_info,
    messages_as_table,
)

Tables = Mapping[str, TableOptions]
LakeTables = Callable[[Sequence[LakeIdent]], list[LakeTable | None]]


@dataclass(frozen=True, slots=True)
class MappedTable:
    """A published table, its lake table, and the table's options of the configuration."""

    whole: RemoteTable
    ident: LakeIdent
    options: TableOptions

    @property
    def remote(self) -> RemoteTable:
        """The table with the columns that go to the lake."""
        return taken_columns(self.whole, self.options)

    @property
    def name(self) -> str:
        """The publisher's table as ``schema.table``."""
        return qualified_name(self.whole.nspname, self.whole.relname)

    @property
    def holds_messages(self) -> bool:
        """Is it the table of logical messages, which has nothing to copy?"""
        return (self.remote.nspname, self.remote.relname) == MESSAGES_TABLE

    @property
    def published(self) -> list[str]:
        """The publisher's names of the columns that go to the lake."""
        return [column.name for column in self.remote.columns]

    @property
    def columns(self) -> list[str]:
        """The lake's names of the published and of the generated columns."""
        names = [self.options.lake_column(name) for name in self.published]
        return names + [name for name, _ in self.options.generated]


def lake_ident(nspname: str, relname: str, tables: Tables) -> tuple[LakeIdent, TableOptions]:
    """The lake table of a published table: ``to`` of the configuration, else the same names."""
    options = options_of(tables, nspname, relname)
    return LakeIdent(*(options.to or (nspname, relname))), options


def fetch_mapped_tables(
    conn: QueryConn, publications: Sequence[str], tables: Tables
) -> list[MappedTable]:
    """Every published table, by name, and then the table of logical messages, if asked for.

    Raises the publisher's errors, and 0A000 for a publisher that sends no logical messages.
    """
    asks_messages = qualified_name(*MESSAGES_TABLE) in tables
    if asks_messages and conn.server_version < FIRST_WITH_MESSAGES:
        raise FeatureNotSupported(
            f"publisher of version {conn.server_version} sends no logical messages",
            detail=f"PostgreSQL sends them from version {FIRST_WITH_MESSAGES} on.",
            hint="Take messages_to out of the configuration.",
        )
    mapped = []
    for nspname, relname in fetch_table_list(conn, publications):
        remote = fetch_remote_table_info(conn, nspname, relname, publications)
        mapped.append(MappedTable(remote, *lake_ident(nspname, relname, tables)))
    if asks_messages:
        mapped.append(messages_table(tables))
    return mapped


def messages_table(tables: Tables) -> MappedTable:
    """The table of logical messages."""
    return MappedTable(messages_as_table(), *lake_ident(*MESSAGES_TABLE, tables))


def published_names(mapped: Sequence[MappedTable]) -> list[tuple[str, str]]:
    """The publisher's tables by schema and name."""
    return [(table.remote.nspname, table.remote.relname) for table in mapped]


def missing_publications_warning(conn: QueryConn, publications: Sequence[str]) -> Iterator[Notice]:
    """A single warning with all publications missing on the publisher."""
    missing = missing_publications(conn, publications)
    if missing:
        yield warning(missing_on_publisher(missing))


def other_origins_warning(
    conn: QueryConn, sub: Subscription, known: Collection[tuple[str, str]] = ()
) -> Iterator[Notice]:
    """A single warning if a copy with origin = none may bring rows of other origins.

    ``known`` are the subscription's existing tables, which are not copied now.
    """
    if sub.suborigin != "none":
        return
    written = tables_of_other_origins(conn, sub.subpublications)
    publications = sorted(
        {
            publication
            for nspname, relname, publication in written
            if (nspname, relname) not in known
        }
    )
    if publications:
        one = len(publications) == 1
        yield warning(
            f'subscription "{sub.subname}" requested copy_data with origin = NONE but might '
            "copy data that had a different origin",
            detail="The subscription subscribes to "
            f"{'a publication' if one else 'publications'} ({quoted(publications)}) that "
            f"{'contains' if one else 'contain'} tables that are written to by other "
            "subscriptions.",
            hint="Verify that initial data copied from the publisher tables did not come from "
            "other origins.",
        )


def published_findings(mapped: Sequence[MappedTable]) -> Iterator[ReplicationError]:
    """Findings about the published tables and about two tables with the same lake table."""
    targets: dict[LakeIdent, MappedTable] = {}
    for table in mapped:
        yield from _column_findings(table)
        other = targets.setdefault(table.ident, table)
        if other is not table and not (other.options.shared and table.options.shared):
            yield mapped_twice((table.ident.schema, table.ident.table), other.name, table.name)


def privilege_findings(
    conn: QueryConn, mapped: Sequence[MappedTable]
) -> Iterator[ReplicationError]:
    """Findings about tables that the role may not read: the initial copy reads all columns."""
    if not mapped:
        return
    wanted = ", ".join(
        f"({table.remote.relid}::pg_catalog.oid, "
        f"'{{{','.join(str(column.attnum) for column in table.remote.columns)}}}'"
        "::pg_catalog.int2[])"
        for table in mapped
    )
    refused = {row[0] for row in conn.exec(_MAY_NOT_READ.format(wanted=wanted))}
    for table in mapped:
        if str(table.remote.relid) in refused:
            yield InsufficientPrivilege(
                f'permission denied for table "{table.name}"',
                detail="The initial copy reads it.",
                hint="On the publisher: GRANT SELECT on it, and USAGE on its schema, to the role "
                "of the connection.",
            )


_MAY_NOT_READ: Final = (
    "SELECT c.oid FROM (VALUES {wanted}) w (relid, attnums) "
    "JOIN pg_catalog.pg_class c ON c.oid = w.relid "
    "WHERE NOT (pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') AND "
    "(SELECT bool_and(pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')) "
    "FROM pg_catalog.unnest(w.attnums) a (attnum)))"
)


def _column_findings(table: MappedTable) -> Iterator[ReplicationError]:
    remote = table.remote
    yield from key_errors(table.whole, table.options)
    names = table.columns
    try:
        table.options.lake_columns(table.published, table.ident)
    except ReplicationError as error:
        yield error
    if table.options.shared and SOURCE_COLUMN in names:
        yield source_column_taken(table.name)
    if remote.relkind not in (PLAIN_TABLE, PARTITIONED_TABLE):
        yield ReplicationError(
            f'cannot use relation "{table.name}" as logical replication source',
            detail="It is neither a table nor a partitioned table.",
            sqlstate=WRONG_OBJECT_TYPE,
        )
    if not table.whole.columns:
        yield FeatureNotSupported(
            f'table "{table.name}" has no published columns',
            detail="A lake table needs at least one column.",
            hint="Take the table out of the publication, or add a column to it.",
        )
    yield from reserved_names(table.name, names, partial(_another_name, table))


def _another_name(table: MappedTable, column: str) -> str:
    """The hint with the lines of the configuration that give a column another lake name."""
    options = table.options
    published = [name for name in table.published if options.lake_column(name) == column]
    if not published:  # a generated column
        return "Give the generated column another name in the configuration."
    taken = {name.lower() for name in table.columns}
    new = re.sub(r"\W", "_", column, flags=re.ASCII).strip("_").lower() or "column"
    numbered = itertools.chain([new], (f"{new}_{n}" for n in itertools.count(2)))
    name = next(each for each in numbered if each not in taken)
    mapping = json.dumps({published[0]: {"to": name}}, ensure_ascii=False)
    return (
        f'Map the column to another name: columns: {mapping} of table "{table.name}" in the '
        "configuration. Or rename the column on the publisher, or leave it out with a column list."
    )


def lake_findings(
    mapped: Sequence[MappedTable], lake_tables: LakeTables, store: CatalogStore, sub: Subscription
) -> Iterator[ReplicationError]:
    """Findings about lake tables: in use, of another owner, short of columns, or impossible."""
    taken = _taken_idents(store, sub)
    free = store.former_owners()
    found = lake_tables([table.ident for table in mapped])
    for table, existing in zip(mapped, found, strict=True):
        if table.options.generated:
            yield from _generated_findings(table, existing)
        if existing is None:
            yield from _element_findings(table)
            yield from _layout_findings(table)
        owner, shares = taken.get(table.ident, ("", True))
        if owner and not (shares and table.options.shared):
            yield ObjectInUse(
                f'lake table "{table.ident}" belongs to subscription "{owner}"',
                detail="It is shared." if shares else None,
                hint="Say shared: true for the table, or map it to another name with to:."
                if shares
                else "Map the table to another name with to:.",
            )
        elif existing is not None:
            yield from _existing_findings(table, existing, sub.subuuid, free)


def _element_findings(table: MappedTable) -> Iterator[ReplicationError]:
    """Findings about columns whose name a new lake table uses inside of a list column.

    An existing lake table has no such pair.
    """
    import pyarrow as pa  # most commands need no arrays

    from workers.changes.masked_columns import column_type

    lists = [
        table.options.lake_column(column.name)
        for column in table.remote.columns
        if pa.types.is_list(column_type(column.name, column.type, table.options))
    ]
    yield from element_names(table.name, table.columns, lists, partial(_another_name, table))


def _layout_findings(table: MappedTable) -> Iterator[ReplicationError]:
    """The finding about partitions or a sort order of a new lake table, by the published columns.

    Columns that the lake generates have no type yet: the first copy checks them.
    """
    from workers.lake.new_layout import check_layout, layout_of
    from workers.tables.new_table import lake_columns

    layout = layout_of(table.options)
    if not (layout.partition_by or layout.sort_by):
        return
    try:
        columns = lake_columns(table.remote, table.options, table.ident)
        generated = frozenset(name for name, _ in table.options.generated)
        check_layout(layout, columns, table.ident, later=generated)
    except ReplicationError as error:
        yield error


def _generated_findings(
    table: MappedTable, existing: LakeTable | None
) -> Iterator[ReplicationError]:
    """Findings about the text of generation expressions; Spark checks at the first use."""
    from workers.changes.column_checks import check_generated
    from workers.lake.generated_columns import check_uses

    published = [table.options.lake_column(name) for name in table.published]
    made = [*published, SOURCE_COLUMN] if table.options.shared else published
    known = made if existing is None else [column.name for column in existing.columns]
    try:
        check_uses(table.options.generated, known, table.ident)
        if existing is None:
            check_generated(published, table.options.generated, table.ident)
    except ReplicationError as error:
        yield error


def _existing_findings(
    table: MappedTable, existing: LakeTable, own: str, free: set[str]
) -> Iterator[ReplicationError]:
    """``own`` is the subscription's uuid, ``free`` has the uuids of dropped subscriptions."""
    options, owner = table.options, existing.owner
    if owner == SHARED and not options.shared:
        yield ObjectInUse(
            f'lake table "{table.ident}" is shared',
            detail="Other publisher tables are written to it, or were.",
            hint="Say shared: true for the table, or map it to another name with to:.",
        )
        return
    wanted = SHARED if options.shared else own
    if owner != wanted and not options.adopt:
        yield DuplicateTable(
            f'lake table "{table.ident}" already exists',
            hint="Set adopt: true for the table if its rows belong to it, map it to another name "
            "with to:, or drop the lake table.",
        )
        return
    if owner is not None and owner != wanted and owner not in free:
        yield ObjectInUse(
            f'lake table "{table.ident}" is written by another subscription',
            detail=f"Its owner is {owner}, which this data directory does not know.",
            hint="If that subscription is gone, remove the table's property pgsub.owner with "
            "ALTER TABLE ... UNSET TBLPROPERTIES.",
        )
    # Without an existing table a command need not wait a second for numba.
    from workers.changes.column_checks import check_columns, check_delimiters

    try:
        columns = [(options.lake_column(each.name), each.type) for each in table.remote.columns]
        needed = [name for name, _ in columns]
        needed = [*needed, SOURCE_COLUMN] if options.shared else needed
        check_columns(needed, existing, options.generated)
        check_delimiters(columns, existing)
    except ReplicationError as error:
        yield error


def _taken_idents(store: CatalogStore, sub: Subscription) -> dict[LakeIdent, tuple[str, bool]]:
    """Lake table → another subscription of the data directory, and whether the table is shared."""
    taken: dict[LakeIdent, tuple[str, bool]] = {}
    for other in store.subscriptions():
        for rel in store.rels(other.oid) if other.oid != sub.oid else ():
            ident = LakeIdent(rel.lake_schema, rel.lake_table)
            taken[ident] = (other.subname, bool(source_of(other, rel)))
    return taken


def table_warnings(mapped: Sequence[MappedTable], tables: Tables) -> Iterator[Notice]:
    """Warnings about replica identities, unused tables, and names that differ only by case."""
    names = {table.name for table in mapped}
    unused = [name for name in tables if name not in names]
    if unused:
        yield warning(
            f"{_plural('table', unused)} {quoted(unused)} of the configuration "
            f"{'is' if len(unused) == 1 else 'are'} not published"
        )
    yield from _case_warnings(mapped)
    for table in mapped:
        remote = table.remote
        if not (remote.actions.update or remote.actions.delete) or remote.relreplident == "f":
            continue
        if remote.identity and not remote.key:
            yield warning(
                f'table "{table.name}" publishes updates or deletes but only part of its '
                "replica identity",
                detail="PostgreSQL refuses them on the publisher; before version 18 it does not "
                "where a generated column is missing, and they stop the table here.",
                hint="Publish the whole replica identity, give the table another one, or ALTER "
                "TABLE ... REPLICA IDENTITY FULL.",
            )
        elif not remote.key:
            yield warning(
                f'table "{table.name}" has no replica identity and publishes updates or deletes',
                detail="PostgreSQL refuses them on the publisher until it has one.",
                hint="Give it a primary key, or ALTER TABLE ... REPLICA IDENTITY FULL.",
            )


def _case_warnings(mapped: Sequence[MappedTable]) -> Iterator[Notice]:
    """Warnings about columns of one table, and about lake tables, that differ only by case."""
    for table in mapped:
        for names in _equal_but_for_case(table.columns):
            yield warning(
                f'columns {quoted(names)} of table "{table.name}" differ only by case',
                detail=f"The lake table holds them exactly. {_FOLDING_READERS} Spark needs "
                "spark.sql.caseSensitive = true.",
                hint=_another_name(table, names[0]),
            )
    for names in _equal_but_for_case(str(table.ident) for table in mapped):
        yield warning(
            f"lake tables {quoted(names)} differ only by case",
            detail=f"The lake holds them exactly. {_FOLDING_READERS}",
            hint="Map all but one of them to another name with to:.",
        )


_FOLDING_READERS: Final = (
    "Trino, Hive and Athena fold names to lower case and cannot tell them apart."
)


def _equal_but_for_case(names: Iterable[str]) -> list[list[str]]:
    """The groups of different names that are equal in lower case."""
    groups: dict[str, set[str]] = {}
    for name in names:
        groups.setdefault(name.lower(), set()).add(name)
    return [sorted(group) for group in groups.values() if len(group) > 1]


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, for a message."""
    return ", ".join(f'"{name}"' for name in names)


def _plural(word: str, names: Sequence[str]) -> str:
    return word if len(names) == 1 else f"{word}s"
