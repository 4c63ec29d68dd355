"""The long cases against sides that only pretend: each runs to its end and records what it must."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from catalog.pg_lsn import LSN
from tests.bench import long_cases, run
from tests.bench.core import Bench
from tests.bench.figures import verdicts
from tests.bench.load import Change, Written
from tests.bench.results import targets
from tests.bench.sides import Begun

ROWS = 10_000
LARGEST = 30_000
DELAY = timedelta(seconds=0.5)


class Pretended:
    """A side on which everything is visible when it is asked for."""

    def __init__(self, name: str, role: str) -> None:
        self.name = name
        self.moves: list[tuple[datetime, LSN]] = []
        self.tables: dict[str, str] = {}
        self.dropped: list[str] = []
        self._role = role

    def subscribe(self, publication: str, tables: dict[str, str], *, copy_data: bool) -> Begun:
        assert copy_data
        assert not self.tables, "it has a subscription"
        self.tables = tables
        return Begun(0.0, 0.0)

    def unsubscribe(self) -> None:
        self.tables = {}

    def wait_synced(self, tables: list[str]) -> None:
        assert set(tables) == set(self.tables)

    def wait_visible(self, table: str, target: LSN) -> None:
        assert table in self.tables
        if not self.moves or target >= self.moves[-1][1]:
            self.moves.append((datetime.now(UTC) + DELAY, LSN(target + 1)))

    def publications_of(self, table: str) -> list[tuple[datetime, LSN]]:
        assert table in self.tables
        return self.moves

    def count(self, table: str) -> int:
        return ROWS

    def query_alone(self, table: str) -> float:
        return 0.25

    def scan(self, table: str, columns: str) -> tuple[float, int]:
        return (1.0 if table.endswith("_fresh") else 1.25), 7

    def rewritten(self, table: str) -> str:
        return f"{table}_fresh"

    def drop(self, table: str) -> None:
        self.dropped.append(table)

    def files(self, table: str) -> dict[str, float]:
        return {"files": 3}

    def application_name(self) -> str:
        return self.name

    def pids(self) -> dict[int, str]:
        return {os.getpid(): self._role}

    def cpu_seconds(self) -> float:
        return 0.0

    def on_disk(self) -> dict[str, float]:
        return {"spool_mb": 12.0}


class Publisher:
    """Takes every statement."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def run(self, *statements: str) -> None:
        self.statements += statements

    def value(self, query: str, args: Any = None) -> int:
        return ROWS


class Rehearsal(Bench):
    """The benchmark at a thousandth, without a server."""

    def __init__(self) -> None:
        self.publisher: Any = Publisher()
        self.ours: Any = Pretended("ours", "apply worker")
        self.native: Any = Pretended("native", "logical replication apply worker")
        self.scale = 0.001
        self.results: list[dict[str, Any]] = []
        self.tell = lambda entry: None
        self._cases = 0
        self._position = 0

    @contextmanager
    def held(self, side: Any) -> Iterator[None]:
        yield

    def transaction(self, *statements: str) -> LSN:
        self.publisher.run(*statements)
        self._position += 10
        return LSN(self._position)

    def paced(self, seconds: float, rate: float, change: Change) -> Written:
        return [(self.transaction(), datetime.now(UTC)) for _ in range(int(seconds * rate))]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.setattr(os, "sync", lambda: None)
    return Rehearsal()


@pytest.mark.parametrize("names", run.LONG)
def test_a_case_records_what_its_targets_are_about(bench: Rehearsal, names: str) -> None:
    run.LONG[names](bench)
    assert [entry["case"] for entry in bench.results] == names.split()
    for entry in bench.results:
        aims = [target for target in targets() if target["case"] == entry["case"]]
        assert len(verdicts(entry, aims)) == len(aims) > 0
        assert {"native_s", "ours_s"} <= set(entry)
    assert bench.ours.tables == bench.native.tables == {}


def test_a_table_grows_to_thirty_times_its_size(bench: Rehearsal) -> None:
    long_cases.growth(bench, 3)
    made = [s for s in bench.publisher.statements if "FROM made(" in s and "t0_ours" in s]
    assert len(made) == 30
    assert made[0].endswith("made(1, 1000)")
    assert made[1].endswith("made(1000 + 1, 2000)")
    assert made[-1].endswith(f"made(29000 + 1, {LARGEST})")
    updates = [s for s in bench.publisher.statements if s.startswith("UPDATE t0_ours")]
    assert len(updates) == 2 * 2 * (3 + 1)
    assert [len(entry["ours_runs_s"]) for entry in bench.results] == [3, 3]
    assert [entry["ours_growth"] for entry in bench.results] == [
        pytest.approx(1.0, abs=0.05),
        pytest.approx(1.0, abs=0.05),
    ]


def test_a_scan_is_measured_against_a_fresh_copy(bench: Rehearsal) -> None:
    long_cases.reader(bench, 1800, 3)
    [entry] = bench.results
    assert (entry["ours_s"], entry["ours_fresh_s"], entry["ours_scan_ratio"]) == (1.25, 1.0, 1.25)
    assert bench.ours.dropped == ["t0_ours_fresh"]


def test_a_copy_that_differs_is_no_measure(
    bench: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = iter(range(100))
    monkeypatch.setattr(Pretended, "scan", lambda *_: (1.0, next(sums)))
    with pytest.raises(SystemExit, match="do not hold the same rows"):
        long_cases.reader(bench, 1800, 3)


def test_a_large_transaction_is_plotted(bench: Rehearsal) -> None:
    long_cases.transaction(bench)
    [entry] = bench.results
    assert entry["series_of"] == ["at_s", "worker_mb", "spool_mb"]
    assert entry["native_series"][0][2] == entry["native_spool_mb"] == 12.0
    # The system counts pages of each processor apart, so the two may differ by some.
    assert entry["ours_mb"] >= entry["ours_rss_mb"]["apply worker"] - 1
