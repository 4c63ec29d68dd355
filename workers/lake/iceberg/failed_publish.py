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

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from catalog.errcodes import ConnectionFailure, FeatureNotSupported, ReplicationError
from workers.lake.connect.errors import LakeFailure, is_commit_conflict
from workers.lake.interfaces.table_api import TableApi
from workers.lake.publication import InParallel, Publication
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
    if unread is not None:
        _check_stamp(tables, Publication(ident, branch, unread))
    try:
        return move(ident, branch)
    except ReplicationError as error:
        raise_unless_published(tables, ident, branch, error, fence)
        return None


def move_mains(
    tables: TableApi,
    parts: Sequence[Publication],
    unread: Collection[Publication],
    in_parallel: InParallel,
    fence: Callable[[LakeIdent], object],
) -> list[int | None]:
    """``move_main`` of several tables by one call. ``unread``: parts whose position is not known.

    After an error every table is fenced where a fence is needed, before any is looked at: the call
    moves all tables or none, so a call that is still running fails behind the first fence.
    """
    in_parallel([partial(_check_stamp, tables, each) for each in unread])
    try:
        return list[int | None](tables.fast_forward_together(parts, in_parallel))
    except FeatureNotSupported:
        raise
    except ReplicationError as error:
        fenced = _may_still_run(error)
        if fenced:
            in_parallel([partial(fence, each.ident) for each in parts])
        looks = [partial(_is_published, tables, each.ident, each.branch) for each in parts]
        visible = in_parallel(looks)
        if not all(visible):
            raise _refusal(parts[visible.index(False)].ident, error, fenced=fenced) from None
        return [None for _ in parts]


def _check_stamp(tables: TableApi, part: Publication) -> None:
    if tables.history(part.ident).tip_stamp(part.branch) != part.stamp:
        raise main_was_moved(part.ident, "The branch's last snapshot is not this batch's.")


def raise_unless_published(
    tables: TableApi,
    ident: LakeIdent,
    branch: str,
    error: ReplicationError,
    fence: Callable[[], object],
) -> None:
    """Return if a fast-forward that raised ``error`` took effect; raise if not."""
    fenced = _may_still_run(error)
    if fenced:
        fence()
    if not _is_published(tables, ident, branch):
        raise _refusal(ident, error, fenced=fenced) from None


def _may_still_run(error: ReplicationError) -> bool:
    """May the call that raised the error have an effect yet? Then a fence has to come first.

    A session's call ends when get() releases the session. A gateway's call, or the call of a
    catalog that timed out, may still be running: a fence makes the call fail.
    """
    return isinstance(error, ConnectionFailure) or is_commit_conflict(error)


def _is_published(tables: TableApi, ident: LakeIdent, branch: str) -> bool:
    """Is main at the branch, or ahead? Equal positions alone would prove nothing.

    A commit that was held is not on the branch unless the publication took effect.
    """
    history = tables.history(ident)
    held = tables.held(ident, branch)
    tip = history.refs.get(branch) if held is None else held
    return any(snapshot.snapshot_id == tip for snapshot in history.ancestors(MAIN))


def _refusal(ident: LakeIdent, error: ReplicationError, *, fenced: bool) -> ReplicationError:
    """The error of a fast-forward without effect."""
    if fenced:
        unanswered = isinstance(error, ConnectionFailure)
        why = "The call went unanswered" if unanswered else "Another commit came first"
        return main_was_moved(ident, f"{why}; it had no effect.")
    if isinstance(error, LakeFailure) and _NOT_ANCESTOR in error.message:
        return main_was_moved(ident, "Another commit is on main.")
    return error
