"""Choose the writer of a table's rows when a worker opens the table, and note the choice.

The destination keeps the configuration's word for the table from here on. ``status lake_tables``
shows the noted choice. A worker that starts later chooses anew: both writers go on from any state
of the table, because both make plain snapshots.

Trace: the configuration says ``spark``, and the worker notes the word. The file says ``files`` by
now. The launcher stores the word, the apply worker ends and its successor opens the table: the
table's files can be written, and the note changes.
"""

from __future__ import annotations

from catalog.lake_maintenance import LakeWriter
from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent
from workers.lake.writer_choice import FILES, choose, computed_column


def choose_lake_writer(
    dest: Destination, store: CatalogStore, rel: SubscriptionRel, options: TableOptions
) -> str:
    """Tell the destination the table's writer, and return the writer; 0A000 if none can be had."""
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    chosen, reason = dest.choose_writer(ident, options.writer), computed_column(options)
    if reason is not None and chosen.writer == FILES:
        chosen = choose(chosen.asked, reason, ident)
    store.put_lake_writer(
        LakeWriter(rel.srsubid, rel.srrelid, chosen.asked, chosen.writer, chosen.reason)
    )
    return chosen.writer
