"""When the launcher's lake server is replaced; and where rows are staged for it."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure
from config.lake import hint_beside
from config.limits import LAKE_REPLACE_FIRST_SECONDS, LAKE_REPLACE_LONGEST_SECONDS
from subscriber.launcher.lake_process import LakeChild, LakeEvent
from tests.subscriber.fake_launcher import COUNT
from tests.subscriber.launcher_family import Family, reported
from tests.waiting import wait_until
from workers.lake.connect.lake_url import COMMIT_SERVICE, GATEWAY


class Process:
    pid = 1

    def __init__(self) -> None:
        self.status: int | None = None

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.status = -9


class Server:
    def __init__(self) -> None:
        self.process = Process()

    def poll_ready(self) -> str | None:
        return f"sc://lake/;token=t;{GATEWAY}=1.secret"

    def stop(self, timeout: float = 0) -> None:
        self.process.kill()


class Starter:
    def __init__(self) -> None:
        self.servers: list[Server] = []

    def prepare(self) -> None: ...

    def start(self, pass_fds: Sequence[int]) -> Server:
        self.servers.append(Server())
        return self.servers[-1]


@pytest.fixture
def starter() -> Starter:
    return Starter()


@pytest.fixture
def child(starter: Starter) -> LakeChild:
    """It is up; ``poll`` takes the time that a test gives it."""
    child = LakeChild(starter, None, [], lambda: None)
    child.begin()
    wait_up(child, 0)
    return child


def wait_up(child: LakeChild, now: float) -> None:
    wait_until(lambda: child.poll(now) is LakeEvent.UP, what="it is up")


def test_a_broken_server_is_replaced_and_not_at_once_again(
    child: LakeChild, starter: Starter
) -> None:
    now = child._started_at + LAKE_REPLACE_FIRST_SECONDS + 1
    child.replace(now)
    assert starter.servers[0].process.status == -9
    assert child.poll(now) is LakeEvent.DOWN
    assert child.url is None
    child.replace(now)  # there is none: a second worker says the same
    wait_up(child, now)
    child.replace(child._started_at + 2 * LAKE_REPLACE_FIRST_SECONDS - 1)
    assert starter.servers[1].process.status is None
    child.replace(child._started_at + 2 * LAKE_REPLACE_FIRST_SECONDS + 1)
    assert starter.servers[1].process.status == -9


def test_one_that_lived_long_is_replaced_as_the_first(child: LakeChild, starter: Starter) -> None:
    for age in (LAKE_REPLACE_FIRST_SECONDS + 1, LAKE_REPLACE_LONGEST_SECONDS + 1):
        now = child._started_at + age
        child.replace(now)
        assert child.poll(now) is LakeEvent.DOWN
        wait_up(child, now)
    child.replace(child._started_at + 2 * LAKE_REPLACE_FIRST_SECONDS + 1)
    assert starter.servers[2].process.status == -9


def test_a_server_of_somebody_else_s_is_left_alone(starter: Starter) -> None:
    child = LakeChild(starter, "sc://theirs", [], lambda: None)
    child.begin()
    assert child.poll(0) is LakeEvent.UP
    child.replace(LAKE_REPLACE_FIRST_SECONDS * 1000)
    assert child.url == "sc://theirs"
    assert not starter.servers


def test_beside_a_server_of_somebody_else_s_a_commit_service_runs(starter: Starter) -> None:
    """The workers have a URL while the commit service is up; its sessions are not the workers'."""
    child = LakeChild(starter, "sc://theirs:15002", [], lambda: None, commit_service=True)
    assert not child.has_sessions
    child.begin()
    wait_up(child, 0)
    own = starter.servers[0].poll_ready()
    assert child.own_url == own
    assert child.url == f"sc://theirs:15002/;{COMMIT_SERVICE}=1.secret"
    starter.servers[0].process.status = -9
    assert child.poll(100) is LakeEvent.DOWN
    assert {child.url, child.own_url} == {None}
    assert child._start_at is not None
    wait_up(child, child._start_at)
    assert len(starter.servers) == 2


class Dying(Server):
    """Dies while it starts."""

    def poll_ready(self) -> str | None:
        raise ConnectionFailure("the lake server ended with status -9")


@dataclass
class Unlucky(Starter):
    """The first ``deaths`` servers die while they start."""

    deaths: int
    servers: list[Server] = field(default_factory=list)

    def start(self, pass_fds: Sequence[int]) -> Server:
        self.servers.append(Dying() if len(self.servers) < self.deaths else Server())
        return self.servers[-1]


def failed(child: LakeChild, now: float) -> float:
    """The next start is due after so many seconds."""
    wait_until(lambda: child.poll(now) is None and child._start_at is not None, what="it failed")
    assert child._start_at is not None
    return child._start_at - now


def test_a_first_server_that_dies_while_it_starts_is_started_again() -> None:
    child = LakeChild(Unlucky(2), None, [], lambda: None)
    child.begin()
    assert failed(child, 0) == 5
    assert failed(child, 5) == 10
    wait_up(child, 15)


