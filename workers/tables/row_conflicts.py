"""Conflicts of a batch with rows in the lake, logged and counted as in PostgreSQL.

Three kinds stop the transaction (``KeyConflict``): a row gets the key of an existing row, or keys
of several rows. Four kinds are only logged, and the batch goes on: an UPDATE or a DELETE did not
find the row, or changed a row last changed by another writer. PostgreSQL logs every row and quotes
the values. Here a log line stands for a batch, a table and a kind, with the number of rows. A line
names key columns and positions and holds no value.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from catalog.errcodes import SERIALIZATION_FAILURE
from catalog.pg_lsn import LSN
from catalog.pg_stat_subscription_stats import ConflictType
from workers.lake.table import LakeIdent

if TYPE_CHECKING:
    from workers.tables.written import Written

log = logging.getLogger(__name__)

_DETAILS: Final = {
    ConflictType.UPDATE_ORIGIN_DIFFERS: "Updating a row that was modified by somebody else.",
    ConflictType.DELETE_ORIGIN_DIFFERS: "Deleting a row that was modified by somebody else.",
    ConflictType.UPDATE_MISSING: "Could not find the row to be updated.",
    ConflictType.DELETE_MISSING: "Could not find the row to be deleted.",
}


@dataclass(frozen=True, slots=True)
class RowConflicts:
    """Rows of a table that a batch was to change and that differ from the publisher's rows."""

    conflict: ConflictType
    ident: LakeIdent
    relid: int
    key: tuple[str, ...]
    count: int
    lsn: LSN


def conflicts_of(written: Iterable[Written]) -> list[RowConflicts]:
    """The conflicts of a batch. To be called before the batch's work is discarded."""
    found = []
    for each in written:
        counts = each.work.conflicts(each.counts)
        found += [
            RowConflicts(
                conflict,
                each.table.lake.ident,
                each.table.rel.srrelid,
                each.work.key,
                count,
                each.stamp.lsn,
            )
            for conflict in _DETAILS
            if (count := counts[conflict])
        ]
    return found


def counters(conflicts: Iterable[RowConflicts]) -> Counter[str]:
    """Columns of pg_stat_subscription_stats and the numbers to add."""
    grown: Counter[str] = Counter()
    for each in conflicts:
        grown[each.conflict.column] += each.count
    return grown


def report(subid: int, conflicts: Iterable[RowConflicts]) -> None:
    """Log a line for every item, once the batch is published."""
    for each in conflicts:
        identity = f"replica identity ({', '.join(each.key)})" if each.key else "whole rows"
        rows = "One such row" if each.count == 1 else f"{each.count} such rows"
        log.info(
            "action=conflict subid=%d relid=%d lsn=%s count=%d sqlstate=%s "
            'conflict detected on relation "%s": conflict=%s',
            subid,
            each.relid,
            each.lsn,
            each.count,
            SERIALIZATION_FAILURE,
            each.ident,
            each.conflict,
            extra={
                "DETAIL": f"{_DETAILS[each.conflict]}\n{rows} in the batch that ends at "
                f"{each.lsn}, matched by {identity}."
            },
        )
