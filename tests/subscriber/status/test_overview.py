"""The overview of ``pgsub status``, and the problems below."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from catalog.changed_text import StoredTextTypes
from catalog.lake_maintenance import AUTOVACUUM, EXPIRY, LakeUpkeep
from catalog.last_error import LastError
from catalog.leaked_branch import LeakedBranch
from catalog.leaked_slot import LeakedSlot
from catalog.pg_lsn import LSN
from catalog.remedies import MAINTENANCE_FAILED, SLOT_WAITS, SPOOL_FULL, text_changed
from catalog.store_sqlite import CatalogStore
from subscriber.status.overview import overview
from tests.subscriber.status.subscribed import rows, subscribed
from workers.process.worker_slots import LogicalRepWorker, WorkerType


def test_overview_tells_of_leaked_slots(store: CatalogStore) -> None:
    subscribed(store)
    assert "leaked_slots" not in overview(store, ())
    store.put_leaked_slot(LeakedSlot("mysub", "host=db", "mysub", None, "it was active"))
    text = overview(store, ())
    assert text.index("pg_stat_subscription") < text.index("pg_subscription_rel")
    assert "it was active" in text


def test_branches_that_stay_are_told(store: CatalogStore) -> None:
    subscribed(store)
    assert "leaked_branches" not in overview(store, ())
    leak = LeakedBranch("public", "a", "u", "gone", 1_763_000_000_000_000, "no route")
    store.put_leaked_branch(leak)
    assert "leaked_branches\n" in overview(store, ())
    (shown,) = rows("leaked_branches", store)
    assert shown["since"] == datetime(2025, 11, 13, 2, 13, 20, tzinfo=UTC)
    assert "no route" in overview(store, ())


def test_errors_are_told_under_the_overview(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    assert "ERROR" not in overview(store, ())
    since = 1_763_000_000_000_001
    lost = LastError(sub.oid, 0, since, "42704", "slot is gone", "Really.", "Make one.")
    store.put_last_error(replace(lost, message="said before"))
    store.put_last_error(lost)
    store.put_last_error(LastError(sub.oid, rel.srrelid, since, "42501", "permission denied"))
    assert overview(store, ()).endswith(
        """
subscription "mysub", since 2025-11-13 02:13:20+00:
ERROR:  42704: slot is gone
DETAIL:  Really.
HINT:  Make one.

table "public.a" of subscription "mysub", since 2025-11-13 02:13:20+00:
ERROR:  42501: permission denied
"""
    )
    first, second = rows("last_errors", store)
    assert (first["relid"], first["relation"], first["hint"]) == (None, None, "Make one.")
    assert (second["relid"], second["relation"], second["hint"]) == (rel.srrelid, "public.a", None)
    store.forget_last_error(sub.oid, 0)
    store.delete_rel(sub.oid, rel.srrelid)
    assert rows("last_errors", store) == []


def test_the_next_attempt_is_told_while_a_worker_waits_for_it(store: CatalogStore) -> None:
    sub, _ = subscribed(store)
    error = LastError(sub.oid, 0, 1_763_000_000_000_001, "42704", "slot is gone", failures=7)
    store.put_last_error(error)
    due = 4_000_000_000_000_000
    told = 'subscription "mysub", since 2025-11-13 02:13:20+00, 7 failures'
    assert f"{told}:\n" in overview(store, ())
    store.put_next_attempt(sub.oid, 0, due)
    assert f"{told}, next attempt at 2096-10-02 07:06:40+00:\n" in overview(store, ())
    worker = LogicalRepWorker(0, 1, WorkerType.APPLY, sub.oid, pid=77)
    assert f"{told}:\n" in overview(store, (worker,)), "a worker tries now"
    (row,) = rows("last_errors", store)
    assert (row["failures"], row["next_attempt_time"]) == (7, datetime.fromtimestamp(4e9, UTC))
    store.put_next_attempt(sub.oid, 0, 1)
    assert f"{told}:\n" in overview(store, ()), "the time is over"
    store.put_next_attempt(sub.oid, 0, due)
    store.update_subscription(sub.oid, subenabled=False)
    assert f"{told}:\n" in overview(store, ()), "nobody is going to try"


def test_a_full_spool_is_told_while_it_is_full(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    store.put_settings({"settings": {"spool_max_size": "16GB"}})
    since = 1_763_000_000_000_001
    apply = LogicalRepWorker(0, 1, WorkerType.APPLY, sub.oid, pid=77)
    assert rows("spools", store, apply) == []  # it does not stream yet
    apply = replace(apply, spool_bytes=5)
    sync = LogicalRepWorker(1, 2, WorkerType.TABLESYNC, sub.oid, rel.srrelid, spool_bytes=0)
    assert "WARNING" not in overview(store, (sync, apply))
    apply = replace(apply, spool_bytes=2**34 + 1, paused_since=since)
    first, second = rows("spools", store, sync, apply)
    assert first == {
        "subid": sub.oid,
        "subname": "mysub",
        "pid": 77,
        "relid": None,
        "relation": None,
        "spool_bytes": 2**34 + 1,
        "spool_max_size": 2**34,
        "paused_since": datetime(2025, 11, 13, 2, 13, 20, 1, UTC),
    }
    assert (second["relation"], second["spool_bytes"], second["paused_since"]) == (
        "public.a",
        0,
        None,
    )
    full = replace(sync, spool_bytes=2**35, paused_since=since)
    told = overview(store, (full, apply))
    assert told.count(SPOOL_FULL) == 2
    assert (
        """
