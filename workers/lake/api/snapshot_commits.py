"""Add a snapshot to a branch by a compare-and-set, with few requests.

``SnapshotProducer.commit`` of Iceberg reads the table once more behind the commit, and reads the
list of manifests that the commit has just written: three requests to a catalog and a store. The
readings only serve the removal of manifests that a merge, a filter or a second attempt has made
useless. So this module takes Iceberg's commit apart: ``apply`` reads the newest state of the table
and writes the manifests, ``TableOperations.commit`` is the compare-and-set, and useless manifests
are looked for only where the summary tells of any: a commit that removes files writes their
manifests again, and only a merge leaves some of the new manifests out.

The caller's check looks at the very state that the compare-and-set replaces: a table that changed
between the caller's reading and the commit is refused.

Rules of Iceberg that stay: another attempt only after ``CommitFailedException``, each on the newest
state; the manifests go after an answer that nothing was committed (``CleanableFailure``), and stay
where the outcome is not known.

Trace: branch b is at snapshot 4. ``apply`` writes manifest m0 and list s5 with parent 4. Another
writer's commit comes first: refused. ``apply`` again, on the state with the other commit: list s6,
which has m0. The compare-and-set succeeds, and s5 is removed.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from catalog.errcodes import ReplicationError
from config.limits import COMMIT_ATTEMPTS
from config.monitor_limits import COMMIT_PAUSE_SECONDS
from workers.lake.api.java_api import JavaApi
from workers.lake.table import MAIN

_REPLACED: Final = "manifests-replaced"
"""The manifests that a commit took apart, in the summary; the commit may have made useless ones."""
_CREATED: Final = "manifests-created"
"""The new manifests that the snapshot names."""
_REFUSED: Final = "org.apache.iceberg.exceptions.CommitFailedException"


@dataclass(slots=True)
class NewSnapshot:
    """A snapshot to be added to the ``refs``: written first, committed then.

    ``update`` is Iceberg's commit of a snapshot, with the files. ``check`` is called with the
    table's metadata that the commit replaces, and raises to refuse. ``manifests`` is the number of
    new manifests: a manifest for every spec of data files and of deletes. ``made`` is Iceberg's
    snapshot once written, on the state ``base``; every attempt gives the snapshot the same id.
    ``on_known_state``: the first attempt is made on the state of ``table``, without a request;
    the state may be old.
    """

    api: JavaApi
    table: Any
    update: Any
    refs: Sequence[str]
    check: Callable[[Any], None]
    manifests: int
    on_known_state: bool = False
    made: Any = None
    base: Any = None
    _refused: Any = None
    _lists: list[str] = field(default_factory=list)

    def commit(self) -> Any:
        """Add the snapshot; manifests go if it is certain that nothing was committed."""
        try:
            self.set_refs()
        except Py4JJavaError as error:
            if self.api.is_cleanable(error.java_exception):
                self.discard()
            raise
        except ReplicationError:  # the check: nothing was committed
            self.discard()
            raise
        self.remove_useless()
        return self.made

    def set_refs(self) -> bool:
        """Set the refs to the snapshot; True if an earlier call had added the snapshot.

        After an error the call may be made again. A refusal may be wrong: a proxy sent the commit
        twice, and the second met the first. A further attempt begins with a look for the snapshot.
        """
        for pause in (*commit_pauses(), None):
            if self.made is None and self.write_again():
                return True
            try:
                self.table.operations().commit(self.base, self.metadata())
            except Py4JJavaError as error:
                self._refused, self.made = self.made, None
                if pause is None or not self._may_try_again(error):
                    raise
                time.sleep(pause)
            else:
                break
        return False

    def _may_try_again(self, error: Py4JJavaError) -> bool:
        """Some catalogs answer to a change of an old state as to a wrong request."""
        if _name(error) == _REFUSED:
            return True
        return self.on_known_state and self.api.is_cleanable(error.java_exception)

    def write(self) -> None:
        """Write the manifests, on the newest state or on the known one, and check the state."""
        with self.api.on_known_state(self.update, self.table if self.on_known_state else None):
            made = self.update.apply()
        self._lists.append(str(made.manifestListLocation()))
        base = self.table.operations().current()
        if not self._is_in(base):
            self.check(base)
        self.made, self.base = made, base  # never a state refused by the check

    def write_again(self) -> bool:
        """Write the manifests behind a call, or at last; True if the table has the snapshot."""
        if self.made is not None:
            self._refused, self.made = self.made, None
        if self._refused is None:
            self.write()
            return False
        self.on_known_state = False
        self.base = self.table.operations().refresh()
        if not self._is_in(self.base):
            self.write()
        if not self._is_in(self.base):
            return False
        self.found_in(self.base, self._refused.snapshotId())
        return True

    def _is_in(self, metadata: Any) -> bool:
        """Did a failed attempt add the snapshot?"""
        refused = self._refused
        return refused is not None and metadata.snapshot(refused.snapshotId()) is not None

    def found_in(self, metadata: Any, snapshot_id: int) -> None:
        """The table has the snapshot of some attempt. Every attempt writes a new list.

        Trace: the first request gets no answer and is late. A second attempt writes a second list,
        and meets the first request. The list of the first attempt has to stay.
        """
        self.made = metadata.snapshot(snapshot_id)

    def metadata(self) -> Any:
        """The table's metadata with the snapshot."""
        return self.api.with_snapshot(self.base, self.made, *self.refs)

    def remove_useless(self) -> None:
        """Behind the commit: remove the manifests and lists that the snapshot does not name."""
        lists = [each for each in self._lists if each != str(self.made.manifestListLocation())]
        if lists or _may_leave_some(self.made.summary(), self.manifests):
            _clean(
                lambda: self.api.remove_useless_manifests(self.table, self.update, self.made, lists)
            )

    def discard(self) -> None:
        """Remove all manifests and lists: nothing was committed, and nothing will be."""
        _clean(lambda: self.api.remove_all_manifests(self.update))


def _may_leave_some(summary: Any, manifests: int) -> bool:
    """Does the snapshot name fewer manifests than the commit has written, or more than expected?"""
    replaced = int(summary.get(_REPLACED) or 0)
    return bool(replaced) and int(summary.get(_CREATED) or 0) != replaced + manifests


def create_with_snapshot(
    api: JavaApi, builder: Any, summary: Mapping[str, str], branch: str
) -> Any:
    """Create the table of Iceberg's ``builder`` with an empty snapshot, by a single commit.

    ``branch`` begins at the snapshot; empty for no branch. Returns the transaction. A failed
    creation removes the list of the snapshot.
    """
    made = builder.createTransaction()
    table = made.table()
    append = made.newAppend().scanManifestsWith(api.in_this_thread)
    for key, value in summary.items():
        append.set(key, value)
    first = NewSnapshot(api, table, append, [MAIN], lambda _base: None, manifests=0).commit()
    if branch:
        api.set_branch(table.operations(), branch, first.snapshotId())
    made.commitTransaction()
    return made


def commit_pauses() -> list[float]:
    """The seconds between the attempts; writers that met once do not meet again at once."""
    return [
        COMMIT_PAUSE_SECONDS * 2**n * random.uniform(0.5, 1)  # noqa: S311 - no secret
        for n in range(COMMIT_ATTEMPTS - 1)
    ]


def _name(error: Py4JJavaError) -> str:
    thrown: Any = error.java_exception
    return str(thrown.getClass().getName())


def _clean(removal: Callable[[], None]) -> None:
    """Remove useless files. A store that refuses is no failure: orphan removal follows."""
    with contextlib.suppress(Py4JJavaError):
        removal()
