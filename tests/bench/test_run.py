from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench import run
from tests.bench.results import TARGETS, targets

MORE_IS_BETTER = ("ratio", "tps_ratio", "steady_tps_ratio", "ours_rows_per_cpu_s")
EVERY = run.names_of(run.COLD, run.CASES, run.LONG)


def test_every_result_has_one_name() -> None:
    assert len(EVERY) == len(set(EVERY))


def test_a_target_is_of_a_case_and_has_one_bar() -> None:
    for target in targets():
        assert target["case"] in (*EVERY, run.OF_ALL)
        assert len({"at_least", "at_most"} & set(target)) == 1
        assert ("at_least" in target) == (target["figure"] in MORE_IS_BETTER)


def test_every_case_is_on_the_page() -> None:
    listed = tomllib.loads(TARGETS.read_text())
    shown = {row["case"] for rows in listed.values() for row in rows} - {run.OF_ALL}
    assert shown == set(EVERY)
    aimed = {target["case"] for target in targets()}
    assert shown - aimed == {"key_probe", "copy_first", "walsender"}


@pytest.mark.parametrize(
    ("words", "path", "cases"),
    [
        ([], run.RESULTS, run.names_of(run.CASES)),
        (["--only", "copy"], run.RESULTS, ["copy_1x2m", "copy_4x500k"]),
        (["--long"], run.LONG_RESULTS, run.names_of(run.COLD, run.LONG)),
        (["--long", "--only", "growth_random"], run.LONG_RESULTS, ["growth_random"]),
        (["--only", "wide tpcb"], run.RESULTS, ["wide", "tpcb"]),
        (
            ["--long", "--scale", "0.01"],
            run.SMALL_RESULTS,
            run.names_of(run.COLD, run.LONG),
        ),
        (["--scale", "0.5", "--no-write", "--only", "wide"], None, ["wide"]),
    ],
)
def test_what_the_command_line_asks_for(
    words: list[str], path: Path | None, cases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def measure(
        plays: run.Cases,
        scale: float,
        wanted: Callable[[str], bool],
        kept_in: Path | None,
        *,
        cold: run.Cases,
    ) -> list[dict[str, Any]]:
        asked.extend([kept_in, list(filter(wanted, run.names_of(cold, plays)))])
        return []

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["run", *words])
    assert run.main() == 0
    assert asked == [path, cases]


@pytest.mark.parametrize(
    ("rounds", "status"),
    [
        ([{"copy": 0.5, "insert": 0.4}], 0),
        ([{"copy": 0.49, "insert": 0.4}, {"copy": 0.6, "insert": 0.4}], 0),
        ([{"copy": 0.49, "insert": 0.4}, {"copy": 0.6, "insert": 0.39}], 0),
        ([{"copy": 0.49, "insert": 0.4}, {"copy": 0.4, "insert": 0.4}], 1),
        ([{"copy": 1.0}, {"copy": 1.0}], 1),
    ],
    ids=["as before", "once", "another one", "again", "not measured"],
)
def test_quick_fails_where_a_ratio_is_below_half_of_its_record_twice(
    rounds: list[dict[str, float]],
    status: int,
    quick: Callable[[list[list[dict[str, Any]]]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    coming = [[{"case": case, "ratio": ratio} for case, ratio in each.items()] for each in rounds]
    assert quick(coming) == status
    assert coming == []
    assert ("slipped: " in capsys.readouterr().out) == (len(rounds) > 1)


@pytest.mark.parametrize(
    ("rounds", "status"),
    [
        ([(500.0, 1000.0)], 0),
        ([(513.0, 1000.0), (500.0, 1000.0)], 0),
        ([(513.0, 1000.0), (500.0, 1025.0)], 0),
        ([(513.0, 1000.0), (600.0, 1025.0)], 1),
        ([(0.0, 1025.0), (0.0, 1025.0)], 1),
    ],
    ids=["within", "once", "another one", "again", "all of it"],
)
def test_quick_fails_where_memory_is_above_the_bars_of_all_cases_twice(
    rounds: list[tuple[float, float]],
    status: int,
    quick: Callable[[list[list[dict[str, Any]]]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def entry(case: str, worker: float, python: float) -> dict[str, Any]:
        sizes = {"apply worker": worker, "lake server": 2000.0}
        return {"case": case, "ratio": 1.0, "ours_rss_mb": sizes, "ours_python_mb": python}

    coming = [[entry("copy", 1.0, 1.0), entry("insert", *sizes)] for sizes in rounds]
    assert quick(coming) == status
    assert coming == []
    assert ("slipped: insert ours_" in capsys.readouterr().out) == (len(rounds) > 1)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], int]:
    """Its exit status, where these are measured."""
    record = tmp_path / "record.json"
    record.write_text('{"copy": 1.0, "insert": 0.8}')
    monkeypatch.setattr(run, "QUICK_RECORD", record)

    def play(coming: list[Any]) -> int:
        monkeypatch.setattr(run, "measure", lambda *_, **__: coming.pop(0))
        return run.quick()

    return play


def test_a_case_that_there_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "--long", "--only", "copy_1x2m"])
    with pytest.raises(SystemExit):
        run.main()
    assert "there are copy_first, first_row, update_random_v3" in capsys.readouterr().err


def test_ratios_that_nothing_is_aimed_at_are_printed() -> None:
    entry = {"case": "key_probe", "ours_s": 1.5, "ours_keys_ratio": 2.25, "targets": []}
    assert run.line(entry).split() == ["key_probe", "1.5", "ours_keys_ratio", "2.25"]


def test_a_result_is_printed_with_its_verdicts() -> None:
    entry = {
        "case": "copy_1x2m",
        "ours_s": 5.14,
        "native_s": 7.36,
        "ratio": 1.432,
        "targets": [
            {"figure": "ratio", "at_least": 2.0, "met": False},
            {"figure": "ours_s", "at_most": 6, "met": True},
        ],
        "ratio_with_create": 0.77,
    }
    said = " ".join(run.line(entry).split())
    assert said == (
        "copy_1x2m 5.14 7.36 1.432 ratio 1.432 ≥ 2.0: NO, ours_s 5.14 ≤ 6: yes, (with CREATE 0.77)"
    )
