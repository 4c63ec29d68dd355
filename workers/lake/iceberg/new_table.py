"""A new table: the first commit, and a table that an earlier attempt did not finish."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from workers.lake.metadata.snapshots import FENCE, stamp_properties
from workers.lake.table import LakeColumn, LakeTable, Stamp


def is_unfinished(
    table: LakeTable, columns: Sequence[LakeColumn], owner: str, stamp: Stamp
) -> bool:
    """Is the existing table the table to create, and still as new?

    An unfinished table has the owner and the columns of the new table, and either no snapshot, or
    no rows and the position of the new table. The worker that created the table died or never got
    the answer.
    """
    if table.owner != owner or _shape(table.columns) != _shape(columns):
        return False
    if table.snapshot_id is None:
        return True
    same = table.stamp is None or (table.stamp.lsn, table.stamp.floor) == (stamp.lsn, stamp.floor)
    return table.records == 0 and not table.sources and same


def _shape(columns: Sequence[LakeColumn]) -> list[tuple[str, str]]:
    return [(column.name, str(column.type)) for column in columns]


def first_summary(stamp: Stamp) -> dict[str, str]:
    """The summary of a commit to ``main`` itself; see ``Destination.create_table``."""
    return {FENCE: uuid.uuid4().hex} if stamp.source else stamp_properties(stamp)
