"""A position in the lake is trusted, or it is 55000 with the gap named and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.lake.table import LakeIdent, LakeTable, Stamp
from workers.tables.position import check_position, recopy_command, stamp_at

ROW = SubscriptionRel(
    1, 7, SubRelState.READY, LSN(100), "public", "a", "public", "a", epoch="e", lake_lsn=LSN(500)
)
STAMP = Stamp("pg_1", LSN(500), "e", LSN(0))
LAKE = LakeTable(LakeIdent("public", "a"), (), "u", 1, STAMP)
ACCEPT = "or go on without what is missing with pgsub accept-gap mysub."


@pytest.mark.parametrize("lsn", [500, 600])
def test_the_published_position_or_a_later_one_is_trusted(lsn: int) -> None:
    stamp = replace(STAMP, lsn=LSN(lsn))
    assert check_position(ROW, replace(LAKE, stamp=stamp), "mysub") == stamp


@pytest.mark.parametrize(
    ("stamp", "message"),
    [
        (None, "carries no replication position"),
        (replace(STAMP, epoch="another"), "belongs to another copy"),
        (replace(STAMP, lsn=LSN(499)), "is behind what was published to it"),
    ],
)
def test_any_other_position_is_refused_with_two_remedies(stamp: Stamp | None, message: str) -> None:
    with pytest.raises(ObjectNotInPrerequisiteState, match=message) as caught:
        check_position(ROW, replace(LAKE, stamp=stamp), "mysub")
    assert caught.value.code == "55000"
    assert "pgsub refresh mysub --recopy public.a" in (caught.value.hint or "")
    assert (caught.value.hint or "").endswith(ACCEPT)


@pytest.mark.parametrize(
    ("changes", "source"), [({"srsubstate": SubRelState.FINISHEDCOPY}, ""), ({}, "u:public.a")]
)
def test_no_gap_is_accepted_in_a_shared_table_or_behind_a_copy(
    changes: dict[str, Any], source: str
) -> None:
    lake = replace(LAKE, stamp=None)
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        check_position(replace(ROW, **changes), lake, "mysub", source)
    assert "accept-gap" not in (caught.value.hint or "")


def test_a_source_s_position_is_looked_for_in_a_shared_table() -> None:
    ours = replace(STAMP, source="u:public.a")
    lake = replace(LAKE, stamp=None, sources={"u:public.a": ours})
    assert check_position(ROW, lake, "mysub", "u:public.a") == ours


def test_names_are_quoted_for_a_shell() -> None:
    odd = replace(ROW, relname="a b")
    assert recopy_command("my sub", odd) == "pgsub refresh 'my sub' --recopy 'public.a b'"


def test_a_stamp_is_of_the_subscription_and_the_present_copy() -> None:
    row = replace(ROW, floor=LSN(40))
    assert stamp_at(row, LSN(70), "s") == Stamp("pg_1", LSN(70), "e", LSN(40), "s")
