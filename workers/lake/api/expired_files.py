"""Expires snapshots, with their files or without removing the files, by Iceberg's Java API.

Without ``list_files`` Iceberg removes the files that no kept snapshot names. With ``list_files``
the expiry is planned inside a transaction of the table that is never committed. Iceberg looks for
these files when the expiry joins the transaction, and reports each file to a Java object that only
collects. Then the snapshots of the plan expire by their ids, in a commit of metadata alone. So the
list is complete before the commit. Iceberg's own removal never runs, and ``remove_unnamed`` removes
the files later.

Every expiry first removes metadata files of commits that came second (``unnamed_metadata``).

The plan reads manifests, which takes seconds on a busy machine. A batch that commits meanwhile is
no conflict: only the short commit is repeated. A committed transaction would plan again for every
repetition, and on a table with several batches a second no expiry would ever end.

``remove_unnamed`` looks again before the files go: the pointer of the table may have been set back
to metadata from before the expiry, or an expiry may have died between list and commit. A file that
any snapshot names stays.

Trace: snapshots 1 to 300 expire. The list of 1,900 files is stored, the transaction commits, and a
reader of snapshot 250 goes on. An hour later all snapshots of the table are read: none names a
file of the list, and 1,900 files go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from workers.lake.api.java_api import JavaApi
from workers.lake.api.unnamed_metadata import remove_unnamed_metadata
from workers.lake.effects import ListFiles
from workers.lake.table import LakeIdent

_SEPARATOR: Final = "\0"
"""No path of a file holds this character."""
_NO_SNAPSHOT: Final = -1
"""The expiry by age names a snapshot that does not exist, so that Iceberg looks for the files in
use. Without a name, and if only ancestors of ``main`` are left, Iceberg removes the files that the
dropped snapshots replaced, without a look at the kept snapshots. Iceberg then takes a replaced
deletion vector for the whole file, which also holds vectors of other data files."""


def expire(
    api: JavaApi,
    ident: LakeIdent,
    older_than: float,
    retain_last: int,
    list_files: ListFiles | None,
) -> None:
    """See ``TableApi.expire_snapshots``."""

    def choose(update: Any) -> None:
        update.expireOlderThan(int(older_than * 1000)).retainLast(retain_last)
        update.expireSnapshotId(_NO_SNAPSHOT)

    _expire(api, ident, choose, list_files)


def expire_named(
    api: JavaApi, ident: LakeIdent, snapshot_ids: Sequence[int], list_files: ListFiles | None
) -> None:
    """See ``TableApi.expire_named``."""

    def choose(update: Any) -> None:
        update.expireOlderThan(0)
        for snapshot_id in snapshot_ids:
            update.expireSnapshotId(snapshot_id)

    _expire(api, ident, choose, list_files)


def _expire(
    api: JavaApi, ident: LakeIdent, choose: Callable[[Any], None], list_files: ListFiles | None
) -> None:
    """Expire the snapshots that ``choose`` tells the expiry; list the files before the commit."""
    table = api.load(ident)
    # By the metadata from before the expiry, which the caller has put onto the disk.
    remove_unnamed_metadata(table)
    if list_files is None:
        update = table.expireSnapshots()
        choose(update)
        update.executeDeleteWith(api.in_this_thread).planWith(api.in_this_thread).commit()
        return
    transaction = table.newTransaction()
    files = api.collector()
    update = transaction.expireSnapshots()
    choose(update)
    update.deleteWith(files)
    planned = [int(snapshot.snapshotId()) for snapshot in update.apply()]
    update.executeDeleteWith(api.in_this_thread).planWith(api.in_this_thread).commit()
    found = _paths(api, files)
    if found:
        list_files(str(table.uuid().toString()), found)
    if planned:
        commit = table.expireSnapshots().expireOlderThan(0)
        for snapshot_id in planned:
            commit.expireSnapshotId(snapshot_id)
        commit.cleanExpiredFiles(False).commit()


def remove_unnamed(
    api: JavaApi, ident: LakeIdent, files: Sequence[str], table_uuid: str | None
) -> int:
    """See ``TableApi.remove_files``."""
    table = api.load(ident)
    if table_uuid not in (None, str(table.uuid().toString())):
        return 0
    unnamed = api.string_set(_SEPARATOR.join(files), _SEPARATOR)
    manifests, named = api.new_set(), api.new_set()
    for snapshot in table.snapshots():
        named.add(snapshot.manifestListLocation())
        manifests.addAll(snapshot.allManifests(table.io()))
    for manifest in manifests:
        named.add(manifest.path())
        unnamed.removeAll(api.live_paths(table, manifest))
    named.addAll(api.statistics_files(table))
    unnamed.removeAll(named)
    count = int(unnamed.size())
    if count:
        api.delete_files(table, unnamed)
    return count


def _paths(api: JavaApi, files: Any) -> list[str]:
    joined = str(api.joined(files, _SEPARATOR))
    return joined.split(_SEPARATOR) if joined else []
