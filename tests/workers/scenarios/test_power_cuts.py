"""A power cut takes what is not on the disk; the catalog stays, and no position is wrong then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState
from tests.workers.subscribed import Subscribed
from tests.workers.synchronised import IDENT, Killed, Synchronised
from tests.workers.transactions import batch, relation, row
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.proto.messages import Insert, Message

A, B = relation(1, "a", "id", "v"), relation(2, "b", "id", "v")
WHOLE = [(1, 1), (2, 2)]
OF_A_COPY = [
    "tablesync.datasync_stored",
    "tablesync.slot_created",
    "tablesync.branch_created",
    "tablesync.copied",
    "tablesync.copy_published",
    "tablesync.finishedcopy_stored",
    "tablesync.batch_published",
    "feedback remembered",
    "feedback sent",
    "tablesync.caught_up",
    "tablesync.syncdone_stored",
]


@pytest.fixture
def synced(world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Synchronised:
    found = Synchronised(world, tmp_path)
    found.play(monkeypatch)
    world.lake.make_durable([IDENT])
    found.publisher.committed = 5
    found.link.gated = LSN(650)
    return found


@contextlib.contextmanager
def dying_at(place: str) -> Iterator[None]:
    """A worker dies when it reaches the place."""

    def reach(name: str) -> None:
        if name == place:
            raise ConnectionFailure("died")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        yield


@pytest.mark.parametrize("place", failpoints.APPLY)
def test_the_apply_worker_s_origin_is_never_ahead_of_the_disk(
    world: Subscribed, place: str
) -> None:
    world.lake.make_durable([LakeIdent("public", name) for name in ("a", "b")])
    changes: list[list[Message]] = [
        [A, B, Insert(1, row("1", "1")), Insert(2, row("1", "1"))],
        [Insert(1, row("2", "2"))],
    ]
    worker = world.worker()
    with dying_at(place), contextlib.suppress(ConnectionFailure):
        worker.apply_batch(batch(*changes))
    world.lake.power_cut()
    worker = world.worker()
    if world.position() == 200:
        assert (world.rows("a"), world.rows("b")) == (WHOLE, WHOLE[:1])
    else:
        worker.apply_batch(batch(*changes))
    assert (world.rows("a"), world.rows("b")) == (WHOLE, WHOLE[:1])


def test_a_batch_that_a_dead_worker_published_is_on_the_disk_before_it_is_skipped(
    world: Subscribed,
) -> None:
    """The successor skips the batch and confirms it, so the successor has to make it durable."""
    world.lake.make_durable([LakeIdent("public", "a")])
    worker = world.worker()
    with dying_at("apply.all_tables_published"), pytest.raises(ConnectionFailure):
        worker.apply_batch(batch([A, Insert(1, row("1", "1"))]))
    world.worker().apply_batch(batch([A, Insert(1, row("1", "1"))]))
    world.lake.power_cut()
    assert world.rows("a") == [(1, 1)]


@pytest.mark.parametrize("place", OF_A_COPY)
def test_a_table_s_state_is_never_ahead_of_the_disk(synced: Synchronised, place: str) -> None:
    synced.die_at = place
    with pytest.raises(Killed):
        synced.worker()
    synced.world.lake.power_cut()
    synced.publisher.committed += 4
    synced.link.gated = LSN(100 * synced.publisher.committed - 200)
    if synced.rel.srsubstate != SubRelState.SYNCDONE:
        synced.worker()
        assert synced.rel.srsublsn is not None
        assert synced.rel.srsublsn >= synced.link.gated
    assert synced.rel.srsubstate == SubRelState.SYNCDONE
    assert synced.stamp.lsn == synced.rel.srsublsn
    assert synced.rows() == synced.published(synced.stamp.lsn // 100)


def test_the_undo_of_a_copy_is_on_the_disk_before_the_next_copy_has_its_id(
    synced: Synchronised,
) -> None:
    """Else ``main`` has the old copy again, and no row of the catalog has the old copy's id."""
    lake = synced.world.lake
    synced.die_at = "tablesync.copy_published"
    with pytest.raises(Killed):
        synced.worker()
    lake.make_durable([IDENT])  # the kernel wrote it by itself
    synced.die_at = "tablesync.datasync_stored"
    with pytest.raises(Killed):
        synced.worker()
    lake.power_cut()
    synced.worker()
    assert synced.rows() == synced.published(synced.stamp.lsn // 100)


def test_a_finished_copy_goes_on_from_what_is_on_the_disk(synced: Synchronised) -> None:
    synced.die_at = "tablesync.batch_published"
    with pytest.raises(Killed):
        synced.worker()
    synced.die_at = "tablesync.waiting"
    with pytest.raises(Killed):
        synced.worker()
    synced.world.lake.power_cut()
    synced.worker()
    assert synced.rel.srsubstate == SubRelState.SYNCDONE
    assert synced.rows() == synced.published(synced.stamp.lsn // 100)
