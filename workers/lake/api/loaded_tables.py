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
so old objects go, and ``LOADED_AT_ONCE_TABLES`` stay at most, and as many held commits. Two threads
never use an object at a time.

Trace: batch 1 loads the table and commits. Batch 2 comes a second later: the object of batch 1 says
that the branch is at snapshot 5, and so does the newest state. The commit is snapshot 6, ``main``
moves from 5 to 6 without a look. Maintenance commits snapshot 7 to the branch. Batch 3: the newest
state has snapshot 7, the object has 6. The table is loaded, and the commit is made on top of 7.

A commit that is held (``held_commits``) keeps the object until the publication.

The first object of a table that a worker makes is that of the creation. Layout, branch and first
commit of a copy take the object in turn, and each spares a request: a copy of a small table is
mostly waiting for requests. A branch begins at a snapshot that the caller names. If the object does
not have the snapshot, or the catalog refuses, the table is loaded. Whatever Spark commits makes the
object worthless: ``forget``.

A commit begins with the list of manifests of the commit before: two requests to a store, one behind
the other. Where the answer to a commit brought the table's new state, a thread of its own has the
list read behind the publication (``ManifestLists``), while the worker writes files of the next
batch. Behind the creation of a branch the list is read while the rows of the copy arrive.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError

from catalog.errcodes import SerializationFailure
from config.limits import LOADED_AT_ONCE_TABLES, LOADED_TABLE_SECONDS
from workers.lake.api.file_commits import commit_files, hold_files
from workers.lake.api.held_commits import HeldCommit, unpublished
from workers.lake.api.java_api import BRANCH_AGE_MS, JavaApi
from workers.lake.api.manifest_lists import ManifestLists
from workers.lake.api.move_main import Seen, look, look_at_known, tip_of_known
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.metadata.snapshots import stamp_in
from workers.lake.publication import Publication
from workers.lake.table import MAIN, LakeIdent, Stamp


@dataclass(frozen=True, slots=True)
class _Loaded:
    api: JavaApi
    table: Any
    since: float


@dataclass(frozen=True, slots=True)
class _Held:
    commit: HeldCommit
    loaded: _Loaded


