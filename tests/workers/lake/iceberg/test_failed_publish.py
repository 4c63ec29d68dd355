"""What becomes of a fast-forward that raised an error, by the table's history."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from workers.lake.connect.errors import LakeFailure
from workers.lake.iceberg.failed_publish import raise_unless_published
from workers.lake.metadata.snapshots import History, Snapshot
from workers.lake.table import MAIN, LakeIdent

IDENT, BRANCH = LakeIdent("s", "t"), "pgsub_1_1_1"
BEFORE, BATCH, FENCE = 4, 5, 6


def failure(message: str) -> LakeFailure:
    error = LakeFailure("the lake failed while publishing")
    error.message = message
    return error


NO_ANSWER = ConnectionFailure("lost the lake server")
CONFLICT = failure("org.apache.iceberg.exceptions.CommitFailedException: stale")
NOT_ANCESTOR = failure("Cannot fast-forward: main is not an ancestor of pgsub_1_1_1")
OTHER = failure("java.io.IOException: disk")


class Table:
    """A table with a batch on a branch; the fast-forward took effect or not."""

    def __init__(self, *, landed: bool) -> None:
        self.main = BATCH if landed else BEFORE
        self.snapshots = {
            BEFORE: Snapshot(BEFORE, None, None),
            BATCH: Snapshot(BATCH, BEFORE, None),
        }
        self.fences = 0

    def fence(self) -> None:
        self.fences += 1
        self.snapshots[FENCE] = Snapshot(FENCE, self.main, None)
        self.main = FENCE

    def history(self, ident: LakeIdent) -> History:
        assert ident == IDENT
        return History({MAIN: self.main, BRANCH: BATCH}, self.snapshots)

    def settle(self, error: ReplicationError) -> None:
        tables: Any = SimpleNamespace(history=self.history)
        raise_unless_published(tables, IDENT, BRANCH, error, self.fence)


@pytest.mark.parametrize("error", [NO_ANSWER, CONFLICT, NOT_ANCESTOR, OTHER], ids=str)
def test_a_fast_forward_that_took_effect_is_no_error(error: ReplicationError) -> None:
    table = Table(landed=True)
    table.settle(error)
    assert table.fences == (error in (NO_ANSWER, CONFLICT)), "where the call may still be running"


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (NO_ANSWER, "The call went unanswered; it had no effect."),
        (CONFLICT, "Another commit came first; it had no effect."),
        (NOT_ANCESTOR, "Another commit is on main."),
    ],
    ids=str,
)
def test_one_that_had_none_is_written_again(error: ReplicationError, detail: str) -> None:
    table = Table(landed=False)
    with pytest.raises(ReplicationError) as refused:
        table.settle(error)
    assert (refused.value.code, refused.value.detail) == ("40001", detail)
    assert table.fences == (error is not NOT_ANCESTOR)


def test_any_other_error_is_raised_as_it_is() -> None:
    table = Table(landed=False)
    with pytest.raises(LakeFailure) as raised:
        table.settle(OTHER)
    assert raised.value is OTHER
    assert table.fences == 0
