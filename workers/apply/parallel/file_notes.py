"""Remember files that are written before the commit, so that a crash leaves none behind.

Orphan removal finds a file without a snapshot after days. The files of a transaction in progress
may be many, so they are remembered: a *note* in the data directory names the transaction's lake
tables, with the ids of the catalog's rows, and the id in the names of the files. A lake table may
have another name when the note is read: the catalog's row has the name. A note is on the disk
before the first byte of a file. The note goes when the transaction has ended: by then the files
belong to a snapshot, or are removed. The next apply worker of the subscription takes the notes of
the predecessor, removes the files without a snapshot, and removes the notes. Notes of dropped
subscriptions are taken too.

Trace::

    transaction 7 of subscription 16384      parallel/16384_4f0c… : ["public", "t", 3]
    the files                                …/t/data/pgsub-copy-4f0c…-<uuid>.parquet
    the worker is killed; the next begins    the files go, and the note
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.errcodes import ReplicationError, RequiredProcessGone
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent
from workers.stream.segment import disk_error

FOLDER: Final = "parallel"


@dataclass(frozen=True, slots=True)
class Note:
    """The lake tables of the files with ``file_id`` in their names."""

    path: Path
    file_id: str
    tables: list[tuple[LakeIdent, int]]

    def add(self, ident: LakeIdent, relid: int) -> None:
        """Note a table durably, before its first file. Raises 53100 or 58030."""
        if (ident, relid) in self.tables:
            return
        line = json.dumps([ident.schema, ident.table, relid]).encode() + b"\n"
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with open(self.path, "ab", opener=_for_the_owner) as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if not self.tables:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(self.path.parent, error) from None
        self.tables.append((ident, relid))

    def forget(self) -> None:
        """The files belong to a snapshot, or are gone."""
        self.path.unlink(missing_ok=True)


class FileNotes:
    """The notes of a subscription's apply worker."""

    def __init__(self, data_dir: Path, subid: int) -> None:
        self._folder = data_dir / FOLDER
        self._subid = subid

    def new(self) -> Note:
        """A note with a new id; nothing is on the disk yet."""
        file_id = uuid.uuid4().hex
        return Note(self._folder / f"{self._subid}_{file_id}", file_id, [])

    def sweep(self, dest: Destination, store: CatalogStore) -> int:
        """Remove the files of dead workers, and the notes; how many notes were taken.

        Notes of subscriptions that do not exist any more are taken too. An error of the lake leaves
        a note for the next worker.
        """
        taken = 0
        for subid, note in list(self._left()):
            if subid != self._subid and store.subscription(subid) is not None:
                continue
            names = {ident for ident, _ in note.tables}
            for rel in (store.rel(subid, relid) for _, relid in note.tables):
                names |= set() if rel is None else {LakeIdent(rel.lake_schema, rel.lake_table)}
            try:
                for ident in names:
                    if dest.table(ident) is not None:
                        dest.discard_files(ident, note.file_id)
            except RequiredProcessGone:
                raise
            except ReplicationError:
                continue
            note.forget()
            taken += 1
        return taken

    def _left(self) -> Iterator[tuple[int, Note]]:
        paths = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            subid, _, file_id = path.name.partition("_")
            if not (subid.isdigit() and file_id):
                continue
            # A line that a power cut left incomplete: no file was begun before the line was whole.
            whole = path.read_bytes().split(b"\n")[:-1]
            yield int(subid), Note(path, file_id, [row for row in map(_row, whole) if row])


def _row(line: bytes) -> tuple[LakeIdent, int] | None:
    """A line of a note; None if the line is damaged: orphan removal finds the files, later."""
    try:
        schema, table, relid = json.loads(line)
    except (ValueError, TypeError):
        return None
    return LakeIdent(schema, table), relid


def _for_the_owner(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    for each in (folder, folder.parent):
        handle = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
