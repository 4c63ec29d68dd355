"""What a destination knows of its tables' durability: folders, and commits that may be lost.

A commit is *open* until ``make_durable``: a power cut may take its files. Iceberg removes a
metadata file that is twenty commits old (``TABLE_PROPERTIES``). If all twenty were open, a power
cut could leave no whole metadata file to set the table back to. So a table with many open commits
is made durable even if no position is to be stored: a long copy, a batch of many segments.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from config.limits import OPEN_COMMITS
from workers.lake.connect.sessions import Sessions
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.table_state import TableState
from workers.lake.sql.table_metadata import read_location
from workers.lake.storage.catalog_pointers import CatalogPointers
from workers.lake.storage.choose_store import make_durable
from workers.lake.table import LakeIdent


class Durability:
    """Makes tables durable; any thread may call."""

    def __init__(self, tables: TableApi, sessions: Sessions, catalog_file: Path | None) -> None:
        """``catalog_file``: the embedded catalog, None with another catalog."""
        self._tables = tables
        self._sessions = sessions
        self._pointers = None if catalog_file is None else CatalogPointers(catalog_file)
        self._lock = threading.Lock()
        self._folders: dict[LakeIdent, tuple[str, ...]] = {}
        # Both only grow: of two threads that synchronise at once, neither counts a commit twice.
        self._committed: Counter[LakeIdent] = Counter()
        self._durable: Counter[LakeIdent] = Counter()

    def read(self, ident: LakeIdent, state: TableState) -> None:
        """Note the folders of a table that was read."""
        self._folders[ident] = state.folders

    def committed(self, ident: LakeIdent, commits: int) -> None:
        """Count commits to a table; too many open commits are made durable."""
        with self._lock:
            self._committed[ident] += commits
            many = self._committed[ident] - self._durable[ident] > OPEN_COMMITS
        if many:
            self.make_durable([ident])

    def make_durable(self, idents: Collection[LakeIdent]) -> Mapping[LakeIdent, str]:
        """See ``Destination.make_durable``."""
        # The pointers come first: what they name is on the disk afterwards, a later commit may not.
        locations = {} if self._pointers is None else self._pointers.of(idents)
        with self._lock:
            seen = {ident: self._committed[ident] for ident in idents}
        make_durable(dict.fromkeys(folder for ident in idents for folder in self._where(ident)))
        with self._lock:
            # Commits that another thread made meanwhile stay open.
            self._durable |= seen
        return locations

    def _where(self, ident: LakeIdent) -> tuple[str, ...]:
        """The folders of the table's files; Spark has to be asked if no metadata file was read."""
        if not self._folders.get(ident):
            state = self._tables.describe(ident)
            folders = () if state is None else state.folders
            if state is not None and not folders:
                location = read_location(self._sessions.get(), ident)
                folders = () if location is None else (location,)
            self._folders[ident] = folders
        return self._folders[ident]
