"""Which Spark sessions and staged files a worker removes when it opens the lake, and at its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from catalog.errcodes import RequiredProcessGone
from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.limits import SESSION_IDLE_SECONDS
from workers.lake.storage.staging_folder import own_place
from workers.process import worker_lake
from workers.process.worker_lake import WorkerLake
from workers.process.worker_slots import LogicalRepWorker, WorkerType


class Lake:
    """Remembers which sessions were closed."""

    closed: list[str]
    taken: tuple[str, str] | None
    format_version: int
    writer: str

    def __init__(
        self,
        _url: str,
        *,
        session: tuple[str, str] | None,
        format_version: int,
        writer: str,
        **_given: Any,
    ) -> None:
        type(self).writer = writer
        type(self).closed = []
        type(self).taken = session
        type(self).format_version = format_version

    def release_sessions(self, sessions: Iterable[tuple[str, str]]) -> None:
        self.closed += [session for _, session in sessions]


class Link:
    """A launcher in whose slots the workers of ``running`` are."""

    def __init__(self) -> None:
        self.running: set[tuple[int, int]] = set()
        self.staging: str | None = None

    def lake_url(self) -> str:
        return "sc://host"

    def find(self, subid: int, relid: int) -> object | None:
        return "a worker" if (subid, relid) in self.running else None


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    made = CatalogStore.open(":memory:")
    yield made
    made.close()


def subscribed(store: CatalogStore, name: str) -> int:
    sub = Subscription(name, "host=db", ("pub",), subuuid=name, subcreate=SubCreate.READY)
    return store.insert_subscription(sub).oid


def table(store: CatalogStore, subid: int, name: str, state: SubRelState) -> int:
    rel = SubscriptionRel(subid, 0, SubRelState.INIT, None, "public", name, "public", name)
    relid = store.insert_rel(rel).srrelid
    if state is not SubRelState.INIT:
        store.set_rel_state(subid, relid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    if state is SubRelState.SYNCDONE:
        store.set_rel_state(subid, relid, state, LSN(7), Setter.TABLESYNC)
    return relid


def closed(
    store: CatalogStore, tmp_path: Path, link: Link, subid: int, relid: int = 0
) -> list[str]:
    lake = WorkerLake(tmp_path, subid, relid, 5, store, cast("Any", link))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_lake, "IcebergDestination", Lake)
        lake.open(Settings())
    return sorted(Lake.closed)


def test_a_worker_closes_what_nobody_else_will(store: CatalogStore, tmp_path: Path) -> None:
    ours, other, dropped = (subscribed(store, name) for name in ("ours", "other", "dropped"))
    copying = table(store, ours, "copying", SubRelState.DATASYNC)
    waiting = table(store, ours, "waiting", SubRelState.INIT)
    done = table(store, ours, "done", SubRelState.SYNCDONE)
    ending = table(store, ours, "ending", SubRelState.SYNCDONE)
    gone = table(store, ours, "gone", SubRelState.DATASYNC)
    places = [
        (ours, 0), (other, 0), (dropped, 0), (dropped, 77),
        (ours, copying), (ours, waiting), (ours, done), (ours, ending), (ours, gone),
    ]  # fmt: skip
    for number, (subid, relid) in enumerate(places):
        for generation in (1, 2):
            store.put_spark_session(subid, relid, generation, "u", f"{number}.{generation}")
    store.delete_subscription(dropped)
    store.delete_rel(ours, gone)
    link = Link()
    link.running = {(other, 0), (ours, copying), (ours, ending)}
    expected = [f"{place}.{generation}" for place in (0, 2, 3, 6, 8) for generation in (1, 2)]
    assert closed(store, tmp_path, link, ours) == expected
    left = {row[:2] for row in store.all_spark_sessions()}
    assert left == {(other, 0), (ours, copying), (ours, waiting), (ours, ending)}


def test_a_dropped_subscription_whose_worker_still_runs_is_left_alone(
    store: CatalogStore, tmp_path: Path
) -> None:
    ours, dropped = subscribed(store, "ours"), subscribed(store, "dropped")
    store.put_spark_session(dropped, 0, 1, "u", "busy")
    store.delete_subscription(dropped)
    staged = tmp_path / "staging" / f"{dropped}_0_1"
    staged.mkdir(parents=True)
    link = Link()
    link.running = {(dropped, 0)}
    assert closed(store, tmp_path, link, ours) == []
    assert staged.exists()
    link.running.clear()
    assert closed(store, tmp_path, link, ours) == ["busy"]
    assert not staged.exists()


def test_a_sync_worker_takes_the_session_of_one_that_is_done(
    store: CatalogStore, tmp_path: Path
) -> None:
    ours = subscribed(store, "ours")
    copying = table(store, ours, "copying", SubRelState.DATASYNC)
    store.hand_over_spark_session("u", "fresh", time.time())
    store.hand_over_spark_session("u", "old", time.time() - SESSION_IDLE_SECONDS - 1)
    link = Link()
    # An apply worker copies nothing.
    assert (closed(store, tmp_path, link, ours), Lake.taken) == (["old"], None)
    link.running = {(ours, copying)}
    assert closed(store, tmp_path, link, ours, copying) == []
    assert Lake.taken == ("u", "fresh")
    link.running = set()
    # It died: its successor closes what it had taken.
    assert closed(store, tmp_path, link, ours, copying) == ["fresh"]
    assert Lake.taken is None


def test_staged_files_of_a_dead_worker_go_wherever_they_are(
    store: CatalogStore, tmp_path: Path
) -> None:
    """With ``spark.staging`` both in that place and here, where a copy's password file lies."""
    ours = subscribed(store, "ours")
    shared = tmp_path / "shared"
    shared.mkdir()
    link = Link()
    link.staging = str(shared)
    closed(store, tmp_path, link, ours)
    own = shared / (tmp_path / "staging" / "id").read_text()
    left = [root / f"{ours}_0_{n}" for root in (own, tmp_path / "staging") for n in (3, 4)]
    others = [own / "99_0_1", shared / "elsewhere" / f"{ours}_0_3"]
    for folder in (*left, *others):
        folder.mkdir(parents=True)
    closed(store, tmp_path, link, ours)
    assert [folder for folder in (*left, *others) if folder.exists()] == others


