"""Remove what failed attempts left in a lake table: branches, snapshots, the snapshots' files.

``workers.lake.metadata.left_behind`` decides which snapshots go. The ref goes first, because
Iceberg expires no snapshot that a ref is at. If the worker is killed in between, the snapshots have
no ref, and the next call finds the snapshots.

No caller depends on the removal. So a failed expiry is logged, and the next call tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from catalog.errcodes import ReplicationError, RequiredProcessGone
from workers.lake.effects import ListFiles
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.left_behind import left_behind, names_copy
from workers.lake.metadata.snapshots import History
from workers.lake.table import MAIN, LakeIdent

log = logging.getLogger(__name__)


def discard_branches(
    tables: TableApi, ident: LakeIdent, prefix: str, keep: str | None = None
) -> list[str]:
    """Drop branches, and the snapshots and files that only the branches led to; their names."""
    found = tables.branches(ident)
    names = [name for name in found if name.startswith(prefix) and name != keep]
    if not names:
        return []
    before = tables.history(ident)
    for name in names:
        tables.drop_branch(ident, name)
    if _maybe_left(before, names):
        left = left_behind(before, names, tables.once_on_main(ident))
        if left:
            _expire(tables, ident, left)
    return names


def discard_copied_snapshots(
    tables: TableApi, ident: LakeIdent, copy_id: str, list_files: ListFiles | None = None
) -> bool:
    """Drop the snapshots of a copy that ``main`` no longer holds; is the copy gone for good?

    ``list_files``: as in ``TableApi.expire_snapshots``.
    """
    history = tables.history(ident)
    if _maybe_left(history, ()):
        left = left_behind(history, (), tables.once_on_main(ident), copy_id)
        if left:
            _expire(tables, ident, left, list_files)
            history = tables.history(ident)
    return MAIN in history.refs and not names_copy(history, copy_id)


def _maybe_left(history: History, dropped: Collection[str]) -> bool:
    """Are there snapshots that no kept ref leads to? A published branch has none."""
    return not history.led_to(history.refs.keys() - dropped) >= history.snapshots.keys()


def _expire(
    tables: TableApi,
    ident: LakeIdent,
    snapshot_ids: list[int],
    list_files: ListFiles | None = None,
) -> None:
    try:
        tables.expire_named(ident, snapshot_ids, list_files)
    except RequiredProcessGone:
        raise
    except ReplicationError as error:
        log.warning(
            "action=discard table=%s sqlstate=%s the snapshots of a failed attempt stay for now: "
            "%s",
            ident,
            error.code,
            error,
            extra={"DETAIL": error.detail},
        )
        return
    log.info("action=discard table=%s snapshots=%d", ident, len(snapshot_ids))
