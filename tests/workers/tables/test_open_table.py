"""Which catalog row still describes an open table, and what the lake must hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.tables.open_table import OpenTable, same_sync

ROW = SubscriptionRel(
    1, 7, SubRelState.READY, LSN(100), "public", "a", "public", "a", epoch="e", copied=True
)


def opened(lsn: int, **changes: Any) -> OpenTable:
    table = OpenTable(ROW, cast("Any", None), LSN(lsn), LSN(0), None)
    return replace(table, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"srsubstate": SubRelState.SYNCDONE},
        {"srsublsn": LSN(200)},
        {"epoch": "another"},
        {"lake_schema": "other"},
        {"lake_table": "b"},
    ],
)
def test_another_state_copy_or_lake_table_is_opened_again(changes: dict[str, Any]) -> None:
    assert same_sync(ROW, ROW)
    assert not same_sync(ROW, replace(ROW, **changes))


def test_keys_that_are_looked_up_stay_so_until_another_copy() -> None:
    looked_up = replace(ROW, copied=False)
    assert not same_sync(ROW, looked_up), "found out by a sync worker or a command"
    assert same_sync(looked_up, ROW), "the row was read before the writer found out"
    assert not same_sync(looked_up, replace(ROW, epoch="another"))


@pytest.mark.parametrize(("stored", "published", "least"), [(0, 0, 0), (90, 50, 90), (50, 90, 90)])
def test_the_lake_must_hold_the_last_position_that_was_published(
    stored: int, published: int, least: int
) -> None:
    row = replace(ROW, lake_lsn=LSN(stored))
    assert opened(published, rel=row).expected_row == replace(row, lake_lsn=LSN(least))


def test_a_new_branch_of_a_shared_table_must_hold_the_source_s_position() -> None:
    assert opened(50).base_lsn is None
    assert opened(50, source="u:public.a").base_lsn == LSN(50)
    assert opened(50, source="u:public.a", own_branch=True).base_lsn is None
