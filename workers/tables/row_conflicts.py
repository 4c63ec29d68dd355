"""Conflicts with what is in the lake, told and counted as PostgreSQL tells and counts them.

Three kinds stop the transaction (``KeyConflict``): a row is given a key that another one has, or
several at once. Four are only told, and the batch goes on: an UPDATE or a DELETE did not find its
row, or found one that somebody else changed last and changed it all the same. PostgreSQL tells of
each such row and quotes it; here it is one line per batch, table and kind, with how many there
were, and no line holds a value: key columns are named, and positions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from catalog.pg_lsn import LSN
from catalog.pg_stat_subscription_stats import ConflictType
from workers.lake.segment import Segment
from workers.lake.table import LakeIdent

if TYPE_CHECKING:
    from workers.tables.written import Written

log = logging.getLogger(__name__)

_TOLD: Final = {
    ConflictType.UPDATE_ORIGIN_DIFFERS: "Updating a row that was modified by somebody else.",
    ConflictType.DELETE_ORIGIN_DIFFERS: "Deleting a row that was modified by somebody else.",
    ConflictType.UPDATE_MISSING: "Could not find the row to be updated.",
    ConflictType.DELETE_MISSING: "Could not find the row to be deleted.",
}
_SERIALIZATION_FAILURE: Final = "40001"
"""PostgreSQL's code of a conflict that does not stop the transaction."""


@dataclass(frozen=True, slots=True)
class RowConflicts:
    """Rows of one table that a batch was to change and that were not as the publisher has them."""

    conflict: ConflictType
    ident: LakeIdent
    relid: int
    key: tuple[str, ...]
    count: int
    lsn: LSN


def conflicts_of(written: Iterable[Written]) -> list[RowConflicts]:
    """What a batch met in its tables; asked before their work is discarded."""
    found = []
    for each in written:
        counts = each.work.conflicts(each.counts)
        found += [
            RowConflicts(
                conflict,
                each.table.lake.ident,
                each.table.rel.srrelid,
                _key(each.work.segments),
                count,
                each.stamp.lsn,
            )
            for conflict in _TOLD
            if (count := counts[conflict])
        ]
    return found


def _key(segments: Iterable[Segment]) -> tuple[str, ...]:
    """What rows are matched by; nothing where they are by all of their columns."""
    return next((segment.key for segment in segments if segment.key), ())


def counters(conflicts: Iterable[RowConflicts]) -> Counter[str]:
    """Columns of pg_stat_subscription_stats and how much they grow."""
    grown: Counter[str] = Counter()
    for each in conflicts:
        grown[each.conflict.column] += each.count
    return grown


def report(subid: int, conflicts: Iterable[RowConflicts]) -> None:
    """A line for each, once the batch stands."""
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
            _SERIALIZATION_FAILURE,
            each.ident,
            each.conflict,
            extra={
                "DETAIL": f"{_TOLD[each.conflict]}\n{rows} in the batch that ends at "
                f"{each.lsn}, matched by {identity}."
            },
        )
