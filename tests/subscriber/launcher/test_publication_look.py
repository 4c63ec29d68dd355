"""When a process looks for tables that joined or left a publication, and how its end is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import IoError
from catalog.pg_subscription import Refresh, SubCreate, Subscription
from config.monitor_limits import PUBLICATION_LOOK_MOST_SECONDS, PUBLICATION_LOOK_SECONDS
from subscriber.launcher.publication_look import PublicationLook
from tests.subscriber.told_process import ToldProcess

PAUSE, MOST = PUBLICATION_LOOK_SECONDS, PUBLICATION_LOOK_MOST_SECONDS
SUB = Subscription("one", "", ("pub",), refresh=Refresh.AUTO, subcreate=SubCreate.READY)


class Looks:
    """Looks whose processes are only noted down, by the name of the subscription."""

    def __init__(self, *subscriptions: Subscription) -> None:
        self.subscriptions = list(subscriptions)
        self.started: list[tuple[str, ToldProcess]] = []
        self.fails: Exception | None = None
        self.look = PublicationLook(self._start, self._read, 0.0)

    def _read(self) -> list[Subscription]:
        if isinstance(self.fails, IoError):
            raise self.fails
        return self.subscriptions

    def _start(self, words: list[str]) -> ToldProcess:
        if self.fails is not None:
            raise self.fails
        (name,) = words
        self.started.append((name, ToldProcess()))
        return self.started[-1][1]

    def poll(self, now: float) -> list[str]:
        """The subscriptions that are looked at from now on."""
        before = len(self.started)
        self.look.poll(now)
        return [name for name, _ in self.started[before:]]

    def end(self, status: int = 0) -> None:
        self.started[-1][1].status = status


def test_one_process_for_each_subscription_with_refresh_auto() -> None:
    others = [
        replace(SUB, subname="manual", refresh=Refresh.MANUAL),
        replace(SUB, subname="disabled", subenabled=False),
        replace(SUB, subname="creating", subcreate=SubCreate.CREATING),
    ]
    looks = Looks(SUB, replace(SUB, subname="two"), *others)
    assert looks.poll(PAUSE - 1) == []
    assert looks.look.next_deadline() == PAUSE
    assert looks.poll(PAUSE) == ["one", "two"]
    assert looks.poll(2 * PAUSE) == []  # one process at a time
    looks.end()
    assert looks.poll(3 * PAUSE) == ["two"]


def test_a_subscription_that_fails_is_looked_at_less_often() -> None:
    looks = Looks(SUB)
    now = 0.0
    waits: list[float] = []
    while len(waits) < 8:
        last = now
        while not looks.poll(now):
            now += PAUSE
        waits.append((now - last) / PAUSE)
        looks.end(status=1)
        looks.poll(now)
    assert waits == [1, 2, 4, 8, 16, 20, 20, 20]
    looks.subscriptions.clear()
    looks.poll(now + MOST)
    looks.subscriptions.append(SUB)
    assert looks.poll(now + MOST + PAUSE) == ["one"]  # disabled and enabled: at once
    looks.end()
    assert looks.poll(now + MOST + 2 * PAUSE) == ["one"]


def test_a_process_that_takes_too_long_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(SUB)
    looks.poll(PAUSE)
    assert looks.poll(PAUSE + MOST - 1) == []
    process = looks.started[0][1]
    assert [process.killed, looks.poll(PAUSE + MOST), process.killed] == [False, [], True]
    assert 'a look for subscription "one" took too long' in "\n".join(caplog.messages)


def test_an_error_is_no_end_of_the_launcher(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(SUB)
    looks.fails = IoError("the disk is full")
    assert looks.poll(PAUSE) == []
    looks.fails = OSError(11, "no more processes")
    assert looks.poll(2 * PAUSE) == []
    assert "action=publication_look could not fork" in "\n".join(caplog.messages)
    looks.fails = None
    assert looks.poll(3 * PAUSE) == ["one"]


def test_stop_ends_the_processes() -> None:
    looks = Looks(SUB)
    looks.poll(PAUSE)
    looks.look.stop()
    assert looks.started[0][1].killed
    none = PublicationLook(None, lambda: [SUB], 0.0)
    none.poll(1e9)
    assert none.next_deadline() is None
