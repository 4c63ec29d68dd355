"""A table's row is marked to be copied again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.last_error import LastError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState
from catalog.recopy import mark_for_recopy
from tests.workers.subscribed import EPOCH, Subscribed


@pytest.fixture
def subscribed() -> Iterator[Subscribed]:
    made = Subscribed()
    yield made
    made.close()


def test_a_row_begins_again_and_replaces_the_rows(subscribed: Subscribed) -> None:
    rel = subscribed.rel("a")
    subscribed.store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=LSN(7))
    assert mark_for_recopy(subscribed.sub, [rel], subscribed.store) == []
    now = subscribed.rel("a")
    assert (now.srsubstate, now.recopy, now.copied) == (SubRelState.INIT, True, False)
    assert now.lake_lsn == 0
    assert now.epoch not in (None, EPOCH)
    assert subscribed.rel("b").srsubstate is SubRelState.READY


def test_the_error_of_the_table_is_forgotten(subscribed: Subscribed) -> None:
    rel = subscribed.rel("a")
    subscribed.store.put_last_error(LastError(rel.srsubid, rel.srrelid, 1, "55000", "no"))
    mark_for_recopy(subscribed.sub, [rel], subscribed.store)
    assert subscribed.store.last_errors() == []


def test_a_row_that_left_meanwhile_is_no_error(subscribed: Subscribed) -> None:
    rel = subscribed.rel("a")
    subscribed.store.delete_rel(rel.srsubid, rel.srrelid)
    assert mark_for_recopy(subscribed.sub, [rel], subscribed.store) == []
