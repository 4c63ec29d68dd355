"""What a table's chain of snapshots says."""

from __future__ import annotations

import pytest

from catalog.pg_lsn import LSN
from workers.lake.destination import Stamp
from workers.lake.snapshots import Snapshot, written_by_others


def ours(epoch: str, source: str = "") -> Snapshot:
    return Snapshot(1, None, Stamp("pg_1", LSN(5), epoch, LSN(0), source))


NO_STAMP, THEIRS = Snapshot(1, None, None), Snapshot(1, None, None, foreign=True)


@pytest.mark.parametrize(
    ("newest_first", "said"),
    [
        ([], False),
        ([ours("e"), NO_STAMP, ours("e")], False),
        ([THEIRS, ours("e")], True),
        ([ours("e"), THEIRS, NO_STAMP, ours("e")], True),  # a fence, or a batch, on top of it
        ([ours("e"), THEIRS], False),  # before the copy
        ([ours("e"), THEIRS, ours("before")], False),  # after another copy
        ([THEIRS, ours("e"), THEIRS, ours("before")], True),
    ],
)
def test_rows_of_others_since_the_table_is_ours(newest_first: list[Snapshot], said: bool) -> None:
    assert written_by_others(newest_first, {}) is said


def test_each_source_of_a_shared_table_has_its_copy() -> None:
    one, two = ours("one", "s1"), ours("two", "s2")
    sources = {each.stamp.source: each.stamp for each in (one, two) if each.stamp}
    assert written_by_others([one, THEIRS, two], sources)
    assert not written_by_others([one, two, THEIRS], sources)
