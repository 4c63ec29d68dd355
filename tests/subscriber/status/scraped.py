"""A catalog, workers and publishers as a scrape finds them, and the figures of a scrape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from catalog.lake_maintenance import COMPACTION, LakeUpkeep
from catalog.last_error import LastError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.status.metrics import VIEW_NAMES, Snapshot
from subscriber.status.processes import ProcessUse
from subscriber.status.publisher_slots import SlotAnswer
from subscriber.status.views import VIEWS
from tests.subscriber.status.subscribed import subscribed
from workers.process.launcher_client import LauncherStatus
from workers.process.work_done import LAKE, WorkDone
from workers.process.worker_slots import LogicalRepWorker, WorkerType
from workers.publisher.slot_lag import SlotLag

NOW = 1_763_000_000_000_000
SECRET = "planted-s3cret"
FILES = {"data_files": 40, "delete_files": 3, "deleted_rows": 900, "snapshots": 31}
FILES |= {"metadata_bytes": 40_000, "tables": 2}


def work() -> dict[str, Any]:
    """What a worker has counted."""
    done = WorkDone()
    done.count(2, {"rows": {"insert": 5, "delete": 1}, "unchanged_toast_values": 7})
    done.received(400)
    done.observe("batch", 0.2)
    done.observe("batch", 7.0)
    return done.sums()


def busy(store: CatalogStore) -> tuple[LogicalRepWorker, ...]:
    """A subscription that applies and copies; errors and maintenance."""
    sub, rel = subscribed(store)
    store.update_subscription(sub.oid, subconninfo=f"host=db password={SECRET}")
    copying = store.insert_rel(
        SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "public", "b", "public", "b")
    )
    store.set_rel_state(sub.oid, copying.srrelid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    store.count_for_stats(sub.oid, apply_error_count=3, confl_delete_missing=4)
    store.put_last_error(
        LastError(sub.oid, 0, NOW, "22003", f"value {SECRET} out of range", "", "")
    )
    store.add_lake_upkeep(LakeUpkeep(sub.oid, rel.srrelid, COMPACTION, done=NOW, times=2))
    apply = LogicalRepWorker(
        0,
        1,
        WorkerType.APPLY,
        sub.oid,
        attached=True,
        pid=77,
        last_lsn=LSN(900),
        reply_lsn=LSN(850),
        flush_lsn=LSN(700),
        last_recv_time=NOW - 1_000_000,
        spool_bytes=4096,
        paused_since=NOW - 5_000_000,
        work={**work(), LAKE: FILES},
        applying_commit_time=NOW - 2_500_000,
    )
    sync = LogicalRepWorker(
        1,
        2,
        WorkerType.TABLESYNC,
        sub.oid,
        copying.srrelid,
        attached=True,
        pid=78,
        relstate="d",
        progress={"bytes_processed": 30, "bytes_total": 100},
    )
    return apply, sync


def snapshot(store: CatalogStore, workers: Sequence[LogicalRepWorker], **given: Any) -> Snapshot:
    """What a scrape sees."""
    subid = workers[0].subid if workers else 0
    ended = {"subid": subid, "work": work(), "failures": {"apply": 2}, "caught_up": NOW - 9_000_000}
    status = LauncherStatus(
        5, NOW, "running", f"sc://localhost:1/;token={SECRET}", 6, tuple(workers), (ended,), 1
    )
    found = Snapshot(
        now=NOW,
        status=status,
        rows={name: VIEWS[name].rows(store, status.workers) for name in VIEW_NAMES},
        slots={subid: SlotAnswer(True, SlotLag(True, 1234, "extended", 999), 0.0)},
        processes={("launcher", ""): ProcessUse(1.5, 90_000_000)},
        versions={"version": "0.1.0", "spark": "4.1.1", "iceberg": "1.11.0"},
    )
    return replace(found, **given)


def exposition(of: Snapshot) -> bytes:
    """The text of ``/metrics``."""
    return bytes(generate_latest(of))


def figures(of: Snapshot) -> dict[str, float]:
    """Every sample as ``name{label="value"}`` → value."""
    found = {}
    for family in text_string_to_metric_families(exposition(of).decode()):
        for sample in family.samples:
            labels = ",".join(f'{key}="{text}"' for key, text in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found
