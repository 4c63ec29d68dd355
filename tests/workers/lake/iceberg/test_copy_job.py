"""How many tasks a parallel copy has, and how their Python is started ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from catalog.errcodes import ConnectionFailure
from workers.lake.copy_plan import CopyPlan
from workers.lake.copy_task import Turns
from workers.lake.iceberg import copy_job
from workers.lake.iceberg.copy_job import PythonStart, tasks_of


class Server:
    """A Spark server that says what it runs on."""

    def __init__(self, master: str | None, folder: str | None = "/tmp/one,/tmp/two") -> None:
        self.asked = {"spark.master": master, "spark.local.dir": folder}

    def conf(self, key: str) -> str | None:
        return self.asked[key]


def plan_of(ranges: int, workers: int | None) -> CopyPlan:
    return CopyPlan("", None, "", ("COPY",) * ranges, (), workers=workers)


@pytest.mark.parametrize(
    ("master", "workers", "tasks"),
    [
        ("local[2]", None, 10),
        ("local[16]", None, 10),
        ("local[2]", 2, 10),
        ("spark://host:7077", 3, 3),
        ("spark://host:7077", 12, 10),
        (None, 3, 3),
    ],
)
def test_ranges_are_put_together_where_more_could_run_than_may(
    master: str | None, workers: int | None, tasks: int
) -> None:
    assert tasks_of(Server(master), plan_of(10, workers)) == (tasks, None)


@pytest.mark.parametrize("ranges", [1, 3, 10])
def test_tasks_of_one_process_take_turns_with_those_of_all_copies(ranges: int) -> None:
    """Of the server's sixteen tasks at a time three may read."""
    assert tasks_of(Server("local[16]"), plan_of(ranges, 3)) == (ranges, Turns("/tmp/one", 3))
    assert tasks_of(Server("local[16]", None), plan_of(ranges, 3)) == (min(ranges, 3), None)


class Sessions:
    """The sessions of a server on which ``get`` behaves as the test says."""

    def __init__(self, get: Callable[[], Any]) -> None:
        self.get = get
        self.closed = 0

    def close(self) -> None:
        """Count the calls."""
        self.closed += 1


def test_python_is_started_once_and_the_session_is_closed_behind_it() -> None:
    collected: list[str] = []

    class Session(Server):
        spark = MagicMock()

        def collect(self, _frame: object, what: str) -> None:
            collected.append(what)

    sessions = Sessions(lambda: Session("local[2]"))
    started = PythonStart(sessions)
    started.close()
    assert sessions.closed == 0  # nothing was begun
    started.begin()
    started.begin()
    started.close()
    assert (collected, sessions.closed) == (["starting Spark's Python"], 1)


def test_the_python_of_a_cluster_is_the_user_s() -> None:
    sessions = Sessions(lambda: Server("spark://host:7077"))
    started = PythonStart(sessions)
    started.begin()
    started.close()
    assert sessions.closed == 1


def test_a_failure_is_left_to_the_copy_and_a_frozen_server_to_the_process_s_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise ConnectionFailure("the lake server is gone")

    failing = PythonStart(Sessions(fail))
    failing.begin()
    failing.close()
    monkeypatch.setattr(copy_job, "PYTHON_START_SECONDS", 0.01)
    released = threading.Event()

    def stand_still() -> None:
        released.wait()
        fail()

    frozen = Sessions(stand_still)
    started = PythonStart(frozen)
    started.begin()
    started.close()
    assert frozen.closed == 1
    released.set()
