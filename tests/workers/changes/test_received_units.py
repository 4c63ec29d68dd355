"""The units of a batch, and the relations that a prepared transaction uses."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from tests.workers.prepared import Unit, commit, plain, prepare, received, rollback
from tests.workers.transactions import relation, row
from workers.changes.received_units import (
    Prepared,
    has_two_phase,
    joined,
    transaction,
    units,
    walk,
    walk_prepared,
)
from workers.changes.relation_map import LogicalRepRelMap
from workers.proto.messages import (
    BeginPrepare,
    CommitPrepared,
    Insert,
    Message,
    Prepare,
    RollbackPrepared,
    Truncate,
)
from workers.stream.batch import Batch

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
MB = 1 << 20


def a(key: int) -> Insert:
    return Insert(1, row(str(key), "0"))


def test_a_batch_of_ordinary_transactions_has_no_two_phase() -> None:
    ordinary = received(plain(100, A, a(1)), plain(200, a(2)))
    assert not has_two_phase(ordinary)
    (found,) = units(ordinary)
    assert isinstance(found, Batch)
    assert found.ntxns == 2


def test_units_come_in_order_and_neighbours_stay_together() -> None:
    batch = received(
        plain(100, A, a(1)),
        plain(200, a(2)),
        prepare(300, 7, a(3), a(4)),
        plain(400, a(5)),
        commit(500, 7),
        rollback(600, 8, 50),
        plain(700, a(6)),
    )
    assert has_two_phase(batch)
    first, prepared, second, committed, rolled_back, last = units(batch)
    ordinary = [each for each in (first, second, last) if isinstance(each, Batch)]
    assert [each.end_lsn.tolist() for each in ordinary] == [[100, 200], [400], [700]]
    assert isinstance(prepared, Prepared)
    assert (prepared.begin.xid, prepared.begin.gid, prepared.changes) == (7, "g7", 2)
    assert isinstance(committed, CommitPrepared)
    assert isinstance(rolled_back, RollbackPrepared)


def test_an_empty_name_and_one_of_many_bytes() -> None:
    for gid in ("", "é" * 90):
        data = (LSN(99), LSN(100), 0, 7, gid)
        messages: list[Message] = [BeginPrepare(*data), A, a(1), Prepare(*data)]
        (found,) = units(received(Unit(messages, 99, 100)))
        assert isinstance(found, Prepared)
        assert found.begin.gid == gid


@pytest.mark.parametrize("broken", ["another prepare", "no begin"])
def test_a_unit_that_breaks_the_protocol(broken: str) -> None:
    good, other = prepare(100, 7, A, a(1)).messages, prepare(200, 7).messages
    messages = [*good[:-1], other[-1]] if broken == "another prepare" else good[1:]
    with pytest.raises(ProtocolViolation):
        list(units(received(Unit(messages, 99, 100))))


def test_a_prepared_transaction_s_relations_are_those_in_force_then() -> None:
    """Announced before, announced inside, and truncated without a change."""
    batch = received(
        prepare(100, 7, B, a(1), Insert(2, row("1", "0")), Truncate(False, False, (3,)))
    )
    relmap = LogicalRepRelMap()
    third = relation(3, "c", "id")
    relmap.update(A)
    relmap.update(third)
    (unit,) = units(batch)
    assert isinstance(unit, Prepared)
    used = walk_prepared(batch, unit, relmap, MB)
    assert used.relids == {1, 2, 3}
    assert used.before == {1: A, 3: third}
    assert used.announced == [B]
    assert relmap.get(2) == B


@pytest.mark.parametrize("begins", [True, False], ids=["b P", "P alone"])
def test_a_prepared_transaction_without_changes(begins: bool) -> None:
    """18.4 sends the end alone, which no PostgreSQL subscriber understands."""
    messages = prepare(100, 7).messages
    batch = received(Unit(messages if begins else messages[1:], 99, 100))
    (unit,) = units(batch)
    assert isinstance(unit, Prepared)
    assert walk_prepared(batch, unit, LogicalRepRelMap(), MB).relids == set()


@pytest.mark.parametrize("most_bytes", [1, MB], ids=["record by record", "at once"])
def test_a_walk_moves_the_relations(most_bytes: int) -> None:
    relmap = LogicalRepRelMap()
    walk(received(plain(100, A, a(1)), plain(200, B)), relmap, most_bytes)
    assert (relmap.get(1), relmap.get(2)) == (A, B)


def test_parts_join_to_one_batch() -> None:
    many = received(plain(100, A, a(1)), plain(200, a(2)), plain(300, a(3)))
    parts = [many.part(2, 3), many.part(0, 1)]
    both = joined(parts)
    assert both.end_lsn.tolist() == [300, 100]
    for number, part in enumerate(parts):
        again = both.part(number, number + 1)
        data = again.buf[again.start : again.end].tobytes()
        assert data == part.buf[part.start : part.end].tobytes()
    assert joined([many]) is many


def test_records_become_a_transaction() -> None:
    found = transaction([b"ab", np.frombuffer(b"cd", np.uint8)], [1, 2, 3, 4])
    assert (found.buf.tobytes(), found.commits.tolist()) == (b"abcd", [[4, 1, 2, 3, 4]])
