"""Add columns to a lake table with one value in all rows that are there.

PostgreSQL keeps the default of an added column once, and shows it in each row from before. Iceberg
could do the same in format 3 (``initial-default``), but the Spark of the lake server then drops
such rows from ``WHERE c = …`` and ``WHERE c IS NOT NULL``. So the rows are written again, in each
format: by Spark, in bounded memory, on the worker's branch. The steps:

1. The column is added under a name of its own (``c__next``): NULL, as readers see.
2. The branch gets a snapshot with the value in all rows, and with the present position.
3. One commit moves ``main`` to the branch, gives the column its name, makes all further changes of
   columns, and stores what is remembered. No reader sees ``c`` without the values.

The rows of the transaction with the column come later, and have values of their own. A trace, with
a worker that is killed behind each line::

    c__next is there             the successor finds c__next, and goes on
    the branch is filled         the successor fills a branch of its own
    main, c, the memory          the successor finds columns that are in line

The third commit may come late, out of a dead worker's call. It is listed like the publication of a
batch (``in_flight``), and the successor's fence refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.errcodes import at_fault
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.columns_of_copy import NEXT
from workers.changes.remembered_columns import from_text
from workers.lake.column_changes import AddColumn, ColumnChange, Remember, RenameColumn
from workers.lake.destination import Destination
from workers.lake.segment import Segment
from workers.lake.table import LakeColumn, LakeIdent, Stamp
from workers.process import failpoints
from workers.tables.open_tables import OpenTables

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Filled:
    """A column to fill: the name, the name until the value is there, the value of all rows."""

    name: str
    hidden: str
    type: pa.DataType
    value: pa.Scalar[Any]


@dataclass(frozen=True, slots=True)
class FillColumns:
    """Fills columns of open tables, between two batches. ``origin`` is named in the position."""

    dest: Destination
    store: CatalogStore
    tables: OpenTables
    origin: str

    def __call__(
        self,
        rel: SubscriptionRel,
        changes: Sequence[ColumnChange],
        fills: Mapping[str, pa.Scalar[Any]],
        remember: Remember,
    ) -> Mapping[LakeIdent, str]:
        """Make the changes; ``fills`` are the values of some added columns, by name.

        All published batches are stored already. Returns what ``Destination.make_durable`` did.
        """
        try:
            with at_fault(rel):
                return self._fill(rel, changes, fills, remember)
        except BaseException:
            self.tables.abandon_branch(rel.srrelid)
            raise

    def _fill(
        self,
        rel: SubscriptionRel,
        changes: Sequence[ColumnChange],
        fills: Mapping[str, pa.Scalar[Any]],
        remember: Remember,
    ) -> Mapping[LakeIdent, str]:
        before = self.tables.open(rel).lake
        known = from_text(before.publisher_columns) if before.publisher_columns else None
        ids = () if known is None else (*(c.field_id for c in known.columns), *known.kept.values())
        filled = columns_to_fill(before.columns, changes, fills, ids)
        log.info(
            'action=filling_columns subid=%d relid=%d all rows of lake table "%s" are written '
            "again with a value for %s; the other tables of the subscription wait",
            *(rel.srsubid, rel.srrelid, before.ident),
            ", ".join(f'"{each.name}"' for each in filled),
        )
        added = [AddColumn(each.hidden, each.type) for each in filled]
        lake = self.dest.change_columns(before.ident, added, lambda _: before.publisher_columns)
        self.tables.set_columns(rel, lake)
        failpoints.reach(failpoints.COLUMN_TO_FILL)
        table = self.tables.with_branch(self.tables.open(rel))
        self.tables.set(table)
        branch = table.branch or ""
        stamp = Stamp(self.origin, table.lsn, rel.epoch or "", table.floor)
        segment = Segment((), fill=tuple((each.hidden, each.value) for each in filled))
        self.dest.write_branch(lake.ident, branch, [segment], stamp)
        failpoints.reach(failpoints.COLUMN_FILLED)
        self.store.put_in_flight(rel.srsubid, [rel.srrelid], stamp.lsn)
        named = with_names(lake.columns, changes, filled)
        self.dest.publish_with(lake.ident, branch, stamp, named, remember)
        durable = self.dest.make_durable([lake.ident])
        self.store.clear_in_flight(rel.srsubid, [rel.srrelid])
        self.tables.set_columns(rel, self.tables.read(rel))
        return durable


def columns_to_fill(
    lake: Sequence[LakeColumn],
    changes: Sequence[ColumnChange],
    fills: Mapping[str, pa.Scalar[Any]],
    published: Collection[int] = (),
) -> list[Filled]:
    """The columns to fill. A hidden column that a dead worker left is taken again.

    ``published`` are field ids of the publisher's columns, which are never taken.
    """
    types = {each.name: None if each.field_id in published else each.type for each in lake}
    types |= {each.name: None for each in changes if isinstance(each, AddColumn | RenameColumn)}
    found = []
    for each in changes:
        if isinstance(each, AddColumn) and each.name in fills:
            hidden = each.name + NEXT
            while types.get(hidden, each.type) != each.type:
                hidden += NEXT
            found.append(Filled(each.name, hidden, each.type, fills[each.name]))
    return found


def with_names(
    lake: Sequence[LakeColumn], changes: Sequence[ColumnChange], filled: Sequence[Filled]
) -> list[ColumnChange]:
    """The changes that come with the values: filled columns get their names."""
    ids = {column.name: column.field_id for column in lake}
    named = {each.name: RenameColumn(ids[each.hidden], each.name) for each in filled}
    return [
        named[each.name] if isinstance(each, AddColumn) and each.name in named else each
        for each in changes
    ]
