"""Drop pgsub's branches of lake tables that leave a subscription.

A branch keeps the files of its moment for a million days: later deletes of the owner free nothing,
and erased rows can still be read by way of the branch. So no branch of pgsub is left on a table
that nobody writes any more.

The workers have ended, or have read that the table left. A call of a dead worker may still be under
way. So ``main`` gets an empty snapshot first (the fence), and then the branches go: no late call
publishes a branch. In a shared lake table only the subscription's own branches go, without a fence.

A lake that cannot be reached stops no command. Then a warning names the tables and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from config.limits import FENCE_AT_ONCE_TABLES
from subscriber.commands.context import CommandContext
from subscriber.messages import warning
from workers.lake.sources import all_branches_of
from workers.lake.table import BRANCH_PREFIX, SHARED, LakeIdent, LakeTable


def drop_lake_branches(
    sub: Subscription, rels: Sequence[SubscriptionRel], context: CommandContext
) -> None:
    """Drop the branches of the tables that belong to the subscription."""
    idents = sorted({LakeIdent(rel.lake_schema, rel.lake_table) for rel in rels})
    try:
        found = [table for table in context.lake_tables(idents) if table is not None]
        tables = [table for table in found if table.owner in (sub.subuuid, SHARED)]
        if not tables:
            return
        lake = context.lake()
    except ReplicationError as error:
        _warn(idents, error, context)
        return

    def drop(table: LakeTable) -> ReplicationError | None:
        try:
            if table.owner == SHARED:
                lake.drop_branches(table.ident, prefix=all_branches_of(sub))
            else:
                lake.fence(table.ident)
                lake.drop_branches(table.ident)
        except ReplicationError as refused:
            return refused
        return None

    with ThreadPoolExecutor(FENCE_AT_ONCE_TABLES, thread_name_prefix="lake") as pool:
        errors = list(pool.map(drop, tables))
    for table, refusal in zip(tables, errors, strict=True):
        if refusal is not None:
            _warn([table.ident], refusal, context)


def _warn(idents: Sequence[LakeIdent], error: ReplicationError, context: CommandContext) -> None:
    """A WARNING for tables whose branches may stay, with the statement that drops a branch."""
    listed = ", ".join(f'"{ident}"' for ident in idents)
    context.notify(
        warning(
            f"branches of pgsub may stay on lake tables: {listed}",
            detail=f"The lake gave the reason: {error.primary}. A branch keeps deleted rows and "
            "their files.",
            hint="For each branch that lake.SCHEMA.TABLE.refs lists with a name that begins with "
            f'{BRANCH_PREFIX}: pgsub sql "ALTER TABLE lake.SCHEMA.TABLE DROP BRANCH NAME".',
        )
    )
