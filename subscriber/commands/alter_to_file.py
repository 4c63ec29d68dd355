"""``up FILE`` for an existing subscription: bring the subscription in line with the file.

The columns follow the file, options as ALTER SUBSCRIPTION … SET would set them, and the tables are
refreshed. A few options follow only if written in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from catalog import table_renames
from catalog.errcodes import ConnectionFailure, FeatureNotSupported, ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import Refresh, Subscription, TableOptions, TwoPhaseState
from catalog.pg_subscription_rel import SubscriptionRel
from config.subscription import CreateSubscriptionStmt
from subscriber.commands.alter import (
    alter_slot_of,
    has_prepared_xacts,
    has_running_worker,
    note_changed_slot,
    password_file,
    wait_for_reload,
)
from subscriber.commands.alter_rules import OptionsChange, check_enable, options_change
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import (
    check_password,
    disable_subscription,
    new_row,
    raise_first,
)
from subscriber.commands.lake_branches import drop_lake_branches
from subscriber.commands.refresh import altering, refresh_tables, store_columns
from subscriber.commands.schema.column_rules import copy_again_under_rules, notify_reruled
from subscriber.commands.subscription_row import must_be_ready
from subscriber.commands.table_mapping import lake_ident
from subscriber.messages import Notice, notice, warning
from workers.lake.sources import source_of
from workers.publisher.publications import missing_on_publisher, missing_publications

_FOLLOWED: Final = (
    "subconninfo",
    "subenabled",
    "subpublications",
    "sync_slot",
    "refresh",
    "password_env",
    "password_command",
    "password_command_ttl",
    "tables",
)
"""Columns that follow the file."""

_OPTIONS: Final = {
    "binary": "subbinary",
    "streaming": "substream",
    "disable_on_error": "subdisableonerr",
    "password_required": "subpasswordrequired",
    "run_as_owner": "subrunasowner",
    "synchronous_commit": "subsynccommit",
    "origin": "suborigin",
    "slot_name": "subslotname",
    "failover": "subfailover",
}
"""Options set from the file, with the columns."""

_WHEN_WRITTEN: Final = ("slot_name", "failover")
"""Options that stay unchanged unless written in the file."""


def bring_in_line(
    sub: Subscription, stmt: CreateSubscriptionStmt, context: CommandContext
) -> Subscription:
    """Change an existing, ready subscription to its file; the new row.

    A NOTICE lists the changes. Three problems are only warnings: an unreachable publisher (the
    workers go on trying, and the next ``up`` refreshes again), a missing publication (it may be on
    the way from DROP to CREATE, and all its tables would leave), and a worker that has not reloaded
    in time.
    """
    stmt = under_present_names(sub, stmt, context)
    raise_first(list(refusals(sub, stmt, context)))
    check_password(stmt, context.settings)
    change = _options_change(sub, stmt, context)
    if change.needs_rest and sub.subenabled:
        # The file disables the subscription, else a refusal was raised; a slot in use cannot
        # change.
        disable_subscription(sub.subname, context)
        sub = must_be_ready(sub.subname, context)
    wanted = replace(new_row(stmt), subenabled=_enabled(sub, stmt))
    columns = dict(change.columns)
    columns |= {
        name: getattr(wanted, name)
        for name in _FOLLOWED
        if getattr(wanted, name) != getattr(sub, name)
    }
    with password_file(sub, stmt.connection, context) as passfile:
        columns |= passfile
        alter_slot_of(replace(sub, **{**columns, "subslotname": sub.subslotname}), change, context)
        return _store_and_refresh(sub, columns, stmt, context)


def _enabled(sub: Subscription, stmt: CreateSubscriptionStmt) -> bool:
    """The file's ``enabled`` if written; else an ENABLE or DISABLE by hand stays."""
    return stmt.options.enabled if "enabled" in stmt.options.specified else sub.subenabled


def _options_change(
    sub: Subscription, stmt: CreateSubscriptionStmt, context: CommandContext
) -> OptionsChange:
    """The ALTER SUBSCRIPTION … SET that changes the options to the file's."""
    wanted, written = new_row(stmt), stmt.options.specified
    options = {
        name: getattr(wanted, column)
        for name, column in _OPTIONS.items()
        if getattr(wanted, column) != getattr(sub, column)
        and (name in written or name not in _WHEN_WRITTEN)
    }
    now = sub.subtwophasestate is not TwoPhaseState.DISABLED
    if "two_phase" in written and stmt.options.two_phase != now:
        options["two_phase"] = stmt.options.two_phase
    enabled = _enabled(sub, stmt)
    asked = sub if enabled else replace(sub, subenabled=False)
    change = options_change(
        asked,
        options,
        running=lambda: not sub.subenabled and has_running_worker(sub, context),
        prepared=lambda: has_prepared_xacts(sub, context),
    )
    if enabled:
        check_enable(replace(sub, **change.columns))
    return change


