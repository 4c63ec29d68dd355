"""Which changes of a segment share a key with another, and that only those need to be followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from catalog.errcodes import ProtocolViolation
from tests.workers.columnar.histories import THREE, histories
from tests.workers.columnar.native import Stored
from tests.workers.columnar.records import delete, insert, segment, update
from workers.columnar.column_reader import Layout
from workers.columnar.fold import by_key, key_table
from workers.columnar.fold.by_key import fold_keyed
from workers.proto.messages import Message


@settings(deadline=None, max_examples=100)
@given(histories())
def test_a_change_that_is_alone_need_not_be_followed(
    history: tuple[list[Message], list[Stored], Layout],
) -> None:
    """Finding those first makes no difference but to how long it takes."""
    messages, _, form = history
    changes = segment(*messages)
    found = fold_keyed(changes, form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_key, "mark_alone", lambda *args: args[-1].fill(False))
        followed = fold_keyed(changes, form)
    for part in ("prev", "base", "final", "born"):
        assert list(getattr(found, part)) == list(getattr(followed, part)), part
    for part in ("unchanged", "conflict", "missing_updates", "missing_deletes"):
        assert getattr(found, part) == getattr(followed, part), part


@pytest.mark.parametrize(
    "bad",
    [
        delete(key=["1"]),
        delete(key=[None, "a", "b"]),
        update(["1", "a", "b"], key=["1"]),
        update([..., "a", "b"]),
        update([..., "a", "b"], key=[..., None, None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_change_without_a_key_is_met_where_it_is(bad: Message, at: int) -> None:
    """Among changes that are alone and such as are not, and before one that is no better."""
    messages: list[Message] = [
        insert("7", "a", "b"),
        update(["8", "a", "b"]),
        update(["8", "c", "d"]),
        delete(key=["9", None, None]),
    ]
    messages.insert(at, bad)
    changes = segment(*messages, delete(key=["2"]))
    errors = []
    for find in (key_table.mark_alone, lambda *args: args[-1].fill(False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(by_key, "mark_alone", find)
            with pytest.raises(ProtocolViolation) as error:
                fold_keyed(changes, THREE)
        errors.append((error.value.primary, error.value.detail))
    assert errors[0] == errors[1]
    assert f"change {at} of" in str(errors[0][1])


def test_alone_is_who_shares_no_key_with_another() -> None:
    """Also a row that keeps its key, and one that moves to a key that nobody else names."""
    many = [insert(f"{n}", "x", "y") for n in range(1000)]
    changes = segment(
        *many,
        update(("a", "x", "y"), key=("a", None, None)),
        update(("c", "x", "y"), key=("b", None, None)),
        update(("e", "x", "y"), key=("d", None, None)),
        delete(key=("e", None, None)),
        update(("7", "x", "y")),
    )
    found: list[npt.NDArray[np.bool_]] = []
    with pytest.MonkeyPatch.context() as patch:

        def mark(*args: Any) -> None:
            key_table.mark_alone(*args)
            found.append(args[-1])

        patch.setattr(by_key, "mark_alone", mark)
        fold_keyed(changes, THREE)
    assert np.flatnonzero(~found[0]).tolist() == [7, 1002, 1003, 1004]
