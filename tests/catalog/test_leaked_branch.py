"""The list of lake tables on which branches may stay."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from catalog.leaked_branch import LeakedBranch
from catalog.store_sqlite import CatalogStore


def test_a_row_is_of_a_table_and_a_subscription() -> None:
    first = LeakedBranch("public", "a", "u", "mysub", 1, "no route")
    other = replace(first, subuuid="v", subname="other")
    with closing(CatalogStore.open(":memory:")) as store:
        store.put_leaked_branch(first)
        store.put_leaked_branch(other)
        store.put_leaked_branch(replace(first, reason="refused"))
        assert store.leaked_branches() == [replace(first, reason="refused"), other]
        store.forget_leaked_branch(first)
        assert store.leaked_branches() == [other]


def test_a_table_that_left_again_stays_on_the_list() -> None:
    """Whoever read the row before knows nothing of the branches since."""
    first = LeakedBranch("public", "a", "u", "mysub", 1, "no route")
    again = replace(first, since=9, reason="the command was killed")
    with closing(CatalogStore.open(":memory:")) as store:
        store.put_leaked_branch(first)
        store.put_leaked_branch(again)
        store.forget_leaked_branch(first)
        assert store.leaked_branches() == [again]
        store.put_leaked_branch(first)
        assert store.leaked_branches() == [replace(first, since=9)], "another reason"
        store.forget_leaked_branch(again)
        assert store.leaked_branches() == []
