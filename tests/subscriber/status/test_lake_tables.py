"""The views as tables of the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ConnectionFailure, IoError
from catalog.lake_maintenance import UPKEEP, LakeMaintenance, LakeUpkeep
from catalog.last_error import LastError
from catalog.leaked_branch import LeakedBranch
from catalog.leaked_slot import LeakedSlot
from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.printing import json_value
from subscriber.status.lake_tables import (
    StatusTables,
    changed_views,
    main,
    mentioned_views,
    status_table,
    write_views,
)
from subscriber.status.views import VIEWS
from tests.subscriber.told_process import ToldProcess
from tests.workers.prepared import keep
from workers.lake.sql.status_tables import StatusTable
from workers.process.worker_slots import LogicalRepWorker, WorkerType
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import PreparedXacts

URL = "sc://nowhere"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CatalogStore]:
    """A catalog in which every view has a row."""
    store = CatalogStore.open(tmp_path)
    sub = store.insert_subscription(
        Subscription(
            "mysub",
            "host=db",
            ("pub", "other pub"),
            subuuid="u",
            subslotname="mysub",
            subcreate=SubCreate.READY,
            sysid="7512345678901234567",
            timeline=1,
        )
    )
    for name in ("a", "b"):
        rel = store.insert_rel(
            SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "public", name, "public", name)
        )
        store.put_lake_maintenance(
            LakeMaintenance(sub.oid, rel.srrelid, 1_763_000_000_000_000, 2, 2**40)
        )
    now = 1_763_000_000_000_000
    for kind in UPKEEP:
        done = LakeUpkeep(sub.oid, rel.srrelid, kind, 2**40, now, now + 1, "the lake failed")
        store.add_lake_upkeep(done)
    store.origin_create("pg_16384")
    store.origin_advance("pg_16384", LSN(5), "batch")
    store.put_last_error(LastError(sub.oid, 0, 1_763_000_000_000_000, "55000", "it stopped"))
    store.put_leaked_branch(LeakedBranch("public", "a", "u", "gone", 1, "no route"))
    store.add_schema_change(sub.oid, rel.srrelid, 1, LSN(5), ['column "a" added'])
    store.put_leaked_slot(LeakedSlot("left", "host=db", "gone", None, "in use"))
    xact = PreparedXact("gid", 2**31, LSN(7), LSN(8), 1_000_000, 2**40)
    keep(PreparedXacts(tmp_path, "u", sub.oid), xact)
    yield store
    store.close()


def workers(store: CatalogStore) -> list[LogicalRepWorker]:
    (sub,) = store.subscriptions()
    rel = store.rels(sub.oid)[0]
    now = 1_763_000_000_000_001
    progress = {"bytes_processed": 2**40, "bytes_total": 2**41, "done": 1, "ranges": 7}
    return [
        LogicalRepWorker(
            0,
            1,
            WorkerType.APPLY,
            sub.oid,
            pid=7,
            last_lsn=LSN(9),
            last_send_time=now,
            spool_bytes=2**34,
            paused_since=now,
        ),
        LogicalRepWorker(
            1, 2, WorkerType.TABLESYNC, sub.oid, rel.srrelid, pid=8, progress=progress
        ),
    ]


@pytest.mark.parametrize("name", list(VIEWS))
def test_a_table_holds_what_json_shows(store: CatalogStore, name: str) -> None:
    view = VIEWS[name]
    rows = view.rows(store, workers(store))
    assert rows
    table = status_table(view, rows).rows
    assert table.column_names == list(view.columns)
    shown = [{key: json_value(value) for key, value in row.items()} for row in rows]
    assert [
        {
            key: json_value(value) if isinstance(value, datetime) else value
            for key, value in row.items()
        }
        for row in table.to_pylist()
    ] == shown
    for column, type_ in view.types.items():
        if type_ == "text":
            assert all(row[column] is None or isinstance(row[column], str) for row in shown), column


def test_a_table_without_rows_has_the_same_columns(store: CatalogStore) -> None:
    view = VIEWS["pg_stat_subscription"]
    full, empty = status_table(view, view.rows(store, [])), status_table(view, [])
    assert full.rows.schema == empty.rows.schema
    assert pa.types.is_timestamp(empty.rows.schema.field("latest_end_time").type)
    assert full.digest != empty.digest


@pytest.mark.parametrize(
    ("query", "views"),
    [
        ("SELECT * FROM lake.public.pg_subscription", []),
        (
            "select srsubstate FROM LAKE.PG_CATALOG.`pg_subscription_rel`",
            ["pg_subscription", "pg_subscription_rel"],
        ),
        ("SELECT * FROM lake.pg_catalog.leaked_slots.snapshots", ["leaked_slots"]),
        ("SHOW TABLES IN lake.pg_catalog", list(VIEWS)),
    ],
)
def test_views_a_query_may_read(query: str, views: list[str]) -> None:
    assert mentioned_views(query) == views


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is written to a lake that takes everything."""
    written: list[str] = []

    def write(
        url: str, tables: dict[str, StatusTable], leave: Callable[[str, str], None], **_: object
    ) -> list[str]:
        assert url == URL
        leave("pgsub status", "a session")
        written.extend(tables)
        return list(tables)

    monkeypatch.setattr("workers.lake.sql.status_tables.write_status_tables", write)
    return written


