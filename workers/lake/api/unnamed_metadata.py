"""Removes the metadata files of commits that came second.

A commit writes the table's next metadata file, and then sets the catalog's pointer to the file if
the pointer is still the old one. The loser of two commits writes a further file and tries again,
and no catalog on a database removes the first file. A batch beside an expiry or a compaction left
eight files a minute, each as large as the table's whole metadata.

A metadata file's name begins with its number, which is one more than that of the file before. The
current file names the last files of the past, 20 as pgsub creates tables; Iceberg has removed the
older files. So a file with a smaller number than every named file is such a loser's, and goes. A
file with a larger number stays: the commit that wrote the file may be running.

Trace: the current file is 00057, and names 00037 to 00056. The folder also holds 00031-b, 00044-b
and 00058-b. 00031-b goes. 00044-b goes when 00044 is no longer named. 00058-b is being committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from workers.lake.api.table_store import store_of_table
from workers.lake.metadata.table_location import is_own_folder
from workers.lake.storage.store import remove_all

_METADATA: Final = re.compile(r"([0-9]{5,})-[0-9a-f-]{36}(?:\.gz)?\.metadata\.json(?:\.gz)?")
_REMOVES_OLD_FILES: Final = "write.metadata.delete-after-commit.enabled"


def remove_unnamed_metadata(table: Any) -> int:
    """Remove the files older than all files that the table's loaded metadata names; how many.

    The call does nothing for a folder that pgsub did not name, because the folder may hold a
    further table; for a table that is to keep all metadata files; and for a store that the worker
    does not reach. Raises 58030 if a file cannot be removed.
    """
    location = str(table.location())
    store = store_of_table(table)
    current = table.operations().current()
    newest = str(current.metadataFileLocation())
    folder = newest.rpartition("/")[0]
    if (
        store is None
        or not is_own_folder(location)
        or folder != f"{location}/metadata"
        or current.properties().get(_REMOVES_OLD_FILES) != "true"
    ):
        return 0
    named = [newest, *(str(entry.file()) for entry in current.previousFiles())]
    unnamed = older_than_all(named, store.list_prefix(folder, ""))
    remove_all(store, unnamed)
    return len(unnamed)


def older_than_all(named: Iterable[str], found: Iterable[str]) -> list[str]:
    """The metadata files in ``found`` with a smaller number than every file in ``named``.

    Empty if a named file has no number: then the order of the files is not known.
    """
    numbers = [_number(path) for path in named]
    if None in numbers:
        return []
    first = min(number for number in numbers if number is not None)
    return [path for path in found if (number := _number(path)) is not None and number < first]


def _number(path: str) -> int | None:
    match = _METADATA.fullmatch(path.rpartition("/")[2])
    return None if match is None else int(match[1])
