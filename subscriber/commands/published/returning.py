"""A table that returns to a subscription by itself: the copy replaces the rows from before.

REFRESH by hand copies on top of the rows, as PostgreSQL does. The rows from before would be in the
lake table twice. With ``refresh: auto`` no user empties the table before, so the table is copied
again behind a branch. A trace::

    a leaves       the lake table keeps rows 1, 2
    a returns      state i, recopy: readers see 1, 2
    the copy       readers see 1, 2, 3 at once
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from subscriber.commands.context import CommandContext
from subscriber.commands.table_mapping import MappedTable
from subscriber.messages import warning
from workers.lake.table import SHARED


def replacing_copies(
    sub: Subscription,
    copied: Sequence[MappedTable],
    rels: Sequence[SubscriptionRel],
    context: CommandContext,
) -> list[SubscriptionRel]:
    """The rows of new tables; the rows of a table that returns are replaced by the copy.

    The lake's rows of an adopted table would go with the rows from before: the table stays out,
    with a WARNING.
    """
    found = []
    existing = context.lake_tables([table.ident for table in copied])
    for table, rel, lake in zip(copied, rels, existing, strict=True):
        returns = lake is not None and lake.owner in (sub.subuuid, SHARED)
        if not returns or not table.options.adopt:
            found.append(replace(rel, recopy=returns))
            continue
        context.notify(
            warning(
                f'table "{table.name}" does not return to subscription "{sub.subname}" by itself',
                detail=f'Lake table "{table.ident}" was adopted, and has rows of both.',
                hint=f"pgsub refresh {shlex.quote(sub.subname)} copies the table's rows on top.",
            )
        )
    return found