def test_a_first_server_may_die_as_often_as_it_likes_where_there_are_subscriptions() -> None:
    child = LakeChild(Unlucky(10), None, [], lambda: None, keeps_trying=True)
    child.begin()
    waits, now = [], 0.0
    for _ in range(10):
        waits.append(failed(child, now))
        now += waits[-1]
    assert waits == [5, 10, 20, 40, 80, 120, 120, 120, 120, 120]
    wait_up(child, now)


def test_a_first_server_that_always_dies_is_an_error() -> None:
    child = LakeChild(Unlucky(100), None, [], lambda: None)
    child.begin()
    failed(child, 0)
    failed(child, 5)
    with pytest.raises(ConnectionFailure, match="ended with status -9"):
        wait_until(lambda: child.poll(15) is LakeEvent.UP, what="it is up")


def test_a_later_server_may_die_while_it_starts_as_often_as_it_likes() -> None:
    starter = Unlucky(0)
    child = LakeChild(starter, None, [], lambda: None)
    child.begin()
    wait_up(child, 0)
    starter.deaths = 10
    starter.servers[0].process.status = -9
    assert child.poll(100) is LakeEvent.DOWN
    assert child._start_at is not None
    waits, now = [], child._start_at
    for _ in range(9):
        waits.append(failed(child, now))
        now += waits[-1]
    assert waits == [5, 10, 20, 40, 80, 120, 120, 120, 120]
    wait_up(child, now)


class Unprepared(Starter):
    def prepare(self) -> None:
        raise ConnectionFailure("could not resolve", hint="Install Java.")


@pytest.mark.parametrize(
    ("remote", "hint"),
    [(None, "Install Java."), ("sc://theirs", hint_beside("Install Java."))],
)
def test_a_commit_service_that_cannot_start_names_the_way_out(
    remote: str | None, hint: str
) -> None:
    child = LakeChild(Unprepared(), remote, [], lambda: None, commit_service=True)
    child.begin()
    with pytest.raises(ConnectionFailure) as caught:
        wait_until(lambda: child.poll(0) is LakeEvent.UP, what="it is up")
    assert caught.value.hint == hint


def test_preparations_that_fail_are_an_error_at_once() -> None:
    child = LakeChild(Unprepared(), None, [], lambda: None)
    child.begin()
    with pytest.raises(ConnectionFailure, match="could not resolve"):
        wait_until(lambda: child.poll(0) is LakeEvent.UP, what="it is up")


def test_rows_are_staged_where_the_lake_of_the_start_sees_them(tmp_path: Path) -> None:
    """A file that names another Spark with another place counts at the next start, both of it."""
    with Family(tmp_path / "d") as family:
        (subid,) = family.subscribe("lake")
        launcher = family.start(remote="sc://cluster:15002", staging="/shared")
        first = family.await_worker(subid)
        family.store.put_settings({"spark": {"remote": "sc://other:15002", "staging": "/other"}})
        launcher.send_signal(signal.SIGHUP)
        said = "lake.catalog and spark cannot be changed without restarting"
        wait_until(lambda: said in family.log(), 10, family.log)
        family.kill(first.pid)
        generation = family.await_worker(subid, after=first.generation).generation

        def told() -> bool:
            row = family.worker(subid)
            assert row is None or row.generation == generation
            return row is not None and (row.phase, row.progress) == (
                "sc://cluster:15002",
                {"staging": "/shared"},
            )

        wait_until(told, 20, family.log)


def test_a_lake_server_that_dies_is_replaced_and_workers_hear_of_it(family: Family) -> None:
    (subid,) = family.subscribe("lake")
    family.store.hand_over_spark_session("me", "of the server before", time.time())
    family.start()
    reported(family, subid, "phase", "sc://localhost:1")
    assert family.store.take_spark_session(subid, 7, 1) is None
    family.store.hand_over_spark_session("me", "of this one", time.time())
    family.kill(family.status().lake_pid)
    reported(family, subid, "phase", "sc://localhost:2")
    assert family.store.take_spark_session(subid, 7, 1) is None
    assert (family.data_dir / COUNT).read_text() == "2"
    assert "lake server ended with status -9" in family.log()


def test_a_remote_lake_has_no_server_of_ours(family: Family) -> None:
    (subid,) = family.subscribe("lake")
    family.store.hand_over_spark_session("me", "it knows this", time.time())
    family.start(remote="sc://cluster:15002")
    reported(family, subid, "phase", "sc://cluster:15002")
    assert family.store.take_spark_session(subid, 7, 1) == ("me", "it knows this")
    assert family.status().lake_pid is None
    assert not (family.data_dir / COUNT).exists()


def test_a_lake_that_cannot_be_started_ends_the_family(family: Family) -> None:
    family.subscribe("steady")
    launcher = family.begin(no_java=True)
    _, said = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert "sqlstate=55000 no Java" in said
    assert "HINT:  Install one." in said
