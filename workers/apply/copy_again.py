"""Copy a table again, without a user's word, if a change of the table cannot be followed.

Some changes on the publisher give every row another value, and send no row: a volatile default, a
new type with USING, another table under the name. The lake can only have the new rows from a copy.
The apply worker does then what ``pgsub resume`` does for a suspended table:

1. The size of the table is asked for. A table above ``auto_recopy_max_bytes`` is suspended, with
   size, estimate and command, and nothing else happens.
2. In one transaction of the catalog the table is suspended from the transaction at fault on, and
   marked to be copied again.
3. The other tables go on. A sync worker copies the table behind a branch, catches up, and ends the
   suspension with ``s`` (``workers.sync.worker``).

Readers see the last good state until then, with the columns of that state: the commit that shows
the new rows also shows the new columns (``workers.changes.columns_of_copy``).

A trace, with a worker that is killed behind each line::

    transaction 500 is at fault         the successor finds 500 at fault again
    catalog: suspended at 500, i        the successor leaves out 500 and starts the sync worker
    sync worker: copy, catch-up, s      the successor applies what follows

A table is not copied by itself if the copy could destroy rows that only the lake has: a shared or
an adopted lake table, and a table that was never copied.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from catalog.errcodes import ColumnsChanged, ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.recopy import mark_for_recopy
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import COPY_GIGABYTE_SECONDS
from config.quantities import pretty_size
from workers.changes.cannot_follow import CannotFollow
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.tables.position import recopy_command

log = logging.getLogger(__name__)


def may_copy(rel: SubscriptionRel, options: TableOptions) -> bool:
    """Do all rows of the lake table come from the publisher's table?"""
    return rel.remote_relid is not None and not options.shared and not options.adopt


@dataclass(slots=True)
class CopyAgain:
    """The copies that an apply worker begins; ``size`` asks the publisher for a table's bytes."""

    store: CatalogStore
    size: Callable[[int], int]

    def begin(self, sub: Subscription, error: ReplicationError, limit: int) -> bool:
        """Begin to copy the tables at fault again; False if one of them is too large.

        A table that is too large is blamed alone, and the error tells the size.
        """
        for rel in error.tables:
            size = self.size(rel.remote_relid or 0)
            if size > limit:
                tell_size(sub, rel, error, size, limit)
                return False
        for rel in error.tables:
            self._begin(sub, rel, error)
        return True

    def _begin(self, sub: Subscription, rel: SubscriptionRel, error: ReplicationError) -> None:
        """Store that a table is copied again; a command may have done so meanwhile."""
        failpoints.reach(failpoints.SUSPENDING)
        lsn = LSN(error.end_lsn or InvalidXLogRecPtr)
        name = qualified_name(rel.nspname, rel.relname)
        with self.store.transaction():
            now = self.store.rel(rel.srsubid, rel.srrelid)
            if now is None or now.epoch != rel.epoch:
                return
            moment = time.time_ns() // 1000
            suspended = {
                "suspend_time": moment,
                "suspend_sqlstate": error.code,
                "suspend_error": error.primary,
                "suspend_lsn": lsn or None,
            }
            self.store.update_rel(rel.srsubid, rel.srrelid, **suspended)
            mark_for_recopy(sub, [rel], self.store)
            said = [error.detail or error.primary]
            self.store.add_schema_change(rel.srsubid, rel.srrelid, moment, lsn, said, copies=True)
            self.store.count_for_stats(sub.oid, schema_change_count=1)
        failpoints.reach(failpoints.SUSPENDED)
        log.warning(
            'action=copied_again subid=%d relid=%d lsn=%s table "%s" is copied again behind a '
            "branch, and readers see its last good state until then: %s",
            *(rel.srsubid, rel.srrelid, lsn, name, error.detail or error.primary),
        )


def too_large(sub: Subscription, rel: SubscriptionRel, size: int, limit: int) -> tuple[str, str]:
    """A detail and a hint for a table that is not copied again by itself."""
    minutes = max(1, round(size / 1e9 * COPY_GIGABYTE_SECONDS / 60))
    name = qualified_name(rel.nspname, rel.relname)
    command = f"pgsub resume {shlex.quote(sub.subname)} {shlex.quote(name)}"
    return (
        f"The table has {pretty_size(size)} on the publisher, more than auto_recopy_max_bytes "
        f"({pretty_size(limit)}); a copy takes about {minutes} min.",
        f"{command} copies the table again; readers see its last good state until then.",
    )


def tell_size(
    sub: Subscription, rel: SubscriptionRel, error: ReplicationError, size: int, limit: int
) -> None:
    """Let an error say that the table is too large to be copied again by itself."""
    detail, hint = too_large(sub, rel, size, limit)
    error.tables = (rel,)
    error.detail = f"{error.detail} {detail}" if error.detail else detail
    error.hint = hint
    name = qualified_name(rel.nspname, rel.relname)
    error.primary = f'table "{name}" has changed and is too large to be copied again by itself'


def other_table(rel: SubscriptionRel) -> ColumnsChanged:
    """The error for another table under the name of a copied table."""
    name = qualified_name(rel.nspname, rel.relname)
    error = ColumnsChanged(
        f'table "{name}" is another one on the publisher than the one that was copied',
        detail="Another table has its name now.",
    )
    error.tables = (rel,)
    return error


def not_followed(sub: Subscription, rel: SubscriptionRel, reason: CannotFollow) -> ColumnsChanged:
    """The error for changed columns that the lake table cannot follow."""
    name = qualified_name(rel.nspname, rel.relname)
    error = ColumnsChanged(
        f'changed columns of table "{name}" cannot be followed',
        detail=f"{reason}",
        hint=reason.hint(recopy_command(sub.subname, rel)),
    )
    error.copies, error.tables = reason.copies, (rel,)
    return error


def other_values(rel: SubscriptionRel, primary: str, detail: str) -> ColumnsChanged:
    """The error for values that changed on the publisher without a change of a row."""
    error = ColumnsChanged(primary, detail=detail)
    error.tables = (rel,)
    return error


def warn_of_old_rows(
    sub: Subscription, rel: SubscriptionRel, ident: LakeIdent, doubts: Sequence[str]
) -> None:
    """Say why a user's column of the lake table may have other values than the publisher's."""
    name = qualified_name(rel.nspname, rel.relname)
    log.warning(
        "action=own_values subid=%d relid=%d %s",
        *(rel.srsubid, rel.srrelid),
        f'lake table "{ident}" may have other values than table "{name}"',
        extra={
            "DETAIL": f"{' '.join(doubts)} The lake table had a column of that name, and "
            "the column's values in these rows stay.",
            "HINT": f"If they are not the publisher's, {recopy_command(sub.subname, rel)} copies "
            "the table again.",
        },
    )
