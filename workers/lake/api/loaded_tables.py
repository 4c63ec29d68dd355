"""Commit and publish without reading the table first, if the last commit is a moment ago.

A commit reads the table twice: ``load`` makes Iceberg's object of the table, and the commit itself
reads the newest state, which the caller's checks look at. The object of the last commit serves as
well. If the branch or the layout is not as that object says, nothing is committed, and the second
attempt loads the table.

To publish means to move ``main`` by a compare-and-set. The answer to the branch's commit brought
the state of the table, so the publication takes that state as the state to be replaced. A commit to
``main`` meanwhile, as a fence is, makes the catalog refuse, and the second attempt loads the table.
Another commit to the branch meanwhile would stay unseen: so the branch has to end with the position
of the batch in that state. Only the last commit of a batch carries the position. The first look of
a call for several tables is at such states, too; the look behind the call reads every table.

An object holds the keys of the store that the catalog gave with the table, so an object is used for
``LOADED_TABLE_SECONDS`` only. An object also holds the table's metadata in the lake server's heap,
so old objects go, and ``LOADED_AT_ONCE_TABLES`` stay at most. Two threads never use an object at a
time.

Trace: batch 1 loads the table and commits. Batch 2 comes a second later: the object of batch 1 says
that the branch is at snapshot 5, and so does the newest state. The commit is snapshot 6, ``main``
moves from 5 to 6 without a look. Maintenance commits snapshot 7 to the branch. Batch 3: the newest
state has snapshot 7, the object has 6. The table is loaded, and the commit is made on top of 7.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from catalog.errcodes import SerializationFailure
from config.limits import LOADED_AT_ONCE_TABLES, LOADED_TABLE_SECONDS
from workers.lake.api.file_commits import commit_files
from workers.lake.api.java_api import JavaApi
from workers.lake.api.move_main import Seen, look, look_at_known, tip_of_known
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.publication import Publication
from workers.lake.table import LakeIdent, Stamp


@dataclass(frozen=True, slots=True)
class _Loaded:
    api: JavaApi
    table: Any
    since: float


@dataclass(slots=True)
class LoadedTables:
    """Iceberg's objects of tables; ``clock`` is monotonic, in seconds."""

    clock: Callable[[], float] = time.monotonic
    _loaded: dict[LakeIdent, _Loaded] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def commit_files(
        self, api: JavaApi, ident: LakeIdent, branch: str, change: FileChange
    ) -> FileTotals:
        """See ``FileCommits.commit_files``."""
        known = self._take(api, ident)
        if known is not None:
            try:
                totals = commit_files(api, known.table, ident, branch, change)
            except SerializationFailure:
                pass
            else:
                self._keep(ident, known)
                return totals
        fresh = _Loaded(api, api.load(ident), self.clock())
        totals = commit_files(api, fresh.table, ident, branch, change)
        self._keep(ident, fresh)
        return totals

    def move_main(self, api: JavaApi, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        """Move ``main`` to the branch, which ends with ``stamp``; the snapshot of ``main`` then.

        None if the table has to be read first. After an error the table is read first, too.
        """
        known = self._take(api, ident)
        if known is None:
            return None
        operations = known.table.operations()
        base = operations.current()
        tip = tip_of_known(api, base, branch, stamp)
        if tip is None:
            return None
        api.move_main(operations, base, tip)
        self._keep(ident, known)
        return tip

    def look(self, api: JavaApi, part: Publication) -> Seen:
        """Look at a table whose ``main`` is to move together with others (``move_main``).

        The second look at a table, behind the call, reads the table.
        """
        known = self._take(api, part.ident)
        if known is not None:
            seen = look_at_known(api, known.table, part)
            if seen is not None:
                return seen
        fresh = _Loaded(api, api.load(part.ident), self.clock())
        seen = look(api, fresh.table, part)
        if seen.change is None:  # else the look behind the call has to read the table
            self._keep(part.ident, fresh)
        return seen

    def _take(self, api: JavaApi, ident: LakeIdent) -> _Loaded | None:
        """The object of the commit before, which is nobody else's until ``_keep``."""
        with self._lock:
            known = self._loaded.pop(ident, None)
        is_usable = known is not None and known.api is api and self._is_young(known)
        return known if is_usable else None

    def _keep(self, ident: LakeIdent, loaded: _Loaded) -> None:
        with self._lock:
            self._loaded[ident] = loaded
            young = [(each, known) for each, known in self._loaded.items() if self._is_young(known)]
            self._loaded = dict(young[-LOADED_AT_ONCE_TABLES:])

    def _is_young(self, known: _Loaded) -> bool:
        return self.clock() - known.since < LOADED_TABLE_SECONDS
