"""Which positions of branches are read before ``main`` moves, and what counts as committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from catalog.errcodes import FeatureNotSupported, IoError, ReplicationError
from catalog.pg_lsn import LSN
from workers.lake.iceberg.publish_branches import BranchPublisher
from workers.lake.metadata.snapshots import History, Snapshot
from workers.lake.publication import InParallel, Publication
from workers.lake.table import MAIN, LakeIdent, Stamp

BRANCH = "pgsub_1_1_1"
STAMP = Stamp("pg_1", LSN(20), "e", LSN(0))
T, U = LakeIdent("s", "t"), LakeIdent("s", "u")


class Lake:
    """Two tables whose branches end with a position; counts what is asked and committed."""

    def __init__(self, stamp: Stamp = STAMP, error: ReplicationError | None = None) -> None:
        """``error`` is that of a call that moves ``main``."""
        self.stamp = stamp
        self.error = error
        self.asked: list[str] = []
        tables: Any = self
        self.published: list[tuple[LakeIdent, str]] = []
        self.publisher = BranchPublisher(
            tables, tables, lambda ident: None, lambda *of: self.published.append(of)
        )

    def history(self, ident: LakeIdent) -> History:
        self.asked.append(f"history {ident.table}")
        return History({MAIN: 4, BRANCH: 5}, {5: Snapshot(5, 4, self.stamp)})

    def fast_forward(self, ident: LakeIdent, branch: str, stamp: Stamp | None = None) -> int:
        assert (branch, stamp) == (BRANCH, STAMP)
        self.asked.append(f"move {ident.table}")
        self._fail()
        return 5

    def fast_forward_together(
        self, parts: Sequence[Publication], _in_parallel: InParallel
    ) -> list[int]:
        self.asked.append("move " + " ".join(each.ident.table for each in parts))
        self._fail()
        return [5 for _ in parts]

    def held(self, ident: LakeIdent, branch: str) -> int | None:
        """The snapshot of a held commit: none."""

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    def committed(self, ident: LakeIdent, number: int) -> None:
        self.asked.append(f"committed {ident.table} {number}")

    def publish(self) -> int | None:
        return self.publisher.publish(T, BRANCH, STAMP)

    def publish_together(self) -> list[int | None]:
        parts = [Publication(ident, BRANCH, STAMP) for ident in (T, U)]
        return self.publisher.publish_together(parts, in_turn)


def in_turn(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


def test_a_position_that_was_written_last_is_not_read() -> None:
    lake = Lake()
    lake.publisher.positions[T, BRANCH] = STAMP
    assert lake.publish() == 5
    assert lake.asked == ["move t", "committed t 1"]


def test_another_position_is_read() -> None:
    lake = Lake()
    lake.publish()
    assert lake.asked == ["history t", "move t", "committed t 1"]


def test_of_several_tables_only_unknown_positions_are_read() -> None:
    lake = Lake()
    lake.publisher.positions[T, BRANCH] = STAMP
    assert lake.publish_together() == [5, 5]
    assert lake.asked == ["history u", "move t u", "committed t 1", "committed u 1"]


@pytest.mark.parametrize("publish", [Lake.publish, Lake.publish_together])
def test_a_branch_of_another_batch_is_refused(publish: Callable[[Lake], Any]) -> None:
    lake = Lake(Stamp("pg_1", LSN(30), "e", LSN(0)))
    with pytest.raises(ReplicationError) as refused:
        publish(lake)
    assert refused.value.code == "40001"
    assert not any(each.startswith(("move", "committed")) for each in lake.asked)
    assert lake.published == []


def test_each_published_branch_is_told() -> None:
    lake = Lake()
    lake.publish()
    assert lake.published == [(T, BRANCH)]
    lake.publish_together()
    assert lake.published == [(T, BRANCH), (T, BRANCH), (U, BRANCH)]


def test_a_branch_is_told_if_the_answer_was_lost() -> None:
    lake = Lake()
    assert lake.publisher.publish(T, BRANCH, STAMP, lambda *_: None) is None
    assert lake.published == [(T, BRANCH)]


@pytest.mark.parametrize("error", [IoError("full"), FeatureNotSupported("no such call")], ids=str)
@pytest.mark.parametrize("publish", [Lake.publish, Lake.publish_together])
def test_a_branch_that_is_not_published_is_not_told(
    publish: Callable[[Lake], Any], error: ReplicationError
) -> None:
    lake = Lake(error=error)
    with pytest.raises(type(error)):
        publish(lake)
    assert lake.published == []
    assert not any(each.startswith("committed") for each in lake.asked)
