"""What ``make bench-lake`` plays and aims at; no server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import lake
from tests.bench.figures import verdicts
from tests.bench.lake import NAMES, PLACES, aims, plays, rates, wanted_at
from tests.bench.run import names_of


def left_out(place: str) -> set[str]:
    return {case for case in NAMES if not wanted_at(PLACES[place], case, [])}


def test_every_bar_is_of_a_case_that_is_played_there() -> None:
    played = {
        f"{case}_{name}"
        for name, place in PLACES.items()
        for case in names_of(plays(place))
        if wanted_at(place, case, [])
    }
    memory = {aim["case"] for aim in aims() if aim["figure"] == "ours_all_mb"}
    aimed = {aim["case"] for aim in aims() if aim["figure"] != "ours_all_mb"}
    assert aimed <= played
    assert {case for case in played if "_local" not in case} <= aimed
    assert not [case for case in memory if case.startswith(("copy", "spark")) or "local" in case]


def test_a_bar_is_that_of_the_place() -> None:
    entry = {"ratio": 1.3, "ours_s": 1.0}
    met = [
        verdict["met"]
        for case in (
            "insert_1tx_s3",
            "insert_1tx_s3_30ms",
            "freshness_insert_s3",
            "copy_1x2m_local",
            "spark_copy_1x2m_local",
        )
        for verdict in verdicts({"case": case, **entry}, aims())
    ]
    assert met == [False, True, False, True]


def test_memory_has_a_bar_in_every_case_but_copies_and_spark_s() -> None:
    entry = {"ours_all_mb": 1100.0}
    names = ("copy_1x2m_s3", "many_inserts_s3", "update_random_uuid_s3_30ms", "spark_insert_1tx_s3")
    found = [verdicts({"case": name, **entry}, aims()) for name in names]
    missed = [{"figure": "ours_all_mb", "at_most": 1024, "met": False}]
    assert found == [[], missed, missed, []]


def test_what_a_place_leaves_out_is_played_if_it_is_named() -> None:
    assert left_out("s3") == set()
    assert left_out("s3_30ms") == {case for case in NAMES if case.startswith("spark")}
    assert left_out("local") == {case for case in NAMES if case.endswith(("_uuid", "_pair"))}
    delayed = PLACES["s3_30ms"]
    assert wanted_at(delayed, "spark_copy_1x2m", ["spark_copy"])
    assert not wanted_at(delayed, "spark_copy_1x2m", ["copy"])
    assert wanted_at(delayed, "copy_1x2m", ["copy"])
    assert not wanted_at(delayed, "copy_1x2m", ["spark"])


def test_rows_a_second_beside_others() -> None:
    entry = {"case": "copy_1x2m", "rows": 2_000_000, "ours_s": 2.5, "native_s": 5.0}
    assert rates(entry) == {
        "ours_rows_per_s": 800_000,
        "native_rows_per_s": 400_000,
        "ours_sling_ratio": 10.39,
        "ours_olake_ratio": 18.18,
    }
    assert rates({"case": "freshness_insert", "ours_s": 1.0}) == {}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], [("s3", [], True), ("s3_30ms", [], True), ("local", [], True)]),
        (["--place", "local", "--only", "many copy"], [("local", ["many", "copy"], True)]),
        (["--place", "s3", "--scale", "0.1"], [("s3", [], False)]),
    ],
)
def test_what_the_command_line_asks_for(
    words: list[str], asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def measure(place: str, _: float, only: list[str], path: Path | None) -> None:
        found.append((place, only, path == lake.RESULTS))

    monkeypatch.setattr(lake, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["lake", *words])
    assert lake.main() == 0
    assert found == asked


@pytest.mark.parametrize("words", [["--place", "moon"], ["--only", "copy nothing"]])
def test_a_name_that_is_not_known_is_an_error(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["lake", *words])
    with pytest.raises(SystemExit, match="2"):
        lake.main()
