"""Commit a snapshot to a branch by a compare-and-set, with few requests.

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
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from catalog.errcodes import ReplicationError
from config.limits import COMMIT_ATTEMPTS
from config.monitor_limits import COMMIT_PAUSE_SECONDS
from workers.lake.api.java_api import JavaApi

_REPLACED: Final = "manifests-replaced"
"""The manifests that a commit took apart, in the summary; the commit may have made useless ones."""
_CREATED: Final = "manifests-created"
"""The new manifests that the snapshot names."""
_REFUSED: Final = "org.apache.iceberg.exceptions.CommitFailedException"


def commit_snapshot(
    api: JavaApi,
    table: Any,
    update: Any,
    branch: str,
    check: Callable[[Any], None],
    manifests: int,
) -> Any:
    """Commit the update to the branch; returns the snapshot.

    ``check`` is called with the table's metadata that the commit replaces, and raises to refuse.
    The added files take so many ``manifests``: one for each spec of data files and of deletes.
    """
    lists = list[str]()
    try:
        made = _commit(api, table.operations(), update, branch, check, lists)
    except Py4JJavaError as error:
        if api.is_cleanable(error.java_exception):
            _clean(lambda: api.remove_all_manifests(update))
        raise
    except ReplicationError:  # the check: nothing was committed
        _clean(lambda: api.remove_all_manifests(update))
        raise
    lists.remove(str(made.manifestListLocation()))
    if lists or _may_leave_some(made.summary(), manifests):
        _clean(lambda: api.remove_useless_manifests(table, update, made, lists))
    return made


def _commit(
    api: JavaApi,
    operations: Any,
    update: Any,
    branch: str,
    check: Callable[[Any], None],
    lists: list[str],
) -> Any:
    """The committed snapshot. The paths of all lists that were written are put into ``lists``.

    A refusal may be wrong: a proxy sent the commit twice, and the second one met the first. Then
    the next attempt finds the snapshot of the refused attempt in the table.
    """
    refused = None
    for pause in (*commit_pauses(), None):
        made = update.apply()
        lists.append(str(made.manifestListLocation()))
        base = operations.current()
        if refused is not None and base.snapshot(refused.snapshotId()) is not None:
            return refused
        check(base)
        try:
            operations.commit(base, api.with_snapshot(base, made, branch))
        except Py4JJavaError as error:
            if pause is None or _name(error) != _REFUSED:
                raise
            refused = made
            time.sleep(pause)
        else:
            break
    return made


def _may_leave_some(summary: Any, manifests: int) -> bool:
    """Does the snapshot name fewer manifests than the commit has written, or more than expected?"""
    replaced = int(summary.get(_REPLACED) or 0)
    return bool(replaced) and int(summary.get(_CREATED) or 0) != replaced + manifests


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
