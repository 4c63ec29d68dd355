"""Expire snapshots without losing the table's position."""

from __future__ import annotations

import time
from collections.abc import Callable

from workers.lake.effects import ListFiles
from workers.lake.interfaces.table_api import TableApi
from workers.lake.table import MAIN, LakeIdent


def expire_snapshots(
    tables: TableApi,
    ident: LakeIdent,
    *,
    retain: int,
    age: float = 0.0,
    make_durable: Callable[[], object],
    clock: Callable[[], float] = time.time,
    list_files: ListFiles | None = None,
) -> int:
    """Drop all but the last ``retain`` snapshots of ``main`` and of every branch.

    Snapshots younger than ``age`` seconds stay. ``age`` is taken by this machine's clock, commit
    times by the lake server's.

    The newest ancestor of ``main`` with a position stays, and every later snapshot by the lake
    server's clock. Iceberg counts the last snapshots from the tip of ``main`` at the time of the
    expiry: after a fence, or a compaction by another writer, the count alone would drop the
    position. A branch of pgsub was created from ``main`` later and keeps all commits.
    ``list_files``: see ``TableApi.expire_snapshots``. Returns the number of dropped snapshots.
    """
    before = tables.history(ident)
    ancestors = list(before.ancestors(MAIN))
    newer = next((n for n, each in enumerate(ancestors) if each.stamp is not None), None)
    if newer is None:
        return 0  # without a position a person may have to look into the table
    older_than = ancestors[newer].committed / 1000
    if age:
        older_than = min(older_than, clock() - age)
    retain_last = max(retain, newer + 1)
    # An expiry removes files that no kept snapshot needs. Without this call a power cut could set
    # the table back to a snapshot that is removed now.
    make_durable()
    tables.expire_snapshots(
        ident, older_than=older_than, retain_last=retain_last, list_files=list_files
    )
    # Batches go on meanwhile; a batch adds snapshots and drops none.
    return len(before.snapshots.keys() - tables.history(ident).snapshots.keys())
