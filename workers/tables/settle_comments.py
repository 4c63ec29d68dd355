"""Bring the comments of a lake table's columns in line with the configuration.

A new lake table is made with its comments (``new_table``). A table that is there already, and a
column that was added, get theirs with the first change of a Relation message, before the rows of
the change: ``on_unrepresentable`` may have changed since. A lake table whose comments are right
costs a comparison in memory. A comment that a user wrote stays. A comment that is not true any more
goes with the next copy of all rows.
"""

from __future__ import annotations

from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.column_comments import comments_to_make
from workers.changes.column_rules import taken_of
from workers.changes.relation_map import flags_key
from workers.proto.messages import Relation
from workers.tables.writer import LakeWriter
from workers.tables.written import store_durable


def settle_comments(
    store: CatalogStore,
    writer: LakeWriter,
    rel: SubscriptionRel,
    options: TableOptions,
    relation: Relation,
) -> None:
    """Commit the comments that are missing, between two batches.

    Raises ``CannotFollow`` if a column of the key has other values than the publisher's.
    """
    lake = writer.open(rel).lake
    columns = taken_of(relation, options).columns
    key = {options.lake_column(each.name) for each in columns if each.key and flags_key(relation)}
    published = {options.lake_column(each.name) for each in columns}
    changes = tuple(comments_to_make(lake.columns, published, options, key))
    if changes:
        text = lake.publisher_columns
        durable = writer.change_columns(rel, changes, lambda _columns: text)
        with store.transaction():
            store_durable(store, durable)
