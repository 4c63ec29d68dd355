"""Cases against sides that only pretend: what is asked of whom, and what is made of the figures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from tests.bench import cases, run
from tests.bench.core import COLUMNS
from tests.bench.figures import verdicts
from tests.bench.rehearsal import Rehearsal
from tests.bench.results import TARGETS, targets


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    """A table's n-th batch takes n seconds; ten times as long where keys are looked for, and half
    as long in a lake table of format 3."""
    made = Rehearsal()
    batches: dict[tuple[str, int], int] = {}

    def backlog(side: Any, table: str, write: Callable[[], None]) -> dict[str, Any]:
        write()
        place = (table, len(side.formats))
        batches[place] = batches.get(place, 0) + 1
        slower = 10 if table in side.options else 1
        faster = 2 if side.formats[-1] == 3 else 1
        taken = batches[place] * slower / faster
        return {"s": taken, "cpu_s": taken, "rss_mb": {"apply worker": 100.0}}

    monkeypatch.setattr(made, "backlog", backlog)
    return made


NEWER = next(names for names in run.LONG if names.startswith("update_random"))
LARGE = next(names for names in run.CASES if names.startswith("freshness"))


@pytest.mark.parametrize("names", [LARGE, NEWER, "key_probe"])
def test_a_case_records_what_the_page_shows(bench: Rehearsal, names: str) -> None:
    {**run.CASES, **run.LONG}[names](bench)
    assert [entry["case"] for entry in bench.results] == names.split()
    seen = tomllib.loads(TARGETS.read_text())["seen"]
    for entry in bench.results:
        aims = [target for target in targets() if target["case"] == entry["case"]]
        assert len(verdicts(entry, aims)) == len(aims)
        assert {f"ours_{row['shows']}" for row in seen if row["case"] == entry["case"]} <= set(
            entry
        )
    assert bench.ours.tables == bench.native.tables == {}


def test_tables_of_format_3_are_made_for_ours_beside_the_native_one(bench: Rehearsal) -> None:
    cases.changes(bench, 3, format_version=3)
    assert (bench.ours.formats, bench.native.formats) == ([3], [2])
    found = {entry["case"]: entry for entry in bench.results}
    for case, native in (("update_random_v3", 2.0), ("delete_random_v3", 5.0)):
        newer = found[case]
        assert (newer["native_s"], newer["ours_s"], newer["ratio"]) == (native, native / 2, 2.0)


def test_a_large_table_has_its_rows_before_anything_is_measured(bench: Rehearsal) -> None:
    cases.large_table(bench, 3, inserts=1, mixed=1)
    for side in ("ours", "native"):
        to_table = [said for said in bench.publisher.statements if f" t0_{side} " in said]
        filled = to_table.index(f"INSERT INTO t0_{side} ({COLUMNS}) SELECT * FROM made(1, 3000)")
        changed = [n for n, said in enumerate(to_table) if said.startswith(("UPDATE", "DELETE"))]
        assert filled < min(changed)
    found = {entry["case"]: entry for entry in bench.results}
    assert [entry["of"] for entry in bench.results] == [3000] * 4
    assert found["freshness_mixed"]["seconds"] == 1
    assert (found["update_random"]["rows"], found["delete_random"]["ours_s"]) == (200, 5.0)


def test_what_a_look_for_keys_costs(bench: Rehearsal) -> None:
    cases.key_probe(bench, 3)
    assert bench.ours.options == {
        "probed_error": {"on_key_conflict": "error"},
        "probed_keys": {"keys": [["number"]]},
    }
    assert bench.native.formats == []
    [entry] = bench.results
    # The first of four is not counted.
    assert entry["ours_runs_s"] == [2.0, 3.0, 4.0]
    assert entry["ours_error_runs_s"] == entry["ours_keys_runs_s"] == [20.0, 30.0, 40.0]
    assert (entry["ours_s"], entry["ours_error_s"], entry["ours_keys_s"]) == (3.0, 30.0, 30.0)
    assert (entry["ours_error_ratio"], entry["ours_keys_ratio"]) == (10.0, 10.0)
    inserted = [s for s in bench.publisher.statements if s.startswith("INSERT INTO probed_keys")]
    batches = inserted[1:]
    assert inserted[0].endswith("generate_series(1, 1000) n")
    assert len(batches) == 4 * 10
    assert batches[0].endswith("generate_series(1001, 1010) n")
    assert batches[-1].endswith("generate_series(1391, 1400) n")


def test_the_quick_check_plays_what_it_has_on_record(bench: Rehearsal) -> None:
    run.QUICK["update_random delete_random"](bench)
    assert [entry["case"] for entry in bench.results] == ["update_random", "delete_random"]
    names = [name for names in run.QUICK for name in names.split()]
    assert set(json.loads(run.QUICK_RECORD.read_text())) == set(names)