subscription "mysub", since 2025-11-13 02:13:20+00:
WARNING:  reading from the publisher is paused: 16 GB received and not applied, """
        "spool_max_size is 16GB\nHINT:  "
    ) in told
    assert '\ntable "public.a" of subscription "mysub", since' in told


def test_upkeep_that_fails_is_shown_until_it_goes_well(store: CatalogStore) -> None:
    """Each kind by itself: one that goes well often says nothing of one that is rare."""
    sub, rel = subscribed(store)
    of, at = (sub.oid, rel.srrelid), 1_763_000_000_000_000
    store.add_lake_upkeep(LakeUpkeep(*of, EXPIRY, failed=at, error="the lake failed"))

    def shown() -> tuple[object, object]:
        (row,) = rows("lake_maintenance", store)
        return row["last_failed_time"], row["upkeep_error"]

    time = datetime(2025, 11, 13, 2, 13, 20, tzinfo=UTC)
    assert shown() == (time, "expiry: the lake failed")
    failed = LakeUpkeep(*of, AUTOVACUUM, failed=at + 10**6, error="no space left")
    store.add_lake_upkeep(failed)
    both = "autovacuum: no space left; expiry: the lake failed"
    assert shown() == (time.replace(second=21), both)
    assert overview(store, ()).endswith(
        f"""
subscription "mysub", at 2025-11-13 02:13:21+00:
WARNING:  upkeep of lake table "{rel.lake_schema}.{rel.lake_table}" failed: {both}
HINT:  {MAINTENANCE_FAILED}
"""
    )
    store.add_lake_upkeep(LakeUpkeep(*of, AUTOVACUUM, 1, at + 2 * 10**6))
    assert shown() == (time, "expiry: the lake failed")
    store.add_lake_upkeep(LakeUpkeep(*of, EXPIRY, 1, at + 2 * 10**6))
    assert shown() == (None, None)
    assert "WARNING" not in overview(store, ())


def test_what_a_slot_waits_for_is_told_while_it_waits(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    sync = LogicalRepWorker(1, 1, WorkerType.TABLESYNC, sub.oid, rel.srrelid, pid=77)
    assert "WARNING" not in overview(store, (sync,))
    waiting = replace(sync, phase='replication slot "x" waits for the end of transaction 7')
    assert overview(store, (waiting,)).endswith(
        f"""
table "public.a" of subscription "mysub":
WARNING:  replication slot "x" waits for the end of transaction 7
HINT:  {SLOT_WAITS}
"""
    )


def test_by_which_way_changed_tables_are_known(store: CatalogStore) -> None:
    sub, _ = subscribed(store)
    assert "event triggers" not in overview(store, ())
    store.put_ddl_capture(sub.oid, "1/2")
    assert "NOTICE:  changes of tables are told by event triggers" in overview(store, ())
    store.put_ddl_capture(sub.oid, "")
    text = overview(store, ())
    assert "WARNING:  event triggers of the publisher are missing" in text
    assert "HINT:  pgsub ddl-capture install mysub --execute makes them." in text
    store.put_ddl_capture(sub.oid, None)
    assert "event triggers" not in overview(store, ())


def test_another_table_under_the_name_is_told(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    store.update_rel(sub.oid, rel.srrelid, remote_relid=5, other_relid=6)
    text = overview(store, ())
    assert 'WARNING:  table "public.a" is another one on the publisher' in text
    assert "HINT:  pgsub refresh mysub copies the table that has the name now" in text


def test_changed_text_is_told_until_the_next_copy(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    row = StoredTextTypes(sub.oid, rel.srrelid, rel.epoch or "", "{}")
    store.put_text_types(row)
    assert "WARNING" not in overview(store, ())
    store.put_text_types(row.changed("{}", ["a label"], now=1_763_000_000_000_001))
    assert overview(store, ()).endswith(
        f"""
table "public.a" of subscription "mysub", since 2025-11-13 02:13:20+00:
WARNING:  values of table "public.a" have changed on the publisher without an event
DETAIL:  a label. Rows from before have the old values in the lake, and an UPDATE or DELETE by a \
key with a new value does not find them.
HINT:  {text_changed("mysub", "public.a")}
"""
    )
    store.update_rel(sub.oid, rel.srrelid, epoch="the next copy")
    assert "WARNING" not in overview(store, ())


def test_a_suspended_table_is_told_with_the_remedy(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    held = {"suspend_time": 1_763_000_000_000_001, "suspend_sqlstate": "22003"}
    store.update_rel(sub.oid, rel.srrelid, **held, suspend_error="no", suspend_lsn=LSN(500))
    assert overview(store, ()).endswith(
        """
table "public.a" of subscription "mysub", since 2025-11-13 02:13:20+00:
WARNING:  22003: table "public.a" is suspended: no
DETAIL:  It misses its changes from the transaction that ends at 0/1F4 on. Readers see its last \
good state.
HINT:  Remove the cause; then pgsub resume mysub public.a copies the table again.
"""
    )
    store.update_rel(sub.oid, rel.srrelid, resuming=True)
    assert "is suspended" not in overview(store, ())
