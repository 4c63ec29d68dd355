import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from catalog.errcodes import UndefinedTable
from catalog.lake_maintenance import AUTOVACUUM, COMPACTION, EXPIRY, LakeMaintenance, LakeUpkeep
from catalog.last_error import LastError
from catalog.leaked_slot import LeakedSlot
from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.remedies import SPOOL_FULL, UPKEEP_FAILED
from catalog.store_sqlite import CatalogStore
from subscriber.status import watch
from subscriber.status.views import VIEWS, view
from subscriber.status.watch import overview
from workers.process.worker_slots import LogicalRepWorker, WorkerType


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    yield store
    store.close()


def subscribed(store: CatalogStore) -> tuple[Subscription, SubscriptionRel]:
    sub = store.insert_subscription(
        Subscription(
            "mysub",
            "host=db",
            ("pub", "other pub"),
            subuuid="u",
            subslotname="mysub",
            subcreate=SubCreate.READY,
        )
    )
    rel = store.insert_rel(
        SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "public", "a", "public", "a")
    )
    store.origin_create("pg_16384")
    return sub, rel


def rows(name: str, store: CatalogStore, *workers: LogicalRepWorker) -> list[dict[str, object]]:
    found = view(name)
    made = found.rows(store, workers)
    assert all(tuple(row) == found.columns for row in made)
    return made


@pytest.mark.parametrize("name", list(VIEWS))
def test_every_view_is_there_without_anything(store: CatalogStore, name: str) -> None:
    assert rows(name, store) == []


def test_unknown_view() -> None:
    with pytest.raises(UndefinedTable) as caught:
        view("pg_nothing")
    assert "pg_subscription_rel" in (caught.value.hint or "")


def test_pg_subscription(store: CatalogStore) -> None:
    subscribed(store)
    (row,) = rows("pg_subscription", store)
    assert list(row)[:4] == ["oid", "subdbid", "subskiplsn", "subname"]
    assert (row["substream"], row["subtwophasestate"], row["subpublications"]) == (
        "p",
        "d",
        ("pub", "other pub"),
    )
    assert not {"passfile", "tables"} & set(row)


