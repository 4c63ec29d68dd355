"""A dead worker's calls that come late: none of them may land once its successor has read.

Each test plays both workers, the dead one (``zombie``) and its successor (``heir``), with a Spark
session each. What the zombie does after the fence stands for a call that was still under way.
"""

from __future__ import annotations

import itertools
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from tests.crash.family import Family
from tests.waiting import wait_until
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.iceberg.destination import IcebergDestination
from workers.lake.metadata.table_schema import schema_json
from workers.lake.segment import Segment
from workers.lake.server.lake_server import LakeServer
from workers.lake.server.server_conf import embedded_catalog
from workers.lake.sql.statements import call
from workers.lake.table import Identity, LakeColumn, LakeIdent, Stamp
from workers.sync import attempt

COLUMNS = (LakeColumn("id", pa.int32()), LakeColumn("v", pa.string()))
EPOCH = "11111111-2222-3333-4444-555555555555"
MAIN_MOVED = "40001"
RACES = 6

_number = itertools.count(1)

Worker = IcebergDestination


def stamp(lsn: int, epoch: str = EPOCH) -> Stamp:
    return Stamp("pg_99999", LSN(lsn), epoch, LSN(0))


MADE: dict[str, Any] = {"owner": "us", "relid": 1, "stamp": stamp(100)}


def branch() -> str:
    return f"pgsub_99999_{next(_number)}_1"


class Workers:
    """Destinations with sessions of their own, and the ids of these."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._made: list[Worker] = []
        self.sessions: dict[int, list[tuple[str, str]]] = {}

    def make(self) -> Worker:
        ids: list[tuple[str, str]] = []
        made = IcebergDestination(
            self._url,
            identity=Identity(99999),
            staging_dir=self._folder / str(next(_number)),
            settings=Settings(),
            remember_session=lambda user_id, session_id: ids.append((user_id, session_id)),
        )
        self._made.append(made)
        self.sessions[id(made)] = ids
        return made

    def release_all(self) -> None:
        last = self.make()
        for ids in self.sessions.values():
            last.release_sessions(ids)


@pytest.fixture(scope="module")
def workers(family: Family, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    url = family.status().lake_url
    assert url is not None
    made = Workers(url, tmp_path_factory.mktemp("fence"))
    yield made
    made.release_all()


@pytest.fixture(scope="module")
def second_server(
    family: Family, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LakeServer, Workers]]:
    """A lake server of its own on the family's tables, which may be stopped, and its clients."""
    folder = tmp_path_factory.mktemp("second")
    catalog = embedded_catalog(family.pgsub.lake_dir)
    server = LakeServer.start(folder, memory=1 << 30, catalog=catalog)
    try:
        yield server, Workers(server.ready(), folder / "staging")
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.stop()


@pytest.fixture
def zombie(workers: Workers) -> Worker:
    return workers.make()


@pytest.fixture
def heir(workers: Workers) -> Worker:
    return workers.make()


@pytest.fixture
def table(zombie: Worker) -> LakeIdent:
    """A table at 100 with no row."""
    ident = LakeIdent("fence", f"t{next(_number)}")
    zombie.create_table(ident, COLUMNS, **MADE)
    return ident


def rows_of(dest: Worker, *ids: int) -> Segment:
    batch = pa.record_batch(
        [pa.array(ids, pa.int32()), pa.array([str(i) for i in ids])], names=["c0", "c1"]
    )
    return Segment(columns=("id", "v"), append=dest.stage([batch], batch.schema))


def put(dest: Worker, ident: LakeIdent, lsn: int, *ids: int) -> str:
    """A batch on a fresh branch, not yet published."""
    name = branch()
    dest.create_branch(ident, name)
    dest.write(ident, name, [rows_of(dest, *ids)], stamp(lsn))
    return name


def ids_in(family: Family, ident: LakeIdent) -> list[int]:
    return [row[0] for row in family.pgsub.rows(ident.schema, ident.table)]


