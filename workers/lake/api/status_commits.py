"""Replace all rows of a status table in one commit, by Iceberg's Java API.

A status table holds the rows of a view of ``pgsub status``, and none that are replicated. So the
commits here move ``main``: a late call of a dead process shows an old state of the view until the
next write, and does no other harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.lake.api import expired_files
from workers.lake.api.java_api import JavaApi
from workers.lake.api.table_store import store_of_table
from workers.lake.staged_rows import NewFile
from workers.lake.storage.store import TableStore
from workers.lake.table import LakeIdent

WriteFile = Callable[[Mapping[str, Any], TableStore | None], NewFile | None]
"""Writes the rows to a file for a table of the given metadata and store; None without rows."""


@dataclass(frozen=True, slots=True)
class NewStatusTable:
    """What a status table is made with: the schema as JSON, the folder, and the properties."""

    schema: str
    location: str | None
    properties: Mapping[str, str]


def written(api: JavaApi, ident: LakeIdent, key: str) -> tuple[str | None, int] | None:
    """The summary's ``key`` of the last snapshot, and the number of snapshots; None without table.

    The table's metadata file has both, and no Spark job reads it.
    """
    metadata = api.metadata_if_any(ident)
    if metadata is None:
        return None
    snapshots = metadata.get("snapshots", [])
    last: dict[str, Any] = max(snapshots, key=lambda each: int(each["sequence-number"]), default={})
    return last.get("summary", {}).get(key), len(snapshots)


def replace_table(
    api: JavaApi,
    ident: LakeIdent,
    new: NewStatusTable,
    write: WriteFile,
    summary: Mapping[str, str],
) -> None:
    """Make the table, or give a present table other columns, together with the rows."""
    if not api.has_namespace(ident.schema):
        api.create_namespace(ident.schema)
    made = api.build_table(
        ident, new.schema, new.location, new.properties
    ).createOrReplaceTransaction()
    table = made.table()
    file = write(api.as_json(table.operations().current()), store_of_table(table))
    append = made.newAppend().scanManifestsWith(api.in_this_thread)
    for each in api.data_files(table, [] if file is None else [file]):
        append.appendFile(each)
    _commit(append, summary)
    made.commitTransaction()


def replace_rows(
    api: JavaApi, ident: LakeIdent, write: WriteFile, summary: Mapping[str, str]
) -> None:
    """Replace all rows of a table whose columns stay."""
    table = api.load(ident)
    file = write(api.as_json(table.operations().current()), store_of_table(table))
    update = table.newOverwrite().overwriteByRowFilter(api.every_row())
    for each in api.data_files(table, [] if file is None else [file]):
        update.addFile(each)
    _commit(update.scanManifestsWith(api.in_this_thread), summary)


def expire(api: JavaApi, ident: LakeIdent, retain_last: int) -> None:
    """Drop all snapshots but the last ones, with their files."""
    expired_files.expire(api, ident, time.time(), retain_last, None)


def remove_refused(api: JavaApi, ident: LakeIdent, paths: Sequence[str]) -> None:
    """Remove the files of a commit that was refused, unless a snapshot names the files."""
    if api.has_table(ident):
        expired_files.remove_unnamed(api, ident, paths, None)


def _commit(update: Any, summary: Mapping[str, str]) -> None:
    for key, value in summary.items():
        update.set(key, value)
    update.commit()
