"""What a worker remembers of a table's columns, held against the rules of the configuration.

A table that is seen for the first time has nothing remembered. Its masks are remembered at once:
the columns may not be in line, or never be known by number, and the rows are hashed nevertheless.
So another key is noticed before a row in each case (``workers.changes.rules_of_rows``)::

    first batch     key A: the masks are remembered, the rows are written
    next start      key B: error, before a row
"""

from __future__ import annotations

from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.by_table import Run
from workers.changes.guarded_runs import check_run_rules
from workers.changes.remembered_columns import RememberedColumns, remembered_in
from workers.changes.rules_of_rows import masks_text
from workers.lake.table import LakeTable


def known_columns(
    store: CatalogStore, lake: LakeTable, rel: SubscriptionRel, run: Run, options: TableOptions
) -> RememberedColumns | None:
    """What is remembered of a table; raises 55000 if its rows were hidden by other rules."""
    stored = store.columns(rel.srsubid, rel.srrelid)
    before = remembered_in(lake, stored, rel.epoch or "")
    if before is not None:
        check_run_rules(rel, run, before, options)
    elif (text := masks_text(options, rel.epoch)) is not None:
        store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", text)
    return before
