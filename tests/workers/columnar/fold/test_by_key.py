"""Folding by key against applying message by message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from catalog.errcodes import InternalError, ProtocolViolation
from tests.workers.columnar.histories import PAIR, THREE, histories
from tests.workers.columnar.native import NativeTable, Stored
from tests.workers.columnar.records import (
    delete,
    insert,
    layout,
    rows,
    segment,
    spool,
    transaction,
    update,
)
from workers.columnar.column_reader import Layout, MappedColumn, UnrepresentableValue, UnsentValue
from workers.columnar.fold.by_key import Keyed, fold_keyed
from workers.columnar.frame import frame
from workers.proto.messages import Message


class KeyedTable:
    """What the lake does with a folded segment: one MERGE matched on base keys, one append."""

    def __init__(self, content: list[Stored], key: tuple[int, ...]) -> None:
        self.content = content
        self.key = key

    def key_of(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(row[ordinal] for ordinal in self.key)

    def apply(self, folded: Keyed) -> None:
        width = len(folded.layout.columns)
        sources = {}
        for source in rows(folded.merge_batches(chunk_rows=3)):
            base = tuple(source[f"b{at}"] for at in range(len(self.key)))
            assert base not in sources
            sources[base] = source
        assert len(sources) == folded.merge_rows
        after: list[Stored] = []
        for local in self.content:
            matched = sources.get(self.key_of(local))
            if matched is None:
                after.append(local)
            elif matched["op"] == 0:
                after.append(
                    tuple(
                        local[at] if matched.get(f"m{at}") else matched[f"c{at}"]
                        for at in range(width)
                    )
                )
        self.content = after
        appended = rows(folded.append_batches(chunk_rows=3))
        assert len(appended) == folded.append_rows
        taken = {self.key_of(local) for local in after}
        for source in appended:
            row = tuple(source[f"c{at}"] for at in range(width))
            assert self.key_of(row) not in taken
            self.content.append(row)


def both(
    messages: list[Message], content: list[Stored], form: Layout
) -> tuple[KeyedTable, NativeTable, Keyed]:
    lake, native = KeyedTable(list(content), form.key), NativeTable(content, form.key)
    native.apply(messages)
    folded = fold_keyed(segment(*messages), form)
    lake.apply(folded)
    return lake, native, folded


def assert_same(messages: list[Message], content: list[Stored], form: Layout = THREE) -> Keyed:
    lake, native, folded = both(messages, content, form)
    assert sorted(lake.content, key=repr) == sorted(native.rows, key=repr)
    assert folded.conflict == -1
    return folded


OLD: list[Stored] = [("1", "one", "BIG1"), ("2", "two", "BIG2"), ("3", "three", None)]


def test_a_swap_is_two_updates() -> None:
    messages: list[Message] = [
        update(["-1", "one", ...], key=["1", None, None]),
        update(["1", "two", ...], key=["2", None, None]),
        update(["2", "one", ...], key=["-1", None, None]),
    ]
    folded = assert_same(messages, OLD)
    assert (folded.merge_rows, folded.append_rows) == (2, 0)
    assert folded.unchanged == ("column 2",)


def test_a_chain_moves_every_row_by_one() -> None:
    messages: list[Message] = [
        update([str(key + 1), "x", "y"], key=[str(key), None, None]) for key in (3, 2, 1)
    ]
    folded = assert_same(messages, OLD)
    assert (folded.merge_rows, folded.append_rows, folded.unchanged) == (3, 0, ())


def test_an_unchanged_value_is_found_in_an_earlier_change_of_the_row() -> None:
    messages: list[Message] = [
        update(["1", "a", "NEW"]),
        update(["9", "b", ...], key=["1", None, None]),
        update(["9", "c", ...]),
        insert("1", "z", "Z"),
        update(["1", ..., "Q"]),
    ]
    folded = assert_same(messages, OLD)
    assert folded.unchanged == ()
    assert rows(folded.append_batches()) == [{"c0": "1", "c1": "z", "c2": "Q"}]


def test_only_values_that_were_never_sent_are_kept() -> None:
    folded = assert_same([update(["1", "a", ...]), update(["2", ..., "B"])], OLD)
    assert folded.unchanged == ("column 1", "column 2")
    assert folded.merge_schema.names == ["op", "b0", "c0", "c1", "c2", "m1", "m2"]
    assert rows(folded.merge_batches()) == [
        {"op": 0, "b0": "1", "c0": "1", "c1": "a", "c2": None, "m1": False, "m2": True},
        {"op": 0, "b0": "2", "c0": "2", "c1": None, "c2": "B", "m1": True, "m2": False},
    ]


def test_delete_and_insert_of_a_key_is_a_delete_and_an_append() -> None:
    folded = assert_same([delete(key=["1", None, None]), insert("1", "new", None)], OLD)
    assert rows(folded.merge_batches()) == [
        {"op": 1, "b0": "1", "c0": None, "c1": None, "c2": None}
    ]
    assert folded.append_rows == 1


def test_what_is_born_and_dies_leaves_nothing() -> None:
    messages: list[Message] = [
        insert("7", "a", "b"),
        update(["8", "a", ...], key=["7", None, None]),
        delete(key=["8", None, None]),
    ]
    folded = assert_same(messages, OLD)
    assert (folded.merge_rows, folded.append_rows) == (0, 0)


def test_a_change_of_a_missing_row_never_makes_one() -> None:
    messages: list[Message] = [
        update(["5", "a", "b"]),
        update(["6", "a", ...], key=["5", None, None]),
        update(["7", "x", "y"], key=["8", None, None]),
        delete(key=["9", None, None]),
    ]
    folded = assert_same(messages, OLD)
    assert (folded.merge_rows, folded.append_rows) == (3, 0)


def test_a_key_known_to_be_gone_is_a_miss() -> None:
    messages: list[Message] = [
        delete(key=["1", None, None]),
        update(["1", "a", "b"]),
        delete(key=["1", None, None]),
        update(["4", "a", "b"], key=["2", None, None]),
        delete(key=["2", None, None]),
    ]
    folded = assert_same(messages, OLD)
    assert (folded.missing_updates, folded.missing_deletes) == (1, 2)


def test_a_toasted_key_that_did_not_change_comes_with_the_old_key() -> None:
    messages: list[Message] = [
        update(["1", ..., "x"], key=["1", "one", None]),
        update(["9", ..., "x"], key=["1", "one", None]),
        update(["9", ..., "y"], key=["9", "one", None]),
    ]
    folded = assert_same(messages, OLD, PAIR)
    assert folded.unchanged == ()
    assert rows(folded.merge_batches()) == [
        {"op": 0, "b0": "one", "b1": "1", "c0": "9", "c1": "one", "c2": "y"}
    ]


def test_whole_old_rows_serve_as_keys_and_as_values() -> None:
    messages: list[Message] = [
        update(["1", "a", ...], old=["1", "one", "BIG1"]),
        update(["4", ..., "q"], old=["2", "two", "BIG2"]),
        delete(old=["3", "three", None]),
    ]
    folded = assert_same(messages, OLD)
    assert folded.unchanged == ()


def test_a_key_given_to_a_second_row_is_named() -> None:
    inserts = segment(insert("1", "a", "b"), insert("1", "c", "d"))
    assert fold_keyed(inserts, THREE).conflict == -1  # inserts alone are not compared
    other = delete(key=["9", None, None])
    again = segment(other, insert("1", "a", "b"), insert("2", "a", "b"), insert("1", "c", "d"))
    assert fold_keyed(again, THREE).conflict == 3
    moved = segment(
        insert("1", "a", "b"),
        insert("2", "a", "b"),
        update(["1", "x", "y"], key=["2", None, None]),
        insert("1", "a", "b"),
    )
    assert fold_keyed(moved, THREE).conflict == 2
    # The table may lack the row that was updated.
    folded = fold_keyed(segment(update(["1", "a", "b"]), insert("1", "c", "d")), THREE)
    assert folded.conflict == 1
    freed = segment(update(["2", "a", "b"], key=["1", None, None]), insert("1", "c", "d"))
    assert fold_keyed(freed, THREE).conflict == -1


def test_inserts_alone_are_appended_in_order_and_need_no_key() -> None:
    messages = [insert(str(at % 3), "a", None) for at in range(10)]
    folded = fold_keyed(segment(*messages), layout(pa.string(), pa.string(), pa.string(), key=()))
    assert [row["c0"] for row in rows(folded.append_batches(chunk_rows=4))] == [
        str(at % 3) for at in range(10)
    ]
    assert folded.merge_rows == 0
    assert list(folded.merge_batches()) == []


def test_nothing_folds_to_nothing() -> None:
    folded = fold_keyed(segment(), THREE)
    assert (folded.merge_rows, folded.append_rows, list(folded.append_batches())) == (0, 0, [])


def test_columns_may_be_mapped_in_part_and_in_any_order() -> None:
    form = Layout(
        4,
        (2,),
        (MappedColumn("n", 3, pa.int32()), MappedColumn("k", 2, pa.int64())),
    )
    folded = fold_keyed(
        segment(
            insert("x", None, "7", "70"),
            update([..., ..., "8", "80"]),
            delete(key=[None, None, "9", None]),
        ),
        form,
    )
    assert rows(folded.append_batches()) == [{"c0": 70, "c1": 7}]
    assert rows(folded.merge_batches()) == [
        {"op": 0, "b0": 8, "c0": 80, "c1": 8},
        {"op": 1, "b0": 9, "c0": None, "c1": None},
    ]


def test_a_table_without_columns_keeps_its_rows() -> None:
    folded = fold_keyed(segment(insert(), insert()), Layout(0, (), ()))
    assert [batch.num_rows for batch in folded.append_batches()] == [2]


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([insert("1", "a")], ProtocolViolation),
        ([insert("1", "a", "b", "c"), delete(key=["1", None, None])], ProtocolViolation),
        ([update(["1", "a"])], ProtocolViolation),
        ([delete(key=["1"])], ProtocolViolation),
        ([update(["1", "a", "b"], key=["1"])], ProtocolViolation),
        ([insert(None, "a", "b"), delete(key=["1", None, None])], ProtocolViolation),
        ([delete(key=[None, "a", "b"])], ProtocolViolation),
        ([update([..., "a", "b"])], ProtocolViolation),
        ([update([..., "a", "b"], key=[..., None, None])], ProtocolViolation),
        ([delete(key=[..., None, None])], ProtocolViolation),
        ([insert("1", ..., "b")], UnsentValue),
        ([insert("1", ..., "b"), delete(key=["2", None, None])], UnsentValue),
    ],
)
def test_what_makes_no_row_is_refused(messages: list[Message], error: type[Exception]) -> None:
    def fold() -> None:
        folded = fold_keyed(segment(*messages), THREE)
        list(folded.merge_batches())
        list(folded.append_batches())

    with pytest.raises(error):
        fold()


def test_a_value_that_was_not_sent_becomes_null_where_that_is_declared() -> None:
    folded = fold_keyed(segment(insert("1", ..., "b")), replace(THREE, null_unrepresentable=True))
    assert [batch.to_pylist() for batch in folded.append_batches()] == [
        [{"c0": "1", "c1": None, "c2": "b"}]
    ]


def test_updates_without_a_key_are_refused() -> None:
    with pytest.raises(ProtocolViolation):
        fold_keyed(segment(update(["1"])), layout(pa.string(), key=()))


def test_a_layout_must_map_its_key_and_each_column_once() -> None:
    column = MappedColumn("a", 0, pa.string())
    for wrong in ((2, (1,), (column,)), (1, (), (column, column)), (0, (), (column,))):
        with pytest.raises(InternalError):
            Layout(*wrong)


MONEY = pa.decimal128(5, 2)


def test_an_unrepresentable_value_names_its_column_and_the_change_that_sent_it() -> None:
    form = layout(pa.int32(), MONEY, pa.string())
    changes = segment(
        insert("1", "1.00", "a"),
        update(["1", "NaN", "b"]),
        update(["1", ..., "c"]),
        update(["2", "2.00", ...]),
    )
    folded = fold_keyed(changes, form)
    with pytest.raises(UnrepresentableValue) as caught:
        list(folded.append_batches())
    assert (caught.value.column, caught.value.type, caught.value.change) == ("column 1", MONEY, 1)
    assert caught.value.code == "22003"
    assert "NaN" not in caught.value.report()
    assert folded.merge_rows == len(rows(folded.merge_batches()))


def test_an_unrepresentable_old_key_is_found_too() -> None:
    form = layout(pa.int32(), pa.string(), pa.string())
    folded = fold_keyed(segment(delete(key=["1", None, None]), delete(key=["x", None, None])), form)
    with pytest.raises(UnrepresentableValue) as caught:
        list(folded.merge_batches())
    assert (caught.value.column, caught.value.change) == ("column 0", 1)


def test_unrepresentable_values_become_null_but_never_in_the_key() -> None:
    form = layout(pa.int32(), MONEY, key=(0,), null_unrepresentable=True)
    folded = fold_keyed(segment(insert("1", "NaN"), insert("2", "1.5")), form)
    assert [row["c1"] is None for row in rows(folded.append_batches())] == [True, False]
    bad_key = fold_keyed(segment(insert("x", "1.00")), form)
    with pytest.raises(UnrepresentableValue):
        list(bad_key.append_batches())


def test_chunks_are_bounded_by_rows_and_by_bytes() -> None:
    changes = segment(*[insert(str(at), "x" * 100, None) for at in range(20)])
    folded = fold_keyed(changes, THREE)
    assert [batch.num_rows for batch in folded.append_batches(chunk_rows=8)] == [8, 8, 4]
    by_bytes = [batch.num_rows for batch in folded.append_batches(chunk_bytes=350)]
    assert by_bytes == [3, 3, 3, 3, 3, 3, 2]
    assert [batch.num_rows for batch in folded.append_batches(chunk_bytes=1)] == [1] * 20
    whole = rows(folded.append_batches())
    assert rows(folded.append_batches(chunk_bytes=350)) == whole
    updates = fold_keyed(segment(*[update([str(at), "x" * 100, ...]) for at in range(20)]), THREE)
    assert [batch.num_rows for batch in updates.merge_batches(chunk_bytes=350)] == by_bytes


def test_values_longer_than_a_chunk_pass_whole() -> None:
    large = "ä" * 3_000_000
    folded = fold_keyed(segment(insert("1", large, "x"), insert("2", "y", large)), THREE)
    found = rows(folded.append_batches(chunk_bytes=1 << 20))
    assert found[0]["c1"] == large
    assert found[1]["c2"] == large


def test_changes_keep_their_transactions() -> None:
    buf = spool(*transaction([insert("1", "a", "b")], 1), *transaction([insert("2", "a", "b")], 2))
    result = frame(buf, 0, len(buf))
    picked = result.changes(np.array([1]))
    assert picked.txn.tolist() == [1]
    assert rows(fold_keyed(picked, THREE).append_batches()) == [{"c0": "2", "c1": "a", "c2": "b"}]


@settings(deadline=None, max_examples=250)
@given(histories())
def test_folding_does_what_applying_one_by_one_does(
    history: tuple[list[Message], list[Stored], Layout],
) -> None:
    messages, content, form = history
    assert_same(messages, content, form)