@dataclass(slots=True)
class LoadedTables:
    """Iceberg's objects of tables, and held commits; ``clock`` is monotonic, in seconds."""

    clock: Callable[[], float] = time.monotonic
    _loaded: dict[LakeIdent, _Loaded] = field(default_factory=dict)
    _held: dict[LakeIdent, _Held] = field(default_factory=dict)
    _lists: ManifestLists = field(default_factory=ManifestLists)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def commit_files(
        self, api: JavaApi, ident: LakeIdent, branch: str, change: FileChange
    ) -> FileTotals:
        """See ``FileCommits.commit_files``. XX000 if the batch before is held on the branch."""
        self._give_up_before(ident, branch)
        known = self._take(api, ident)
        if known is not None:
            try:
                return self._commit(known, ident, branch, change, known=True)
            except SerializationFailure:
                pass
        return self._commit(self._load(api, ident), ident, branch, change, known=False)

    def _commit(
        self, loaded: _Loaded, ident: LakeIdent, branch: str, change: FileChange, *, known: bool
    ) -> FileTotals:
        """Commit or hold the change; ``known``: the state may be of a moment ago."""
        stamp = stamp_in(change.summary) if change.may_hold else None
        if stamp is not None and len(self._held) < LOADED_AT_ONCE_TABLES:
            held = hold_files(loaded.api, loaded.table, ident, branch, change, stamp)
            if held is not None:
                commit, totals = held
                self._held[ident] = _Held(commit, loaded)
                return totals
        # A table of a Hadoop catalog compares with nothing but the state that it was given.
        known = known and loaded.api.answers_with_state
        totals = commit_files(loaded.api, loaded.table, ident, branch, change, known)
        self._keep(ident, loaded)
        return totals

    def created(self, api: JavaApi, ident: LakeIdent, transaction: Any) -> Any:
        """The object of a table that ``transaction`` has made, kept for the steps that follow."""
        if api.answers_with_state:
            loaded = _Loaded(api, api.made_table(transaction), self.clock())
        else:
            loaded = self._load(api, ident)
        self._keep(ident, loaded)
        return loaded.table

    @contextlib.contextmanager
    def lent(self, api: JavaApi, ident: LakeIdent) -> Iterator[Any]:
        """The object of the table for reading, as of the commit before or newer."""
        loaded = self._take(api, ident) or self._load(api, ident)
        yield loaded.table
        self._keep(ident, loaded)

    def create_branch(self, api: JavaApi, ident: LakeIdent, branch: str, at: int | None) -> None:
        """Create or replace a branch at a snapshot, by default at the newest of ``main``."""
        known = self._take(api, ident) if api.answers_with_state and at is not None else None
        if known is not None:
            try:
                return self._set_branch(known, ident, branch, at)
            except Py4JJavaError:  # a branch may be set twice
                pass
        return self._set_branch(self._load(api, ident), ident, branch, at)

    def _set_branch(self, loaded: _Loaded, ident: LakeIdent, branch: str, at: int | None) -> None:
        api, table = loaded.api, loaded.table
        if at is None:
            current = table.currentSnapshot()
            at = None if current is None else int(current.snapshotId())
        if at is None:
            created = table.manageSnapshots().createBranch(branch)
            created.setMaxRefAgeMs(branch, BRANCH_AGE_MS).commit()
            return
        operations = table.operations()
        ref = operations.current().ref(branch)
        is_ours = ref is not None and ref.maxRefAgeMs() is not None
        if not is_ours or ref.snapshotId() != at:  # else the branch came with the table
            api.set_branch(operations, branch, at)
        self._read_list(loaded, at)
        self._keep(ident, loaded)

    def forget(self, ident: LakeIdent) -> None:
        """Load the table for the next commit."""
        with self._lock:
            self._loaded.pop(ident, None)

    def held(self, ident: LakeIdent, branch: str) -> int | None:
        """See ``TableApi.held``."""
        held = self._held.get(ident)
        return None if held is None or held.commit.branch != branch else held.commit.snapshot_id

    def published(self, ident: LakeIdent, branch: str) -> None:
        """See ``FileCommits.published``."""
        if self.held(ident, branch) is not None:
            del self._held[ident]

    def give_up(self, ident: LakeIdent, branch: str) -> None:
        """Remove the manifests of the commit held for a dropped branch."""
        if self.held(ident, branch) is not None:
            self._held.pop(ident).commit.discard()

    def _give_up_before(self, ident: LakeIdent, branch: str) -> None:
        """Give up the commit of a former branch. Every branch is left for good."""
        before = self._held.get(ident)
        if before is not None:
            if before.commit.branch == branch:
                raise unpublished(ident)
            self.give_up(ident, before.commit.branch)

    def _of(self, part: Publication) -> _Held | None:
        """The held commit of a publication. The held commit alone can publish the part."""
        held = self._held.get(part.ident)
        if held is None or held.commit.branch != part.branch:
            return None
        if held.commit.stamp != part.stamp:
            raise unpublished(part.ident)
        return held

    def _settle(self, ident: LakeIdent, loaded: _Loaded) -> None:
        held = self._held.pop(ident)
        self._read_list(loaded, held.commit.snapshot_id)
        self._keep(ident, loaded)

    def _read_list(self, loaded: _Loaded, snapshot_id: int) -> None:
        """Have the list of the snapshot read ahead, if the answer to a commit brought the state."""
        if loaded.api.answers_with_state:
            snapshot = loaded.table.operations().current().snapshot(snapshot_id)
            if snapshot is not None:
                self._lists.read(snapshot, loaded.table.io())

    def move_main(self, api: JavaApi, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        """Move ``main`` to the branch, which ends with ``stamp``; the snapshot of ``main`` then.

        None if the table has to be read first. After an error the table is read first, too.
        """
        held = self._of(Publication(ident, branch, stamp))
        if held is not None:
            snapshot_id = held.commit.publish()
            self._settle(ident, held.loaded)
            return snapshot_id
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
        held = self._of(part)
        if held is not None:
            return self._look_at_held(api, part, held)
        known = self._take(api, part.ident)
        if known is not None:
            seen = look_at_known(api, known.table, part)
            if seen is not None:
                return seen
        fresh = self._load(api, part.ident)
        seen = look(api, fresh.table, part)
        if seen.change is None:  # else the look behind the call has to read the table
            self._keep(part.ident, fresh)
        return seen

    def _look_at_held(self, api: JavaApi, part: Publication, held: _Held) -> Seen:
        commit = held.commit
        if commit.called:
            fresh = self._load(api, part.ident)
            base = fresh.table.operations().current()
            if commit.is_in(base):
                return self._look_behind(api, part, _Held(commit, fresh), base)
        may_be_old = not commit.called
        change = commit.change()
        if change is None:
            return self._look_behind(api, part, held, commit.snapshot.base)
        return Seen(part.ident, commit.snapshot_id, change, may_be_old)

    def _look_behind(self, api: JavaApi, part: Publication, held: _Held, base: Any) -> Seen:
        """Look at a table that has the held snapshot, in the state ``base``."""
        commit, loaded = held.commit, held.loaded
        if not commit.is_on_main(api, base):
            return look(api, loaded.table, part)
        commit.snapshot.found_in(base, commit.snapshot_id)
        commit.snapshot.remove_useless()
        self._settle(part.ident, loaded)
        return Seen(part.ident, int(base.ref(MAIN).snapshotId()), None)

    def _load(self, api: JavaApi, ident: LakeIdent) -> _Loaded:
        return _Loaded(api, api.load(ident), self.clock())

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
