"""Has a lake table the columns of a message already? Asked before rows become files.

The answer is that of ``workers.apply.follow_schema``, as far as it is known without a question to
the publisher. Rows of any other message wait for the commit: the lake table is changed there, and
files of the columns before would be refused. Nor may a value of an excluded or masked column reach
a file under another name. So a table with such columns waits, too, until they are remembered.

A trace. Remembered is ``id, v``::

    id, v       in line: rows become files
    id, v, w    the rows wait: the lake table gets w at the commit
    id, x       the rows wait: v was renamed, or dropped
"""

from __future__ import annotations

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.remembered_columns import remembered_in
from workers.proto.messages import Relation
from workers.tables.writer import LakeWriter


def is_in_line(
    store: CatalogStore,
    writer: LakeWriter,
    sub: Subscription,
    rel: SubscriptionRel,
    relation: Relation,
) -> bool:
    """Does a message have the columns that are remembered, or is nothing to be followed?"""
    stored = store.columns(rel.srsubid, rel.srrelid)
    before = remembered_in(writer.open(rel).lake, stored, rel.epoch or "")
    if before is None or before.is_forgotten:
        return not sub.table_options(rel.nspname, rel.relname).guarded
    return before.describes(relation)
