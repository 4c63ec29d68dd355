"""Remember the publisher's columns at the beginning of a copy, as of the copy's snapshot.

The stream brings names and types of columns, and no numbers. A change of the columns behind the
copy can be followed only if the columns of the copy are known by number.

A lake table that pgsub makes is made with the columns, and costs no further commit. The fields of a
new table are numbered from 1 in the order of the columns. The numbers are compared all the same
once the table is there: a catalog that numbers differently costs a commit, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.columns_of_copy import ColumnsOfCopy
from workers.changes.schema_change import first_look
from workers.lake.destination import Destination
from workers.lake.table import LakeColumn, LakeTable
from workers.proto.messages import Relation, RelationColumn
from workers.publisher.remote_table import RemoteTable
from workers.publisher.table_shape import TableShape


def columns_to_remember(
    shape: TableShape | None,
    rel: SubscriptionRel,
    remote: RemoteTable,
    options: TableOptions,
    plan: ColumnsOfCopy,
    lake: Sequence[LakeColumn],
    dest: Destination,
) -> str | None:
    """The columns of the copy as text, for a lake table of these columns.

    None for a shared lake table, or if the lake server cannot change columns: nothing is followed.
    ``plan`` has lake columns of columns that the publisher has no more, and columns that go when
    the copy is published: the next attempt has them go as well, under whatever name they are.
    """
    if shape is None or options.shared or not dest.changes_columns:
        return None
    columns = tuple(
        RelationColumn(column.in_key, column.name, column.atttypid, column.atttypmod)
        for column in remote.columns
    )
    relation = Relation(remote.relid, remote.nspname, remote.relname, remote.relreplident, columns)
    found = first_look(shape, relation, lake, options, rel.epoch or "", plan.kept)
    return None if found is None else replace(found, going=tuple(sorted(plan.dropped))).as_text()


def remember_columns(text: str | None, lake: LakeTable, dest: Destination) -> str | None:
    """Keep the columns of the copy in the lake table, unless the table has them; the text again."""
    if text is not None and lake.publisher_columns != text:
        dest.change_columns(lake.ident, (), lambda _columns: text)
    return text
