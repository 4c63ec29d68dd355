"""Each figure of /metrics against the view that it comes from."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from datetime import datetime
from typing import cast

import pytest

from catalog.pg_stat_subscription_stats import ColumnChangeKind
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.status.publisher_slots import SlotAnswer
from tests.prometheus import promtool
from tests.subscriber.status.scraped import (
    FILES,
    NOW,
    SECRET,
    busy,
    exposition,
    figures,
    snapshot,
)
from tests.subscriber.status.subscribed import rows
from workers.process.work_done import LAKE
from workers.publisher.slot_lag import SlotLag

MYSUB = '{subname="mysub"}'


def test_figures_of_a_subscription_are_those_of_its_views(store: CatalogStore) -> None:
    workers = busy(store)
    found = figures(snapshot(store, workers))
    (stat, _) = rows("pg_stat_subscription", store, *workers)
    assert found[f"pgsub_subscription_received_lsn_bytes{MYSUB}"] == stat["received_lsn"]
    assert found[f"pgsub_subscription_latest_end_lsn_bytes{MYSUB}"] == stat["latest_end_lsn"]
    heard = stat["last_msg_receipt_time"]
    name = "pgsub_subscription_last_msg_receipt_timestamp_seconds"
    assert found[f"{name}{MYSUB}"] == cast("datetime", heard).timestamp()
    (stats,) = rows("pg_stat_subscription_stats", store)
    assert found[f"pgsub_apply_errors_total{MYSUB}"] == stats["apply_error_count"] == 3
    assert found[f"pgsub_sync_errors_total{MYSUB}"] == stats["sync_error_count"] == 0
    for kind in ("delete_missing", "insert_exists"):
        counted = found[f'pgsub_conflicts_total{{subname="mysub",type="{kind}"}}']
        assert counted == stats[f"confl_{kind}"]
    (spool,) = rows("spools", store, *workers)
    assert found[f"pgsub_spool_bytes{MYSUB}"] == spool["spool_bytes"]
    assert found[f"pgsub_spool_limit_bytes{MYSUB}"] == spool["spool_max_size"]
    assert found[f"pgsub_spool_paused{MYSUB}"] == 1
    (copy,) = rows("pg_stat_progress_copy", store, *workers)
    assert found[f"pgsub_copy_processed_bytes{MYSUB}"] == copy["bytes_processed"] == 30
    assert found[f"pgsub_copy_size_bytes{MYSUB}"] == copy["bytes_total"] == 100
    (kept,) = rows("lake_maintenance", store)
    counted = found['pgsub_lake_upkeep_total{kind="compaction",subname="mysub"}']
    assert counted == kept["compaction_count"] == 2
    assert found[f"pgsub_lake_upkeep_failing{MYSUB}"] == 0
    (error,) = rows("last_errors", store)
    assert found[f'pgsub_last_error{{sqlstate="{error["sqlstate"]}",subname="mysub"}}'] == 1


def test_tables_by_state(store: CatalogStore) -> None:
    workers = busy(store)
    found = figures(snapshot(store, workers))
    states = {
        state: found[f'pgsub_tables{{state="{state}",subname="mysub"}}'] for state in "idfwcsr"
    }
    assert states == dict.fromkeys("idfwcsr", 0) | {"i": 1, "d": 1}
    assert not [name for name in found if "relation" in name]
    waiting = (workers[0], replace(workers[1], relstate="w"))
    found = figures(snapshot(store, waiting, per_table=True))
    assert found['pgsub_tables{state="w",subname="mysub"}'] == 1
    assert found['pgsub_relation_state{relation="public.b",state="w",subname="mysub"}'] == 1
    assert found['pgsub_relation_state{relation="public.a",state="i",subname="mysub"}'] == 1


def test_work_of_ended_and_of_running_workers_together(store: CatalogStore) -> None:
    workers = busy(store)
    found = figures(snapshot(store, workers))
    assert found[f"pgsub_transactions_applied_total{MYSUB}"] == 4
    assert found['pgsub_rows_applied_total{op="insert",subname="mysub"}'] == 10
    assert found['pgsub_rows_applied_total{op="update",subname="mysub"}'] == 0
    assert found[f"pgsub_received_bytes_total{MYSUB}"] == 800
    assert found[f"pgsub_unchanged_toast_values_total{MYSUB}"] == 14
    assert found[f"pgsub_batch_duration_seconds_count{MYSUB}"] == 4
    assert found[f"pgsub_batch_duration_seconds_sum{MYSUB}"] == pytest.approx(14.4)
    assert found['pgsub_batch_duration_seconds_bucket{le="0.25",subname="mysub"}'] == 2
    assert found['pgsub_batch_duration_seconds_bucket{le="10.0",subname="mysub"}'] == 4
    assert found[f"pgsub_publish_duration_seconds_count{MYSUB}"] == 0
    assert found['pgsub_worker_restarts_total{subname="mysub",worker_type="apply"}'] == 2
    assert found["pgsub_lake_server_restarts_total"] == 1


def test_lag(store: CatalogStore) -> None:
    apply, sync = busy(store)
    found = figures(snapshot(store, (apply, sync)))
    assert found[f"pgsub_subscription_lag_bytes{MYSUB}"] == 200
    assert found[f"pgsub_subscription_flushed_lsn_bytes{MYSUB}"] == 700
    assert found[f"pgsub_subscription_lag_seconds{MYSUB}"] == 2.5
    idle = replace(apply, applying_commit_time=0)
    assert figures(snapshot(store, (idle,)))[f"pgsub_subscription_lag_seconds{MYSUB}"] == 0
    ahead = replace(apply, applying_commit_time=NOW + 10**6)  # the publisher's clock is fast
    assert figures(snapshot(store, (ahead,)))[f"pgsub_subscription_lag_seconds{MYSUB}"] == 0
    starting = replace(apply, flush_lsn=apply.relstate_lsn or type(apply.flush_lsn)(0))
    found = figures(snapshot(store, (starting,)))
    assert found[f"pgsub_subscription_lag_seconds{MYSUB}"] == 9  # since its predecessor's end
    assert f"pgsub_subscription_lag_bytes{MYSUB}" not in found


def test_slots(store: CatalogStore) -> None:
    workers = busy(store)
    of = snapshot(store, workers)
    found = figures(of)
    assert found[f"pgsub_slot_lag_bytes{MYSUB}"] == 1234
    assert found[f"pgsub_slot_safe_wal_size_bytes{MYSUB}"] == 999
    assert found[f"pgsub_slot_active{MYSUB}"] == found[f"pgsub_publisher_up{MYSUB}"] == 1
    statuses = {
        word: found[f'pgsub_slot_wal_status{{status="{word}",subname="mysub"}}']
        for word in ("reserved", "extended", "unreserved", "lost")
    }
    assert statuses == {"reserved": 0, "extended": 1, "unreserved": 0, "lost": 0}
    subid = workers[0].subid
    gone = figures(replace(of, slots={subid: SlotAnswer(True, None, 0.0)}))
    assert (gone[f"pgsub_slot_exists{MYSUB}"], gone[f"pgsub_publisher_up{MYSUB}"]) == (0, 1)
    silent = figures(replace(of, slots={subid: SlotAnswer(False, None, 0.0)}))
    assert silent[f"pgsub_publisher_up{MYSUB}"] == 0
    assert not [name for name in silent if name.startswith("pgsub_slot")]
    old = figures(replace(of, slots={subid: SlotAnswer(True, SlotLag(False, 0), 0.0)}))
    assert not [name for name in old if "wal_status" in name or "safe_wal" in name]


def test_no_secret_and_no_text_of_an_error(store: CatalogStore) -> None:
    of = snapshot(store, busy(store), per_table=True)
    text = exposition(of)
    assert b"22003" in text
    assert SECRET.encode() not in text
    assert b"out of range" not in text
    assert b"host=" not in text


def test_promtool_is_content(store: CatalogStore) -> None:
    text = exposition(snapshot(store, busy(store), per_table=True))
    assert promtool("check", "metrics", stdin=text) == ""


def test_a_name_with_quotes_and_line_breaks_is_a_label(store: CatalogStore) -> None:
    workers = busy(store)
    store.update_subscription(workers[0].subid, subname='a"b\n}c\\')
    text = exposition(snapshot(store, workers))
    assert rb'subname="a\"b\n}c\\"' in text
    promtool("check", "metrics", stdin=text)


def test_a_thousand_tables_are_scraped_in_time(store: CatalogStore) -> None:
    """Each table with all that a table can have: 200 ms is the limit, views included."""
    workers = busy(store)
    with store.transaction():
        for number in range(1000):
            name = f"t{number}"
            rel = SubscriptionRel(
                workers[0].subid, 0, SubRelState.READY, None, "public", name, "public", name
            )
            store.insert_rel(rel)
    best = 1e9
    gc.freeze()  # the objects of the tests before are not the launcher's
    try:
        for _ in range(20):
            began = time.process_time()
            text = exposition(snapshot(store, workers, per_table=True))
            best = min(best, time.process_time() - began)
    finally:
        gc.unfreeze()
    assert text.count(b"pgsub_relation_state{") == 1002
    assert best < 0.2


def test_suspended_tables(store: CatalogStore) -> None:
    workers = busy(store)
    (one, _) = store.rels(16384)
    assert figures(snapshot(store, workers))[f"pgsub_tables_suspended{MYSUB}"] == 0
    store.update_rel(16384, one.srrelid, suspend_time=1, suspend_sqlstate="22003")
    store.count_for_stats(16384, suspension_count=3)
    found = figures(snapshot(store, workers, per_table=True))
    assert found[f"pgsub_tables_suspended{MYSUB}"] == 1
    assert found[f"pgsub_table_suspensions_total{MYSUB}"] == 3
    assert found['pgsub_relation_suspended{relation="public.a",subname="mysub"}'] == 1
    assert found['pgsub_relation_suspended{relation="public.b",subname="mysub"}'] == 0


def test_changed_columns_are_counted_by_kind(store: CatalogStore) -> None:
    workers = busy(store)
    store.count_for_stats(16384, schema_change_count=2, column_add_count=3, column_leave_count=1)
    found = figures(snapshot(store, workers))
    (stats,) = rows("pg_stat_subscription_stats", store)
    for kind in ColumnChangeKind:
        counted = found[f'pgsub_schema_changes_total{{kind="{kind}",subname="mysub"}}']
        assert counted == stats[f"column_{kind}_count"]
    assert found['pgsub_schema_changes_total{kind="add",subname="mysub"}'] == 3


def test_files_of_the_lake_are_those_of_the_running_apply_worker(store: CatalogStore) -> None:
    """A copy's worker has files of its own table, and an ended worker's counts are old."""
    apply, sync = busy(store)
    of = snapshot(store, [apply, replace(sync, work={LAKE: FILES})])
    found = figures(of)
    assert {name: found[f"pgsub_lake_{name}{MYSUB}"] for name in FILES} == FILES
    alone = figures(snapshot(store, [sync]))
    assert not [name for name in alone if name.startswith("pgsub_lake_data_files")]
