"""``pgsub schema NAME [TABLE]``: ask publisher, lake and catalog, and lay the answers side by side.

The command changes no data. Publisher and lake answer at different moments: a table altered in
between may show a step of the past. A table locked on the publisher is an error, because the
command waits for no lock longer than a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from catalog.errcodes import ReplicationError, UndefinedObject
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.table_renames import is_followed
from subscriber.commands.context import CommandContext
from subscriber.commands.recopy import choose_rows
from subscriber.commands.schema.compare import ColumnPair, Publisher, Sides, compare
from subscriber.commands.subscription_row import must_be_ready
from subscriber.printing import Row, moment
from workers.changes.remembered_columns import remembered_in
from workers.lake.sql.spark_typemap import spark_ddl_or_void
from workers.lake.table import LakeIdent, LakeTable
from workers.publisher.declared_columns import (
    do_not_wait_for_locks,
    fetch_declared_columns,
    locked,
)
from workers.publisher.interfaces import QueryConn
from workers.publisher.remote_table import fetch_names, fetch_remote_table_info
from workers.publisher.table_shape import fetch_shape

COLUMNS: Final = (
    "relation",
    "attnum",
    "attname",
    "data_type",
    "nullable",
    "in_key",
    "column_default",
    "lake_column",
    "lake_type",
    "lake_nullable",
    "lake_default",
    "field_id",
    "state",
    "since",
    "since_lsn",
    "detail",
    "remedy",
)


def columns_side_by_side(name: str, table: str | None, context: CommandContext) -> list[Row]:
    """A row for each column of the table, or of all tables of the subscription.

    Raises 42704 for an unknown subscription, 42P01 for a table outside the subscription, 55006 for
    a table that is locked on the publisher.
    """
    sub = must_be_ready(name, context)
    chosen = choose_rows(sub, () if table is None else (table,), context)
    rels = [rel for rel in chosen if not rel.holds_messages]  # the publisher has no such table
    if not rels:
        return []
    with closing(context.connect(sub)) as conn:
        do_not_wait_for_locks(conn)
        asked = [_ask(conn, sub, rel) for rel in rels]
    lakes = context.lake_tables([LakeIdent(rel.lake_schema, rel.lake_table) for rel in rels])
    changes_columns = any(lakes) and context.lake().changes_columns
    rows: list[Row] = []
    for rel, (publisher, now_named), lake in zip(rels, asked, lakes, strict=True):
        sides = _sides(sub, rel, publisher, lake, context, changes_columns, now_named)
        rows += _rows(sides)
    return rows


def _ask(
    conn: QueryConn, sub: Subscription, rel: SubscriptionRel
) -> tuple[Publisher | None, str | None]:
    """The table under the subscribed name, and the present name of a table that was renamed."""
    name = qualified_name(rel.nspname, rel.relname)
    try:
        remote = fetch_remote_table_info(conn, rel.nspname, rel.relname, sub.subpublications)
        shape = fetch_shape(conn, remote.relid, sub.subpublications)
        declared = fetch_declared_columns(conn, remote.relid)
    except UndefinedObject:
        relid = rel.other_relid or rel.remote_relid
        found = None if relid is None else fetch_names(conn, [relid]).get(relid)
        return None, None if found is None else qualified_name(*found)
    except ReplicationError as error:
        raise locked(error, name) from None
    return (None if shape is None else Publisher(remote, shape, declared)), None


def _sides(
    sub: Subscription,
    rel: SubscriptionRel,
    publisher: Publisher | None,
    lake: LakeTable | None,
    context: CommandContext,
    changes_columns: bool,
    now_named: str | None,
) -> Sides:
    options = sub.table_options(rel.nspname, rel.relname)
    store, settings = context.store, context.settings
    stored = store.columns(sub.oid, rel.srrelid)
    mode = options.on_schema_change or settings.on_schema_change
    return Sides(
        sub,
        rel,
        options,
        publisher,
        lake,
        None if lake is None else remembered_in(lake, stored, rel.epoch or ""),
        [
            each
            for each in store.schema_changes()
            if (each.subid, each.relid) == (sub.oid, rel.srrelid)
        ],
        changes_columns=changes_columns,
        follows=changes_columns and mode == "follow" and not options.shared,
        drops=(options.on_dropped_column or settings.on_dropped_column) == "drop",
        nulls=(options.on_added_default or settings.on_added_default) == "null",
        now_named=now_named,
        follows_name=is_followed(sub, rel, settings),
    )


def _rows(sides: Sides) -> Iterator[Row]:
    computed: dict[str, str] = {**dict(sides.options.defaults), **dict(sides.options.generated)}
    for pair in compare(sides):
        values: Sequence[Any] = (
            sides.name,
            *_declared(pair),
            *_in_the_lake(pair, computed),
            str(pair.state),
            None if pair.since is None else moment(pair.since.changed),
            None if pair.since is None else pair.since.lsn,
            pair.detail,
            pair.remedy,
        )
        yield dict(zip(COLUMNS, values, strict=True))


def _declared(pair: ColumnPair) -> tuple[Any, ...]:
    if pair.declared is None:
        return (None,) * 6
    column = pair.declared
    told = (column.attnum, column.name, column.type, column.nullable)
    return (*told, pair.in_key, column.default)


def _in_the_lake(pair: ColumnPair, computed: dict[str, str]) -> tuple[Any, ...]:
    if pair.lake is None:
        return (None,) * 5
    column = pair.lake
    type = spark_ddl_or_void(column.type).lower()
    expression = computed.get(column.name)
    return (column.name, type, column.nullable, expression, column.field_id or None)