def lsn_of(dest: Worker, ident: LakeIdent) -> int:
    found = dest.table(ident)
    assert found is not None
    assert found.stamp is not None
    return found.stamp.lsn


def test_a_late_fast_forward_does_not_land(
    family: Family, zombie: Worker, heir: Worker, table: LakeIdent
) -> None:
    late = put(zombie, table, 500, 1, 2, 3)
    fenced = heir.fence(table)
    assert fenced.stamp == stamp(100)
    with pytest.raises(ReplicationError) as refused:
        zombie.publish(table, late, stamp(500))
    assert refused.value.code == MAIN_MOVED
    assert ids_in(family, table) == []
    assert lsn_of(heir, table) == 100


@pytest.mark.parametrize("taken_back", [False, True], ids=["fence", "and back to the base"])
def test_a_fast_forward_that_has_looked_does_not_land(
    family: Family, zombie: Worker, heir: Worker, table: LakeIdent, taken_back: bool
) -> None:
    """The call that nobody can stop: what it commits on is what it has looked at."""
    late = put(zombie, table, 500, 1, 2, 3)
    base = heir.table(table)
    assert base is not None
    assert base.snapshot_id is not None
    begun = api_of(zombie).load(table).manageSnapshots().fastForwardBranch("main", late)
    heir.fence(table)
    if taken_back:
        heir.drop_branches(table)
        heir.rollback(table, base.snapshot_id)
    with pytest.raises(Py4JJavaError, match="CommitFailedException"):
        begun.commit()
    assert (lsn_of(heir, table), ids_in(family, table)) == (100, [])


def test_a_table_that_is_made_late_is_not_made(
    family: Family, zombie: Worker, heir: Worker
) -> None:
    ident = LakeIdent("fence", f"t{next(_number)}")
    heir.create_table(LakeIdent("fence", f"t{next(_number)}"), COLUMNS, **MADE)  # the schema
    begun = api_of(zombie).build_table(ident, schema_json(COLUMNS), None, {}).createTransaction()
    begun.newAppend().commit()
    heir.create_table(ident, COLUMNS, **MADE)
    heir.publish(ident, put(heir, ident, 500, 1), stamp(500))
    with pytest.raises(Py4JJavaError, match="AlreadyExistsException"):
        begun.commitTransaction()
    assert (lsn_of(heir, ident), ids_in(family, ident)) == (500, [1])


def api_of(worker: Worker) -> Any:
    """What a call through the gateway is made of."""
    assert isinstance(worker._tables, GatewayTableApi)
    with worker._tables._gateway.api("testing") as api:
        return api


def test_a_late_append_stays_off_main(
    family: Family, zombie: Worker, heir: Worker, table: LakeIdent
) -> None:
    """An append that was under way may bring a dropped branch back; it never reaches main."""
    late = branch()
    zombie.create_branch(table, late)
    heir.fence(table)
    heir.drop_branches(table)
    with_errors(lambda: zombie.write(table, late, [rows_of(zombie, 1)], stamp(500)))
    with pytest.raises(ReplicationError):
        zombie.publish(table, late, stamp(500))
    assert ids_in(family, table) == []
    assert lsn_of(heir, table) == 100


def test_the_successor_sees_what_landed_before_the_fence(
    family: Family, zombie: Worker, heir: Worker, table: LakeIdent
) -> None:
    landed = put(zombie, table, 500, 1, 2, 3)
    zombie.publish(table, landed, stamp(500))
    assert heir.fence(table).stamp == stamp(500)
    assert ids_in(family, table) == [1, 2, 3]


def test_the_successor_goes_on_after_the_fence(
    family: Family, zombie: Worker, heir: Worker, table: LakeIdent
) -> None:
    put(zombie, table, 500, 1, 2, 3)
    heir.fence(table)
    heir.drop_branches(table)
    again = put(heir, table, 500, 1, 2, 3)
    heir.publish(table, again, stamp(500))
    assert ids_in(family, table) == [1, 2, 3]
    assert lsn_of(heir, table) == 500


