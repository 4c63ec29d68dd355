"""The page about speed says what was measured, and plainly what was missed or not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import lake, run
from tests.bench.results import targets
from tests.docs.pages import DOCS, rows, script, section, text

PAGE = "performance.md"
page = script("make_performance")

COPY = {"case": "copy", "what": "copy it", "figure": "ratio", "at_least": 2.0}
RSS = {"case": "large", "what": "its memory", "figure": "ours_mb", "at_most": 512}
TPS = {"case": "tpcb", "what": "sustained", "figure": "tps_ratio", "shows": "tps", "at_least": 1.0}
FRESH = {"case": "fresh", "what": "p95", "figure": "ours_s", "at_most": 1.0}
CPU = {"case": "copy", "what": "per CPU", "figure": "ours_rows_per_cpu_s", "at_least": 150_000}
GROWTH = {"case": "grown", "what": "growth", "figure": "ours_growth", "at_most": 1.3}
FOUND: dict[str, dict[str, Any]] = {
    "copy": {
        "native_s": 7.36,
        "ours_s": 5.14,
        "ratio": 1.432,
        "ours_rows_per_cpu_s": 150_000,
    },
    "tpcb": {"native_tps": 1840.2, "ours_tps": 2190.0, "tps_ratio": 1.19, "ratio": 9.0},
    "fresh": {"native_s": 0.012, "ours_s": 1.0, "ratio": 0.012},
    "large": {"ours_mb": None},
    "grown": {"native_growth": 1.0, "ours_growth": 1.31, "ratio": 0.5},
}


def test_generated_part_is_up_to_date() -> None:
    """If not: ``python -P docs/make_performance.py``."""
    assert page.updated(text(PAGE)) == text(PAGE)


def test_plots_are_of_the_results() -> None:
    """If not: ``python -P docs/make_performance.py``."""
    plots = {page.file_of(name): plot for name, plot in page.plots(page.results()).items()}
    assert {file.name for file in DOCS.glob(page.file_of("*"))} == set(plots)
    for name, plot in plots.items():
        assert page.digest(plot) in text(name), name


def test_every_target_is_a_row() -> None:
    table = rows(section(text(PAGE), "## Targets"))
    assert [row[0] for row in table] == [target["what"] for target in targets()]
    assert len({row[0] for row in table}) == len(table)


def test_the_lake_has_a_row_for_each_target_and_place() -> None:
    targets = page.lake_targets()
    assert list(page.PLACES) == list(lake.PLACES)
    assert len({target["what"] for target in targets}) == len(targets)
    named = {target["case"] for target in targets if "but" not in target}
    assert named == {aim["case"] for aim in lake.aims() if aim["figure"] != "ours_all_mb"}


def test_the_lake_is_shown_beside_the_local_disk() -> None:
    rows = {(each["case"], each["figure"]): each for each in page.lake_targets()}
    found = {
        "copy_1x2m_s3": {"native_s": 6.83, "ours_s": 4.22, "ratio": 1.618},
        "copy_1x2m_local": {"native_s": 6.0, "ours_s": 2.1, "ratio": 2.86},
        "insert_1tx_s3": {"ours_rows_per_s": 150_000, "ours_olake_ratio": 6.818},
    }
    copy = page.lake_row(rows["copy_1x2m_s3", "ratio"], found)
    assert copy[1:] == ["6.83 s", "4.22 s", "2.10 s", "1.62", "≥ 1.6", "yes"]
    peers = page.lake_row(rows["insert_1tx_s3", "ours_olake_ratio"], found)
    assert peers[1:] == ["", "150,000", "", "6.82", "≥ 8", "**no**"]


def test_the_lake_s_memory_is_the_largest_of_the_cases_with_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "LAKE_RESULTS", tmp_path / "lake_results.json")
    assert list(page._lake()) == []
    sizes = {"copy_1x2m_s3": 1500, "insert_1tx_s3": 900, "spark_x_s3": 2000, "many_inserts_s3": 950}
    results = [
        {"case": case, "ours_all_mb": size, "scale": 1, "at": "2026-01-01"}
        for case, size in sizes.items()
    ]
    page.LAKE_RESULTS.write_text(json.dumps({"results": results}))
    assert page.lake_found(page.lake_targets())["all_s3"] == {"ours_all_mb": 950}
    shown = list(page._lake())
    assert shown[0] == "## On S3 behind a REST catalog"
    assert any("| 950 MB |" in line and line.endswith("| ≤ 1,024 MB | yes |") for line in shown)


def test_what_is_shown_beside_is_of_a_case() -> None:
    known = run.names_of(run.COLD, run.CASES, run.LONG)
    assert {row["case"] for row in page.listed()["seen"]} <= set(known)


@pytest.mark.parametrize(
    ("target", "cells"),
    [
        (COPY, ["7.36 s", "5.14 s", "1.43", "≥ 2", "**no**"]),
        (TPS, ["1,840", "2,190", "1.19", "≥ 1", "yes"]),
        (FRESH, ["0.012 s", "1.00 s", "0.01", "≤ 1 s", "yes"]),
        (CPU, ["", "150,000", "", "≥ 150,000", "yes"]),
        (GROWTH, ["1.00", "1.31", "", "≤ 1.3", "**no**"]),
        (RSS, ["", "", "", "≤ 512 MB", "not measured"]),
        ({**RSS, "case": "later"}, ["", "", "", "≤ 512 MB", "not run"]),
    ],
)
def test_a_row(target: dict[str, Any], cells: list[str]) -> None:
    assert page.target_row(target, FOUND) == [target["what"], *cells]


def test_what_is_missed_is_said() -> None:
    lines = list(page._targets([COPY, TPS, RSS, {**RSS, "case": "later"}], FOUND))
    assert lines[0] == "Of 4 targets: 1 met, 1 missed, 1 not measured, 1 not run."
    assert lines[-4:] == ["Missed:", "", "- copy it: 1.43 where ≥ 2 is aimed at", ""]
    assert "Missed:" not in list(page._targets([TPS], FOUND))


def keep(folder: Path, monkeypatch: pytest.MonkeyPatch, *results: dict[str, Any]) -> None:
    environments = [{name: f"a {name}" for name in page.ENVIRONMENT}]
    file = folder / "results.json"
    file.write_text(json.dumps({"environments": environments, "results": results}))
    monkeypatch.setattr(page, "RESULTS", (file, folder / "not_there.json"))


def test_a_result_of_another_scale_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"case": "small", "scale": 0.1, "at": "2026-01-01", "environment": 0}
    whole = {"case": "whole", "scale": 1.0, "at": "2026-01-02", "environment": 0}
    keep(tmp_path, monkeypatch, small, whole)
    assert set(page.results()) == {"whole"}


def test_each_environment_is_shown_with_its_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"case": "a", "scale": 1, "at": "2026-01-01", "environment": 0}
    later = {**known, "case": "b", "at": "2026-01-03"}
    old = {"case": "c", "scale": 1, "at": "2025-12-31"}
    keep(tmp_path, monkeypatch, known, later, old)
    lines = list(page._environments(page.results()))
    assert lines[0] == "| measured on 2026-01-01 to 2026-01-03 |  |"
    assert "| PostgreSQL, publisher and native subscriber | a postgresql |" in lines
    assert "| cases | `a`, `b` |" in lines
    assert lines[-2] == "Measured on 2025-12-31, hardware and versions not recorded: `c`."


def test_the_largest_memory_of_each_kind_of_process() -> None:
    found = {
        "a": {"ours_rss_mb": {"apply worker": 300.0, "lake server": 1700.0}},
        "b": {"ours_rss_mb": {"apply worker": 366.4}},
    }
    assert rows("\n".join(page._memory(found))) == [
        ["lake server", "1,700 MB", "`a`"],
        ["apply worker", "366 MB", "`b`"],
    ]


def test_what_is_held_against_all_cases() -> None:
    """A worker's size is in the case where it is largest, whatever that case is aimed at."""
    found = {
        "a": {"ours_rss_mb": {"apply worker": 300.0, "lake server": 1700.0}, "ours_python_mb": 700},
        "b": {"ours_rss_mb": {"apply worker": 366.4}},
        "c": {"native_rss_mb": {"logical replication apply worker": 20.0}},
    }
    most = {"native_worker_mb": 20.0, "ours_worker_mb": 366.4, "ours_python_mb": 700}
    assert page.largest(found) == most
    assert page.largest({"c": {}}) == {}
    assert page.largest({**found, "update_20m": {"ours_rss_mb": {"apply worker": 900}}}) == most
    target = {"case": page.ALL_CASES, "what": "it", "figure": "ours_worker_mb", "at_most": 366}
    row = page.target_row(target, {page.ALL_CASES: most})
    assert row == ["it", "20 MB", "366 MB", "", "≤ 366 MB", "**no**"]


def test_lines_are_drawn_of_the_series() -> None:
    series = {"ours_series": [[0.0, 1.0], [3.0, 2.0]], "native_series": [[0.0, 0.1]]}
    found = {"many_inserts": {"series_of": ["at_s", "delay_s"], **series}}
    plots = page.plots(found)
    assert list(plots) == ["freshness"]
    assert plots["freshness"]["lines"] == [
        ("many_inserts ours", [[0.0, 1.0], [3.0, 2.0]]),
        ("many_inserts native", [[0.0, 0.1]]),
    ]


@pytest.mark.parametrize(
    "plot",
    [
        {"title": "Ratios", "unit": "ratio", "bars": [["a copy", 1.5, 2.0], ["inserts", 3, 2]]},
        {"title": "Lag", "unit": "s", "lines": [("ours", [[0.0, 1.0], [3.0, 2.0]])]},
    ],
)
def test_a_plot_says_what_it_was_drawn_from(plot: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "plot.svg"
    page.draw(plot, file)
    drawn = file.read_text()
    assert plot["title"] in drawn
    assert page.digest(plot) in drawn
    assert page.digest({**plot, "title": "another"}) not in drawn
    page.draw(plot, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == drawn
