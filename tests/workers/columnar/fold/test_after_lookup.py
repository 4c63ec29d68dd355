"""Folding with the answer of the table, and against PostgreSQL wherever a batch is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ProtocolViolation, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import TableOptions
from tests.workers.columnar.records import (
    TABLE,
    delete,
    insert,
    layout,
    rows,
    segment,
    spool,
    transaction,
    update,
)
from tests.workers.transactions import relation
from workers.changes.by_table import Run
from workers.changes.failed_transaction import FailedTransaction
from workers.changes.segments import build_segments
from workers.columnar.column_reader import Changes, UnrepresentableValue, UnsentValue
from workers.columnar.fold.after_lookup import Probed, gives_keys
from workers.columnar.frame import frame
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import MAIN, LakeColumn, LakeIdent, Stamp
from workers.proto.messages import Message
from workers.publisher.replica_identity import Coverage

PAIR = layout(pa.string(), pa.string())


def asked(probed: Probed) -> list[tuple[Any, ...]]:
    found = rows(probed.key_batches(chunk_rows=2))
    assert [row.pop("k") for row in found] == list(range(len(found)))
    return [tuple(row.values()) for row in found]


def test_every_key_is_asked_for_once_and_by_value() -> None:
    form = layout(pa.decimal128(5, 2), pa.float64(), pa.string(), key=(1, 0))
    probed = Probed(
        segment(
            insert("1.0", "0", "a"),
            update(["1.00", "-0", "b"]),
            update(["2", "0", "c"], key=["1", "0", None]),
            delete(key=["7", "1.5", None]),
            delete(key=["2.00", "-0", None]),
        ),
        form,
    )
    keys = [(b1, str(b0)) for b0, b1 in [(key[1], key[0]) for key in asked(probed)]]
    assert sorted(keys) == [(0.0, "1.00"), (0.0, "2.00"), (1.5, "7.00")]
    assert probed.key_schema.names == ["k", "b0", "b1"]
    folded = probed.resolve([], overwrite=False)
    assert (folded.merge_rows, folded.append_rows, folded.conflict) == (0, 0, -1)
    assert (probed.missing_updates, probed.missing_deletes) == (0, 1)


def test_arrays_may_be_keys() -> None:
    form = layout(pa.list_(pa.float64()), pa.string())
    probed = Probed(segment(insert("{1,0}", "a"), update(["{1.0,-0}", "b"])), form)
    assert asked(probed) == [([1.0, 0.0],)]


def test_a_toasted_key_that_did_not_change_comes_with_the_old_key() -> None:
    form = layout(pa.string(), pa.string(), pa.string(), key=(1, 0))
    changes = segment(
        update(["1", ..., "x"], key=["1", "one", None]),
        update(["9", ..., "y"], key=["1", "one", None]),
    )
    probed = Probed(changes, form)
    assert asked(probed) == [("one", "1"), ("one", "9")]
    assert rows(probed.resolve([0], overwrite=False).merge_batches()) == [
        {"op": 0, "b0": "one", "b1": "1", "c0": "9", "c1": "one", "c2": "y"}
    ]


def test_only_an_insert_or_an_old_key_gives_a_key() -> None:
    assert not gives_keys(segment())
    assert not gives_keys(segment(update(["1", "a"]), delete(key=["1", None])))
    assert gives_keys(segment(delete(key=["1", None]), insert("1", "a")))
    assert gives_keys(segment(update(["2", "a"], key=["1", None])))


@pytest.mark.parametrize(
    ("found", "conflict"),
    [([], -1), ([0], 0), ([1], 2), ([2], -1)],
    ids=["none", "inserted", "changed to", "changed from"],
)
def test_the_first_change_that_meets_a_row_is_named(found: list[int], conflict: int) -> None:
    changes = segment(
        insert("1", "a"),
        delete(key=["1", None]),
        update(["2", "b"], key=["1", None]) if conflict < 2 else insert("2", "b"),
        update(["3", "c"]),
    )
    probed = Probed(changes, PAIR)
    assert sorted(asked(probed)) == [("1",), ("2",), ("3",)]
    assert probed.resolve(found, overwrite=False).conflict == conflict
    assert probed.resolve(found, overwrite=True).conflict == -1


def test_a_missing_row_gives_its_key_to_nobody() -> None:
    changes = segment(update(["1", "x"], key=["3", None]), update(["5", "y"], key=["1", None]))
    probed = Probed(changes, PAIR)
    by_key = {key: k for k, (key,) in enumerate(asked(probed))}
    folded = probed.resolve([by_key["1"]], overwrite=False)
    assert rows(folded.merge_batches()) == [{"op": 0, "b0": "1", "c0": "5", "c1": "y"}]
    assert (folded.conflict, probed.missing_updates) == (-1, 1)
    assert probed.resolve([by_key["1"], by_key["3"]], overwrite=False).conflict == 0
    assert probed.missing_updates == 0  # what an earlier answer made of it is forgotten


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_swap_is_no_conflict(overwrite: bool) -> None:
    changes = segment(
        update(["-1", "one"], key=["1", None]),
        update(["1", "two"], key=["2", None]),
        update(["2", "one"], key=["-1", None]),
    )
    probed = Probed(changes, PAIR)
    by_key = {key: k for k, (key,) in enumerate(asked(probed))}
    folded = probed.resolve([by_key["1"], by_key["2"]], overwrite=overwrite)
    assert (folded.conflict, folded.append_rows) == (-1, 0)
    assert rows(folded.merge_batches()) == [
        {"op": 0, "b0": "1", "c0": "2", "c1": "one"},
        {"op": 0, "b0": "2", "c0": "1", "c1": "two"},
    ]


def test_an_insert_that_overwrites_must_bring_every_value() -> None:
    three = layout(pa.string(), pa.string(), pa.string())
    good = Probed(segment(insert("1", "a", "b"), update(["2", "c", ...], key=["1", "", ""])), three)
    (row,) = rows(good.resolve([0], overwrite=True).merge_batches())
    assert row == {"op": 0, "b0": "1", "c0": "2", "c1": "c", "c2": "b"}
    bad = segment(insert("1", "a", "b"), insert("2", "a", ...), update(["2", "c", ...]))
    with pytest.raises(UnsentValue):
        Probed(bad, three).resolve([0, 1], overwrite=True)


@pytest.mark.parametrize(
    "bad",
    [
        insert(None, "a"),
        insert(..., "a"),
        insert("1"),
        update([..., "a"]),
        update(["1"]),
        delete(key=[None, "a"]),
        delete(key=[..., None]),
    ],
)
def test_what_has_no_key_is_refused(bad: Message) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        Probed(segment(insert("1", "a"), bad), PAIR)
    assert "change 1 " in (caught.value.detail or "")


def test_an_unrepresentable_key_names_its_change() -> None:
    form = layout(pa.int32(), pa.string(), null_unrepresentable=True)
    with pytest.raises(UnrepresentableValue) as caught:
        Probed(segment(insert("1", "a"), delete(key=["x", None])), form)
    assert (caught.value.column, caught.value.change) == ("column 0", 1)


# -- against PostgreSQL, change by change ---------------------------------------------------------

Change = tuple[str, int, int, str | None]
"""Kind, key, new key of an UPDATE, and a value; None: it is unchanged, or NULL in an INSERT."""

RELATION = relation(TABLE, "t", "id", "v", "big")
COLUMNS = (
    LakeColumn("id", pa.int64()),
    LakeColumn("v", pa.string()),
    LakeColumn("big", pa.string()),
    LakeColumn("note", pa.string()),
)
IDENT = LakeIdent("public", "t")


class Refused(Exception):  # noqa: N818 (it is an outcome)
    """insert_exists or update_exists."""


@dataclass
class Native:
    """A table with an immediate primary key, as PostgreSQL's apply worker changes it."""

    overwrite: bool
    rows: dict[int, tuple[str | None, ...]] = field(default_factory=dict)

    def apply(self, at: int, change: Change) -> None:
        kind, key, new_key, big = change
        value = f"change {at}"
        if kind == "I":
            self._check(key)
            note = self.rows[key][2] if key in self.rows else None
            self.rows[key] = (value, big, note)
        elif key not in self.rows:
            return
        elif kind == "D":
            del self.rows[key]
        else:
            if new_key != key:
                self._check(new_key)
            _, old_big, note = self.rows.pop(key)
            self.rows[new_key] = (value, old_big if big is None else big, note)

    def _check(self, key: int) -> None:
        if key in self.rows and not self.overwrite:
            raise Refused


