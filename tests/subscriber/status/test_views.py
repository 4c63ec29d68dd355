"""The views: rows from the catalog and from workers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from catalog.errcodes import UndefinedTable
from catalog.lake_maintenance import (
    COMPACTION,
    EXPIRY,
    LakeMaintenance,
    LakeUpkeep,
    LakeWriter,
)
from catalog.last_error import LastError
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import Setter, SubRelState
from catalog.store_sqlite import CatalogStore
from subscriber.status.views import VIEWS, view
from tests.subscriber.status.subscribed import rows, subscribed
from workers.process.worker_slots import LogicalRepWorker, WorkerType


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


@pytest.mark.parametrize("known", [True, False, None])
def test_what_an_apply_worker_says_of_its_batches(store: CatalogStore, known: bool | None) -> None:
    sub, rel = subscribed(store)
    apply = LogicalRepWorker(0, 1, WorkerType.APPLY, sub.oid, atomic_publish=known)
    sync = LogicalRepWorker(1, 1, WorkerType.TABLESYNC, sub.oid, rel.srrelid)
    (row,) = rows("pg_subscription", store, apply, sync)
    assert row["atomic_publish"] is known
    (row,) = rows("pg_subscription", store)
    assert row["atomic_publish"] is None


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
        "suspension_count",
        "schema_change_count",
        "column_add_count",
        "column_rename_count",
        "column_retype_count",
        "column_leave_count",
    ]
    assert list(row.values()) == [sub.oid, "mysub", *[0] * 9, None, *[0] * 6]
    store.count_for_stats(sub.oid, sync_error_count=2)
    store.reset_subscription_stats(sub.oid, 1_763_000_000_000_001)
    store.count_for_stats(sub.oid, suspension_count=2)
    store.count_for_stats(sub.oid, confl_delete_missing=4)
    (row,) = rows("pg_stat_subscription_stats", store)
    assert (row["sync_error_count"], row["confl_delete_missing"]) == (0, 4)
    assert row["suspension_count"] == 2
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


def test_who_writes_a_table_and_why(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    (row,) = rows("lake_tables", store)
    assert row == {
        "subid": sub.oid,
        "subname": "mysub",
        "relid": rel.srrelid,
        "relation": qualified_name(rel.nspname, rel.relname),
        "lake_schema": rel.lake_schema,
        "lake_table": rel.lake_table,
        "configured": "auto",
        "writer": None,
        "reason": None,
    }
    store.put_lake_writer(LakeWriter(sub.oid, rel.srrelid, "auto", "files", "It can."))
    (row,) = rows("lake_tables", store)
    assert (row["configured"], row["writer"], row["reason"]) == ("auto", "files", "It can.")
    # The file says otherwise by now, and no worker has opened the table since.
    store.put_settings({"lake": {"writer": "spark"}})
    (row,) = rows("lake_tables", store)
    assert (row["configured"], row["writer"], row["reason"]) == ("spark", None, None)
    options = {qualified_name(rel.nspname, rel.relname): TableOptions(writer="auto")}
    store.update_subscription(sub.oid, tables=options)
    (row,) = rows("lake_tables", store)
    assert (row["configured"], row["writer"], row["reason"]) == ("auto", "files", "It can.")


@pytest.mark.parametrize("name", ["last_errors", "spools", "lake_maintenance", "schema_changes"])
def test_a_view_without_rows_reads_no_table(
    store: CatalogStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A scrape reads these views every few seconds, and there may be 10,000 tables."""
    sub, _ = subscribed(store)
    store.put_last_error(LastError(sub.oid, 0, 1, "22003", "of no table", "", ""))
    monkeypatch.setattr(CatalogStore, "rels", lambda *_: pytest.fail("reads the tables"))
    worker = LogicalRepWorker(0, 1, WorkerType.APPLY, sub.oid, pid=7, spool_bytes=1)
    assert len(rows(name, store, worker)) == (name in ("last_errors", "spools"))


def test_parallel_apply_workers_stand_behind_their_leader(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    threads = [{"pid": 91, "xid": 700}, {"pid": 92, "xid": 701}]
    apply = LogicalRepWorker(
        0, 1, WorkerType.APPLY, sub.oid, pid=77, last_send_time=5, parallel=threads
    )
    sync = LogicalRepWorker(1, 2, WorkerType.TABLESYNC, sub.oid, rel.srrelid, pid=78)
    found = rows("pg_stat_subscription", store, sync, apply)
    assert [(row["worker_type"], row["pid"], row["leader_pid"]) for row in found] == [
        ("apply", 77, None),
        ("parallel apply", 91, 77),
        ("parallel apply", 92, 77),
        ("table synchronization", 78, None),
    ]
    assert found[1] == dict.fromkeys(found[0]) | {
        "subid": sub.oid,
        "subname": sub.subname,
        "worker_type": "parallel apply",
        "pid": 91,
        "leader_pid": 77,
    }
