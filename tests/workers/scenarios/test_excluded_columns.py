"""No value of an excluded column reaches the lake, whatever the publisher's owner does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.apply.test_follow_schema import Publisher, rows, shape, worker
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    Relation,
    TupleColumn,
    Update,
)
from workers.publisher.table_shape import TableShape
from workers.sync.copied_columns import CopiedColumns

WITH_SSN = relation(1, "a", "id", "ssn", "v")
UNSENT = TupleColumn(ColumnStatus.UNCHANGED)


@pytest.fixture
def publisher() -> Publisher:
    found = Publisher()
    found.shape = shape("id", "ssn", "v")
    return found


@pytest.fixture
def excluded(world: Subscribed, publisher: Publisher) -> Subscribed:
    """Table ``a`` (id, ssn, v) has a row; ``ssn`` is excluded, and remembered as column 2."""
    world.declare("a", excluded=("ssn",))
    worker(world, publisher).apply_batch(batch([WITH_SSN, Insert(1, row("1", "777", "10"))]))
    publisher.asked = 0
    return world


def test_the_values_are_not_in_the_lake(excluded: Subscribed, publisher: Publisher) -> None:
    """Also if the publisher does not send a large value of the column, or sends none at all."""
    changes: list[Message] = [
        WITH_SSN,
        Insert(1, row("2", "778", "20")),
        Insert(1, row("3", "779", "30")),
        Update(1, None, None, (*row("1"), UNSENT, *row("11"))),
        Delete(1, "K", row("3", "", "")),
    ]
    worker(excluded, publisher).apply_batch(batch(changes, after=100))
    assert rows(excluded) == [{"id": 1, "v": 11}, {"id": 2, "v": 20}]
    assert publisher.asked == 0


def test_a_value_that_no_lake_column_could_hold_does_no_harm(
    excluded: Subscribed, publisher: Publisher
) -> None:
    changes: list[Message] = [WITH_SSN, Insert(1, row("2", "no number", "20"))]
    worker(excluded, publisher).apply_batch(batch(changes, after=100))
    assert rows(excluded) == [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


@pytest.mark.parametrize("mode", ["follow", "stop", "suspend"])
@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("id", "social", "v"), (1, 2, 3)),  # renamed
        (("id", "v", "ssn"), (1, 2, 3)),  # two names swapped
        (("id", "social", "v", "ssn"), (1, 2, 3, 4)),  # renamed, and another one under the name
    ],
)
def test_another_name_stops_the_table(
    excluded: Subscribed,
    publisher: Publisher,
    names: tuple[str, ...],
    numbers: tuple[int, ...],
    mode: str,
) -> None:
    publisher.shape = shape(*names, numbers=numbers)
    excluded.declare("a", excluded=("ssn",), on_schema_change=mode, on_error="stop")
    old: list[Message] = [WITH_SSN, Insert(1, row("2", "778", "20"))]
    new: list[Message] = [
        relation(1, "a", *names),
        Insert(1, row("3", *["779"] * (len(names) - 1))),
    ]
    applier = worker(excluded, publisher)
    if mode == "suspend":
        applier.apply_batch(batch(old, new, after=100))
        assert excluded.rel("a").suspended
    else:
        with pytest.raises(ReplicationError) as caught:
            applier.apply_batch(batch(old, new, after=100))
        assert caught.value.code == "55000"
        assert caught.value.hint is not None
        assert "779" not in caught.value.report()
        assert not excluded.rel("a").recopy
    assert rows(excluded) == [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


def test_a_renamed_column_is_named_and_never_copied_again(
    excluded: Subscribed, publisher: Publisher
) -> None:
    publisher.shape = shape("id", "v", "ssn")
    message = relation(1, "a", "id", "v", "ssn")
    with pytest.raises(ReplicationError) as caught:
        worker(excluded, publisher).apply_batch(
            batch([message, Insert(1, row("3", "779", "30"))], after=100)
        )
    assert caught.value.primary == 'excluded column "ssn" of table "public.a" is column "v" now'
    assert caught.value.detail == "Its values would go to the lake under another name."
    assert not excluded.rel("a").recopy


def test_a_dropped_column_is_followed(excluded: Subscribed, publisher: Publisher) -> None:
    """And a column of its name that is added later is excluded, too."""
    publisher.shape = TableShape(
        1, shape("id", "v", numbers=(1, 3)).columns, frozenset({2}), {1: 5}
    )
    less = relation(1, "a", "id", "v")
    worker(excluded, publisher).apply_batch(batch([less, Insert(1, row("2", "20"))], after=100))
    publisher.shape = replace(
        publisher.shape, columns=shape("id", "v", "w", numbers=(1, 3, 4)).columns
    )
    more = relation(1, "a", "id", "v", "w")
    worker(excluded, publisher).apply_batch(
        batch([more, Insert(1, row("3", "30", "300"))], after=200)
    )
    publisher.shape = replace(
        publisher.shape, columns=shape("id", "v", "w", "ssn", numbers=(1, 3, 4, 5)).columns
    )
    again = relation(1, "a", "id", "v", "w", "ssn")
    worker(excluded, publisher).apply_batch(
        batch([again, Insert(1, row("4", "40", "400", "777"))], after=300)
    )
    assert rows(excluded) == [
        {"id": 1, "v": 10, "w": None},
        {"id": 2, "v": 20, "w": None},
        {"id": 3, "v": 30, "w": 300},
        {"id": 4, "v": 40, "w": 400},
    ]
    stored = excluded.lake.tables[LakeIdent("public", "a")].publisher_columns or ""
    assert '"guarded":[[5,"ssn"' in stored


@pytest.mark.parametrize("again", [(), ("ssn",)])
def test_a_new_name_in_place_of_a_dropped_column_may_be_the_column(
    world: Subscribed, publisher: Publisher, again: tuple[str, ...]
) -> None:
    """Trace: ssn is renamed to social; a row; social is dropped, and another social is added.

    ``again``: the name is another column's by then. The row has the values of ssn, and comes under
    a name and a type that the shape has.
    """
    world.declare("a", excluded=("ssn",), on_error="stop")
    publisher.shape = shape("id", "v", "ssn")
    before = relation(1, "a", "id", "v", "ssn")
    worker(world, publisher).apply_batch(batch([before, Insert(1, row("1", "10", "777"))]))
    publisher.shape = shape(*("id", "v", "social", *again), numbers=(1, 2, 4, 5)[: 3 + len(again)])
    between = relation(1, "a", "id", "v", "social", *again)
    with pytest.raises(ReplicationError) as caught:
        worker(world, publisher).apply_batch(
            batch([between, Insert(1, row("2", "20", "778", *again and "9"))], after=100)
        )
    assert caught.value.primary == 'excluded column "ssn" of table "public.a" is not there any more'
    assert rows(world) == [{"id": 1, "v": 10}]


def test_another_type_of_the_column_changes_nothing(
    excluded: Subscribed, publisher: Publisher
) -> None:
    columns = publisher.shape.columns
    retyped = replace(columns[1], typid=25)
    publisher.shape = replace(publisher.shape, columns=(columns[0], retyped, columns[2]))
    sent = WITH_SSN.columns
    message = replace(WITH_SSN, columns=(sent[0], replace(sent[1], typid=25), sent[2]))
    for n in (2, 3):
        worker(excluded, publisher).apply_batch(
            batch([message, Insert(1, row(str(n), "text", "20"))], after=100 * n)
        )
    assert rows(excluded) == [{"id": n, "v": v} for n, v in ((1, 10), (2, 20), (3, 20))]
    assert not excluded.store.schema_changes()
    assert publisher.asked == 1


def test_a_key_cannot_be_excluded(excluded: Subscribed, publisher: Publisher) -> None:
    excluded.identity = {"ssn": True}
    keyed = relation(1, "a", "id", "ssn", "v", key="ssn")
    with pytest.raises(ReplicationError) as caught:
        worker(excluded, publisher).apply_batch(
            batch([keyed, Insert(1, row("2", "778", "20"))], after=100)
        )
    assert caught.value.code == "22023"
    assert caught.value.primary == 'column "ssn" of table "public.a" cannot be excluded'
    assert rows(excluded) == [{"id": 1, "v": 10}]


def test_rows_that_differ_in_the_column_alone_are_equal_under_full(
    excluded: Subscribed, publisher: Publisher
) -> None:
    """One of them is deleted, and one is changed: it does not matter which."""
    full = relation(1, "a", "id", "ssn", "v", identity="f")
    equal: list[Message] = [full, *(Insert(1, row("2", str(n), "20")) for n in range(3))]
    worker(excluded, publisher).apply_batch(batch(equal, after=100))
    changed: list[Message] = [
        full,
        Delete(1, "O", row("2", "1", "20")),
        Update(1, "O", row("2", "2", "20"), row("2", "2", "21")),
        Update(1, "O", row("2", "0", "20"), row("2", "5", "20")),
    ]
    worker(excluded, publisher).apply_batch(batch(changed, after=200))
    found = sorted((each["id"], each["v"]) for each in rows(excluded))
    assert found == [(1, 10), (2, 20), (2, 21)]


@pytest.mark.parametrize(
    "message", [relation(1, "a", "id", "social", "v"), relation(1, "a", "id", "v")]
)
def test_a_sync_worker_takes_no_row_without_the_name(
    excluded: Subscribed, message: Relation
) -> None:
    applier = excluded.worker()
    assert excluded.writer is not None
    applier.own_relid, applier.publishes_each_batch = excluded.rel("a").srrelid, True
    applier.schema = CopiedColumns(excluded.store, excluded.writer)
    values: list[Any] = ["3", "779", "30"][: len(message.columns)]
    with pytest.raises(ReplicationError) as caught:
        applier.apply_batch(batch([message, Insert(1, row(*values))], after=100))
    assert caught.value.code == "55000"
    assert rows(excluded) == [{"id": 1, "v": 10}]


def test_a_lake_server_that_changes_no_columns(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No number is remembered, and the name counts."""
    monkeypatch.setattr(MemoryDestination, "changes_columns", False)
    world.declare("a", excluded=("ssn",))
    applier = worker(world, publisher)
    applier.apply_batch(batch([WITH_SSN, Insert(1, row("1", "777", "10"))]))
    renamed = relation(1, "a", "id", "social", "v")
    with pytest.raises(ReplicationError, match=r'"ssn" of table "public\.a" is not there'):
        applier.apply_batch(batch([renamed, Insert(1, row("2", "778", "20"))], after=100))
    assert publisher.asked == 0
    assert rows(world) == [{"id": 1, "v": 10}]
