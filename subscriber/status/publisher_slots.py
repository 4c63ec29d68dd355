"""Ask the publishers of all subscriptions for the slots, beside the scrape that needs the answers.

A scrape must not hang on a publisher that is frozen. So a short-lived thread per subscription asks,
and the scrape waits a moment at most: an answer that comes later counts for the next scrape. A
subscription has one thread at a time, and an ordinary session, not a walsender: the monitor takes
no ``max_wal_senders`` from the workers. An answer that has grown old is dropped, because a stale
lag would look like a healthy one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from catalog.pg_subscription import Subscription
from config.guc import Settings
from config.monitor_limits import (
    SLOT_ASK_SECONDS,
    SLOT_FRESH_SECONDS,
    SLOT_WAIT_SECONDS,
)
from workers.process.worker_slots import is_wanted
from workers.publisher.slot_lag import SlotLag, fetch_slot_lag

Ask = Callable[[Subscription], SlotLag | None]


@dataclass(frozen=True, slots=True)
class SlotAnswer:
    """The last answer about a slot; ``lag`` is None without a slot, or without an answer."""

    answered: bool
    lag: SlotLag | None
    at: float


class PublisherSlots:
    """The last answers by subscription; any thread may ask. ``clock`` is monotonic."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[int, SlotAnswer] = {}
        self._asking: dict[int, threading.Thread] = {}

    def answers(self, subs: Sequence[Subscription]) -> dict[int, SlotAnswer]:
        """Ask again about every enabled subscription; the answers that are there in a moment."""
        wanted = [sub for sub in subs if is_wanted(sub) and sub.subslotname is not None]
        threads = [self._start(sub) for sub in wanted]
        until = self._clock() + SLOT_WAIT_SECONDS
        for thread in threads:
            thread.join(max(until - self._clock(), 0.0))
        fresh = self._clock() - SLOT_FRESH_SECONDS
        with self._lock:
            known = {sub.oid for sub in wanted}
            self._answers = {oid: each for oid, each in self._answers.items() if oid in known}
            return {oid: each for oid, each in self._answers.items() if each.at >= fresh}

    def _start(self, sub: Subscription) -> threading.Thread:
        with self._lock:
            running = self._asking.get(sub.oid)
            if running is not None and running.is_alive():
                return running
            thread = threading.Thread(
                target=self._run, args=[sub], name="publisher slot", daemon=True
            )
            self._asking[sub.oid] = thread
            thread.start()
            return thread

    def _run(self, sub: Subscription) -> None:
        answered, lag = True, None
        try:
            lag = self._ask(sub)
        except Exception:  # the workers log the same publisher's errors
            answered = False
        with self._lock:
            self._answers[sub.oid] = SlotAnswer(answered, lag, self._clock())


def ask_publisher(sub: Subscription, settings: Settings) -> SlotLag | None:
    """Connect, ask and hang up; raises after ``SLOT_ASK_SECONDS``."""
    from workers.publisher.connect import connect_publisher
    from workers.publisher.password_required import check_connected, check_conninfo

    until = time.monotonic() + SLOT_ASK_SECONDS
    check_conninfo(sub, settings)
    conn: Any = connect_publisher(
        sub, f"{sub.subname} metrics", lambda: time.monotonic() > until, replication=False
    )
    with closing(conn):
        check_connected(conn, sub, settings)
        return fetch_slot_lag(conn, sub.subslotname or "")
