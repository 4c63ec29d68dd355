"""Feedback never exceeds what is durable, whatever the order of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import InternalError
from workers.stream.flush_position import FlushPositions


def test_a_keepalive_past_a_pending_transaction_confirms_nothing() -> None:
    positions = FlushPositions()
    positions.received(500)
    positions.store_flush_position(500)
    positions.received(510)
    assert positions.get_flush_position(open_transaction=False).flush == 0
    positions.mark_durable(500)
    assert positions.get_flush_position(open_transaction=False).flush == 510


def test_a_partly_received_transaction_holds_the_position_back() -> None:
    positions = FlushPositions()
    positions.store_flush_position(500)
    positions.received(700)
    positions.mark_durable(500)
    assert positions.get_flush_position(open_transaction=True).flush == 500
    assert positions.get_flush_position(open_transaction=False).flush == 700


def test_an_idle_stream_confirms_what_it_received() -> None:
    positions = FlushPositions()
    positions.received(42)
    assert positions.get_flush_position(open_transaction=False).flush == 42


def test_transactions_end_in_order() -> None:
    positions = FlushPositions()
    positions.store_flush_position(500)
    with pytest.raises(InternalError):
        positions.store_flush_position(400)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["commit", "keepalive", "durable", "ask"]), max_size=60))
def test_no_pending_transaction_ends_at_or_before_the_flush_position(events: list[str]) -> None:
    positions = FlushPositions()
    clock = 0
    pending: list[int] = []
    last = 0
    for event in events:
        clock += 10
        if event == "commit":
            positions.store_flush_position(clock)
            positions.received(clock)
            pending.append(clock)
        elif event == "keepalive":
            positions.received(clock)
        elif event == "durable" and pending:
            positions.mark_durable(pending.pop(0))
        told = positions.get_flush_position(open_transaction=False)
        assert not pending or told.flush < pending[0]
        assert told.flush >= last
        assert told.flush <= told.write
        last = told.flush
