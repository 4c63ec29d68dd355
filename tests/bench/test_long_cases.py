"""The long cases against sides that only pretend: each runs to its end and records what it must."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.bench import long_cases, run, stream_cases, walsender
from tests.bench.figures import verdicts
from tests.bench.load import Written
from tests.bench.rehearsal import Pretended, Rehearsal
from tests.bench.results import targets

LARGEST = 30_000

OTHERS = ("first_row", "update_random_v3 delete_random_v3", "key_probe", "walsender")
"""What ``cases`` measures, and one that has no sides."""
NOT_NATIVE = ("reader_scan", "spread_10m", "update_5m", "add_column_10m")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.setattr(os, "sync", lambda: None)
    return Rehearsal()


@pytest.mark.parametrize("names", [name for name in run.LONG if name not in OTHERS])
def test_a_case_records_what_its_targets_are_about(bench: Rehearsal, names: str) -> None:
    run.LONG[names](bench)
    assert [entry["case"] for entry in bench.results] == names.split()
    for entry in bench.results:
        aims = [target for target in targets() if target["case"] == entry["case"]]
        assert len(verdicts(entry, aims)) == len(aims) > 0
        assert ("native_s" in entry) == (entry["case"] not in NOT_NATIVE)
        assert "ours_s" in entry
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


def test_a_walsender_by_itself_is_read_in_either_form(
    bench: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def receive(_: Any, binary: str) -> float:
        read.append(binary)
        return 1.5

    monkeypatch.setattr(walsender, "receive", receive)
    walsender.alone(bench, 3)
    assert read == ["true", "false"] * 3
    [entry] = bench.results
    assert (entry["case"], entry["rows"]) == ("walsender", 1000)
    assert (entry["ours_s"], entry["native_s"]) == (1.5, 1.5)
    made = [s for s in bench.publisher.statements if "FROM made(" in s]
    assert len(made) == 6 * 1000
    assert made[-1].endswith("made(999 + 1, 1000)")
    slots = [s.split("(")[0] for s in bench.publisher.statements if "replication_slot(" in s]
    assert len(slots) == 12


def test_a_scan_is_measured_against_a_fresh_copy(bench: Rehearsal) -> None:
    long_cases.reader(bench, 1800, 3)
    [entry] = bench.results
    assert (entry["ours_s"], entry["ours_fresh_s"], entry["ours_scan_ratio"]) == (1.25, 1.0, 1.25)
    assert 0.75 <= entry["ours_lag_s"] <= entry["ours_worst_lag_s"] < 3
    assert bench.ours.dropped == ["t0_ours_fresh"]


def test_a_long_stream_s_snapshots_are_seen_before_they_expire(
    bench: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def load(seconds: float, rate: float, change: Any) -> Written:
        found = Rehearsal.load(bench, seconds, rate, change)
        written.append(len(found))
        bench.ours.wait_visible("t0_ours", found[-1][0])
        return found

    monkeypatch.setattr(bench, "load", load)
    monkeypatch.setattr(Pretended, "publications_of", lambda side, _: side.moves[-1:])
    bench.scale = 0.025
    long_cases.reader(bench, 1800, 3)
    assert written == [500] * 9
    [entry] = bench.results
    assert entry["transactions"] == 4500


def test_subtransactions_and_prepared_transactions_are_numbered(bench: Rehearsal) -> None:
    stream_cases.subtransactions(bench)
    stream_cases.prepared(bench)
    statements = bench.publisher.statements
    blocks = [each for each in statements if each.startswith("\nDO")]
    assert [("FOR n IN 0..9 LOOP" in each, "t0_ours" in each) for each in blocks] == [
        (True, True),
        (True, False),
    ]
    ends = [each for each in statements if "PREPARED" in each]
    assert ends == ["COMMIT PREPARED 't1_native_0'", "COMMIT PREPARED 't1_ours_0'"]
    assert [entry["rows"] for entry in bench.results] == [1000, 100]
    assert bench.ours.with_options == bench.native.with_options == {"two_phase": True}
    assert len(list(bench.streams())) == 2
    assert bench.ours.with_options == bench.native.with_options == {}


def test_small_transactions_are_measured_before_and_beside_a_large_one(bench: Rehearsal) -> None:
    stream_cases.spread(bench)
    (entry,) = bench.results
    assert entry["transactions"] == 1000
    during, alone = entry["ours_s"], entry["ours_alone_s"]
    assert entry["ours_lag_ratio"] == pytest.approx(during / alone, abs=0.01)
    (large,) = [each for each in bench.publisher.statements if each.startswith("\nDO")]
    assert "100000000 + 10000::bigint * n / 120 + 1" in large
    assert [each["figure"] for each in verdicts(entry, targets())] == ["ours_lag_ratio"]


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
