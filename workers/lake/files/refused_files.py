"""Remember the files of commits that the lake refused, and remove the files with the branch.

A commit names files that are in the table's folder already. When the lake answers a commit with an
error, no snapshot names the files, and the next attempt writes files of its own. A full disk would
become fuller with every attempt. So the files of a refused commit are remembered for the table, and
they go when the worker drops the branch of the failed attempt. A file that a snapshot names
stays: the error may have come behind the commit.

An answer that the outcome is unknown is no refusal: the commit may still take effect, minutes
later, for example in a catalog behind a gateway that gave up. The files of such a commit go once
the branch is dropped: a catalog refuses a commit to a branch that is not there any more, so what no
snapshot names then will never be named. The same goes for a commit that is held until the
publication of the branch. An error without an answer leaves the files alone, because Iceberg may be
trying the commit again, and would make the branch anew. Orphan removal finds such files.

Trace: rows 1..900 are in file A, and the commit of A ends with "No space left on device". A is
remembered. The worker gives the batch up and drops the branch; A is named by no snapshot and goes.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from catalog.errcodes import ConnectionFailure, ReplicationError
from workers.lake.connect.errors import LakeFailure
from workers.lake.interfaces.table_api import FileChange, FileCommits, FileTotals
from workers.lake.staged_rows import FileList
from workers.lake.storage.store import TableStore
from workers.lake.table import LakeIdent

_UNKNOWN: Final = re.compile(
    r"\b(?:CommitStateUnknown|REST|ServiceFailure|ServiceUnavailable)Exception\b"
)
"""What Iceberg says behind an answer of 5xx, and behind a connection that was cut."""


class RefusedFiles(FileCommits):
    """Passes all calls on to ``commits``, and remembers the files of refused commits."""

    def __init__(self, commits: FileCommits) -> None:
        self._commits = commits
        self._lock = threading.Lock()
        self._refused: defaultdict[LakeIdent, list[str]] = defaultdict(list)
        self._undecided: defaultdict[tuple[LakeIdent, str], list[str]] = defaultdict(list)
        self._held: dict[tuple[LakeIdent, str], list[str]] = {}

    def commit_files(
        self, ident: LakeIdent, branch: str, change: FileChange, what: str
    ) -> FileTotals:
        """See ``FileCommits``."""
        paths = [file.path for file in (*change.added, *change.added_deletes)]
        try:
            totals = self._commits.commit_files(ident, branch, change, what)
        except ReplicationError as error:
            if not isinstance(error, ConnectionFailure):
                with self._lock:
                    if _is_unknown(error):
                        self._undecided[ident, branch] += paths
                    else:
                        self._refused[ident] += paths
            raise
        if totals.held:
            with self._lock:
                self._held[ident, branch] = paths
        return totals

    def published(self, ident: LakeIdent, branch: str) -> None:
        """See ``FileCommits``."""
        with self._lock:
            self._held.pop((ident, branch), None)
        self._commits.published(ident, branch)

    def forget(self, ident: LakeIdent) -> None:
        """See ``FileCommits``."""
        self._commits.forget(ident)

    def remove_refused(self, ident: LakeIdent) -> None:
        """Remove the table's remembered files. Staged rows of the failed attempt are gone, too."""
        with self._lock:
            files = self._refused.pop(ident, [])
        self._remove(ident, files)

    def remove_undecided(self, ident: LakeIdent, branches: Iterable[str]) -> None:
        """Remove the files of commits without a known outcome to branches that are dropped now."""
        with self._lock:
            kept = (self._undecided, self._held)
            found = [each.pop((ident, branch), []) for branch in branches for each in kept]
        self._remove(ident, [path for paths in found for path in paths])

    def _remove(self, ident: LakeIdent, files: Sequence[str]) -> None:
        if files:
            with suppress(LakeFailure):  # orphan removal follows
                self._commits.remove_files(ident, files)

    def metadata_and_store(
        self, ident: LakeIdent, what: str, *, newest: bool = True
    ) -> tuple[Mapping[str, Any], TableStore | None]:
        """See ``FileCommits``."""
        return self._commits.metadata_and_store(ident, what, newest=newest)

    def tip(self, ident: LakeIdent, branch: str, what: str) -> int:
        """See ``FileCommits``."""
        return self._commits.tip(ident, branch, what)

    def list_files(self, ident: LakeIdent, branch: str, what: str) -> FileList:
        """See ``FileCommits``."""
        return self._commits.list_files(ident, branch, what)

    def remove_files(
        self, ident: LakeIdent, files: Sequence[str], table_uuid: str | None = None
    ) -> int:
        """See ``FileCommits``."""
        return self._commits.remove_files(ident, files, table_uuid)


def is_open(error: ReplicationError) -> bool:
    """May the commit still take effect?"""
    return isinstance(error, ConnectionFailure) or _is_unknown(error)


def _is_unknown(error: ReplicationError) -> bool:
    """Does the answer say that the commit may still take effect?"""
    return isinstance(error, LakeFailure) and _UNKNOWN.search(error.message) is not None