@pytest.mark.parametrize("staging", [None, "shared"])
def test_a_worker_that_ends_removes_its_folders(tmp_path: Path, staging: str | None) -> None:
    """A sync worker has no successor that would, and left an empty one for each table."""
    store = CatalogStore.open(tmp_path / "catalog")
    ours = subscribed(store, "ours")
    link = Link()
    here = tmp_path / "staging"
    places = [here]
    if staging:
        (tmp_path / staging).mkdir()
        link.staging = str(tmp_path / staging)
        places.append(Path(own_place(link.staging, tmp_path)))
    lake = WorkerLake(tmp_path, ours, 7, 1, store, cast("Any", link))
    folders = [place / f"{ours}_7_{n}" for place in places for n in (1, 10)]
    for folder in folders:
        folder.mkdir(parents=True)
    lake.dest = cast("Any", Lake("", session=None, format_version=2, writer="auto"))
    lake.close()
    assert [folder for folder in folders if folder.exists()] == folders[1::2]


def test_new_tables_get_the_format_that_is_in_force_when_a_worker_starts(
    store: CatalogStore, tmp_path: Path
) -> None:
    ours = subscribed(store, "ours")
    found = []
    for stored in ({}, {"lake": {"format": "iceberg"}}, {"lake": {"format_version": 3}}):
        store.put_settings(stored)
        closed(store, tmp_path, Link(), ours)
        found.append(Lake.format_version)
    assert found == [2, 2, 3]


def test_the_writer_counts_that_is_in_force_when_a_worker_starts(
    store: CatalogStore, tmp_path: Path
) -> None:
    ours = subscribed(store, "ours")
    store.put_settings({"lake": {"writer": "spark"}})
    lake = WorkerLake(tmp_path, ours, 0, 5, store, cast("Any", Link()))
    assert not lake.has_other_writer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_lake, "IcebergDestination", Lake)
        lake.open(Settings())
    assert (Lake.writer, lake.has_other_writer()) == ("spark", False)
    store.put_settings({})
    assert lake.has_other_writer()


def test_a_session_was_closed_by_a_successor_or_by_the_server(
    store: CatalogStore, tmp_path: Path
) -> None:
    class Slots:
        row: Any = None

        def find(self, subid: int, relid: int) -> Any:
            if isinstance(self.row, Exception):
                raise self.row
            return self.row

    link, ids = Slots(), ("pgsub_1", "session")
    lake = WorkerLake(tmp_path, 1, 7, 3, store, cast("Any", link))
    ours = LogicalRepWorker(0, 3, WorkerType.TABLESYNC, 1, 7)
    store.put_spark_session(1, 7, 3, *ids)
    link.row = ours
    assert not lake._is_replaced(ids)
    for row in (None, replace(ours, generation=4), RequiredProcessGone("the launcher is gone")):
        link.row = row
        assert lake._is_replaced(ids)
    link.row = ours
    store.forget_spark_sessions(1, 7, 3)
    assert lake._is_replaced(ids), "a successor has closed and forgotten the session"
