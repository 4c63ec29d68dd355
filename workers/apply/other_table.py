"""Notice that a different table has a subscribed table's name on the publisher.

A staging table that is renamed into place brings other rows under the name, without an event for
any of them. The lake has the rows of the old table, and the stream has the changes of the new one.
The relation's oid in a Relation message tells the tables apart.

With ``on_error: stop`` the worker goes on, as the native subscriber does, stores the other table's
oid, and looks up inserted keys; ``pgsub status`` says so. With ``on_error: suspend`` the table is
suspended before the first change of the other table: readers see the rows of the old table alone.

A trace: table a, copied with oid 1, ``on_error: suspend``::

    R(1, a) I           applied
    R(3, a) I           55000, the fault of this transaction: a is suspended before it
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from catalog import remedies
from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from workers.apply.suspend import SUSPEND, on_error
from workers.changes.by_table import Run
from workers.changes.failed_transaction import failed_at
from workers.changes.relation_map import RelName

log = logging.getLogger(__name__)


def check_not_other(
    sub: Subscription,
    runs: Mapping[RelName, Sequence[Run]],
    rels: Mapping[RelName, SubscriptionRel],
    default: str,
) -> None:
    """Raise 55000, as the fault of a transaction, if another table's changes may suspend the table.

    ``default`` is ``default_on_error``.
    """
    for target, own in runs.items():
        rel = rels[target]
        if rel.remote_relid is None or on_error(sub, rel, default) != SUSPEND:
            continue
        for run in own:
            relation, changes = run.relation, run.changes
            if relation is None or changes is None or relation.relid == rel.remote_relid:
                continue
            name = qualified_name(rel.nspname, rel.relname)
            error = ObjectNotInPrerequisiteState(
                f'table "{name}" is another one on the publisher than the one that was copied',
                detail=f"Its OID was {rel.remote_relid}, and is {relation.relid}.",
                hint=remedies.suspended(sub.subname, name),
            )
            error.tables = (rel,)
            raise failed_at(relation, changes, 0, error)


def other_relid(rel: SubscriptionRel, runs: Sequence[Run]) -> int | None:
    """Return the relid of a different table that has the name now; None if the table is the same.

    The lake table has the rows of the old table, so an inserted key may be in the lake table
    already. The fingerprints of old and new table may be equal, for example with FOR ALL TABLES.
    """
    known = (rel.remote_relid, rel.other_relid)
    relids = [run.relation.relid for run in runs if run.relation is not None]
    others = [relid for relid in relids if relid not in known]
    if rel.remote_relid is None or not others:
        return None
    warn_of_other(rel)
    return others[-1]


def warn_of_other(rel: SubscriptionRel) -> None:
    """Log that another table has the name."""
    log.warning(
        'action=other_relation subid=%d relid=%d table "%s.%s" is another one on the publisher '
        "than the copied one; pgsub refresh copies it; inserted keys are looked for until then",
        rel.srsubid,
        rel.srrelid,
        rel.nspname,
        rel.relname,
    )