def message(at: int, change: Change) -> Message:
    kind, key, new_key, big = change
    if kind == "I":
        return insert(str(key), f"change {at}", big)
    if kind == "D":
        return delete(key=[str(key), None, None])
    new = [str(new_key), f"change {at}", ... if big is None else big]
    return update(new) if new_key == key else update(new, key=[str(key), None, None])


class Lake:
    """The table in a lake in memory, written and published batch by batch."""

    def __init__(self, content: Sequence[int], options: TableOptions) -> None:
        self.dest = MemoryDestination(MemoryLake())
        self.options = options
        self.stamp = Stamp("pg_1", LSN(1), "epoch", LSN(1))
        self.dest.create_table(IDENT, COLUMNS, owner="u", relid=1, stamp=self.stamp)
        names = [column.name for column in COLUMNS]
        old = [dict(zip(names, (key, "old", f"big {key}", "ours"), strict=True)) for key in content]
        self.dest.lake.commit(self.dest.lake.tables[IDENT], MAIN, old, self.stamp)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.dest.lake.rows(IDENT))

    def apply(self, transactions: Sequence[Sequence[Message]], *, truncate: bool) -> None:
        table = self.dest.table(IDENT)
        assert table is not None
        runs = [Run(None, None, truncate=True)] if truncate else []
        runs.append(Run(RELATION, framed(transactions), coverage=Coverage.WHOLE))
        work = build_segments(runs, table, self.options, self.dest, look_up_keys=True)
        try:
            self.dest.create_branch(IDENT, "pgsub_1_1_1")
            self.dest.write(IDENT, "pgsub_1_1_1", work.segments, self.stamp)
            self.dest.publish(IDENT, "pgsub_1_1_1", self.stamp)
        finally:
            work.discard()
            assert self.dest.staged == 0


