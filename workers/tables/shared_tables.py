"""Lake tables shared by several publisher tables (``shared: true``).

A *source* is a publisher table of a subscription. In the shared table a source's rows carry the
source's name, every source has a position, and the branches of a source have a prefix used by no
further source. The fast-forward makes sharing safe: the lake refuses a branch begun before the
present ``main``. A published branch therefore holds all published rows and positions of all
sources.

The locks only spare workers of a data directory from failing: the workers take turns. A lock ends
with the process, and a killed worker never blocks the others.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from catalog.errcodes import SERIALIZATION_FAILURE, ReplicationError, SerializationFailure
from catalog.pg_subscription import Subscription
from config.limits import SHARED_TABLE_ATTEMPTS
from workers.lake.column_changes import ColumnChange
from workers.lake.destination import Destination
from workers.lake.segment import Segment
from workers.lake.sources import branches_of
from workers.lake.table import LakeIdent, Stamp
from workers.tables.table_locks import TableLocks


def publish_table_copy(
    dest: Destination,
    data_dir: Path,
    ident: LakeIdent,
    branch: str,
    stamp: Stamp,
    new_branch: Callable[[], str],
    changes: Sequence[ColumnChange] = (),
) -> None:
    """Fast-forward ``main`` to the branch of a copy, whether the lake table is shared or not.

    The columns of a table that is not shared change in the same commit.
    """
    if stamp.source:
        publish_shared_copy(dest, TableLocks(data_dir), ident, branch, stamp, new_branch)
    elif changes:
        dest.publish_with(ident, branch, stamp, changes)
    else:
        dest.publish(ident, branch, stamp)


def publish_shared_copy(
    dest: Destination,
    locks: TableLocks,
    ident: LakeIdent,
    copy: str,
    stamp: Stamp,
    new_branch: Callable[[], str],
) -> None:
    """Publish the source's rows on the branch ``copy`` in place of the source's rows on ``main``.

    The branch is published as is, unless ``main`` has moved since the branch began. In the latter
    case the rows are written to a new branch at the present ``main``.
    """
    whole = Segment((), truncate=True, source=stamp.source, from_branch=copy)
    with locks.held([ident]):
        branch = copy
        for _ in range(SHARED_TABLE_ATTEMPTS):
            if _is_published(dest, ident, branch, stamp):
                return
            branch = new_branch()
            dest.create_branch(ident, branch)
            dest.write(ident, branch, [whole], stamp)
    raise error_main_keeps_moving(ident)


def add_source_to_table(
    dest: Destination, locks: TableLocks, ident: LakeIdent, sub: Subscription, stamp: Stamp
) -> None:
    """Give a source without a copy a position in an existing shared table."""
    prefix = f"{branches_of(sub)}join_{secrets.token_hex(4)}_"
    with locks.held([ident]):
        for attempt in range(SHARED_TABLE_ATTEMPTS):
            branch = f"{prefix}{attempt}"
            dest.create_branch(ident, branch)
            dest.write(ident, branch, [], stamp)
            done = _is_published(dest, ident, branch, stamp)
            dest.drop_branches(ident, prefix=prefix)
            if done:
                return
    raise error_main_keeps_moving(ident)


def _is_published(dest: Destination, ident: LakeIdent, branch: str, stamp: Stamp) -> bool:
    """Fast-forward ``main`` to the branch; False if a different source moved ``main`` first."""
    try:
        dest.publish(ident, branch, stamp)
    except ReplicationError as error:
        if error.code != SERIALIZATION_FAILURE:
            raise
        return False
    return True


def error_other_writer(ident: LakeIdent) -> SerializationFailure:
    """A batch was staged without key look-ups, and another writer added rows to the table."""
    return SerializationFailure(
        f'somebody else added rows to lake table "{ident}" beside a batch',
        hint="Nothing is to be done: the batch is written again, and the keys of inserted rows are "
        "looked for.",
    )


def error_main_keeps_moving(ident: LakeIdent) -> SerializationFailure:
    """Before every attempt to publish, a different source had moved ``main``."""
    return SerializationFailure(
        f'main of lake table "{ident}" is moved by other sources faster than one can publish',
        hint="Keep the subscriptions that share the table in one data directory, where they take "
        "turns; or make batches smaller with batch_max_rows.",
    )
