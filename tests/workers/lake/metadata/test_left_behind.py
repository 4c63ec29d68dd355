"""Which snapshots go with dropped branches: one table of refs, log and snapshots a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from catalog.pg_lsn import LSN
from workers.lake.metadata.left_behind import left_behind, names_copy
from workers.lake.metadata.snapshots import History, Snapshot
from workers.lake.table import Stamp

PARENTS = {1: None, 2: 1, 3: 2, 4: 3, 5: 4, 6: 3, 7: 6}
"""A line 1 2 3, from 3 on 4 5 and 6 7."""


def history(
    refs: Mapping[str, int], *theirs: int, copies: Mapping[int, str] | None = None
) -> History:
    """Snapshots of pgsub but for ``theirs``; ``copies``: which have the position of which copy."""
    stamps = {at: Stamp("pg_1", LSN(9), name, LSN(0)) for at, name in (copies or {}).items()}
    return History(
        refs,
        {
            at: Snapshot(at, parent, stamps.get(at), ours=at not in theirs)
            for at, parent in PARENTS.items()
        },
    )


@pytest.mark.parametrize(
    ("refs", "dropped", "log", "theirs", "gone"),
    [
        ({"main": 3, "b": 5, "c": 7}, ["b"], [3], (), [4, 5]),
        ({"main": 3, "b": 5, "c": 7}, ["b", "c"], [3], (), [4, 5, 6, 7]),
        ({"main": 5, "b": 5, "c": 7}, ["b"], [5], (), []),  # published
        ({"main": 3, "b": 5, "tag": 4, "c": 7}, ["b"], [3], (), [5]),
        ({"main": 3, "b": 5, "c": 7}, ["b"], [3], (4, 5), [4, 5]),  # Spark's, on a branch of ours
        ({"main": 3, "c": 7}, ["c"], [3], (), [4, 5, 6, 7]),  # 4 and 5: killed after the drop
        ({"main": 3, "c": 7}, ["c"], [3], (4, 5), [6, 7]),  # somebody else's, staged by him
        ({"main": 3, "b": 5, "c": 7}, ["b"], [3, 5], (), []),  # main was at 5: set back by a user
        ({"main": 3, "c": 7}, ["c"], [3, 4], (), [5, 6, 7]),
    ],
)
def test_what_only_the_dropped_branches_led_to_goes(
    refs: dict[str, int],
    dropped: Sequence[str],
    log: Sequence[int],
    theirs: Sequence[int],
    gone: list[int],
) -> None:
    assert left_behind(history(refs, *theirs), dropped, log) == gone


def test_what_several_refs_lead_to() -> None:
    found = history({"main": 3, "b": 5, "c": 7})
    assert found.led_to(["main", "b", "missing"]) == {1, 2, 3, 4, 5}
    assert found.led_to([]) == set()


def test_a_copy_that_was_taken_back_goes_although_main_was_at_it() -> None:
    """5 is a fence on the copy at 4; 7 is a batch of an earlier copy that a user set back."""
    found = history({"main": 3}, copies={1: "before", 4: "copy", 7: "before"})
    assert left_behind(found, (), [1, 2, 3, 4, 5, 7, 3], "copy") == [4, 5]
    assert left_behind(found, (), [1, 2, 3, 4, 5, 7, 3], "another") == []


def test_the_position_at_which_a_table_is_made_is_not_a_copy() -> None:
    made = Stamp("pg_1", LSN(0), "copy", LSN(0))
    table = History({"main": 1}, {1: Snapshot(1, None, made)})
    assert not names_copy(table, "copy")
    assert names_copy(history({"main": 1}, copies={5: "copy"}), "copy")
    source = Stamp("pg_1", LSN(9), "copy", LSN(0), "s")
    assert names_copy(History({"main": 1}, {1: Snapshot(1, None, None, {"s": source})}), "copy")
