"""How far a slot is behind: from servers of all versions, and never negative."""

from __future__ import annotations

import pytest

from tests.fix_publisher import Database
from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.connect import connect
from workers.publisher.interfaces import Row
from workers.publisher.queries import query
from workers.publisher.slot_lag import SlotLag, fetch_slot_lag


def fetched(*rows: Row) -> SlotLag | None:
    return fetch_slot_lag(ScriptedPublisher(18, {"pg_replication_slots": list(rows)}), "mysub")


def test_a_slot() -> None:
    assert fetched(("t", "42", "extended", "-8")) == SlotLag(True, 42, "extended", -8)
    assert fetched(("f", "0", "lost", None)) == SlotLag(False, 0, "lost", None)
    assert fetched(("f", "0", None, None)) == SlotLag(False, 0)
    assert fetched() is None


@pytest.mark.postgres
def test_a_slot_of_a_real_server(each_database: Database) -> None:
    slot = f"{each_database.name}_slot"
    each_database.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    conn = connect(each_database.dsn, "test", replication=False)
    try:
        found = fetch_slot_lag(conn, slot)
        assert found is not None
        assert (found.active, found.safe_wal_size) == (False, None)
        each_database.run("CREATE TABLE t AS SELECT generate_series(1, 100)")
        later = fetch_slot_lag(conn, slot)
        assert later is not None
        assert later.lag_bytes > found.lag_bytes >= 0
    finally:
        conn.close()


@pytest.mark.postgres
def test_a_slot_that_moves_past_the_position_already_read_is_not_behind(
    database: Database,
) -> None:
    ahead = "(SELECT 's' AS slot_name, true AS active, 'FFFFFFFF/0'::pg_lsn AS confirmed_flush_lsn)"
    asked = query("slot_lag", slot="'s'").replace("pg_catalog.pg_replication_slots", ahead)
    assert database.execute(asked)[0][1] == 0
