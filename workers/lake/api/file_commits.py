"""Lists and commits a branch's files with Iceberg's Java API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError

from catalog.errcodes import InternalError, ReplicationError
from config.limits import LISTED_FILES
from workers.lake.api.held_commits import HeldCommit, check_main, main_below
from workers.lake.api.java_api import JavaApi
from workers.lake.api.snapshot_commits import NewSnapshot
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.refusals import changed_meanwhile
from workers.lake.staged_rows import FileList, LayoutId, LiveFile, NewFile, Place
from workers.lake.storage.bucket import is_in_bucket
from workers.lake.storage.choose_store import store_for
from workers.lake.storage.store import TableStore
from workers.lake.table import MAIN, LakeIdent, Stamp
from workers.lake.table_totals import TOTALS, TableFiles


def list_files(api: JavaApi, ident: LakeIdent, branch: str) -> FileList:
    """See ``FileCommits.list_files``."""
    table = api.load(ident)
    snapshot = table.snapshot(branch)
    if snapshot is None:
        raise changed_meanwhile(ident)
    tip = int(snapshot.snapshotId())
    count = snapshot.summary().get("total-data-files")
    if count is None or int(count) > LISTED_FILES:
        return FileList(tip, None)
    store = store_for(str(table.location()))
    placed = _has_places(table)
    files = []
    for task in api.scan(table, tip):
        if store is None or not is_readable(task, store):
            return FileList(tip, None)
        rows = task["data-file"]
        # Deletes that apply to a data file have the data file's place.
        place = _place(rows, task["spec"]) if placed else None
        deletes = tuple(_delete_file(each, place) for each in task.get("delete-files", ()))
        found = LiveFile(
            rows["file-path"],
            rows["record-count"],
            deletes,
            first_row_id=rows.get("first-row-id"),
            place=place,
            size=rows["file-size-in-bytes"],
        )
        files.append(found)
    return FileList(tip, tuple(files))


def commit_files(
    api: JavaApi,
    table: Any,
    ident: LakeIdent,
    branch: str,
    change: FileChange,
    on_known_state: bool = False,
) -> FileTotals:
    """See ``FileCommits.commit_files``. The commit reads the newest state of ``table``, or begins
    with the state that ``table`` has (``on_known_state``).
    """
    made = _new_snapshot(api, table, ident, branch, change, on_known_state=on_known_state).commit()
    _expect_removed(ident, change, made)
    return _totals(ident, made)


def hold_files(
    api: JavaApi, table: Any, ident: LakeIdent, branch: str, change: FileChange, stamp: Stamp
) -> tuple[HeldCommit, FileTotals] | None:
    """Write the snapshot of the change and hold the commit; None if the commit may not be held.

    ``table`` says so. The written snapshot is on the newest state.
    """
    main = main_below(table.operations().current(), branch)
    if main is None:
        return None
    new = _new_snapshot(api, table, ident, branch, change, main, on_known_state=True)
    try:
        new.write()
        _expect_removed(ident, change, new.made)
    except (Py4JJavaError, ReplicationError):  # nothing was committed
        new.discard()
        raise
    totals = replace(_totals(ident, new.made), held=True)
    return HeldCommit(ident, branch, stamp, new, totals.tip), totals


def _new_snapshot(
    api: JavaApi,
    table: Any,
    ident: LakeIdent,
    branch: str,
    change: FileChange,
    main: int | None = None,
    *,
    on_known_state: bool,
) -> NewSnapshot:
    """The snapshot of the change, to be added to the branch, and to ``main`` if that is given.

    ``main`` is at that snapshot now.
    """
    snapshot = table.snapshot(branch)
    if snapshot is None or _layout_of(table.operations().current()) != change.layout:
        raise changed_meanwhile(ident)
    if change.expected_tip is not None and snapshot.snapshotId() != change.expected_tip:
        raise changed_meanwhile(ident)
    at = snapshot.snapshotId()
    update = _update(api, table, change, at)
    if not (_replaces_files(change) and is_in_bucket(str(table.location()))):
        update.scanManifestsWith(api.in_this_thread)
    update.toBranch(branch)
    for key, value in change.summary.items():
        update.set(key, value)

    def check(base: Any) -> None:
        """The branch is ours alone: another tip than the one that was read is not expected."""
        ref = base.ref(branch)
        if ref is None or ref.snapshotId() != at or _layout_of(base) != change.layout:
            raise changed_meanwhile(ident)
        if main is not None:
            check_main(ident, base, branch, main)

    refs = [branch] if main is None else [branch, MAIN]
    return NewSnapshot(api, table, update, refs, check, _new_manifests(change), on_known_state)


def _expect_removed(ident: LakeIdent, change: FileChange, made: Any) -> None:
    went = int(made.summary().get("deleted-data-files") or 0)
    if went != len(change.removed):  # a file that stayed would have each row twice
        wrong = f"{went} of {len(change.removed)} replaced files left the table"
        raise InternalError(f'lake table "{ident}": {wrong}')


def _new_manifests(change: FileChange) -> int:
    """The manifests of the added files."""
    places = ([file.place for file in files] for files in (change.added, change.added_deletes))
    return sum(len({place and place.spec_id for place in each}) for each in places)


def _replaces_files(change: FileChange) -> bool:
    """Does Iceberg read and write a manifest for each file that goes?

    In a bucket the threads of Iceberg's pool do so together: 25 files took 4 s one by one.
    """
    return bool(change.removed or change.removed_deletes)


def _update(api: JavaApi, table: Any, change: FileChange, tip: int) -> Any:
    """The kind of Iceberg commit that the change needs, with the files."""

    added = api.data_files(table, change.added, change.stored)
    removed = api.listed_files(table, change.removed)
    former = [each.path for each in change.removed_deletes]
    removed_deletes = api.position_deletes(table, change.removed_deletes, former)
    if change.removed and not change.changes_rows:
        update = table.newRewrite().validateFromSnapshot(tip)
        for each in (*removed, *removed_deletes):
            update.deleteFile(each)
        for each in added:
            update.addFile(each)
    elif change.removed or change.added_deletes or change.removed_deletes:
        # Iceberg then refuses a second deletion vector for a data file, unless the commit removes
        # the first vector.
        update = table.newRowDelta().validateFromSnapshot(tip)
        for each in added:
            update.addRows(each)
        for each in removed:
            update.removeRows(each)
        for each in api.position_deletes(table, change.added_deletes, change.stored):
            update.addDeletes(each)
        for each in removed_deletes:
            update.removeDeletes(each)
    else:
        update = table.newAppend()
        for each in added:
            update.appendFile(each)
    return update


def _totals(ident: LakeIdent, made: Any) -> FileTotals:
    """The totals in the summary of a commit, which the process counts too."""
    summary, tip, parent = made.summary(), int(made.snapshotId()), made.parentId()
    names = ("records", "position-deletes", "delete-files", "data-files")
    total = {name: int(summary.get(f"total-{name}") or 0) for name in names}
    files = TableFiles(total["data-files"], total["delete-files"], total["position-deletes"])
    TOTALS.note(ident, files)
    idle = files.delete_files - files.data_files
    return FileTotals(total["records"], total["position-deletes"], tip, parent, idle)


def is_readable(task: Mapping[str, Any], store: TableStore) -> bool:
    """Can a worker read the data file and the deletes of a scan task? The task is JSON."""
    deletes = task.get("delete-files", ())
    kinds = {each["content"].upper().replace("-", "_") for each in deletes}
    formats = {each["file-format"].upper() for each in deletes}
    rows = task["data-file"]["file-format"].upper() == "PARQUET"
    here = (store.holds(each["file-path"]) for each in (task["data-file"], *deletes))
    return all(here) and rows and kinds <= {"POSITION_DELETES"} and formats <= {"PARQUET", "PUFFIN"}


def _has_places(table: Any) -> bool:
    """May files of the table belong to different partitions or specs?"""
    return bool(table.spec().isPartitioned()) or table.specs().size() > 1


def _place(file: Mapping[str, Any], spec: Mapping[str, Any]) -> Place:
    """The place of a file. Partitions are an object by field id, or a list in the spec's order."""
    values = file.get("partition") or {}
    if isinstance(values, list):
        ids = [str(each["field-id"]) for each in spec["fields"]]
        values = dict(zip(ids, values, strict=True))
    known = {number: value for number, value in values.items() if value is not None}
    return Place(file["spec-id"], json.dumps(known, sort_keys=True, separators=(",", ":")))


def _delete_file(file: Mapping[str, Any], place: Place | None) -> NewFile:
    vector = None
    if file["file-format"].upper() == "PUFFIN":
        vector = file["content-offset"], file["content-size-in-bytes"]
    of = file.get("referenced-data-file")
    path, size, rows = file["file-path"], file["file-size-in-bytes"], file["record-count"]
    return NewFile(path, size, rows, of, vector=vector, place=place)


def _layout_of(metadata: Any) -> LayoutId:
    return LayoutId(
        str(metadata.uuid()),
        metadata.currentSchemaId(),
        metadata.defaultSpecId(),
        metadata.formatVersion(),
    )
