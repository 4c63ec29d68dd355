"""The last commit of a batch, made together with the publication: a single commit for the batch.

The last commit of a batch goes to the worker's branch, and then ``main`` moves to the branch. The
two are compare-and-sets of a table. Every compare-and-set costs a request and a metadata file. So
the last commit may be held: the manifests are written, and the snapshot waits in this process. The
publication sets the branch and ``main`` to the snapshot at once, for a single table, or for several
tables in a call. A commit is held only if ``main`` is where the branch is: the earlier commits of a
batch of several commits are on the branch already. Only commits that replace files by files with
the same rows may lie between, as compaction makes them.

The publication requires the branch and ``main`` to be where the worker has seen the two. So a fence
refuses the call of a dead worker, because a fence moves ``main``. A call without an answer may come
late. Every commit to ``main`` or to the branch in the meantime refuses the late call.

Every attempt gives the snapshot the same id. A table with a snapshot of the id has the batch; a
table without the snapshot lacks the batch. The tip of the branch says nothing.

Trace: ``main`` and the branch are at snapshot 4. The batch's files are in snapshot 5 with parent 4,
unknown to the catalog. A reader sees 4. The publication sets both refs from 4 to 5. The answer is
lost: the table is read, and has 5. The worker dies before the publication: both refs stay at 4, the
successor writes the batch again, and the manifests of 5 are orphans.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from catalog.errcodes import InternalError
from workers.lake.api.java_api import JavaApi
from workers.lake.api.snapshot_commits import NewSnapshot
from workers.lake.metadata.snapshots import history_of
from workers.lake.refusals import changed_meanwhile, main_was_moved
from workers.lake.table import MAIN, LakeIdent, Stamp

_REPLACE: Final = "replace"
"""Iceberg's word for a snapshot with the rows of the parent, in other files."""
_REPLACEMENTS: Final = 4
"""Compaction by Spark replaces data files, and then maybe delete files."""


@dataclass(slots=True)
class HeldCommit:
    """The commit of the batch with the position ``stamp``.

    ``called``: a call may have set the branch and ``main``.
    """

    ident: LakeIdent
    branch: str
    stamp: Stamp
    snapshot: NewSnapshot
    snapshot_id: int
    called: bool = False

    def publish(self) -> int:
        """Set the branch and ``main`` to the snapshot; the snapshot's id."""
        self.called = True
        new = self.snapshot
        if new.set_refs() and not self.is_on_main(new.api, new.base):
            raise main_was_moved(self.ident, "The catalog has moved the branch, and not main.")
        new.remove_useless()
        return self.snapshot_id

    def change(self) -> Any | None:
        """The table's change, for a call for several tables.

        Behind a call the manifests are written again; None if the table has the snapshot.
        """
        new = self.snapshot
        if self.called and new.write_again():
            return None
        self.called = True
        return new.api.change_of(self.ident, new.base, new.metadata())

    def is_in(self, metadata: Any) -> bool:
        """Does the table with Iceberg's ``metadata`` have the snapshot?"""
        return metadata.snapshot(self.snapshot_id) is not None

    def is_on_main(self, api: JavaApi, metadata: Any) -> bool:
        """Has ``main`` the snapshot? A broken catalog may add the snapshot and set no ref.

        40001 if the branch has not the snapshot either.
        """
        main, branch = metadata.ref(MAIN), metadata.ref(self.branch)
        if main is not None and main.snapshotId() == self.snapshot_id:
            return True
        ancestors = history_of(api.as_json(metadata)).ancestors(MAIN)
        if any(each.snapshot_id == self.snapshot_id for each in ancestors):
            return True
        if branch is None or branch.snapshotId() != self.snapshot_id:
            raise changed_meanwhile(self.ident)
        return False

    def discard(self) -> None:
        """Remove the manifests, unless the table has the snapshot. No call is running any more."""
        with contextlib.suppress(Py4JJavaError):  # orphan removal follows
            if not self.is_in(self.snapshot.table.operations().refresh()):
                self.snapshot.discard()


def main_below(base: Any, branch: str) -> int | None:
    """The snapshot of ``main`` if a commit to the branch may be held, else None.

    ``main`` is where the branch is, or below commits that replace files, and the branch was made by
    ``create_branch``.
    """
    own, main = base.ref(branch), base.ref(MAIN)
    if own is None or main is None or own.maxRefAgeMs() is None:
        return None
    at, below = int(main.snapshotId()), own.snapshotId()
    for _ in range(_REPLACEMENTS):
        if below == at:
            return at
        snapshot = None if below is None else base.snapshot(below)
        if snapshot is None or str(snapshot.operation()) != _REPLACE:
            return None
        below = snapshot.parentId()
    return None


def check_main(ident: LakeIdent, base: Any, branch: str, at: int) -> None:
    """40001 unless ``main`` is at snapshot ``at``, and ``create_branch`` made the branch."""
    own, main = base.ref(branch), base.ref(MAIN)
    if own is None or own.maxRefAgeMs() is None:
        raise changed_meanwhile(ident)
    if main is None or main.snapshotId() != at:
        raise main_was_moved(ident, "Another commit is on main.")


def unpublished(ident: LakeIdent) -> InternalError:
    """XX000: the next batch has begun, and the batch before is not published and not given up."""
    return InternalError(f'lake table "{ident}": a batch was not published before the next batch')