def test_a_released_session_does_nothing_more(
    family: Family, workers: Workers, zombie: Worker, heir: Worker, table: LakeIdent
) -> None:
    late = put(zombie, table, 500, 1)
    ids = list(workers.sessions[id(zombie)])
    heir.release_sessions(ids)
    heir.release_sessions(ids)  # twice is as good as once
    with pytest.raises(ReplicationError):
        # The zombie's client opens another session for its thread; the old one is closed for good.
        zombie._sessions.get().query("SELECT 1", "asking")
    assert lsn_of(heir, table) == 100
    heir.fence(table)
    with pytest.raises(ReplicationError):
        zombie.publish(table, late, stamp(500))
    assert ids_in(family, table) == []


def _race(first: Callable[[], Any], delay: float) -> threading.Thread:
    """Run ``first`` in a thread that begins ``delay`` seconds from now."""
    begin = threading.Event()

    def run() -> None:
        begin.wait(delay)
        with_errors(first)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def with_errors(call: Callable[[], Any]) -> None:
    """A zombie has nobody to tell."""
    try:
        call()
    except ReplicationError:
        return


@pytest.mark.parametrize("race", range(RACES))
def test_a_fast_forward_that_races_the_fence_is_seen_or_never_lands(
    family: Family, zombie: Worker, heir: Worker, table: LakeIdent, race: int
) -> None:
    late = put(zombie, table, 500, 1, 2, 3)
    heir.table(table)  # its session is warm
    thread = _race(lambda: zombie.publish(table, late, stamp(500)), race * 0.04)
    fenced = heir.fence(table)
    thread.join()
    assert fenced.stamp is not None
    assert lsn_of(heir, table) == fenced.stamp.lsn
    if fenced.stamp.lsn < 500:  # the successor applies the batch itself
        heir.drop_branches(table)
        heir.publish(table, put(heir, table, 500, 1, 2, 3), stamp(500))
    assert ids_in(family, table) == [1, 2, 3]


@pytest.mark.parametrize("race", range(RACES))
def test_a_call_that_races_the_release_of_its_session_is_seen_or_never_lands(
    family: Family, workers: Workers, zombie: Worker, heir: Worker, table: LakeIdent, race: int
) -> None:
    late = put(zombie, table, 500, 1, 2, 3)
    ids = list(workers.sessions[id(zombie)])
    heir.table(table)
    session = zombie._sessions.get()
    ahead = call("fast_forward", table, branch="main", to=late)
    thread = _race(lambda: session.command(ahead, "publishing"), race * 0.04)
    heir.release_sessions(ids)
    seen = lsn_of(heir, table)
    thread.join()
    assert lsn_of(heir, table) == seen
    assert ids_in(family, table) == ([1, 2, 3] if seen == 500 else [])


@contextmanager
def stopped_before_its_commit(
    family: Family, server: LakeServer, table: LakeIdent, publish: Callable[[], Any]
) -> Iterator[threading.Thread]:
    """``publish`` has written the table's next metadata, and its server stands until the end.

    The catalog's row, which is the commit, is kept from it by a lock of ours.
    """
    location = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
    with closing(sqlite3.connect(family.pgsub.lake_catalog_file(), isolation_level=None)) as lake:
        before = lake.execute(location, (table.table,)).fetchall()
        folder = Path(urlsplit(before[0][0]).path).parent
        there = set(folder.glob("*.metadata.json"))
        assert there, folder
        lake.execute("BEGIN IMMEDIATE")
        thread = _race(publish, 0)
        wait_until(lambda: set(folder.glob("*.metadata.json")) - there, 60, "it writes")
        server.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(server.process.pid).status() == psutil.STATUS_STOPPED)
        lake.execute("ROLLBACK")
        assert lake.execute(location, (table.table,)).fetchall() == before
    try:
        yield thread
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.mark.crash  # a lake server of its own
def test_a_server_that_stood_still_in_its_commit_does_not_land_it(
    family: Family,
    second_server: tuple[LakeServer, Workers],
    heir: Worker,
    table: LakeIdent,
) -> None:
    """Not a client that is late but the commit itself: its metadata is written before the fence."""
    server, clients = second_server
    zombie = clients.make()
    late = put(zombie, table, 500, 1, 2, 3)
    refused: list[str] = []

    def publish() -> None:
        try:
            zombie.publish(table, late, stamp(500))
        except ReplicationError as error:
            refused.append(error.code)

    with stopped_before_its_commit(family, server, table, publish) as thread:
        assert heir.fence(table).stamp == stamp(100)
    thread.join(60)
    assert refused == [MAIN_MOVED]
    assert (lsn_of(heir, table), ids_in(family, table)) == (100, [])


