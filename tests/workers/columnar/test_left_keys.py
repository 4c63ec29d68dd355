"""Keys that come by INSERT and are left again: what a fold says of them."""

from __future__ import annotations

import pyarrow as pa

from tests.workers.columnar.records import delete, insert, layout, rows, segment, update
from workers.columnar.fold import fold_keyed
from workers.proto.messages import Message

THREE = layout(pa.string(), pa.string(), pa.string())
PAIR = layout(pa.string(), pa.string(), pa.string(), key=(1, 0))


def test_an_inserted_key_that_is_left_again_is_named_once() -> None:
    came_and_went: list[Message] = [
        insert("1", "a", "b"),
        delete(key=["1", None, None]),
        insert("1", "c", "d"),
        delete(key=["1", None, None]),
        insert("2", "a", "b"),
        update(["3", "a", "b"], key=["2", None, None]),
        insert("4", "a", "b"),
        update(["5", "x", "y"]),
        insert("5", "x", "y"),
        delete(key=["5", None, None]),
        delete(key=["6", None, None]),
        insert("6", "x", "y"),
        delete(key=["6", None, None]),
    ]
    folded = fold_keyed(segment(*came_and_went), THREE)
    assert [row["b0"] for row in rows(folded.left_batches())] == ["1", "2", "5"]
    assert folded.left_schema.names == ["b0"]
    assert fold_keyed(segment(insert("1", "a", "b")), THREE).left_rows == 0


def test_the_columns_of_a_left_key_are_in_its_order() -> None:
    folded = fold_keyed(segment(insert("1", "one", "x"), delete(key=["1", "one", None])), PAIR)
    assert rows(folded.left_batches()) == [{"b0": "one", "b1": "1"}]
