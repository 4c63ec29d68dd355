from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bench.results import Kept, as_text, merged

HERE, THERE = {"cpus": 2}, {"cpus": 8}
ORDER = ("a", "b", "c")


def entry(case: str, **more: Any) -> dict[str, Any]:
    return {"case": case, **more}


def test_a_case_takes_the_place_of_its_last_result() -> None:
    before = merged({}, entry("b", n=1), HERE, ORDER)
    after = merged(merged(before, entry("a", n=2), HERE, ORDER), entry("b", n=3), HERE, ORDER)
    assert after == {
        "environments": [HERE],
        "results": [entry("a", n=2, environment=0), entry("b", n=3, environment=0)],
    }


def test_others_keep_the_environment_they_were_measured_in() -> None:
    before = merged(merged({}, entry("a"), HERE, ORDER), entry("b"), HERE, ORDER)
    mixed = merged(before, entry("a"), THERE, ORDER)
    assert mixed["environments"] == [THERE, HERE]
    assert [each["environment"] for each in mixed["results"]] == [0, 1]
    assert merged(mixed, entry("b"), THERE, ORDER)["environments"] == [THERE]


def test_a_result_from_before_environments_were_kept_stays_without() -> None:
    before = {"environments": [], "results": [entry("c")]}
    assert merged(before, entry("a"), HERE, ORDER)["results"] == [
        entry("a", environment=0),
        entry("c"),
    ]


def test_cases_that_are_no_more_go() -> None:
    before = {"environments": [HERE], "results": [entry("gone", environment=0)]}
    assert merged(before, entry("a"), THERE, ORDER) == {
        "environments": [THERE],
        "results": [entry("a", environment=0)],
    }


def test_each_result_is_in_the_file_when_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    kept = Kept(path, HERE, ORDER)
    kept.keep(entry("a", runs_s=[1.5, 2.5]))
    assert [each["case"] for each in json.loads(path.read_text())["results"]] == ["a"]
    kept.keep(entry("b"))
    assert [each["case"] for each in json.loads(path.read_text())["results"]] == ["a", "b"]


def test_a_list_of_numbers_is_one_line() -> None:
    content = {"environments": [], "results": [entry("a", series=[[0.5, 1, 2], [1.0, 2, 3]])]}
    text = as_text(content)
    assert json.loads(text) == content
    assert "[ 0.5, 1, 2 ],\n" in text