@pytest.mark.crash  # a lake server of its own
def test_a_server_that_stood_still_in_its_commit_lands_it_where_nobody_fenced(
    family: Family,
    second_server: tuple[LakeServer, Workers],
    heir: Worker,
    table: LakeIdent,
) -> None:
    """What the fence is there for: the position that was read before it counts for nothing."""
    server, clients = second_server
    zombie = clients.make()
    late = put(zombie, table, 500, 1, 2, 3)
    publish = partial(zombie.publish, table, late, stamp(500))
    with stopped_before_its_commit(family, server, table, publish) as thread:
        assert lsn_of(heir, table) == 100
    thread.join(60)
    assert (lsn_of(heir, table), ids_in(family, table)) == (500, [1, 2, 3])


def test_a_late_fence_does_not_hide_a_newer_position(
    workers: Workers,
    zombie: Worker,
    heir: Worker,
    table: LakeIdent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fence carries on what it has read; done late, that is older than what main holds."""
    has_read, may_commit = threading.Event(), threading.Event()

    read_columns = zombie._tables.columns

    def read_and_wait(ident: LakeIdent) -> Any:
        columns = read_columns(ident)
        has_read.set()
        assert may_commit.wait(60)
        return columns

    monkeypatch.setattr(zombie._tables, "columns", read_and_wait)
    thread = threading.Thread(target=zombie.fence, args=(table,), name="zombie")
    thread.start()
    assert has_read.wait(60)
    heir.fence(table)
    heir.publish(table, put(heir, table, 500, 1), stamp(500))
    may_commit.set()
    thread.join()
    assert lsn_of(heir, table) == 500


def test_a_copy_that_is_taken_back_cannot_be_published_late(
    family: Family, zombie: Worker, heir: Worker, table: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once main is set back to the base, the dead worker's branch would be ahead of it again."""
    base = heir.table(table)
    assert base is not None
    copied = put(zombie, table, 500, 1, 2, 3)
    zombie.publish(table, copied, stamp(500))
    refused: list[str] = []
    rollback = heir.rollback

    def rollback_then_late_publish(ident: LakeIdent, snapshot_id: int) -> None:
        rollback(ident, snapshot_id)
        try:
            zombie.publish(ident, copied, stamp(500))
        except ReplicationError as error:
            refused.append(error.code)

    monkeypatch.setattr(heir, "rollback", rollback_then_late_publish)
    rel = SubscriptionRel(
        srsubid=99999,
        srrelid=1,
        srsubstate=SubRelState.DATASYNC,
        srsublsn=None,
        nspname="fence",
        relname=table.table,
        lake_schema="fence",
        lake_table=table.table,
        epoch=EPOCH,
        base_snapshot=base.snapshot_id,
    )
    sub = Subscription("fence", "host=nowhere", ("pub",), oid=rel.srsubid)
    attempt.undo_published_attempt(sub, rel, base, heir, CatalogStore.open(":memory:"))
    assert len(refused) == 1
    assert ids_in(family, table) == []
