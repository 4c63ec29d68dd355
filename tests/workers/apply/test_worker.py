"""An apply worker's way to its stream: what it asks the publisher for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast
from unittest.mock import create_autospec

import pytest

from catalog.errcodes import ReplicationError
from catalog.leaked_branch import LeakedBranch
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from tests.workers.looping import LinkTwin
from tests.workers.subscribed import Subscribed
from workers.apply import publisher_link, worker
from workers.apply.apply_batch import Applier
from workers.apply.worker import apply_worker_main
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, LakeIdent
from workers.process.worker_exit import WorkerExit
from workers.process.worker_lake import WorkerLake
from workers.process.worker_process import WorkerProcess
from workers.publisher.binary_columns import RestartAsText
from workers.publisher.connection import WalReceiverConn
from workers.publisher.interfaces import Row, SystemIdentity
from workers.stream.spool import Spool
from workers.tables.maintenance.orphan_files import OrphanRemoval
from workers.tables.writer import LakeWriter


class Asked(Exception):  # noqa: N818 - it is no error
    """The statement after which the twin says nothing more."""


class PublisherTwin(WalReceiverConn):
    """A primary whose slot stands at 400; its connection ends with START_REPLICATION."""

    def __init__(self, *published: int, busy: int = 0) -> None:
        """``published`` are the types of its columns; so often its slot is somebody's still."""
        self.server_version = 18
        self.published = published
        self.busy = busy
        self.closed = False

    def is_near(self) -> bool:
        return False

    def identify_system(self) -> SystemIdentity:
        return SystemIdentity("1", 1, LSN(1000), "shop", 16384)

    def exec(self, sql: str) -> list[Row]:
        if sql == "SHOW wal_sender_timeout":
            return [("60s",)]
        if "pg_is_in_recovery" in sql:
            return [("f",)]
        if "puballtables" in sql:
            return [(str(oid),) for oid in self.published]
        validity = ("reserved", None, "false")
        active = "t" if self.busy else "f"
        self.busy = max(0, self.busy - 1)
        return [("pgoutput", "logical", "shop", active, None, str(LSN(400)), "shop", *validity)]

    def _run(self, sql: str) -> NoReturn:
        raise Asked(sql)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("floors", "asked"),
    [((300, 500), 300), ((500, 300), 300), ((0, 800), 0), ((900, 800), 700)],
)
def test_the_stream_is_asked_for_from_the_lowest_floor(
    world: Subscribed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    floors: tuple[int, int],
    asked: int,
) -> None:
    """The batches are at 700; what a table that is being copied needs comes on its own slot."""
    store, subid = world.store, world.sub.oid
    store.origin_advance(origin_name(subid), LSN(700), "a commit")
    for name, floor in zip(("a", "b"), floors, strict=True):
        store.update_rel(subid, world.rel(name).srrelid, floor=LSN(floor))
    copied = SubscriptionRel(subid, 0, SubRelState.INIT, None, "public", "c", "public", "c")
    store.update_rel(subid, store.insert_rel(copied).srrelid, floor=LSN(100))
    publisher = PublisherTwin()
    command = f'START_REPLICATION SLOT "mysub" LOGICAL {LSN(asked)} ('
    assert run(world, publisher, tmp_path, monkeypatch).startswith(command)
    assert publisher.closed


INT4, TSVECTOR = 23, 3614


@pytest.mark.parametrize(
    ("published", "binary"), [((INT4,), True), ((INT4, TSVECTOR), False)], ids=["all", "not all"]
)
def test_014_binary_form_is_asked_for_where_all_of_it_can_be_read(
    world: Subscribed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    published: tuple[int, ...],
    binary: bool,
) -> None:
    asked = run(world, PublisherTwin(*published), tmp_path, monkeypatch)
    assert ("binary 'true'" in asked) is binary


def failing(code: str) -> ReplicationError:
    return ReplicationError("no binary output function available for type t", sqlstate=code)


