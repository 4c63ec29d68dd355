"""The page about scale: its figures are the ones that were measured, its arithmetic is right."""

from __future__ import annotations

import pytest

from config.guc import Settings
from tests.docs.pages import rows, script, text

PAGE = "scaling.md"
page = script("make_scaling")


@pytest.mark.parametrize("name", [PAGE, "reliability.md"])
def test_generated_parts_are_up_to_date(name: str) -> None:
    """If not: ``python -P docs/make_scaling.py``."""
    assert page.updated(page.DOCS / name) == text(name)


def test_a_rate_is_rows_by_time_and_a_terabyte_follows() -> None:
    slow = {"rows": 1_000_000, "ours_s": 10.0}
    [fast, *_, last] = rows(page.rates({"copy_1x2m": slow, "delete_random": slow}))
    assert fast[2:] == ["100,000", "92", "9.2", "30.2 h", "0.8"]
    assert last[2:] == ["100,000", "25", "2.5", "111.1 h", "0.2"]


def test_what_was_not_measured_is_called_that() -> None:
    assert {row[2] for row in rows(page.rates({}))} == {"not measured"}
    inserts = {"many_inserts": {"ours_median_s": 2.0, "ours_s": 4.0}}
    assert rows(page.many(inserts))[0] == ["40", "2.0 s", "4.0 s", "not measured", "not measured"]


def test_what_a_table_leaves_is_a_median_by_table() -> None:
    early = {"metadata_mb": "900", "data_files": "9000", "snapshots": "900"}
    late = {"metadata_mb": "40", "data_files": "1200", "snapshots": "500"}
    samples = [{"at": str(at), **(late if at > 300 else early)} for at in range(0, 361, 10)]
    found = rows(page.left_behind(samples))
    assert [row[1:] for row in found] == [
        ["20.0", "200,000"],
        ["600", "6,000,000"],
        ["250", "2,500,000"],
    ]


def test_an_hour_is_its_second_sixth_and_its_last() -> None:
    names = [name for name, *_ in page.HOUR]
    samples = [{"at": str(at)} | dict.fromkeys(names, str(at * 100)) for at in range(0, 61, 2)]
    assert rows(page.hour(samples))[0] == ["apply worker, MB", "1,500", "5,500"]


def test_the_arithmetic_of_the_page() -> None:
    """Spelled out, for whoever changes a figure."""
    told = text(PAGE)
    terabyte = 1e12 / 86_400
    assert f"{terabyte / 1e6:.1f} MB/s" in told
    assert round(terabyte / page.CHANGED, -4) == 90_000
    assert f"{round(terabyte / 1000, -2):,.0f} rows a second" in told
    default = Settings()
    assert f"holds {default.spool_memory / terabyte:.1f} s of" in told
    assert f"{default.spool_max_size / terabyte / 60:.0f} minutes" in told.replace("\n", " ")
    assert f"leaves {86_400 / 10_000:.1f} s for each" in told


def test_many_tables_follow_from_forty() -> None:
    found = {
        "many_inserts": {"ours_median_s": 2.0, "ours_s": 4.0},
        "many_updates": {"ours_median_s": 5.0, "ours_s": 8.0},
    }
    table = rows(page.many(found))
    assert table[0] == ["40", "2.0 s", "4.0 s", "5.0 s", "8.0 s"]
    assert table[-1] == ["10,000", "8 minutes", "17 minutes", "21 minutes", "33 minutes"]


def test_a_cluster_stands_beside_the_embedded_server() -> None:
    copied = {
        "embedded_s": 40.0,
        "embedded_cpu_s": 80.0,
        "cluster_s": 61.5,
        "cluster_cpu_s": 1234.5,
    }
    table = rows(page.cluster({"copy_10m": copied}))
    assert table[0][1:] == ["40.00 s, CPU 80.00 s", "61.50 s, CPU 1,234.50 s", "not measured"]
    assert [row[1] for row in table[1:]] == ["not measured"] * 2


def test_what_snapshots_cost() -> None:
    told = text(PAGE).replace("\n", " ")
    file = 10_000 * 1.2 / 1000
    assert f"a file of {file:.0f} MB, {2 * file:.0f} MB written" in told
    assert f"and {21 * file:.0f} MB on disk; in 10,000 tables {21 * file / 100:.1f} TB" in told
