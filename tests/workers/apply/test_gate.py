"""The gate: which transactions a worker applies to a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.apply.gate import should_apply_changes_for_rel


def rel(state: SubRelState, lsn: int | None = None, relid: int = 7) -> SubscriptionRel:
    return SubscriptionRel(
        srsubid=1,
        srrelid=relid,
        srsubstate=state,
        srsublsn=None if lsn is None else LSN(lsn),
        nspname="public",
        relname=f"t{relid}",
        lake_schema="public",
        lake_table=f"t{relid}",
    )


COMMITS = np.array([299, 300, 301], dtype=np.int64)


@pytest.mark.parametrize(
    ("state", "lsn", "expected"),
    [
        (SubRelState.INIT, None, [False, False, False]),
        (SubRelState.DATASYNC, None, [False, False, False]),
        (SubRelState.FINISHEDCOPY, None, [False, False, False]),
        (SubRelState.SYNCDONE, 300, [False, True, True]),
        (SubRelState.READY, 300, [True, True, True]),
        (SubRelState.READY, None, [True, True, True]),
    ],
)
def test_the_gate_of_the_apply_worker(
    state: SubRelState, lsn: int | None, expected: list[bool]
) -> None:
    """H-42: of commits before, at and after s it takes those at and after."""
    assert should_apply_changes_for_rel(rel(state, lsn), COMMITS).tolist() == expected


def test_an_unknown_table_is_skipped() -> None:
    """H-45: whether or not it is in the lake."""
    assert not should_apply_changes_for_rel(None, COMMITS).any()


def test_a_sync_worker_takes_its_own_table_only() -> None:
    own = rel(SubRelState.DATASYNC)
    assert should_apply_changes_for_rel(own, COMMITS, own_relid=7).all()
    assert not should_apply_changes_for_rel(own, COMMITS, own_relid=8).any()


@pytest.mark.parametrize("state", [SubRelState.READY, SubRelState.SYNCDONE])
def test_a_suspended_table_takes_nothing_but_a_copy(state: SubRelState) -> None:
    """Not before the copy has ended the suspension, which it does with s."""
    held = replace(rel(state, 300), suspend_time=1, resuming=True)
    assert not should_apply_changes_for_rel(held, COMMITS).any()
    assert should_apply_changes_for_rel(held, COMMITS, own_relid=7).all()
