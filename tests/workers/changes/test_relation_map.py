"""The Relation messages in force, and a change without a Relation message."""

from __future__ import annotations

import pytest

from catalog.errcodes import ProtocolViolation
from tests.workers.transactions import batch, relation, row
from workers.changes.by_table import frame_batch
from workers.changes.relation_map import LogicalRepRelMap
from workers.proto.messages import Insert, Truncate

A = relation(1, "a", "id", "v")
WIDER = relation(1, "a", "id", "v", "w")


def test_a_change_of_a_relation_never_described_is_a_protocol_error() -> None:
    taken = batch([Insert(9, row("1", "x"))])
    with pytest.raises(ProtocolViolation, match="no relation map entry for remote relation ID 9"):
        frame_batch(taken, LogicalRepRelMap())
    taken = batch([Truncate(False, False, (9,))])
    with pytest.raises(ProtocolViolation, match="no relation map entry"):
        frame_batch(taken, LogicalRepRelMap())


def test_an_equal_message_changes_nothing_but_is_announced() -> None:
    relmap = LogicalRepRelMap()
    assert relmap.update(A)
    assert relmap.take_announced() == {A}
    assert not relmap.update(A)
    assert relmap.take_announced() == {A}
    assert relmap.take_announced() == set()


def test_a_copy_keeps_the_message_that_was_in_force() -> None:
    relmap = LogicalRepRelMap()
    relmap.update(A)
    before = relmap.copy()
    assert relmap.update(WIDER)
    assert (before.open(1), relmap.open(1)) == (A, WIDER)
