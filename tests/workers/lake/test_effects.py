"""Counts of a batch from what is known at once and from what MERGEs tell later."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from workers.lake.effects import Counts, Effect, FileSizes, Merge, Outcome, added, counts
from workers.lake.table import LakeIdent

IDENT = LakeIdent("s", "t")


def test_counts_add_up_and_the_size_is_the_last_known() -> None:
    one = Counts(1, 2, 3, 4, 5, 6, rows=70, deleted=7)
    total = added(one, Counts(10, 20, 30, 40, 50, 60))
    assert total == Counts(11, 22, 33, 44, 55, 66)
    assert (total.rows, total.deleted) == (70, 7)
    later = added(one, Counts(rows=80, deleted=1))
    assert (later.rows, later.deleted) == (80, 1)


def test_a_merge_tells_which_updates_and_deletes_were_missing() -> None:
    """Seven changes, four of them updates: five rows matched, three of them were updated."""
    effect = Effect(IDENT, "b", Counts(appended=2), (Merge(7, 4, ("id",), "x-1"),))
    (found,) = counts([effect], {"x-1": Outcome(matched=5, added=3, rows=90, deleted=9)})
    assert found == Counts(appended=2, merged=5, update_missing=1, delete_missing=1)
    assert (found.rows, found.deleted) == (90, 9)


@pytest.mark.parametrize(("key", "word"), [(("id",), "key (id)"), ((), "matched more than once")])
def test_more_rows_than_changes_are_an_error(key: tuple[str, ...], word: str) -> None:
    effect = Effect(IDENT, "b", Counts(), (Merge(1, 1, key, "x-1"),))
    with pytest.raises(ReplicationError) as error:
        counts([effect], {"x-1": Outcome(2, 2, 0, 0)})
    assert (error.value.code, word in error.value.primary) == ("23505", True)


def test_a_commit_that_expired_is_to_be_made_again() -> None:
    effect = Effect(IDENT, "b", Counts(), (Merge(1, 1, ("id",), "x-1"),))
    with pytest.raises(ReplicationError) as error:
        counts([effect], {})
    assert error.value.code == "40001"


def test_a_file_that_came_out_a_little_short_is_not_small() -> None:
    assert FileSizes().bar == 1 << 20
    assert FileSizes(small=100, whole=100).bar == 75
