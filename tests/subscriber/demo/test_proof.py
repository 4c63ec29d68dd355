"""The demo's proof."""

from __future__ import annotations

from subscriber.demo.proof import lake_query, publisher_query, verdicts
from subscriber.demo.workload import TABLES


def test_the_proof_sees_a_difference() -> None:
    here = [(table.name, 2, "10") for table in TABLES]
    there = [{"name": table.name, "n": 2, "digest": "10"} for table in TABLES]
    assert all(verdict.is_equal for verdict in verdicts(here, there))
    there[1]["digest"] = "11"
    there[2]["n"] = "3"
    unequal = [verdict.table for verdict in verdicts(here, there) if not verdict.is_equal]
    assert unequal == [TABLES[1].name, TABLES[2].name]


def test_both_queries_read_every_column() -> None:
    for table in TABLES:
        for column in table.columns:
            assert column.name in publisher_query()
            assert column.name in lake_query()