@pytest.mark.parametrize("by", ["us", "the publisher"])
def test_014_a_stream_that_needs_text_starts_again_from_where_the_origin_stands(
    world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """On a connection of its own; what was applied before does not come again."""
    started: list[tuple[LSN, bool]] = []
    streams: list[StreamTwin] = []
    for name in ("a", "b"):
        world.store.update_rel(world.sub.oid, world.rel(name).srrelid, floor=LSN(900))

    def start(*said: Any, binary: bool, **_: Any) -> StreamTwin:
        started.append((said[3], binary))
        streams.append(StreamTwin())
        return streams[-1]

    def loop(_process: object, applier: Applier, stream: StreamTwin, *_: object) -> None:
        if applier.binary is None:
            raise Asked("text")
        world.store.origin_advance(origin_name(world.sub.oid), LSN(700), "a commit")
        if by == "us":
            raise RestartAsText("a column of an unknown type")
        stream.receiver.error = failing("42883")
        raise stream.receiver.error

    monkeypatch.setattr(worker, "start_stream", start)
    monkeypatch.setattr(worker, "LogicalRepApplyLoop", loop)
    publishers = [PublisherTwin(INT4, busy=0), PublisherTwin(INT4, busy=2)]
    assert run(world, publishers, tmp_path, monkeypatch) == "text"
    assert started == [(LSN(0), True), (LSN(700), False)]
    assert [stream.ended for stream in streams] == [True, True]
    assert [each.closed for each in publishers] == [True, True]
    assert publishers[1].busy == 0, "the walsender before was waited for"


def test_014_a_subscription_that_changed_meanwhile_starts_no_second_stream(
    world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot and its tables' options are those of before."""

    def loop(*_: object) -> None:
        world.store.update_subscription(world.sub.oid, subslotname="other")
        raise RestartAsText("a column of an unknown type")

    monkeypatch.setattr(worker, "start_stream", lambda *_, **__: StreamTwin())
    monkeypatch.setattr(worker, "LogicalRepApplyLoop", loop)
    with pytest.raises(WorkerExit, match="has changed: subslotname"):
        run(world, PublisherTwin(INT4), tmp_path, monkeypatch)


def test_014_a_second_stream_that_cannot_start_is_no_error_of_the_subscription(
    world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which disable_on_error would be for: as with the first one, it is tried again."""
    seen: list[bool] = []

    def loop(process: WorkerProcess, *_: object) -> None:
        seen.append(process.applying)
        raise RestartAsText("a column of an unknown type")

    def wait_for_slot(process: WorkerProcess, *_: object) -> None:
        seen.append(process.applying)
        raise failing("08006")

    monkeypatch.setattr(worker, "start_stream", lambda *_, **__: StreamTwin())
    monkeypatch.setattr(worker, "LogicalRepApplyLoop", loop)
    monkeypatch.setattr(worker, "_wait_for_slot", wait_for_slot)
    with pytest.raises(ReplicationError):
        run(world, [PublisherTwin(INT4), PublisherTwin(INT4)], tmp_path, monkeypatch)
    assert seen == [True, False]


@pytest.mark.parametrize("code", ["08006", "57P01"])
def test_014_a_connection_that_ends_is_no_reason_for_text(
    world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """And an error of ours is none."""
    for received in (True, False):
        error = failing(code if received else "42883")

        def loop(_: object, __: object, stream: StreamTwin, *___: object) -> None:
            stream.receiver.error = error if received else None  # noqa: B023 - called at once
            raise error  # noqa: B023 - called at once

        monkeypatch.setattr(worker, "start_stream", lambda *_, **__: StreamTwin())
        monkeypatch.setattr(worker, "LogicalRepApplyLoop", loop)
        publisher = PublisherTwin(INT4)
        with pytest.raises(ReplicationError) as raised:
            run(world, publisher, tmp_path, monkeypatch)
        assert raised.value is error
        assert publisher.closed


@dataclass(slots=True)
class ReceiverTwin:
    """What ended the stream."""

    error: BaseException | None = None


@dataclass(slots=True)
class StreamTwin:
    """A stream that nothing comes from."""

    ended: bool = False
    receiver: ReceiverTwin = field(default_factory=ReceiverTwin)
    spool: Spool = field(default_factory=lambda: create_autospec(Spool, instance=True))

    def end(self) -> None:
        self.ended = True


def run(
    world: Subscribed,
    publishers: PublisherTwin | Sequence[PublisherTwin],
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A worker's life until it asks for the stream; what it says then."""
    found = iter([publishers] if isinstance(publishers, PublisherTwin) else publishers)
    monkeypatch.setattr(publisher_link, "connect_publisher", lambda *_: next(found))
    monkeypatch.setattr(WorkerLake, "open", lambda *_: MemoryDestination(world.lake))
    link = cast("Any", LinkTwin())
    process = WorkerProcess(data_dir, world.sub.oid, 0, 1, world.store, link, Settings())
    with pytest.raises(Asked) as said:
        apply_worker_main(process)
    return str(said.value)


def test_branches_that_stayed_on_a_table_go_at_the_start(
    world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ident, rel = LakeIdent("public", "b"), world.rel("b")
    MemoryDestination(world.lake).create_branch(ident, "pgsub_1_1_old")
    world.store.delete_rel(world.sub.oid, rel.srrelid)
    world.store.put_leaked_branch(LeakedBranch("public", "b", "u", "mysub", 1, "no route"))
    run(world, PublisherTwin(), tmp_path, monkeypatch)
    assert set(world.lake.tables[ident].refs) == {MAIN}
    assert world.store.leaked_branches() == []


def test_expiries_and_removals_of_orphan_files_take_turns(
    world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a removal reads must not expire: one thread does both."""
    made: list[LakeWriter] = []

    class Writer(LakeWriter):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(worker, "LakeWriter", Writer)
    removals: list[OrphanRemoval] = []

    class Removal(OrphanRemoval):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            removals.append(self)

    monkeypatch.setattr(worker, "OrphanRemoval", Removal)
    run(world, PublisherTwin(), tmp_path, monkeypatch)
    [writer], [removal] = made, removals
    assert writer.maintenance._outcomes._record == world.store.add_lake_upkeep
    assert writer.maintenance.expiry._run_in_background == removal._background.submit
    beside = cast("ThreadPoolExecutor", removal._background)
    assert (beside._max_workers, beside._shutdown) == (1, True)
    assert writer.maintenance.expiry._locks._directory == tmp_path / "locks"
