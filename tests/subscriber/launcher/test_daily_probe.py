"""The lake's catalog is probed once a day, and one that breaks a promise ends the launcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure, FeatureNotSupported, TwoLakes
from config.monitor_limits import CATALOG_PROBE_SECONDS
from subscriber.launcher.daily_probe import FILE_NAME, REFUSED, DailyProbe, main
from tests.subscriber.fake_launcher import PROBES
from tests.subscriber.launcher_family import Family
from tests.subscriber.told_process import ToldProcess
from tests.waiting import wait_until

URL = "sc://localhost:1"
DAY = CATALOG_PROBE_SECONDS


class Probes:
    """A ``DailyProbe`` with processes that are only noted down."""

    def __init__(self) -> None:
        self.started: list[ToldProcess] = []
        self.daily = DailyProbe(self._start, 0.0)

    def _start(self, words: list[str]) -> ToldProcess:
        assert words == [URL]
        self.started.append(ToldProcess())
        return self.started[-1]


def test_one_process_a_day() -> None:
    probes = Probes()
    assert not probes.daily.poll(DAY - 1, URL)
    assert probes.daily.next_deadline() == DAY
    assert not probes.daily.poll(DAY, URL)
    assert probes.daily.next_deadline() is None  # its end wakes the loop
    assert not probes.daily.poll(3 * DAY, URL)  # one at a time
    for status, refused in ((0, False), (1, False), (REFUSED, True)):
        probes.started[-1].status = status
        assert probes.daily.poll(3 * DAY, URL) is refused
        assert not probes.daily.poll(3 * DAY, URL)
        assert not probes.daily.poll(4 * DAY * len(probes.started), URL)
    assert len(probes.started) == 4


def test_a_lake_that_is_down_is_probed_the_next_day() -> None:
    probes = Probes()
    assert not probes.daily.poll(DAY, None)
    assert (probes.started, probes.daily.next_deadline()) == ([], 2 * DAY)


def test_the_default_catalog_is_not_probed() -> None:
    daily = DailyProbe(None, 0.0)
    assert not daily.poll(1e9, URL)
    assert daily.next_deadline() is None


def test_stop_ends_the_process() -> None:
    probes = Probes()
    probes.daily.stop()
    probes.daily.poll(DAY, URL)
    probes.daily.stop()
    assert probes.started[0].killed


def probing(
    monkeypatch: pytest.MonkeyPatch, outcome: Exception | None
) -> list[tuple[str, str, str | None]]:
    """The calls of ``probe_catalog``, each of which ends so."""
    calls: list[tuple[str, str, str | None]] = []

    def probe(url: str, name: str, left: str | None) -> None:
        calls.append((url, name, left))
        if outcome is not None:
            raise outcome

    monkeypatch.setattr("workers.lake.iceberg.catalog_probe.probe_catalog", probe)
    return calls


@pytest.mark.parametrize(
    ("outcome", "status", "said"),
    [
        (None, 0, ""),
        (FeatureNotSupported("no branches"), REFUSED, "sqlstate=0A000 no branches"),
        (TwoLakes("not the same"), REFUSED, "sqlstate=55000 not the same"),
        (ConnectionFailure("nobody there"), 1, "could not probe the lake's catalog: nobody there"),
        (KeyError("x"), 1, "unexpected KeyError while probing"),
    ],
)
def test_a_probe_says_how_it_ended_and_the_next_one_drops_its_table(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    outcome: Exception | None,
    status: int,
    said: str,
) -> None:
    calls = probing(monkeypatch, outcome)
    assert main([str(tmp_path), URL]) == status
    assert said in (tmp_path / "log" / "pgsub.log").read_text()
    ((url, name, left),) = calls
    assert (url, left) == (URL, None)
    assert (tmp_path / FILE_NAME).exists() is (outcome is not None)
    monkeypatch.undo()
    calls = probing(monkeypatch, None)
    assert main([str(tmp_path), URL]) == 0
    assert calls[0][2] == (None if outcome is None else name)
    assert not (tmp_path / FILE_NAME).exists()


def ended(family: Family) -> Callable[[], bool]:
    return lambda: family.launchers[-1].poll() is not None


def test_a_catalog_that_breaks_a_promise_ends_the_launcher(family: Family) -> None:
    launcher = family.begin(probed=REFUSED)
    wait_until(ended(family), 30, family.log)
    assert launcher.returncode == 1
    assert "action=shutdown" in family.log()


def test_a_catalog_that_is_away_ends_nothing(family: Family) -> None:
    launcher = family.start(probed=1)
    probes = family.data_dir / PROBES
    wait_until(lambda: probes.exists() and len(probes.read_text()) > 1, 30, family.log)
    assert family.status_of(launcher, "running")
