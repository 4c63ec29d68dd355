"""Filter, then cut, then fold per target: in that order, in commit order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.workers.transactions import batch, relation, row
from workers.changes.by_table import Bools, Run, Takes, frame_batch, work_of
from workers.changes.relation_map import LogicalRepRelMap, RelName
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Truncate,
    TupleColumn,
    Update,
)
from workers.stream.batch import Batch


def runs_of(
    taken: Batch, relmap: LogicalRepRelMap | None = None, takes: Bools | Takes | None = None
) -> dict[RelName, list[Run]]:
    """Every target takes everything, or the same transactions, or what ``takes`` says of it."""
    framed = frame_batch(taken, LogicalRepRelMap() if relmap is None else relmap)
    if not isinstance(takes, Mapping):
        alike = np.ones(taken.ntxns, dtype=np.bool_) if takes is None else takes
        takes = dict.fromkeys(framed.targets, alike)
    return framed.runs(takes)


def shape(runs: dict[RelName, list[Run]]) -> dict[str, list[str]]:
    """Each target's runs as text: T for an emptied table, then the kinds of the changes."""
    return {
        name: [
            ("T" if run.truncate else "")
            + ("" if run.changes is None else run.changes.kind.tobytes().decode())
            for run in own
        ]
        for (_, name), own in runs.items()
    }


A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")


def test_changes_go_to_their_tables_in_commit_order() -> None:
    taken = batch(
        [A, Insert(1, row("1", "x")), B, Insert(2, row("1", "x"))],
        [Update(1, None, None, row("1", "y")), Delete(2, "K", row("1", ""))],
    )
    runs = runs_of(taken)
    assert shape(runs) == {"a": ["IU"], "b": ["ID"]}


def test_an_equal_relation_message_does_not_cut_and_a_changed_one_does() -> None:
    wider = relation(1, "a", "id", "v", "w")
    taken = batch(
        [A, Insert(1, row("1", "x")), A, Insert(1, row("2", "x"))],
        [wider, Update(1, None, None, row("1", "y", "z"))],
    )
    runs = runs_of(taken)
    assert shape(runs) == {"a": ["II", "U"]}
    assert [len(run.relation.columns) for run in runs["public", "a"] if run.relation] == [2, 3]


def test_a_moved_key_cuts() -> None:
    moved = relation(1, "a", "id", "v", key="v")
    taken = batch([A, Insert(1, row("1", "x")), moved, Insert(1, row("2", "y"))])
    assert shape(runs_of(taken)) == {"a": ["I", "I"]}


def test_truncate_discards_what_came_before_it() -> None:
    taken = batch(
        [A, Insert(1, row("1", "x"))],
        [Truncate(False, False, (1,)), Insert(1, row("2", "x"))],
        [Insert(1, row("3", "x"))],
    )
    runs = runs_of(taken)
    assert shape(runs) == {"a": ["T", "II"]}


def test_a_truncate_that_is_not_taken_empties_nothing() -> None:
    taken = batch(
        [A, Insert(1, row("1", "x"))],
        [Truncate(False, False, (1,))],
        [Insert(1, row("2", "x"))],
    )
    takes = np.array([True, False, True])
    runs = runs_of(taken, takes=takes)
    assert shape(runs) == {"a": ["II"]}


def test_the_gate_drops_whole_transactions_before_anything_is_folded() -> None:
    taken = batch(
        [A, Insert(1, row("1", "x"))],
        [Delete(1, "K", row("1", "")), Insert(1, row("2", "x"))],
        [Insert(1, row("3", "x"))],
    )
    takes = np.array([False, True, False])
    runs = runs_of(taken, takes=takes)
    assert shape(runs) == {"a": ["DI"]}


def test_a_table_nothing_of_which_passes_is_absent() -> None:
    taken = batch([A, Insert(1, row("1", "x")), B, Insert(2, row("1", "x"))])
    only_b = {("public", "b"): np.array([True])}
    assert shape(runs_of(taken, takes=only_b)) == {"b": ["I"]}


def test_relation_messages_of_dropped_changes_are_kept_for_later_batches() -> None:
    relmap = LogicalRepRelMap()
    first = batch([A, Insert(1, row("1", "x"))])
    assert runs_of(first, relmap, {}) == {}
    second = batch([Insert(1, row("2", "x"))])
    assert shape(runs_of(second, relmap)) == {"a": ["I"]}


def test_two_relations_with_one_target_keep_commit_order() -> None:
    renamed = relation(2, "a", "id", "v")
    taken = batch(
        [A, Insert(1, row("1", "x")), renamed, Insert(2, row("2", "x"))],
        [Delete(1, "K", row("1", "")), Insert(2, row("1", "y"))],
    )
    runs = runs_of(taken)
    assert shape(runs) == {"a": ["I", "I", "D", "I"]}


def test_row_changes_are_counted_by_operation() -> None:
    taken = batch(
        [A, Insert(1, row("1", "x")), B, Insert(2, row("1", "x"))],
        [Update(1, None, None, row("1", "y")), Delete(2, "K", row("1", ""))],
        [Truncate(False, False, (2,)), Insert(2, row("3", "x"))],
    )
    assert work_of(runs_of(taken).values())["rows"] == {
        "insert": 2,
        "update": 1,
        "truncate": 1,
    }
    assert work_of([]) == {"rows": {}, "unchanged_toast_values": 0}


def test_unchanged_large_values_are_counted_where_the_change_is_taken() -> None:
    unsent = TupleColumn(ColumnStatus.UNCHANGED, b"")
    large = row("1")[0]
    taken = batch(
        [A, Update(1, None, None, (large, unsent)), Insert(1, row("2", "x"))],
        [Update(1, "K", row("1", ""), (large, unsent)), B, Update(2, None, None, (large, unsent))],
        [Update(2, None, None, row("1", "y"))],
    )
    assert work_of(runs_of(taken).values())["unchanged_toast_values"] == 3
    second = np.array([False, True, True])
    assert work_of(runs_of(taken, takes=second).values())["unchanged_toast_values"] == 2
