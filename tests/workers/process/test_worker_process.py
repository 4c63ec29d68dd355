"""The last error of a worker's predecessors: when it is stored, told again, and over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from catalog.errcodes import ReplicationGap
from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from workers.process.launcher_socket import LOCK_FILE
from workers.process.worker_process import WorkerProcess


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    made = CatalogStore.open(":memory:")
    yield made
    made.close()


def subscribed(store: CatalogStore, name: str) -> int:
    sub = Subscription(name, "host=db", ("pub",), subuuid=name, subcreate=SubCreate.READY)
    return store.insert_subscription(sub).oid


def failed(store: CatalogStore, data_dir: Path, subid: int, primary: str = "lost") -> bool:
    process = WorkerProcess(data_dir, subid, 0, 5, store, cast("Any", None), Settings())
    return process.remember_error(ReplicationGap(primary, hint="copy again"))


def start_launcher(data_dir: Path) -> None:
    row = {"pid": 1, "socket": "s", "start_time": time.time_ns() // 1000}
    (data_dir / LOCK_FILE).write_text(json.dumps(row))


def test_what_ends_workers_again_and_again_is_told_once_by_each_launcher(
    store: CatalogStore, tmp_path: Path
) -> None:
    ours, other = subscribed(store, "ours"), subscribed(store, "other")
    start_launcher(tmp_path)
    assert [failed(store, tmp_path, ours) for _ in range(3)] == [True, False, False]
    assert failed(store, tmp_path, other)
    (first, _) = store.last_errors()
    assert (first.sqlstate, first.message, first.hint) == ("55000", "lost", "copy again")
    assert (first.failures, first.next_attempt) == (3, None)
    assert failed(store, tmp_path, ours, "lost in another way")
    assert failed(store, tmp_path, ours)
    assert store.last_errors()[0].failures == 1
    start_launcher(tmp_path)
    assert [failed(store, tmp_path, ours) for _ in range(2)] == [True, False]


def test_an_error_is_over_when_a_worker_gets_on(store: CatalogStore, tmp_path: Path) -> None:
    ours = subscribed(store, "ours")
    start_launcher(tmp_path)
    assert failed(store, tmp_path, ours)
    process = WorkerProcess(tmp_path, ours, 0, 6, store, cast("Any", None), Settings())
    process.note_progress()
    assert store.last_errors() == []
    assert failed(store, tmp_path, ours), "it is new again"


def test_an_error_is_not_over_while_its_transaction_may_come(
    store: CatalogStore, tmp_path: Path
) -> None:
    """It would be gone from ``status`` between two attempts, and each would be told again."""
    ours = subscribed(store, "ours")
    start_launcher(tmp_path)
    assert failed(store, tmp_path, ours)
    process = WorkerProcess(tmp_path, ours, 0, 6, store, cast("Any", None), Settings())
    process.publisher_lsn_at_start = LSN(1000)
    for before in (0, 400, 999):
        process.note_idle(LSN(before))
    assert len(store.last_errors()) == 1
    assert not failed(store, tmp_path, ours)
    process.note_idle(LSN(1000))
    assert store.last_errors() == []


def test_an_error_of_a_subscription_that_is_gone_is_told(
    store: CatalogStore, tmp_path: Path
) -> None:
    ours = subscribed(store, "ours")
    store.delete_subscription(ours)
    assert failed(store, tmp_path, ours)
    assert store.last_errors() == []