def _store_and_refresh(
    sub: Subscription,
    columns: Mapping[str, Any],
    stmt: CreateSubscriptionStmt,
    context: CommandContext,
) -> Subscription:
    changed, has_table_change = sub, False
    removed: list[SubscriptionRel] = []
    conn = _connect(replace(sub, **columns), context) if stmt.options.connect else None
    if conn is None:
        if columns:
            with altering(sub, context) as now:
                changed = store_columns(now, columns, context)
                known = {(rel.nspname, rel.relname): rel for rel in context.store.rels(sub.oid)}
                reruled, copying = copy_again_under_rules(now, changed, known, None, context)
            notify_reruled(reruled, copying, context)
            _notify_changes(changed, columns, context)
    else:
        with closing(conn):
            changed, has_table_change, removed = refresh_tables(
                sub,
                conn,
                context,
                copy_data=stmt.options.copy_data,
                columns=columns,
                validate=(),
                replaces=stmt.refresh is Refresh.AUTO,
            )
            _notify_changes(changed, columns, context)
    if columns:
        note_changed_slot(sub, changed, context)
    if columns or has_table_change:
        wait_for_reload(changed, context)
    if removed:
        drop_lake_branches(changed, removed, context)
    return changed


def _connect(sub: Subscription, context: CommandContext) -> Any:
    """A connection to the publisher; None with a warning if the tables cannot be compared."""
    try:
        conn = context.connect(sub)
    except ConnectionFailure as error:
        context.notify(_not_refreshed(sub, error.primary, error.detail))
        return None
    missing = missing_publications(conn, sub.subpublications)
    if not missing:
        return conn
    conn.close()
    context.notify(_not_refreshed(sub, missing_on_publisher(missing)))
    return None


def _not_refreshed(sub: Subscription, why: str, detail: str | None = None) -> Notice:
    later = "a look finds it later" if sub.refresh is Refresh.AUTO else "run up again later"
    return warning(
        f'tables of subscription "{sub.subname}" were not refreshed: {why}',
        detail=detail,
        hint=f"The subscription goes on with the tables it has; {later}.",
    )


def _notify_changes(sub: Subscription, columns: Mapping[str, Any], context: CommandContext) -> None:
    if columns:
        names = ", ".join(sorted(name.removeprefix("sub") for name in columns))
        context.notify(notice(f'subscription "{sub.subname}" was brought in line: {names}'))


def under_present_names(
    sub: Subscription, stmt: CreateSubscriptionStmt, context: CommandContext
) -> CreateSubscriptionStmt:
    """The file, with the present names of tables that have other names on the publisher now."""
    tables = table_renames.under_present_names(stmt.tables, context.store.rels(sub.oid))
    return replace(stmt, tables=tables)


def refusals(
    sub: Subscription, stmt: CreateSubscriptionStmt, context: CommandContext
) -> Iterator[ReplicationError]:
    """Errors about changes in the file that an existing subscription cannot follow.

    The file is ``under_present_names``.
    """
    try:
        _options_change(sub, stmt, context)
    except ReplicationError as error:
        yield error
    for rel in context.store.rels(sub.oid):
        ident, table = lake_ident(rel.nspname, rel.relname, stmt.tables)
        if rel.holds_messages and table.to is None:
            continue  # the table leaves
        if table.shared != bool(source_of(sub, rel)):
            yield FeatureNotSupported(
                f'option "shared" of table "{qualified_name(rel.nspname, rel.relname)}" of '
                f'subscription "{sub.subname}" cannot be changed',
                detail="Its rows in the lake would bear the wrong source, or none.",
                hint="Drop the subscription and create it again, with another lake table.",
            )
        if (ident.schema, ident.table) != (rel.lake_schema, rel.lake_table):
            yield FeatureNotSupported(
                f'table "{qualified_name(rel.nspname, rel.relname)}" of subscription '
                f'"{sub.subname}" is written to lake table '
                f'"{qualified_name(rel.lake_schema, rel.lake_table)}" and cannot be mapped anew',
                hint="Run pgsub up with a file without messages_to first: the table leaves."
                if rel.holds_messages
                else "Drop the subscription and create it again.",
            )
        yield from _column_refusals(sub, rel, table)
        yield from _generated_refusals(table)


def _column_refusals(
    sub: Subscription, rel: SubscriptionRel, wanted: TableOptions
) -> Iterator[ReplicationError]:
    """Errors about lake columns that would go from one published column to another.

    Old and new rows of the lake column would have values of two columns. A mapping may come or go
    otherwise: the workers name each lake column that is missing.
    """
    name = qualified_name(rel.nspname, rel.relname)
    now = sub.tables.get(name, TableOptions())
    known = dict(now.columns) | dict(wanted.columns)
    for former, lake in {**{each: each for each in known.values()}, **dict(now.columns)}.items():
        if now.lake_column(former) != lake or wanted.lake_column(former) == lake:
            continue
        for later in known:
            if now.lake_column(later) != lake and wanted.lake_column(later) == lake:
                yield FeatureNotSupported(
                    f'lake column "{lake}" of table "{name}" of subscription "{sub.subname}" '
                    f'cannot go from column "{former}" to column "{later}"',
                    detail="Rows in the lake would keep the values of the former column.",
                    hint="Drop the subscription and create it again, with another lake table.",
                )


def _generated_refusals(table: TableOptions) -> Iterator[ReplicationError]:
    """Errors about expressions that are invalid for any columns."""
    if table.generated:
        from workers.lake.generated_columns import read_generated

        try:
            read_generated(table.generated)
        except ReplicationError as error:
            yield error
