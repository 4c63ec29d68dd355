"""The cases of the lake against sides that only pretend: each records what its bars are about."""

from __future__ import annotations

import os

import pytest

from tests.bench import cases, lake_cases
from tests.bench.figures import verdicts
from tests.bench.lake import PLACES, aims, plays, rates
from tests.bench.rehearsal import Rehearsal


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.setattr(os, "sync", lambda: None)
    return Rehearsal()


COPIES = ("copy_1x2m", "copy_4x500k", "spark_copy_1x2m", "insert_1tx", "spark_insert_1tx")
"""They look at the number of rows, which a pretended side does not know."""
PLAYED = [(place, names) for place in PLACES for names in plays(PLACES[place])]


@pytest.mark.parametrize(
    ("place", "names"), [(place, names) for place, names in PLAYED if names not in COPIES]
)
def test_a_case_records_what_its_bars_are_about(bench: Rehearsal, place: str, names: str) -> None:
    plays(PLACES[place])[names](bench)
    assert [entry["case"] for entry in bench.results] == names.split()
    for entry in bench.results:
        found = {**entry, **rates(entry), "case": f"{entry['case']}_{place}"}
        wanted = [aim for aim in aims() if aim["case"] == found["case"]]
        if names.startswith("requests"):
            wanted = [aim for aim in wanted if aim["figure"] == "ours_requests"]
        assert len(verdicts(found, aims())) == len(wanted)
        without_bar = "s3_30ms" if names.startswith("spark") else "local"
        assert bool(wanted) == (place != without_bar)
    assert bench.ours.tables == bench.native.tables == {}
    assert set(bench.ours.writers) == {"spark" if names.startswith("spark") else "auto"}
    assert set(bench.native.writers) <= {"auto"}


def test_tables_with_other_keys_have_the_columns_that_are_made(bench: Rehearsal) -> None:
    lake_cases.keyed(bench, "uuid", 1)
    [fill] = [
        each for each in bench.publisher.statements if each.startswith("INSERT INTO t0_ours (id, ")
    ]
    assert fill.endswith("SELECT * FROM made(1, 3000)")
    created = [each for each in bench.publisher.statements if each.startswith("CREATE TABLE")]
    assert all("uid uuid PRIMARY KEY" in each for each in created)


def test_a_table_by_day_is_ours_alone(bench: Rehearsal) -> None:
    lake_cases.by_day(bench, 10)
    assert bench.ours.layouts == [{"partition_by": ["days(placed)"]}]
    assert bench.native.layouts == [{}]
    assert bench.ours.with_tables == {}
    filled = [each for each in bench.publisher.statements if "FROM made_by_day(1, 900)" in each]
    assert len(filled) == 2


def test_requests_are_those_of_whole_batches(bench: Rehearsal) -> None:
    lake_cases.requests(bench)
    assert [entry["ours_requests"] for entry in bench.results] == [9.0, 9.0]
    batches = [
        each for each in bench.publisher.statements if each.startswith("INSERT INTO t0_ours SEL")
    ]
    assert len(batches) == 12
    assert batches[-1].endswith("made(111000 + 1, 111000 + 1000)")


def test_native_is_measured_less_often_and_for_a_shorter_time(bench: Rehearsal) -> None:
    bench.native_rounds, bench.native_share = 1, 0.5
    cases.large_table(bench, 3, inserts=20, mixed=20)
    found = {entry["case"]: entry for entry in bench.results}
    assert len(found["update_random"]["ours_runs_s"]) == 3
    assert len(found["update_random"]["native_runs_s"]) == 1
    assert (bench.lasting(bench.ours, 20), bench.lasting(bench.native, 20)) == (20, 10)


def test_the_first_case_by_spark_comes_behind_a_warm_up(bench: Rehearsal) -> None:
    played: list[tuple[str, str]] = []

    def note(what: str) -> lake_cases.Play:
        return lambda _bench: played.append((what, bench.ours.writer))

    cases_by_spark = lake_cases.by_spark({"a": note("a"), "b": note("b")}, note("warm"))
    for play in cases_by_spark.values():
        play(bench)
    assert played == [("warm", "spark"), ("a", "spark"), ("b", "spark")]
