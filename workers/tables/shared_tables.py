"""Lake tables that several publisher tables are written to (``shared: true``).

A *source* is one publisher table of one subscription. Its rows bear its name, its position stands
beside those of the others, its branches begin as nobody else's do. What makes that safe is the
fast-forward: it fails for whoever did not begin from what ``main`` shows, so a branch that is
published holds everything that the others have published, and their positions.

The locks here only spare workers of one data directory from failing: they take turns. A lock goes
with the process that has it, so a killed worker holds nobody up.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from workers.lake.destination import Destination
from workers.lake.segment import Segment
from workers.lake.sources import branches_of
from workers.lake.table import LakeIdent, Stamp
from workers.tables.table_locks import TableLocks

MAIN_MOVED: Final = "40001"
ATTEMPTS: Final = 20
"""How often something is done again because another source was first. Each time one of them got
its way, so this many in a row takes others that are busy, and slower steps of our own."""


def show_copy(
    dest: Destination,
    data_dir: Path,
    ident: LakeIdent,
    branch: str,
    stamp: Stamp,
    new_branch: Callable[[], str],
) -> None:
    """Fast-forward ``main`` to the branch of a copy, whoever else the lake table belongs to."""
    if stamp.source:
        publish_copy(dest, TableLocks(data_dir), ident, branch, stamp, new_branch)
    else:
        dest.publish(ident, branch, stamp)


def publish_copy(
    dest: Destination,
    locks: TableLocks,
    ident: LakeIdent,
    copy: str,
    stamp: Stamp,
    new_branch: Callable[[], str],
) -> None:
    """Show the source's rows on the branch ``copy`` in place of those it has on ``main``.

    The branch as it is, if nobody has published since it was made; else they are written to one
    that begins where ``main`` is now.
    """
    whole = Segment((), truncate=True, source=stamp.source, from_branch=copy)
    with locks.held([ident]):
        branch = copy
        for _ in range(ATTEMPTS):
            if _published(dest, ident, branch, stamp):
                return
            branch = new_branch()
            dest.create_branch(ident, branch)
            dest.write(ident, branch, [whole], stamp)
    raise outrun(ident)


def join(
    dest: Destination, locks: TableLocks, ident: LakeIdent, sub: Subscription, stamp: Stamp
) -> None:
    """Give a source that is not copied its position in a table that is there."""
    prefix = f"{branches_of(sub)}join_{secrets.token_hex(4)}_"
    with locks.held([ident]):
        for attempt in range(ATTEMPTS):
            branch = f"{prefix}{attempt}"
            dest.create_branch(ident, branch)
            dest.write(ident, branch, [], stamp)
            done = _published(dest, ident, branch, stamp)
            dest.drop_branches(ident, prefix=prefix)
            if done:
                return
    raise outrun(ident)


def _published(dest: Destination, ident: LakeIdent, branch: str, stamp: Stamp) -> bool:
    try:
        dest.publish(ident, branch, stamp)
    except ReplicationError as error:
        if error.code != MAIN_MOVED:
            raise
        return False
    return True


def others_beside(ident: LakeIdent, subname: str) -> ReplicationError:
    """A batch was staged for a table of ours alone, and it is not."""
    return ReplicationError(
        f'somebody else added rows to lake table "{ident}" beside a batch',
        hint="Nothing: the worker starts again, and looks for the keys of inserted rows. If "
        f"disable_on_error has disabled it: pgsub enable {shlex.quote(subname)}.",
        sqlstate=MAIN_MOVED,
    )


def outrun(ident: LakeIdent) -> ReplicationError:
    """Every attempt met a ``main`` that another source had moved."""
    return ReplicationError(
        f'main of lake table "{ident}" is moved by other sources faster than one can publish',
        hint="Keep the subscriptions that share the table in one data directory, where they take "
        "turns; or make batches smaller with batch_max_rows.",
        sqlstate=MAIN_MOVED,
    )
