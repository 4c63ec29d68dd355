"""Before the embedded lake server starts: set tables back that a power cut has torn.

Iceberg commits by writing a metadata file and then moving the catalog's pointer to it. The pointer
is on the disk at once, its metadata file only once a worker has called ``make_durable``. So a power
cut can leave a pointer to a metadata file, a manifest or a data file that is short or missing, and
no reader could read the table. The pointer then goes back to the newest metadata file that is
whole. No confirmed row is lost: a position is stored and confirmed only after ``make_durable``, and
the metadata file of that moment is stored with the position (``lake_durable``). The pointer never
goes back behind that file, and never to a file that was not made from that file. The publisher
sends everything behind the position again, and the stamps in the lake say from where on.

Trace: main of t is at position 500, metadata file 41 is durable, the origin is 500. A batch up to
600 makes the files 42 (the branch) and 43 (main). The power fails; the pointer names 43, which has
no bytes; 42 names a manifest that is missing. The pointer is set to 41, the worker reads 500 and
asks for everything after 500. A second file 41 in the folder is of a commit that was refused, at
position 400, and does not count.

A table that is new, and whose only metadata file is lost, leaves the catalog: no position was ever
stored for the table, and the next attempt to create the table makes it again.

In a data directory that was moved, every table looks like a new table whose file is lost. So such a
directory is refused before any table is looked at.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from catalog.errcodes import IoError
from catalog.store_sqlite import CatalogStore
from config.lake import embedded_catalog_file
from workers.lake.server.dropped_tables import forget_dropped_tables
from workers.lake.server.moved_lake import check_not_moved
from workers.lake.server.whole_table import LostFileError, Metadata, check_table, read_metadata
from workers.lake.storage.catalog_pointers import CatalogPointers, Pointer
from workers.lake.storage.local_path import is_local, local_path
from workers.lake.table import LakeIdent

log = logging.getLogger(__name__)

_VERSION: Final = re.compile(r"(\d+)-.*\.metadata\.json")


def set_embedded_tables_back(data_dir: Path) -> None:
    """Look at the tables of a data directory's lake; 55000 if the data directory was moved.

    No lake server may run.
    """
    file = embedded_catalog_file(data_dir)
    if file.exists():
        check_not_moved(file.parent.resolve())  # the hint names the absolute path
        with closing(CatalogStore.open(data_dir)) as store:
            stored = store.lake_durable()
            durable = {LakeIdent(schema, table): location for schema, table, location in stored}
            set_torn_tables_back(file, durable)
            with suppress(sqlite3.Error):  # the next start does it
                forget_dropped_tables(data_dir, store)


def set_torn_tables_back(path: Path, durable: Mapping[LakeIdent, str]) -> None:
    """Look at every table of the catalog file that is not at its ``durable`` metadata file."""
    pointers = CatalogPointers(path)
    try:
        for pointer in pointers.all():
            known = durable.get(pointer.ident)
            if pointer.location != known and is_local(pointer.location):
                _set_back_if_torn(pointers, pointer, known)
    except sqlite3.Error as error:
        raise IoError(f'could not use the lake\'s catalog "{path}": {error}') from None


def _set_back_if_torn(pointers: CatalogPointers, pointer: Pointer, durable: str | None) -> None:
    if durable is not None and _folder(durable) != _folder(pointer.location):
        durable = None  # the file of a table that had the name before
    base = _base(durable)
    try:
        check_table(read_metadata(pointer.location), base)
    except LostFileError as lost:
        whole = next(_whole(pointer, durable, base), None)
        _set_back(pointers, pointer, whole, lost, is_new=durable is None)


def _set_back(
    pointers: CatalogPointers,
    pointer: Pointer,
    whole: str | None,
    lost: LostFileError,
    *,
    is_new: bool,
) -> None:
    """Set the pointer to the metadata file ``whole``; ``is_new``: no position was stored yet."""
    if whole is None and (not is_new or pointer.previous is not None):
        log.warning(
            'action=lake_torn table=%s lake table "%s" cannot be read',
            pointer.ident,
            pointer.ident,
            extra={
                "DETAIL": f"Its file {lost}, and no earlier state of it is whole.",
                "HINT": "Restore the table's folder from a backup; or drop the table with pgsub "
                "sql, and have it copied with pgsub refresh --recopy.",
            },
        )
        return
    pointers.set(pointer, whole)
    state = "leaves the catalog" if whole is None else f'is set back to "{Path(whole).name}"'
    log.warning(
        'action=lake_set_back table=%s lake table "%s" %s',
        pointer.ident,
        pointer.ident,
        state,
        extra={
            "DETAIL": f"After an unclean end of the machine the file {lost}. Nothing behind that "
            "state was confirmed to a publisher.",
            "HINT": "Nothing: the rows behind it are received again.",
        },
    )


def _whole(pointer: Pointer, durable: str | None, base: Metadata | None) -> Iterator[str]:
    """The metadata files before the pointer's that are whole, the newest first."""
    for location in _earlier(pointer.location):
        try:
            found = read_metadata(location)
            check_table(found, base)
        except LostFileError:
            continue
        if durable is None or _is_made_from(durable, location, found):
            yield location


def _is_made_from(durable: str, location: str, found: Metadata) -> bool:
    """Is the metadata file ``location`` the ``durable`` file, or a later state of that file?

    A metadata file lists some twenty files before; ``durable`` may be older than these.
    """
    before = [entry["metadata-file"] for entry in found.get("metadata-log") or ()]
    if durable in (location, *before):
        return True
    return bool(before) and _version(_name(durable)) < min(_version(_name(each)) for each in before)


def _earlier(location: str) -> list[str]:
    """The metadata files in the folder with a lower version, the highest first."""
    folder, version = _folder(location), _version(_name(location))
    found = [
        (_version(each.name), each.stat().st_mtime_ns, each.name)
        for each in local_path(folder).glob("*.metadata.json")
    ]
    return [f"{folder}/{name}" for at, _, name in sorted(found, reverse=True) if 0 <= at < version]


def _folder(location: str) -> str:
    return location.rpartition("/")[0]


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _version(name: str) -> int:
    found = _VERSION.fullmatch(name)
    return -1 if found is None else int(found[1])


def _base(durable: str | None) -> Metadata | None:
    """The stored metadata file, unless the table was dropped with it."""
    if durable is None or not is_local(durable):
        return None
    try:
        return read_metadata(durable)
    except LostFileError:
        return None
