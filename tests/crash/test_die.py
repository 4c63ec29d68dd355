"""A worker that dies, or meets an error, at each place around publishing and the hand-over.

The phases are played once under a workload; each test tells what was found in its case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.cases import ITSELF, LAKES, VERSIONS, Case, assert_right, cases_of, each
from tests.crash.family import Family
from tests.crash.kill_rounds import ONE_BY_ONE, PATIENCE, PLACES, KillRounds, play_requested
from tests.crash.mixed_workload import PARTITIONED
from tests.fix_publisher import Database, new_database, requested_publisher
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import APPLY, FENCE

CASES = cases_of(PLACES, *ITSELF)

HELD_AT = {"in_w": "tablesync.waiting", "in_c": "tablesync.caught_up"}
"""Table and subscription → where its sync worker stands when the apply worker dies."""


@pytest.fixture(scope="module", params=LAKES)
def rounds(request: pytest.FixtureRequest) -> Iterator[KillRounds]:
    """All phases, played."""
    yield from play_requested(request, "crash_die", ITSELF)


def test_every_place_of_an_apply_worker_is_armed() -> None:
    assert {place for group in ONE_BY_ONE for place in group} == {*APPLY, *FENCE}


@each(CASES)
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    """H-1, H-2: the origin is a commit's end, and an error does not move it."""
    assert_right(rounds, case)


def test_s_p_1_killed_in_the_middle_of_a_copy(rounds: KillRounds) -> None:
    assert_right(rounds, ("itself", "kill", "tablesync.range_copied"))


def test_s_p_3_killed_when_caught_up(rounds: KillRounds) -> None:
    assert_right(rounds, ("itself", "kill", "tablesync.caught_up"))


def test_s_p_4_killed_after_s_is_stored(rounds: KillRounds) -> None:
    assert_right(rounds, ("itself", "kill", "tablesync.syncdone_stored"))


def test_s_p_5_killed_between_the_lake_and_the_origin(rounds: KillRounds) -> None:
    assert_right(rounds, ("itself", "kill", "apply.all_tables_published"))


@pytest.fixture(scope="module", params=VERSIONS)
def handed_over(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Tables to be copied, each by a publication of its own."""
    database = new_database(requested_publisher(request), "crash_handed_over")
    for table in HELD_AT:
        database.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {table} SELECT i, 'first' FROM generate_series(1, 100) i",
            f"CREATE PUBLICATION pub_{table} FOR TABLE {table}",
        )
    yield database
    database.drop()


@pytest.mark.parametrize("table", HELD_AT)
def test_a_copy_outlives_the_apply_worker(
    family: Family, handed_over: Database, table: str
) -> None:
    place = HELD_AT[table]
    family.failpoints.arm(place)
    family.create(table, handed_over.dsn, [f"pub_{table}"])
    family.failpoints.wait_held(place, PATIENCE, family.log_tail)
    apply_pid = wait_until(lambda: family.apply_pid(table), 30)
    family.kill(apply_pid)
    handed_over.run(
        f"UPDATE {table} SET v = 'later' WHERE id % 3 = 0",
        f"INSERT INTO {table} VALUES (1000, 'later')",
    )
    family.failpoints.release(place)
    family.pgsub.wait(table)
    assert family.apply_pid(table) != apply_pid
    assert family.pgsub.rows("public", table) == native_rows(handed_over, table)
    row = family.rel(table)
    assert (row.srsubstate, row.attempt) == ("r", 1), "it was copied once"
    family.drop(table)
    family.forget_tables("public")


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 25
    assert rounds.reached == set(CASES)
    for table in PARTITIONED:
        lake_table = rounds.family.pgsub.iceberg_table("a", table)
        assert not lake_table.spec().is_unpartitioned(), table
