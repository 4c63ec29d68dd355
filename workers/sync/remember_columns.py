"""Remember the publisher's columns at the beginning of a copy, as of the copy's snapshot.

The stream brings names and types of columns, and no numbers. A change of the columns behind the
copy can be followed only if the columns of the copy are known by number.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.schema_change import first_look
from workers.lake.destination import Destination
from workers.lake.table import LakeTable
from workers.proto.messages import Relation, RelationColumn
from workers.publisher.remote_table import RemoteTable
from workers.publisher.table_shape import TableShape


def remember_columns(
    shape: TableShape | None,
    rel: SubscriptionRel,
    remote: RemoteTable,
    options: TableOptions,
    kept: Mapping[int, int],
    lake: LakeTable,
    dest: Destination,
) -> str | None:
    """Keep the columns of the copy in the lake table, and return them for the catalog.

    None for a shared lake table, or if the lake server cannot change columns: nothing is followed.
    ``kept`` are lake columns of columns that the publisher has no more.
    """
    if shape is None or options.shared or not dest.changes_columns:
        return None
    columns = tuple(
        RelationColumn(column.in_key, column.name, column.atttypid, column.atttypmod)
        for column in remote.columns
    )
    relation = Relation(remote.relid, remote.nspname, remote.relname, remote.relreplident, columns)
    found = first_look(shape, relation, lake.columns, options, rel.epoch or "", kept)
    if found is None:
        return None
    text = found.as_text()
    dest.change_columns(lake.ident, (), lambda _columns: text)
    return text
