"""When a worker waits for a larger batch, and for how long."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import pytest

from config.limits import (
    BATCH_DELAY_QUIET_SECONDS,
    BATCH_DELAY_TRANSACTIONS,
    DRAIN_BUDGET_NANOSECONDS,
    DRAIN_LONGEST_NAP_NANOSECONDS,
    SMALL_TRANSACTION_CHANGES,
)
from workers.apply import batch_delay
from workers.apply.batch_delay import delay_after, wait_for_more
from workers.process.latch import Latch


@dataclass(slots=True)
class Taken:
    """As much of a batch as counts."""

    ntxns: int
    nchanges: int


@pytest.mark.parametrize(
    ("ntxns", "nchanges", "setting", "expected"),
    [
        (BATCH_DELAY_TRANSACTIONS, BATCH_DELAY_TRANSACTIONS, 1.0, 1.0),
        (BATCH_DELAY_TRANSACTIONS, SMALL_TRANSACTION_CHANGES * BATCH_DELAY_TRANSACTIONS, 0.6, 0.6),
        (BATCH_DELAY_TRANSACTIONS, 4 * BATCH_DELAY_TRANSACTIONS, 0.0, 0.0),
        (BATCH_DELAY_TRANSACTIONS - 1, 4 * BATCH_DELAY_TRANSACTIONS, 1.0, 0.0),
        (
            BATCH_DELAY_TRANSACTIONS,
            SMALL_TRANSACTION_CHANGES * BATCH_DELAY_TRANSACTIONS + 1,
            1.0,
            0.0,
        ),
        (1, 1_000_000, 1.0, 0.0),
    ],
)
def test_only_behind_many_small_transactions_is_there_a_wait(
    ntxns: int, nchanges: int, setting: float, expected: float
) -> None:
    taken = cast("Any", Taken(ntxns, nchanges))
    assert delay_after(taken, setting, 1_000_000) == expected
    prepared = cast("Any", Taken(ntxns, 0))
    assert delay_after(prepared, setting, 1_000_000, prepared_changes=nchanges) == expected


def test_behind_a_batch_that_was_cut_there_is_no_wait() -> None:
    """What it left is here already."""
    taken = cast("Any", Taken(BATCH_DELAY_TRANSACTIONS, 4 * BATCH_DELAY_TRANSACTIONS))
    assert delay_after(taken, 1.0, 4 * BATCH_DELAY_TRANSACTIONS + SMALL_TRANSACTION_CHANGES) == 1.0
    assert (
        delay_after(taken, 1.0, 4 * BATCH_DELAY_TRANSACTIONS + SMALL_TRANSACTION_CHANGES - 1) == 0.0
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only while a latch is waited for."""
    now = [100.0]
    monkeypatch.setattr(batch_delay, "monotonic", lambda: now[0])
    return now


@dataclass(slots=True)
class Arrivals:
    """A latch that is set so many times, each after some seconds."""

    clock: list[float]
    times: int
    after: float

    def wait(self, timeout: float) -> bool:
        self.times -= 1
        came = self.times >= 0 and self.after < timeout
        self.clock[0] += self.after if came else timeout
        return came


@pytest.mark.parametrize(
    ("times", "after", "seconds", "waited"),
    [
        (0, 0.0, 1.0, 0.1),
        (10, 0.02, 1.0, 0.3),
        (1000, 0.02, 1.0, 1.0),
        (1000, 0.02, 0.05, 0.05),
        (3, 0.2, 1.0, 0.1),
    ],
    ids=["nothing comes", "it ceases", "it goes on", "a short wait", "too late"],
)
def test_the_wait_ends_when_nothing_comes_or_the_time_is_over(
    clock: list[float], times: int, after: float, seconds: float, waited: float
) -> None:
    latch = cast("Any", Arrivals(clock, times, after))
    wait_for_more(latch, seconds, lambda: False)
    assert clock[0] - 100 == pytest.approx(waited)


def test_no_turn_of_the_receive_thread_looks_like_silence() -> None:
    longest = DRAIN_BUDGET_NANOSECONDS + DRAIN_LONGEST_NAP_NANOSECONDS
    assert longest * 1.2e-9 < BATCH_DELAY_QUIET_SECONDS


def test_the_wait_ends_as_soon_as_there_is_enough(clock: list[float]) -> None:
    latch = Arrivals(clock, 1000, 0.02)
    wait_for_more(cast("Any", latch), 1.0, lambda: latch.times <= 995)
    assert clock[0] - 100 == pytest.approx(0.1)


def test_a_stop_ends_the_wait() -> None:
    """Whoever asks for one sets the latch."""
    latch, stopped = Latch(), threading.Event()

    def stop() -> None:
        stopped.set()
        latch.set()

    threading.Timer(0.02, stop).start()
    began = monotonic()
    wait_for_more(latch, 60.0, stopped.is_set)
    assert monotonic() - began < 30
    assert stopped.is_set() or monotonic() - began >= BATCH_DELAY_QUIET_SECONDS
