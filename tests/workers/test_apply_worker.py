"""An apply worker's way to its stream: what it asks the publisher for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from tests.workers.subscribed import Subscribed
from tests.workers.test_apply_loop import LinkTwin
from workers import apply
from workers.apply import apply_worker_main
from workers.lake.memory import MemoryDestination
from workers.lake_writer import LakeWriter
from workers.orphans import OrphanRemoval
from workers.process import WorkerProcess
from workers.publication import Row
from workers.walreceiver import SystemIdentity, WalReceiverConn


class Asked(Exception):  # noqa: N818 - it is no error
    """The statement after which the twin says nothing more."""


class PublisherTwin(WalReceiverConn):
    """A primary whose slot stands at 400; its connection ends with START_REPLICATION."""

    def __init__(self) -> None:
        self.server_version = 18
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
        validity = ("reserved", None, "false")
        return [("pgoutput", "logical", "shop", "f", None, str(LSN(400)), "shop", *validity)]

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


def run(
    world: Subscribed, publisher: PublisherTwin, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A worker's life until it asks for the stream; what it says then."""
    monkeypatch.setattr(apply, "connect_publisher", lambda *_: publisher)
    monkeypatch.setattr(WorkerProcess, "open_lake", lambda _: MemoryDestination(world.lake))
    link = cast("Any", LinkTwin())
    process = WorkerProcess(data_dir, world.sub.oid, 0, 1, world.store, link, Settings())
    with pytest.raises(Asked) as said:
        apply_worker_main(process)
    return str(said.value)


def test_expiries_and_removals_of_orphan_files_take_turns(
    world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a removal reads must not expire: one thread does both."""
    made: list[LakeWriter] = []

    class Writer(LakeWriter):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(apply, "LakeWriter", Writer)
    removals: list[OrphanRemoval] = []

    class Removal(OrphanRemoval):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            removals.append(self)

    monkeypatch.setattr(apply, "OrphanRemoval", Removal)
    run(world, PublisherTwin(), tmp_path, monkeypatch)
    [writer], [removal] = made, removals
    assert writer.upkeep._record == world.store.add_lake_upkeep
    assert writer.upkeep._beside == removal._beside.submit
    beside = cast("ThreadPoolExecutor", removal._beside)
    assert (beside._max_workers, beside._shutdown) == (1, True)
    assert writer.upkeep._locks._directory == tmp_path / "locks"
