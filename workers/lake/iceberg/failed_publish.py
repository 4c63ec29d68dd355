"""Find out whether a failed publication took effect.

An error of a fast-forward may mean that ``main`` was moved nevertheless: the answer was lost, or
the catalog does not know the outcome of the commit. The table's history then decides. If the call
may still be running, a fence comes first: behind the fence Iceberg refuses the call.

Trace: the fast-forward of ``main`` from snapshot 4 to the branch's snapshot 5 gets no answer. The
fence is snapshot 6. If the call came first, 6 is a child of 5 and the batch is visible. If the
fence came first, 6 is a child of 4, a late call fails, and 40001 lets the worker write the batch
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from catalog.errcodes import ConnectionFailure, ReplicationError
from workers.lake.connect.errors import LakeFailure, is_commit_conflict
from workers.lake.interfaces.table_api import TableApi
from workers.lake.refusals import main_was_moved
from workers.lake.table import MAIN, LakeIdent, Stamp

_NOT_ANCESTOR: Final = "is not an ancestor"


def move_main(
    tables: TableApi,
    ident: LakeIdent,
    branch: str,
    unread: Stamp | None,
    move: Callable[[LakeIdent, str], int | None],
    fence: Callable[[], object],
) -> int | None:
    """Move ``main`` to the branch by ``move``. None after a call without a clear answer.

    ``unread`` is the position that the branch must have, if the caller does not know so.
    """
    if unread is not None and tables.history(ident).tip_stamp(branch) != unread:
        raise main_was_moved(ident, "The branch's last snapshot is not this batch's.")
    try:
        return move(ident, branch)
    except ReplicationError as error:
        raise_unless_published(tables, ident, branch, error, fence)
        return None


def raise_unless_published(
    tables: TableApi,
    ident: LakeIdent,
    branch: str,
    error: ReplicationError,
    fence: Callable[[], object],
) -> None:
    """Return if a fast-forward that raised ``error`` took effect; raise if not."""
    unanswered = isinstance(error, ConnectionFailure)
    fenced = unanswered or is_commit_conflict(error)
    if fenced:
        # A session's call ends when get() releases the session. A gateway's call, or the call of a
        # catalog that timed out, may still be running: the fence makes the call fail.
        fence()
    history = tables.history(ident)
    tip = history.refs.get(branch)
    if any(snapshot.snapshot_id == tip for snapshot in history.ancestors(MAIN)):
        return  # main is at the branch or ahead; equal positions alone would prove nothing
    if fenced:
        why = "The call went unanswered" if unanswered else "Another commit came first"
        raise main_was_moved(ident, f"{why}; it had no effect.") from None
    if isinstance(error, LakeFailure) and _NOT_ANCESTOR in error.message:
        raise main_was_moved(ident, "Another commit is on main.") from None
    raise error