def framed(transactions: Sequence[Sequence[Message]]) -> Changes:
    payloads = chain(*(transaction(own, at) for at, own in enumerate(transactions, start=1)))
    buf = spool(*payloads)
    return frame(buf, 0, len(buf)).changes(slice(None))


def cuts(count: int) -> Iterator[list[tuple[int, int]]]:
    """Every way to cut ``count`` transactions into batches."""
    for size in range(count):
        for inner in combinations(range(1, count), size):
            yield list(pairwise((0, *inner, count)))


changes = st.tuples(
    st.sampled_from("IIUUUDD"),
    st.integers(1, 4),
    st.integers(1, 4),
    st.none() | st.sampled_from(["x", "y"]),
)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.lists(changes, min_size=1, max_size=4), min_size=1, max_size=4),
    st.sets(st.integers(1, 4)),
    st.sampled_from(["error", "overwrite"]),
    st.sampled_from([False, False, False, True]),
)
def test_where_a_batch_is_cut_makes_no_difference(
    history: list[list[Change]], content: set[int], on_key_conflict: str, truncate: bool
) -> None:
    """Any changes at all, as when some kinds are not published or the lake had rows of its own."""
    native = Native(on_key_conflict == "overwrite")
    if not truncate:
        native.rows = {key: ("old", f"big {key}", "ours") for key in content}
    transactions: list[list[Message]] = []
    expected, failing, number = dict(native.rows), None, 0
    for txn, own in enumerate(history):
        transactions.append([])
        for change in own:
            number += 1
            transactions[-1].append(message(number, change))
            try:
                if failing is None:
                    native.apply(number, change)
            except Refused:
                failing = txn
        if failing is None:
            expected = dict(native.rows)
    for batches in cuts(len(transactions)):
        lake = Lake(sorted(content), TableOptions(on_key_conflict=on_key_conflict))
        failed = None
        for begin, end in batches:
            empties = truncate and begin == 0
            try:
                lake.apply(transactions[begin:end], truncate=empties)
            except FailedTransaction as error:
                failed = begin + error.txn
                assert_named(error.error)
                if failed > begin:  # as the apply worker does
                    lake.apply(transactions[begin:failed], truncate=empties)
                break
        assert failed == failing
        if failed == 0 and truncate:
            continue  # nothing was published, so the table is not empty yet
        assert lake.rows() == sorted((key, *row) for key, row in expected.items())


def assert_named(error: ReplicationError) -> None:
    """A conflict names table and key columns, and says nothing of values."""
    assert error.code == "23505"
    assert str(IDENT) in error.primary
    assert "(id)" in (error.detail or "")
    assert "change " not in error.report()