def test_pg_subscription_rel(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    worker = LogicalRepWorker(1, 2, WorkerType.TABLESYNC, sub.oid, rel.srrelid, relstate="w")
    (row,) = rows("pg_subscription_rel", store, worker)
    assert list(row)[:4] == ["srsubid", "srrelid", "srsubstate", "srsublsn"]
    assert (row["srsubstate"], row["srsublsn"], row["relname"], row["relstate"]) == (
        "i",
        None,
        "a",
        "w",
    )
    assert rows("pg_subscription_rel", store)[0]["relstate"] is None


def test_pg_stat_subscription(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    (row,) = rows("pg_stat_subscription", store)
    assert row == dict.fromkeys(row) | {"subid": sub.oid, "subname": "mysub"}
    sync = LogicalRepWorker(1, 2, WorkerType.TABLESYNC, sub.oid, rel.srrelid, pid=78)
    apply = LogicalRepWorker(
        0,
        1,
        WorkerType.APPLY,
        sub.oid,
        pid=77,
        last_lsn=LSN(0x19BD9E8),
        last_send_time=1_763_000_000_000_001,
        reply_lsn=LSN(5),
    )
    first, second = rows("pg_stat_subscription", store, sync, apply)
    assert (first["worker_type"], first["pid"], first["relid"]) == ("apply", 77, None)
    assert first["received_lsn"] == LSN(0x19BD9E8)
    assert first["last_msg_send_time"] == datetime(2025, 11, 13, 2, 13, 20, 1, UTC)
    assert (first["latest_end_lsn"], first["last_msg_receipt_time"]) == (LSN(5), None)
    assert (second["worker_type"], second["relid"]) == ("table synchronization", rel.srrelid)
    assert (second["received_lsn"], second["leader_pid"]) == (None, None)


def test_pg_stat_subscription_stats(store: CatalogStore) -> None:
    sub, _ = subscribed(store)
    (row,) = rows("pg_stat_subscription_stats", store)
    assert list(row) == [
        "subid",
        "subname",
        "apply_error_count",
        "sync_error_count",
        "confl_insert_exists",
        "confl_update_origin_differs",
        "confl_update_exists",
        "confl_update_missing",
        "confl_delete_origin_differs",
        "confl_delete_missing",
        "confl_multiple_unique_conflicts",
        "stats_reset",
    ]
    assert list(row.values()) == [sub.oid, "mysub", *[0] * 9, None]
    store.count_for_stats(sub.oid, sync_error_count=2)
    store.reset_subscription_stats(sub.oid, 1_763_000_000_000_001)
    store.count_for_stats(sub.oid, confl_delete_missing=4)
    (row,) = rows("pg_stat_subscription_stats", store)
    assert (row["sync_error_count"], row["confl_delete_missing"]) == (0, 4)
    assert row["stats_reset"] == datetime(2025, 11, 13, 2, 13, 20, 1, UTC)


def test_origins(store: CatalogStore) -> None:
    subscribed(store)
    assert rows("pg_replication_origin", store) == [{"roident": 1, "roname": "pg_16384"}]
    assert rows("pg_replication_origin_status", store) == []
    store.origin_advance("pg_16384", LSN(7), "snapshot 1")
    assert rows("pg_replication_origin_status", store) == [
        {"local_id": 1, "external_id": "pg_16384", "remote_lsn": LSN(7), "local_lsn": "snapshot 1"}
    ]


def test_copy_progress_ends_with_the_copy(store: CatalogStore) -> None:
    """H-40."""
    sub, rel = subscribed(store)
    store.set_rel_state(sub.oid, rel.srrelid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    progress = {"tuples_processed": 5, "done": 1, "ranges": 2}

    def worker(relstate: str) -> LogicalRepWorker:
        return LogicalRepWorker(
            1, 2, WorkerType.TABLESYNC, sub.oid, rel.srrelid, relstate=relstate, progress=progress
        )

    (row,) = rows("pg_stat_progress_copy", store, worker("d"))
    assert (row["tuples_processed"], row["ranges_done"], row["ranges_total"]) == (5, 1, 2)
    assert rows("pg_stat_progress_copy", store, worker("w")) == []


def test_overview_tells_of_leaked_slots(store: CatalogStore) -> None:
    subscribed(store)
    assert "leaked_slots" not in overview(store, ())
    store.put_leaked_slot(LeakedSlot("mysub", "host=db", "mysub", None, "it was active"))
    text = overview(store, ())
    assert text.index("pg_stat_subscription") < text.index("pg_subscription_rel")
    assert "it was active" in text


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


def test_what_was_done_about_orphan_files(store: CatalogStore) -> None:
    """A time is shown once something was tried, not while it is only counted."""
    sub, rel = subscribed(store)
    assert rows("lake_maintenance", store) == []
    counted = LakeMaintenance(sub.oid, rel.srrelid, 1_763_000_000_000_000)
    store.put_lake_maintenance(counted)
    (row,) = rows("lake_maintenance", store)
    assert (row["last_orphan_removal"], row["orphan_removal_count"]) == (None, 0)
    store.put_lake_maintenance(replace(counted, orphan_removals=2, orphan_files=54))
    (row,) = rows("lake_maintenance", store)
    assert row == {
        "subid": sub.oid,
        "subname": "mysub",
        "relid": rel.srrelid,
        "lake_schema": rel.lake_schema,
        "lake_table": rel.lake_table,
        "last_orphan_removal": datetime(2025, 11, 13, 2, 13, 20, tzinfo=UTC),
        "orphan_removal_count": 2,
        "orphan_files_removed": 54,
        "reason": None,
        **NO_UPKEEP,
    }
    store.put_lake_maintenance(replace(counted, reason="not ours"))
    assert rows("lake_maintenance", store)[0]["last_orphan_removal"] is not None


NO_UPKEEP = {
    "last_compaction": None,
    "compaction_count": 0,
    "last_autovacuum": None,
    "autovacuum_count": 0,
    "last_expiry": None,
    "expiry_count": 0,
    "last_failed_time": None,
    "upkeep_error": None,
}


def test_what_upkeep_did_to_a_table(store: CatalogStore) -> None:
    """One row for a table; without orphan files, which are counted when it is r, as well."""
    sub, rel = subscribed(store)
    of, at = (sub.oid, rel.srrelid), 1_763_000_000_000_000
    store.add_lake_upkeep(LakeUpkeep(*of, COMPACTION, 1, at))
    store.add_lake_upkeep(LakeUpkeep(*of, COMPACTION, 1, at + 10**6))
    store.add_lake_upkeep(LakeUpkeep(*of, EXPIRY, 1, at))
    time = datetime(2025, 11, 13, 2, 13, 20, tzinfo=UTC)
    (row,) = rows("lake_maintenance", store)
    assert tuple(row) == VIEWS["lake_maintenance"].columns
    assert (row["last_orphan_removal"], row["orphan_removal_count"], row["reason"]) == (
        None,
        0,
        None,
    )
    assert {name: row[name] for name in NO_UPKEEP} == {
        **NO_UPKEEP,
        "last_compaction": time.replace(second=21),
        "compaction_count": 2,
        "last_expiry": time,
        "expiry_count": 1,
    }
    store.put_lake_maintenance(LakeMaintenance(*of, at, 2, 54))
    (row,) = rows("lake_maintenance", store)
    assert (row["orphan_files_removed"], row["compaction_count"]) == (54, 2)


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
HINT:  {UPKEEP_FAILED}
"""
    )
    store.add_lake_upkeep(LakeUpkeep(*of, AUTOVACUUM, 1, at + 2 * 10**6))
    assert shown() == (time, "expiry: the lake failed")
    store.add_lake_upkeep(LakeUpkeep(*of, EXPIRY, 1, at + 2 * 10**6))
    assert shown() == (None, None)
    assert "WARNING" not in overview(store, ())


def test_watch_prints_changes_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 0.0)
    stop = threading.Event()
    texts = ["one", "one", "two"]

    def draw() -> str:
        text = texts.pop(0)
        if not texts:
            stop.set()
        return text

    watch.watch(draw, stop)
    assert capsys.readouterr().out == "one\ntwo\n"


def test_watch_ends_with_ctrl_c() -> None:
    def draw() -> str:
        raise KeyboardInterrupt

    watch.watch(draw)
