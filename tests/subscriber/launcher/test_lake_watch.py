"""When the launcher kills a lake server that does not answer, and when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure
from config.guc import Settings
from subscriber.launcher import lake_watch
from subscriber.launcher.lake_budget import Health
from subscriber.launcher.lake_watch import LakeWatch
from tests.subscriber.launcher_family import Family
from tests.waiting import wait_until
from workers.process.launcher_client import report_lake_alive

SETTINGS = Settings.model_validate(
    {"lake_heartbeat_interval": "30s", "lake_heartbeat_timeout": "120s"}
)
LAKE = 812
URL = "sc://lake"


class Process:
    pid: int | None = None
    status: int | None = None

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.status = -9

    def wait(self) -> int:
        assert self.status is not None
        return self.status


class Watched:
    """A watch whose processes the test starts and ends."""

    def __init__(self) -> None:
        self.started: list[Process] = []
        self.watch = LakeWatch(self._start)

    def _start(self, words: list[str]) -> Process:
        assert words[0] == str(LAKE)
        assert words[2:] == ["30.0", URL]
        self.started.append(Process())
        return self.started[-1]

    def poll(self, now: float, url: str | None = URL) -> str | None:
        return self.watch.poll(now, url, LAKE if url else None, SETTINGS)

    def run(self, now: float) -> Process:
        """A process that runs since ``now``."""
        assert self.poll(now) is None
        self.started[-1].pid = 7
        assert self.poll(now) is None
        return self.started[-1]


def test_a_server_without_an_answer_for_the_time_is_killed() -> None:
    watched = Watched()
    process = watched.run(0)
    watched.watch.take(LAKE, Health(), 31)
    assert watched.poll(150) is None
    assert watched.watch.next_deadline() == 151
    assert watched.poll(151) == "it has not answered for 120 s"
    assert process.status == -9
    assert watched.watch.next_deadline() is None


def test_a_server_that_never_answered_is_killed() -> None:
    watched = Watched()
    watched.run(0)
    assert watched.poll(119) is None
    assert watched.poll(120) is not None


def test_time_without_a_watching_process_does_not_count() -> None:
    watched = Watched()
    assert watched.poll(0) is None
    assert watched.poll(1000) is None, "the fork server still loads"
    watched.started[0].pid = 7
    assert watched.poll(1000) is None
    watched.started[0].status = 1
    assert watched.poll(1100) is None
    assert len(watched.started) == 1
    assert watched.watch.next_deadline() == 1130
    watched.run(1130)
    assert len(watched.started) == 2
    assert watched.poll(1249) is None
    assert watched.poll(1250) is not None


def test_an_answer_of_a_former_server_does_not_count() -> None:
    watched = Watched()
    watched.run(0)
    watched.watch.take(LAKE - 1, Health(threads=9), 60)
    assert watched.watch.health == Health()
    watched.watch.take(LAKE, Health(threads=3), 60)
    assert watched.watch.health == Health(threads=3)
    assert watched.poll(61, None) is None
    assert watched.started[0].status == -9, "no server, no process"
    assert watched.watch.health == Health()


@pytest.mark.parametrize("off", ["interval", "nobody"])
def test_a_watch_that_is_off(off: str) -> None:
    watched = Watched()
    watch = LakeWatch(None) if off == "nobody" else watched.watch
    settings = SETTINGS.model_copy(update={"lake_heartbeat_interval": 0.0})
    assert watch.poll(0, URL, LAKE, SETTINGS if off == "nobody" else settings) is None
    assert watch.next_deadline() is None
    assert watched.started == []


def test_the_process_ends_with_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    class Heartbeat:
        def __init__(self, *given: object) -> None:
            asked.append(given)

        def beat(self) -> dict[str, int]:
            return {"threads": 1}

    monkeypatch.setattr("workers.lake.server.heartbeat.Heartbeat", Heartbeat)
    monkeypatch.setattr("workers.process.log.setup", lambda *_: None)
    monkeypatch.setattr(lake_watch, "report_lake_alive", lambda *given: asked.append(given))
    assert lake_watch.main(["/data", "812", "a session", "30.0", URL]) == 0
    assert [given[1] for given in asked] == [812, 812]


@pytest.mark.parametrize("error", [ConnectionFailure("no answer"), ValueError("no number")])
def test_a_question_that_fails_in_any_way_has_no_answer(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the process asks again: with its end the launcher would wait the whole time anew."""
    beats = iter([error, error, {"threads": 1}])
    reported: list[object] = []

    class Heartbeat:
        def __init__(self, *given: object) -> None:
            pass

        def beat(self) -> object:
            beat = next(beats)
            if isinstance(beat, Exception):
                raise beat
            return beat

    monkeypatch.setattr("workers.lake.server.heartbeat.Heartbeat", Heartbeat)
    monkeypatch.setattr("workers.process.log.setup", lambda *_: None)
    monkeypatch.setattr(lake_watch, "report_lake_alive", lambda *given: reported.append(given[2]))
    assert lake_watch.main([str(tmp_path), "812", "a session", "0", URL]) == 0
    assert reported == [{"threads": 1}]


def test_an_unhealthy_server_is_replaced_when_all_workers_have_ended(family: Family) -> None:
    """And the workers start again at once: they ended on purpose."""
    subids = family.subscribe("steady")
    family.start(lake_watch=True, lake_replace_first=0)
    before = [family.await_worker(subid) for subid in subids]
    lake = family.status().lake_pid
    assert lake is not None
    fine = {"descriptors": 740, "descriptor_limit": 1000}
    wait_until(lambda: report_lake_alive(family.data_dir, lake, fine), 10, family.log)
    assert family.status().lake_pid == lake

    def replaced() -> bool:
        report_lake_alive(family.data_dir, lake, {**fine, "descriptors": 760})
        return family.status().lake_pid not in (None, lake)

    wait_until(replaced, 20, family.log)
    for row in before:
        family.await_worker(row.subid, after=row.generation)
    log = family.log()
    assert "workers end first: it uses 760 of 1000 descriptors" in log
    assert log.index("action=lake_renew") < log.index("action=lake_broken")
    assert "exited with exit code" not in log
