"""Drop pgsub's branches of lake tables that leave a subscription, and what an open copy wrote.

The workers have ended, or have read that the table left. ``workers.tables.leaked_branches`` tells
how the branches go. The tables are listed before the lake is asked, by a refresh in the transaction
in which the tables leave. So a lake that does not answer and a killed command leave a row in
``pgsub status leaked_branches``. A lake that cannot be reached stops no command: a warning names
the tables, and a later command or worker drops the branches.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from catalog.errcodes import ReplicationError
from catalog.leaked_branch import LeakedBranch
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.remedies import LEAKED_BRANCH
from subscriber.commands.context import CommandContext
from subscriber.messages import warning
from workers.lake.server.dropped_tables import forget_what_left
from workers.lake.table import LakeIdent
from workers.tables.leaked_branches import drop_leaked_branches


def list_lake_branches(
    sub: Subscription, rels: Sequence[SubscriptionRel], context: CommandContext
) -> None:
    """List the branches of lake tables, in the catalog transaction in which the tables leave."""
    now = time.time_ns() // 1000
    for ident in {LakeIdent(rel.lake_schema, rel.lake_table) for rel in rels}:
        leak = LeakedBranch(
            ident.schema, ident.table, sub.subuuid, sub.subname, now, "the command was killed"
        )
        context.store.put_leaked_branch(leak)


def drop_lake_branches(
    sub: Subscription, rels: Sequence[SubscriptionRel], context: CommandContext
) -> None:
    """Drop the branches of the tables that belong to the subscription, and all listed branches.

    What the catalog keeps of lake tables that are gone is forgotten at the same chance.
    """
    with context.store.transaction():
        list_lake_branches(sub, rels, context)
    left = drop_leaked_branches(context.store, context.lake_tables, context.lake)
    kept = {LakeIdent(leak.lake_schema, leak.lake_table) for leak in left}
    _discard_copies(rels, kept, context)
    forget_what_left(context.data_dir, context.store)
    by_reason: dict[str, list[str]] = {}
    for leak in left:
        if leak.subuuid == sub.subuuid:
            by_reason.setdefault(leak.reason, []).append(f'"{leak.lake_schema}.{leak.lake_table}"')
    for reason, tables in by_reason.items():
        context.notify(
            warning(
                f"branches of pgsub may stay on lake tables: {', '.join(sorted(tables))}",
                detail=f"The lake gave the reason: {reason}. A branch keeps deleted rows and "
                "their files.",
                hint=LEAKED_BRANCH,
            )
        )


def _discard_copies(
    rels: Sequence[SubscriptionRel], kept: Collection[LakeIdent], context: CommandContext
) -> None:
    """Remove the files of copies that have not ended: with the rows their names go, too.

    Files that a snapshot of ``main`` names stay. Tables of ``kept`` still have branches. An error
    of the lake stops no command; the files are then orphan files.
    """
    for rel in rels:
        ident = LakeIdent(rel.lake_schema, rel.lake_table)
        in_copy = rel.srsubstate in (SubRelState.DATASYNC, SubRelState.FINISHEDCOPY)
        if in_copy and rel.epoch is not None and ident not in kept:
            with suppress(ReplicationError):
                context.lake().discard_copy(ident, rel.epoch)
