"""``sync_slot: permanent``: tables that come through ``f``, and sync workers that die on the way.

Each place is met by a sync worker of some table while rows are written to all of them: the first
that comes to it dies there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from tests.crash.cases import ITSELF, VERSIONS, Case, Findings, assert_right, cases_of, each
from tests.crash.family import Family
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database, requested_publisher
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import FINISHEDCOPY, TABLESYNC

NAME = SCHEMA = "permanent"
TABLES = [f"t{n}" for n in range(6)]
PLACES = (*(place for place in TABLESYNC if place != "tablesync.published"), *FINISHEDCOPY)
SLOTS = "SELECT slot_name, temporary FROM pg_replication_slots WHERE slot_name LIKE 'pg_%_sync_%'"


CASES = cases_of(PLACES, *ITSELF)


@pytest.fixture(scope="module", params=VERSIONS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    made = new_database(requested_publisher(request), "crash_permanent", schema=SCHEMA)
    for table in TABLES:
        made.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {table} SELECT i, 'copied' FROM generate_series(1, 50) i",
        )
    made.run("CREATE PUBLICATION one FOR TABLE t0", "CREATE PUBLICATION all_of_them FOR ALL TABLES")
    yield made
    made.drop()


@contextmanager
def dropped_at_the_end(family: Family, database: Database) -> Iterator[None]:
    """Who makes the subscription leaves nothing of it."""
    try:
        yield
    finally:
        family.failpoints.clear()
        if NAME in family.subscriptions:
            family.drop(NAME)
    assert database.execute(SLOTS) == []
    with closing(CatalogStore.open(family.pgsub.data_dir)) as store:
        assert [o.roname for o in store.origins() if o.roname.count("_") > 1] == []
        assert store.leaked_slots() == []
    family.forget_tables(SCHEMA)


@pytest.fixture
def alone(family: Family, database: Database) -> Iterator[None]:
    """For a test that makes the subscription."""
    with dropped_at_the_end(family, database):
        yield


def create(family: Family, database: Database, publication: str = "one") -> None:
    family.create(NAME, database.dsn, [publication], sync_slot="permanent")


def origin(family: Family, rel: SubscriptionRel) -> int | None:
    with closing(CatalogStore.open(family.pgsub.data_dir)) as store:
        found = store.origin_by_name(origin_name(rel.srsubid, rel.srrelid))
        return None if found is None else found.remote_lsn


def rels(family: Family) -> list[SubscriptionRel]:
    subid = family.subid(NAME)
    with closing(CatalogStore.open(family.pgsub.data_dir)) as store:
        return store.rels(subid)


def same(family: Family, database: Database, table: str = "t0") -> None:
    assert family.pgsub.rows(SCHEMA, table) == native_rows(database, f"{SCHEMA}.{table}")


def write(database: Database, *tables: str) -> None:
    """A transaction on each table: a row more, and some of the old ones anew."""
    statements = (
        f"INSERT INTO {table} SELECT max(id) + 1, 'later' FROM {table};"
        f"UPDATE {table} SET v = v || '+' WHERE id % 10 = 0"
        for table in tables
    )
    database.run(*statements)


@pytest.mark.usefixtures("alone")
def test_a_table_comes_through_f(family: Family, database: Database) -> None:
    place = "tablesync.finishedcopy_stored"
    family.failpoints.arm(place)
    create(family, database)
    family.failpoints.wait_held(place, PATIENCE, family.log_tail)
    rel = family.rel(NAME)
    assert (rel.srsubstate, rel.srsublsn) == ("f", None)
    assert origin(family, rel) == rel.floor == rel.lake_lsn
    same(family, database)
    ((slot, temporary),) = database.execute(SLOTS)
    assert slot.startswith(f"pg_{rel.srsubid}_sync_{rel.srrelid}_")
    assert not temporary
    write(database, "t0")
    family.failpoints.release(place)
    family.pgsub.wait(NAME)
    same(family, database)
    wait_until(lambda: not database.execute(SLOTS), 30, "its slot is dropped")
    rel = family.rel(NAME)
    assert (rel.srsubstate, rel.attempt, rel.copied) == ("r", 1, True)
    assert origin(family, rel) is None


@pytest.mark.usefixtures("alone")
def test_s_p_2_killed_after_f_it_is_not_copied_again(family: Family, database: Database) -> None:
    place = "tablesync.finishedcopy_stored"
    family.failpoints.arm(place, action="kill")
    before = family.log_size()
    create(family, database)
    family.failpoints.wait_held(place, PATIENCE, family.log_tail)
    write(database, "t0")
    family.pgsub.wait(NAME)
    same(family, database)
    rel = family.rel(NAME)
    assert (rel.srsubstate, rel.attempt) == ("r", 1)
    said = family.log_since(before)
    assert said.count("action=copied ") == 1
    assert f"slot=pg_{rel.srsubid}_sync_{rel.srrelid}_" in said


@pytest.mark.usefixtures("alone")
def test_h_9_dropped_while_a_copy_s_worker_is_dead(family: Family, database: Database) -> None:
    """H-8, H-9: what it leaves on both sides goes with the subscription."""
    place = "tablesync.copied"
    family.failpoints.arm(place)
    create(family, database)
    pid = family.failpoints.wait_held(place, PATIENCE, family.log_tail)
    assert len(database.execute(SLOTS)) == 1
    family.kill(pid)
    family.drop(NAME)


@pytest.fixture(scope="module")
def deaths(family: Family, database: Database) -> Findings:
    """At all places, first by SIGKILL, then by an error."""
    findings = Findings()
    for way in ITSELF:
        cases = cases_of(PLACES, way)
        try:
            with dropped_at_the_end(family, database):
                die(family, database, way[1])
            findings.reached.update(cases)
        except AssertionError as error:
            findings.blame(cases, str(error))
    return findings


def die(family: Family, database: Database, action: str) -> None:
    family.failpoints.arm(*PLACES, action=action)
    create(family, database, "all_of_them")
    missing: list[str] = []

    def all_met() -> bool:
        write(database, *TABLES)
        missing[:] = [place for place in PLACES if family.failpoints.held(place) is None]
        return not missing

    wait_until(all_met, PATIENCE, lambda: f"not met: {missing}; {family.log_tail()}")
    family.pgsub.wait(NAME)
    attempts: dict[str, Any] = {rel.relname: rel.attempt for rel in rels(family)}
    assert sum(attempts.values()) > len(TABLES), attempts
    for table in TABLES:
        same(family, database, table)


@each(CASES)
def test_no_row_is_lost_or_doubled(deaths: Findings, case: Case) -> None:
    assert_right(deaths, case)
