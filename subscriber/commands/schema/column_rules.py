"""Judge the rules under ``columns``: do they name columns, and have they changed?

A rule that names no column is an error: a value that was to stay out of the lake would go there
under its real name. A rule that a table has had since it was subscribed did name a column. The
publisher has renamed or dropped the column since, and the workers see to it that no value goes to
the lake (``workers.changes.column_rules``). So such a rule is a WARNING, and ``pgsub up`` goes on.

A table with columns to hide may be published under another name by now. No new table joins then.

A column that is hidden in another way has the table copied again: the copy alone takes values out
of the lake, or brings values of earlier rows. The new rules and the mark of the table are stored in
one transaction, so no row is written under the new rules before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from catalog.errcodes import FeatureNotSupported, ReplicationError, UndefinedTable
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.recopy import mark_for_recopy
from subscriber.commands.context import CommandContext
from subscriber.commands.table_mapping import MappedTable
from subscriber.messages import Notice, notice, warning
from workers.apply.copy_again import may_copy
from workers.changes.column_rules import unnamed_column
from workers.changes.declared_type import type_errors
from workers.publisher.fingerprint import TableName


def rule_findings(
    mapped: Sequence[MappedTable],
    tables: Mapping[str, TableOptions],
    stored: Subscription | None = None,
    rels: Sequence[SubscriptionRel] = (),
) -> Iterator[ReplicationError | Notice]:
    """Findings about the rules of published tables.

    ``tables`` is the configuration. ``stored`` is an existing subscription, with its tables.
    """
    settled = {}
    if stored is not None:
        names = [(rel.nspname, rel.relname) for rel in rels]
        settled = {qualified_name(*name): stored.table_options(*name) for name in names}
    for table in mapped:
        known = settled[table.name].rules if table.name in settled else ()
        columns = [column.name for column in table.whole.columns]
        for rule in table.options.rules:
            if rule not in columns:
                error = unnamed_column(table.name, rule, columns)
                yield warning(error.primary, hint=error.hint) if rule in known else error
        yield from type_errors(table.whole, table.options)
        for env in sorted({env for env in table.options.hashed.values() if env}):
            if not os.environ.get(env):
                yield warning(
                    f'environment variable "{env}" is not set',
                    detail=f'It has the key of a mask of table "{table.name}".',
                    hint="The launcher needs it; this command does not.",
                )
    relids = {rel.remote_relid for rel in rels}
    joins = any(each.name not in settled and each.whole.relid not in relids for each in mapped)
    published = {table.name for table in mapped}
    for name, options in tables.items():
        if joins and options.guarded and name not in published:
            yield UndefinedTable(
                f'table "{name}" of the configuration is not published',
                detail="It has columns to hide, and may be one of the tables that join, under "
                "another name.",
                hint="Correct the name, or take the entry out. Partitions are published under "
                "the name of their root if the publication has publish_via_partition_root.",
            )


def copy_again_under_rules(
    now: Subscription,
    changed: Subscription,
    known: Mapping[TableName, SubscriptionRel],
    columns: Mapping[TableName, Sequence[str]] | None,
    context: CommandContext,
) -> tuple[list[SubscriptionRel], list[int]]:
    """Have tables copied again that hide columns in another way now, inside ``altering``.

    ``columns`` has the published columns of published tables; None if they are not known. Returns
    the tables, and the oids of those with a running copy.
    """
    reruled = [
        rel
        for name, rel in known.items()
        if _have_changed(now, changed, rel, None if columns is None else columns.get(name, ()))
    ]
    for rel in reruled:
        _check_copied_again(changed, rel)
    return reruled, mark_for_recopy(changed, reruled, context.store)


def notify_reruled(
    reruled: Sequence[SubscriptionRel], copying: Sequence[int], context: CommandContext
) -> None:
    """Stop the running copies of such tables, and tell of the tables."""
    for rel in reruled:
        if rel.srrelid in copying:
            context.stop_sync_worker(rel.srsubid, rel.srrelid)
        name = qualified_name(rel.nspname, rel.relname)
        context.notify(
            notice(
                f'table "{name}" will be copied again: its rules for columns have changed',
                detail="Readers see the former columns until then; older snapshots of the lake "
                "table keep the values until the snapshots expire.",
            )
        )


def _have_changed(
    now: Subscription, wanted: Subscription, rel: SubscriptionRel, columns: Sequence[str] | None
) -> bool:
    """Are columns of a table hidden or typed in another way?

    ``columns`` are published; None: not known.
    """
    before = _rules(now.table_options(rel.nspname, rel.relname))
    after = _rules(wanted.table_options(rel.nspname, rel.relname))
    changed = {name for name, _ in before ^ after}
    return bool(changed if columns is None else changed.intersection(columns))


def _rules(options: TableOptions) -> set[tuple[str, tuple[str, ...]]]:
    """The columns that are hidden or have a declared type, and how."""
    found: set[tuple[str, tuple[str, ...]]] = {(name, ("exclude",)) for name in options.excluded}
    found |= {(name, (kind, env)) for name, kind, env in options.masks}
    return found | {(name, (type,)) for name, type in options.types}


def _check_copied_again(sub: Subscription, rel: SubscriptionRel) -> None:
    """Raise 0A000 if a new copy could destroy rows that only the lake has."""
    options = sub.table_options(rel.nspname, rel.relname)
    if rel.srsubstate is SubRelState.INIT or may_copy(rel, options):
        return
    name = qualified_name(rel.nspname, rel.relname)
    raise FeatureNotSupported(
        f'hidden columns of table "{name}" of subscription "{sub.subname}" cannot be changed',
        detail="The table would have to be copied again, and its lake table may have rows that "
        "do not come from the table.",
        hint="Drop the subscription and create it again, with another lake table.",
    )
