"""A column's text takes its room in steps, and asks for fewer rows where there is too much."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.workers.columnar.binary.sent_values import (
    INT4,
    NUMERIC,
    TEXT,
    binary,
    int4,
    numeric,
    row,
    texts,
)
from tests.workers.columnar.records import TABLE, layout, rows, segment
from workers.columnar.binary.text import TooMuchText, WrongValue, binary_texts
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.fold.whole_rows import full_images
from workers.columnar.tuples import BINARY_VALUE, INSUFFICIENT, readonly
from workers.proto.messages import Delete, Insert, Update

LONG = [Decimal(at).scaleb(1000) for at in range(1, 12)]
"""Ten bytes or so each in binary form, more than a thousand as text."""


@pytest.fixture
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array takes three of ``LONG``."""
    monkeypatch.setattr("workers.columnar.binary.text.TEXT_ARRAY_BYTES", 2500)


def batches_of(found: Any) -> tuple[list[int], list[dict[str, Any]]]:
    batches = list(found)
    return [batch.num_rows for batch in batches], rows(batches)


@pytest.mark.usefixtures("little_text")
def test_014_a_chunk_is_split_where_its_text_is_much_larger() -> None:
    inserts = [Insert(TABLE, row(int4(at), numeric(n))) for at, n in enumerate(LONG)]
    changes = binary(segment(*inserts), INT4, NUMERIC)
    folded = fold_keyed(changes, layout(pa.int32(), pa.string()))
    sizes, found = batches_of(folded.append_batches())
    assert sizes == [3, 3, 3, 2]
    assert found == [{"c0": at, "c1": f"{n:f}"} for at, n in enumerate(LONG)]
    assert batches_of(folded.append_batches(chunk_rows=4))[0] == [3, 1, 3, 1, 3]
    assert rows(folded.append_batches(chunk_rows=4)) == found


@pytest.mark.usefixtures("little_text")
@pytest.mark.parametrize("values_too", [False, True])
def test_014_keys_are_split_where_their_text_is_much_larger(values_too: bool) -> None:
    """Each stays beside its own row: what becomes of it, and what was not sent of it."""
    updates: list[Any] = []
    for at, number in enumerate(LONG):
        new = number + 1 if values_too else Decimal(at)
        note = ... if at % 2 else str(at).encode()
        updates.append(Update(TABLE, "K", row(numeric(number), None), row(numeric(new), note)))
    updates[4] = Delete(TABLE, "K", row(numeric(LONG[4]), None))
    changes = binary(segment(*updates), NUMERIC, TEXT)
    folded = fold_keyed(changes, layout(pa.string(), pa.string()))
    sizes, found = batches_of(folded.merge_batches())
    assert sizes == ([3, 3, 1, 3, 1] if values_too else [3, 3, 3, 2])
    assert rows(folded.merge_batches(chunk_rows=4)) == found
    assert len(found) == len(LONG)
    for at, (each, number) in enumerate(zip(found, LONG, strict=True)):
        new = number + 1 if values_too else Decimal(at)
        wanted: tuple[Any, ...] = (f"{new:f}", None if at % 2 else str(at), bool(at % 2))
        if at == 4:
            wanted = (None, None, False)
        assert (each["b0"], each["op"]) == (f"{number:f}", int(at == 4))
        assert (each["c0"], each["c1"], each["m1"]) == wanted


@pytest.mark.usefixtures("little_text")
def test_014_whole_rows_are_split_where_their_text_is_much_larger() -> None:
    deletes = [Delete(TABLE, "O", row(numeric(number))) for number in LONG]
    full = full_images(binary(segment(*deletes), NUMERIC), layout(pa.string(), key=()))
    sizes, found = batches_of(full.image_batches())
    assert sizes == [3, 3, 3, 2]
    assert [each["c0"] for each in found] == [f"{number:f}" for number in LONG]
    assert [each["image"] for each in found] == list(range(len(LONG)))


def test_room_grows_for_text_that_is_much_longer_than_its_bytes() -> None:
    """Also more than once, and what was written before stays."""
    sent = [int4(7), None, *[int4(8)] * 3]
    assert texts(INT4, *sent) == ["7", None, "8", "8", "8"]
    assert texts(NUMERIC, *map(numeric, LONG), None) == [*(f"{n:f}" for n in LONG), None]


@pytest.mark.usefixtures("little_text")
def test_too_much_text_says_how_many_rows_fit() -> None:
    with pytest.raises(TooMuchText) as caught:
        texts(NUMERIC, *map(numeric, LONG))
    assert caught.value.rows == 3
    assert len(texts(NUMERIC, *map(numeric, LONG[:3]))) == 3


def test_a_wrong_value_is_named_by_its_row_and_shown_nowhere() -> None:
    with pytest.raises(WrongValue) as caught:
        texts(INT4, int4(1), None, b"k4h", b"")
    assert (caught.value.code, caught.value.index) == (INSUFFICIENT, 2)
    assert "k4h" not in str(caught.value)


def test_a_type_without_a_node_has_only_nulls() -> None:
    table, buf = np.empty((0, 4), np.int64), readonly(np.zeros(4, np.uint8))
    nulls = binary_texts(table, -1, buf, np.zeros(2, np.int64), np.array([-1, -2], np.int32))
    assert nulls.to_pylist() == [None, None]
    with pytest.raises(WrongValue) as caught:
        binary_texts(table, -1, buf, np.zeros(2, np.int64), np.array([-1, 4], np.int32))
    assert (caught.value.code, caught.value.index) == (BINARY_VALUE, 1)