def test_only_what_changed_is_written_again(
    store: CatalogStore, lake: list[str], tmp_path: Path
) -> None:
    now = workers(store)
    assert changed_views(store, now, tmp_path) == list(VIEWS)
    write_views(URL, ["leaked_slots"], store, now, tmp_path)
    assert changed_views(store, now, tmp_path) == [name for name in VIEWS if name != "leaked_slots"]
    write_views(URL, list(VIEWS), store, now, tmp_path)
    assert changed_views(store, now, tmp_path) == []
    keepalive = [replace(now[0], last_send_time=now[0].last_send_time + 1), now[1]]
    assert changed_views(store, keepalive, tmp_path) == []
    assert lake == ["leaked_slots", *VIEWS]


def test_positions_of_keepalives_wait_for_a_change_or_for_ten_minutes(
    store: CatalogStore, lake: list[str], tmp_path: Path
) -> None:
    now = workers(store)
    write_views(URL, list(VIEWS), store, now, tmp_path)
    written = (tmp_path / "status_tables.json").stat().st_mtime
    received = [replace(now[0], last_lsn=LSN(10)), now[1]]
    assert changed_views(store, received, tmp_path, written + 599) == []
    assert changed_views(store, received, tmp_path, written + 600) == ["pg_stat_subscription"]
    store.put_last_error(LastError(16384, 0, 1, "08006", "gone", None, None))
    both = ["pg_stat_subscription", "last_errors"]
    assert changed_views(store, received, tmp_path, written + 1) == both
    assert len(lake) == len(VIEWS)


def test_the_session_of_a_write_is_taken_by_the_next_write_alone(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[str, str] | None] = []

    def write(
        *_: object,
        session: tuple[str, str] | None,
        leave: Callable[[str, str], None],
        **__: object,
    ) -> list[str]:
        taken.append(session)
        assert store.all_spark_sessions() == [], "a worker would close the session"
        if len(taken) == 2:
            raise ConnectionFailure("the lake is away")
        leave("pgsub status", f"session {len(taken)}")
        return []

    monkeypatch.setattr("workers.lake.sql.status_tables.write_status_tables", write)
    write_views(URL, list(VIEWS), store, [], tmp_path)
    with pytest.raises(ConnectionFailure):
        write_views(URL, list(VIEWS), store, [], tmp_path)
    write_views(URL, list(VIEWS), store, [], tmp_path)
    assert taken == [None, ("pgsub status", "session 1"), None]


def test_what_was_written_is_not_known_after_a_damaged_file(
    store: CatalogStore, lake: list[str], tmp_path: Path
) -> None:
    write_views(URL, list(VIEWS), store, [], tmp_path)
    assert lake
    assert (tmp_path / "status_tables.json").stat().st_mode & 0o077 == 0
    (tmp_path / "status_tables.json").write_text("[1")
    assert changed_views(store, [], tmp_path) == list(VIEWS)


def test_the_process_ends_with_1_when_the_lake_refuses_and_says_why_once(
    store: CatalogStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object, **__: object) -> list[str]:
        raise ConnectionFailure("the lake is away")

    monkeypatch.setattr("workers.lake.sql.status_tables.write_status_tables", write)
    assert main([str(tmp_path), URL, "leaked_slots", "a_view_of_another_version"]) == 1
    log = tmp_path / "log" / "pgsub.log"
    said = log.read_text()
    assert "ERROR:  action=status_tables sqlstate=08006 the lake is away" in said
    assert main([str(tmp_path), URL, "--again", "leaked_slots"]) == 1
    assert log.read_text() == said
    assert changed_views(store, [], tmp_path) == list(VIEWS)


class Launcher:
    """``StatusTables`` with processes that are only noted down."""

    def __init__(self) -> None:
        self.views: Sequence[str] | Exception = ["v"]
        self.started: list[list[str]] = []
        self.process = ToldProcess()
        self.tables = StatusTables(self._changed, self._start, 0.0)

    def _changed(self) -> Sequence[str]:
        if isinstance(self.views, Exception):
            raise self.views
        return self.views

    def _start(self, words: list[str]) -> ToldProcess:
        self.started.append(words)
        self.process = ToldProcess()
        return self.process

    def poll(self, now: float, url: str | None = URL, interval: float = 60.0) -> Any:
        self.tables.poll(now, interval, url)
        return self.tables.next_deadline(interval)


def test_one_process_an_interval_if_something_changed() -> None:
    launcher = Launcher()
    assert launcher.poll(59.9) == 60
    assert launcher.started == []
    assert launcher.poll(60) is None  # its end wakes the loop
    assert launcher.started == [[URL, "v"]]
    assert launcher.poll(500) is None  # one at a time
    launcher.process.status = 0
    launcher.views = []
    assert launcher.poll(510) == 570
    assert launcher.poll(570) == 630
    assert launcher.started == [[URL, "v"]]


def test_after_a_failure_the_next_one_keeps_quiet() -> None:
    launcher = Launcher()
    for now, status, words in ((60, 1, []), (120, 0, ["--again"]), (180, 0, [])):
        launcher.poll(now)
        assert launcher.started[-1] == [URL, *words, "v"]
        launcher.process.status = status


@pytest.mark.parametrize("views", [["v"], IoError("the catalog cannot be read")])
def test_nothing_ends_the_loops_wait_early_while_it_cannot_be_written(
    views: Sequence[str] | Exception,
) -> None:
    launcher = Launcher()
    launcher.views = views
    url = None if views == ["v"] else URL
    assert launcher.poll(75, url) == 135
    assert launcher.started == []


def test_zero_turns_it_off() -> None:
    launcher = Launcher()
    assert launcher.poll(1e6, interval=0.0) is None
    assert launcher.started == []


def test_stop_ends_the_process() -> None:
    launcher = Launcher()
    launcher.tables.stop()
    launcher.poll(60)
    launcher.tables.stop()
    assert launcher.process.killed
