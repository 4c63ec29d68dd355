"""Which change first breaks one of several keys, and against a plain model change by change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.columnar.records import delete, insert, layout, segment, update
from workers.columnar.fold.after_lookup import Probed
from workers.columnar.fold.unique_keys import UniqueKeys, UnsentKey
from workers.proto.messages import Message

THREE = layout(pa.int64(), pa.int64(), pa.int64())
"""Identity, then two columns that are a key each."""


def broken(
    messages: list[Message],
    table: list[tuple[int | str | None, ...]],
    form: Any = THREE,
    keys: tuple[tuple[int, ...], ...] = ((1,), (2,)),
) -> tuple[int, tuple[int, ...]] | None:
    """The answer of the fold, the table being asked as a lake would be."""
    changes = segment(*messages)
    probed = Probed(changes, form) if form.key else None
    unique = UniqueKeys(changes, form, keys, probed.key_of if probed else None)
    spaces: list[tuple[tuple[int, ...], list[pa.Table]]] = []
    own = [pa.Table.from_batches(list(probed.key_batches()))] if probed else []
    spaces.append((form.key, own))
    spaces += [(key, [values]) for key, values in zip(keys, unique.key_batches, strict=True)]
    numbers = [
        {
            tuple(row[f"b{n}"] for n in range(len(key))): row["k"]
            for t in own
            for row in t.to_pylist()
        }
        for key, own in spaces
    ]
    lines = [
        [
            number.get(tuple(row[at] for at in key), -1)
            for (key, _), number in zip(spaces, numbers, strict=True)
        ]
        for row in table
    ]
    held = [line for line in lines if max(line) >= 0]
    return unique.first_broken(np.array(held, np.int64).reshape(len(held), len(spaces)))


@pytest.mark.parametrize(
    ("messages", "table", "answer"),
    [
        ([insert("2", "3", "4")], [(2, 2, 2), (3, 3, 3), (4, 4, 4)], (0, (0, 1, 2))),
        ([update(["6", "7", "8"], key=["5", None, None])],
         [(5, 5, 5), (6, 6, 6), (7, 7, 7), (8, 8, 8)], (0, (0, 1, 2))),
        ([insert("1", "9", "9")], [(2, 9, 0)], (0, (1,))),
        ([insert("1", None, "9"), insert("2", None, "8")], [(3, None, 7)], None),
        ([delete(key=["1", None, None]), insert("2", "5", "6")], [(1, 5, 6)], None),
        ([insert("2", "5", "6"), delete(key=["1", None, None])], [(1, 5, 6)], (0, (1, 2))),
        ([update(["1", "7", "6"]), insert("2", "5", "8")], [(1, 5, 6)], None),
        ([update(["1", "5", "6"])], [(1, 5, 6)], None),
        ([update(["1", "5", "6"])], [(2, 5, 6)], None),  # its row is missing: it gives nothing
        ([insert("1", "5", "6"), insert("2", "5", "7")], [], (1, (1,))),
        ([insert("1", "5", "6"), update(["1", "4", "6"]), insert("2", "5", "7")], [], None),
        ([update(["1", "6", "1"]), update(["2", "5", "2"])], [(1, 5, 1), (2, 6, 2)], (0, (1,))),
    ],
)  # fmt: skip
def test_the_first_change_that_breaks_a_key_and_all_keys_it_breaks(
    messages: list[Message], table: list[Any], answer: Any
) -> None:
    assert broken(messages, table) == answer


def test_a_large_value_that_was_not_sent_stays_the_row_s() -> None:
    form = layout(pa.int64(), pa.string(), pa.int64())
    keys = ((1,),)
    kept = update(["1", ..., "7"])
    assert broken([kept, insert("2", "big", "0")], [(1, "big", 0)], form, keys) == (1, (1,))
    assert broken([kept, insert("2", "other", "0")], [(1, "big", 0)], form, keys) is None


def test_a_key_of_which_a_part_was_not_sent() -> None:
    """A part that is NULL makes the key none, whatever the rest is."""
    form = layout(pa.int64(), pa.string(), pa.int64())
    assert broken([update(["1", ..., None])], [(1, "big", 5)], form, ((1, 2),)) is None
    with pytest.raises(UnsentKey) as caught:
        broken([insert("2", "b", "5"), update(["1", ..., "7"])], [], form, ((2,), (2, 1)))
    assert (caught.value.key, caught.value.column, caught.value.change) == (1, "column 1", 1)


def test_without_an_identity_inserts_are_checked() -> None:
    form = layout(pa.int64(), pa.string(), key=())
    assert broken([insert("1", "a"), insert("1", "b")], [(2, "b")], form, ((1,),)) == (1, (1,))
    assert broken([insert("1", "a"), insert("1", "b")], [], form, ((0, 1),)) is None
    assert broken([insert("1", "a"), insert("1", "a")], [], form, ((0, 1),)) == (1, (1,))


Row = tuple[int, int | None, int | None]
values = st.none() | st.integers(0, 3)
changes = st.tuples(st.sampled_from("IIUUUD"), st.integers(1, 4), st.integers(1, 4), values, values)


def message(change: tuple[Any, ...]) -> Message:
    kind, key, new, b, c = change
    row = [str(new), None if b is None else str(b), None if c is None else str(c)]
    if kind == "I":
        return insert(*row)
    if kind == "D":
        return delete(key=[str(key), None, None])
    return update(row) if new == key else update(row, key=[str(key), None, None])


def native(history: list[tuple[Any, ...]], rows: list[Row]) -> tuple[int, tuple[int, ...]] | None:
    """A table with three immediate unique indexes, as PostgreSQL's apply worker changes it."""
    rows = list(rows)
    for at, (kind, key, new, b, c) in enumerate(history):
        old = next((row for row in rows if row[0] == key), None)
        if kind != "I" and old is None:
            continue
        others = [row for row in rows if kind == "I" or row is not old]
        if kind != "D":
            given = (new, b, c)
            hit = tuple(
                n for n in range(3) if given[n] is not None and given[n] in [r[n] for r in others]
            )
            if hit:
                return at, hit
            others.append(given)
        rows = others
    return None


@settings(deadline=None, max_examples=400)
@given(st.lists(changes, min_size=1, max_size=8), st.lists(changes, max_size=6))
def test_as_postgresql_finds_it(
    history: list[tuple[Any, ...]], made: list[tuple[Any, ...]]
) -> None:
    rows: list[Row] = []
    for _, _, *row in made:
        if not any(a == b and a is not None for r in rows for a, b in zip(r, row, strict=True)):
            rows.append((row[0], row[1], row[2]))
    assert broken([message(change) for change in history], list(rows)) == native(history, rows)
