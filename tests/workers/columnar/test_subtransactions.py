"""A roll-back is a cut: a list of first changes, searched from the end, is the model."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workers.columnar.subtransactions import Subtransactions

IDS = st.sampled_from([3, 7, 8, 9, 4_000_000_000, 4_294_967_295])
CALL = st.lists(IDS, max_size=5)


@given(st.lists(st.one_of(CALL, IDS), max_size=20))
def test_each_id_counts_once_and_a_cut_forgets_all_later_ones(steps: list[list[int] | int]) -> None:
    """A list is a call of the drain kernel, a number a roll-back."""
    subs = Subtransactions()
    model: list[tuple[int, int, int]] = []
    offset = 100
    for step in steps:
        if isinstance(step, list):
            rows = [[xid, 10 * at, at] for at, xid in enumerate(step)]
            subs.add(np.array(rows, np.int64).reshape(-1, 3), offset, offset // 10)
            for xid, at, changes in rows:
                if all(known != xid for known, _, _ in model):
                    model.append((xid, offset + at, offset // 10 + changes))
            offset += 100
        else:
            found = next((n for n, row in enumerate(model) if row[0] == step), None)
            assert subs.cut(step) == (None if found is None else model[found][1:])
            model = model[:found]
        assert len(subs) == len(model)


def test_a_million_subtransactions_in_turn_are_taken_up_at_once() -> None:
    subs, each = Subtransactions(), np.zeros((1000, 3), np.int64)
    subs.add(np.zeros((0, 3), np.int64), 0, 0)
    began = time.monotonic()
    for first in range(1, 1_000_001, 1000):
        each[:, 0] = np.arange(first, first + 1000)
        subs.add(each, first, first)
    assert time.monotonic() - began < 20, "each id was searched for among all others"
    assert (len(subs), subs.memory < 50 << 20) == (1_000_000, True)
    assert subs.cut(1_000_000) is not None
