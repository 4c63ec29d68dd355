"""What becomes of a fast-forward that raised an error, by the table's history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, FeatureNotSupported, ReplicationError
from catalog.pg_lsn import LSN
from workers.lake.connect.errors import LakeFailure
from workers.lake.iceberg.failed_publish import move_mains, raise_unless_published
from workers.lake.metadata.snapshots import History, Snapshot
from workers.lake.publication import InParallel, Publication
from workers.lake.table import MAIN, LakeIdent, Stamp

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
    """A table with a batch on a branch, or held; the fast-forward took effect or not."""

    def __init__(self, *, landed: bool, held: bool) -> None:
        self.main = BATCH if landed else BEFORE
        self.branch = BATCH if landed or not held else BEFORE
        self.held = BATCH if held else None
        self.snapshots = {
            each: Snapshot(each, parent, None)
            for each, parent in ((BEFORE, None), (BATCH, BEFORE))
            if each in (BEFORE, self.branch)
        }
        self.fences = 0

    def fence(self) -> None:
        self.fences += 1
        self.snapshots[FENCE] = Snapshot(FENCE, self.main, None)
        self.main = FENCE

    def history(self, ident: LakeIdent) -> History:
        assert ident == IDENT
        return History({MAIN: self.main, BRANCH: self.branch}, self.snapshots)

    def held_of(self, ident: LakeIdent, branch: str) -> int | None:
        assert (ident, branch) == (IDENT, BRANCH)
        return self.held

    def settle(self, error: ReplicationError) -> None:
        tables: Any = SimpleNamespace(history=self.history, held=self.held_of)
        raise_unless_published(tables, IDENT, BRANCH, error, self.fence)


on_the_branch_or_held = pytest.mark.parametrize("held", [False, True], ids=["on it", "held"])


@on_the_branch_or_held
@pytest.mark.parametrize("error", [NO_ANSWER, CONFLICT, NOT_ANCESTOR, OTHER], ids=str)
def test_a_fast_forward_that_took_effect_is_no_error(error: ReplicationError, held: bool) -> None:
    table = Table(landed=True, held=held)
    table.settle(error)
    assert table.fences == (error in (NO_ANSWER, CONFLICT)), "where the call may still be running"


@on_the_branch_or_held
@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (NO_ANSWER, "The call went unanswered; it had no effect."),
        (CONFLICT, "Another commit came first; it had no effect."),
        (NOT_ANCESTOR, "Another commit is on main."),
    ],
    ids=str,
)
def test_one_that_had_none_is_written_again(
    error: ReplicationError, detail: str, held: bool
) -> None:
    """The tip of the branch is an ancestor of ``main`` where the batch is held."""
    table = Table(landed=False, held=held)
    with pytest.raises(ReplicationError) as refused:
        table.settle(error)
    assert (refused.value.code, refused.value.detail) == ("40001", detail)
    assert table.fences == (error is not NOT_ANCESTOR)


@on_the_branch_or_held
def test_any_other_error_is_raised_as_it_is(held: bool) -> None:
    table = Table(landed=False, held=held)
    with pytest.raises(LakeFailure) as raised:
        table.settle(OTHER)
    assert raised.value is OTHER
    assert table.fences == 0


# Several tables by one call

OTHER_IDENT = LakeIdent("s", "u")
PARTS = [
    Publication(ident, BRANCH, Stamp("pg_1", LSN(20), "e", LSN(0)))
    for ident in (IDENT, OTHER_IDENT)
]


class Tables:
    """Two tables, each with a batch on a branch, and one call that fails behind its effect."""

    def __init__(self, error: ReplicationError, *landed: LakeIdent, held: bool = False) -> None:
        self.error = error
        self.of = {each.ident: Table(landed=each.ident in landed, held=held) for each in PARTS}
        self.asked: list[str] = []

    def history(self, ident: LakeIdent) -> History:
        self.asked.append(f"look {ident.table}")
        table = self.of[ident]
        return History({MAIN: table.main, BRANCH: table.branch}, table.snapshots)

    def held(self, ident: LakeIdent, branch: str) -> int | None:
        assert branch == BRANCH
        return self.of[ident].held

    def fence(self, ident: LakeIdent) -> None:
        self.asked.append(f"fence {ident.table}")
        self.of[ident].fence()

    def fast_forward_together(self, parts: Sequence[Publication], _run: InParallel) -> Any:
        assert parts == PARTS
        raise self.error

    def move(self) -> list[int | None]:
        tables: Any = self
        return move_mains(tables, PARTS, [], in_turn, self.fence)


def in_turn(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@on_the_branch_or_held
@pytest.mark.parametrize("error", [NO_ANSWER, CONFLICT, OTHER], ids=str)
def test_a_call_for_all_tables_that_took_effect_is_no_error(
    error: ReplicationError, held: bool
) -> None:
    tables = Tables(error, IDENT, OTHER_IDENT, held=held)
    assert tables.move() == [None, None]
    fences = [each for each in tables.asked if each.startswith("fence")]
    assert len(fences) == (0 if error is OTHER else 2)


@on_the_branch_or_held
@pytest.mark.parametrize("landed", [(), (IDENT,)], ids=["none moved", "a broken word"])
@pytest.mark.parametrize("error", [NO_ANSWER, CONFLICT], ids=str)
def test_all_tables_are_fenced_before_any_is_looked_at(
    error: ReplicationError, landed: tuple[LakeIdent, ...], held: bool
) -> None:
    """The call may still be running, and moves all tables or none."""
    tables = Tables(error, *landed, held=held)
    with pytest.raises(ReplicationError) as refused:
        tables.move()
    assert refused.value.code == "40001"
    assert tables.asked == ["fence t", "fence u", "look t", "look u"]


@on_the_branch_or_held
@pytest.mark.parametrize("error", [OTHER, FeatureNotSupported("no such call")], ids=str)
def test_an_error_that_says_more_is_raised_as_it_is(error: ReplicationError, held: bool) -> None:
    tables = Tables(error, held=held)
    with pytest.raises(ReplicationError) as raised:
        tables.move()
    assert raised.value is error
    assert not any(each.startswith("fence") for each in tables.asked)


def test_a_branch_with_another_position_is_not_published() -> None:
    tables: Any = Tables(OTHER)
    with pytest.raises(ReplicationError, match="main was moved") as refused:
        move_mains(tables, PARTS, PARTS[1:], in_turn, tables.fence)
    assert refused.value.code == "40001"
    assert tables.asked == ["look u"]
