"""A permanent sync slot: whoever dies wherever, no row is lost or doubled, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState, ReplicationError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SyncSlot
from catalog.pg_subscription_rel import Setter, SubRelState
from config.guc import Settings
from tests.workers.subscribed import Subscribed
from tests.workers.synchronised import IDENT, TIMELINE, Killed, Late, Synchronised
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, Stamp
from workers.process.worker_exit import WorkerExit
from workers.publisher.replication_slots import RemoteSlot
from workers.sync.permanent_slot import unfit
from workers.tables.maintenance import expiry, schedule

BEFORE_F = (
    "tablesync.started",
    "tablesync.datasync_stored",
    "tablesync.slot_created",
    "tablesync.branch_created",
    "tablesync.range_copied",
    "tablesync.copied",
    "tablesync.copy_published",
)
AFTER_F = (
    "tablesync.finishedcopy_stored",
    "tablesync.waiting",
    "apply.branch_created",
    "apply.table_written",
    "apply.one_table_published",
    "tablesync.batch_published",
    "feedback remembered",
    "feedback sent",
    "tablesync.caught_up",
)
AFTER_S = ("tablesync.syncdone_stored", "tablesync.slot_dropped")
AGAIN = ("tablesync.before_fence", "tablesync.fenced", *AFTER_F[1:])
"""What a worker comes to that goes on from ``f``."""


@pytest.fixture
def synced(world: Subscribed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Synchronised:
    """A table in ``i``; three transactions are committed, and ten when the copy is done."""
    made = Synchronised(world, tmp_path)
    made.publisher.committed = 3
    made.play(monkeypatch)
    return made


def die(synced: Synchronised, place: str) -> None:
    """A worker dies; meanwhile the publisher goes on, and the apply worker without the table."""
    synced.die_at = place
    with pytest.raises(Killed):
        synced.worker()
    synced.publisher.committed += 4
    synced.link.gated = LSN(100 * synced.publisher.committed - 200)


def check(synced: Synchronised) -> None:
    """The table is in ``s``; what the apply worker does from here on makes it whole."""
    rel, sub = synced.rel, synced.world.sub
    assert rel.srsubstate == SubRelState.SYNCDONE
    assert rel.srsublsn is not None
    assert rel.srsublsn >= synced.link.gated, "the apply worker has dropped what came before"
    origin = origin_name(sub.oid)
    assert synced.stamp == Stamp(origin, rel.srsublsn, rel.epoch or "", rel.floor, synced.source)
    assert synced.rows() == synced.published(rel.srsublsn // 100)
    assert synced.origin is None
    synced.publisher.committed += 2
    gated = synced.link.gated // 100
    applier = synced.world.worker()
    applier.apply_batch(synced.publisher.transactions(gated))
    assert synced.rows() == synced.published()
    applier = synced.world.worker()  # the publisher forgot what was confirmed
    applier.apply_batch(synced.publisher.transactions(0))
    assert synced.rows() == synced.published()


def test_a_table_comes_through_f(synced: Synchronised) -> None:
    seen: list[tuple[str, LSN | None]] = []

    def stored() -> None:
        seen.append((synced.rel.srsubstate, synced.rel.srsublsn))

    synced.at_place = {
        "tablesync.datasync_stored": stored,
        "tablesync.finishedcopy_stored": stored,
        "tablesync.caught_up": stored,
        "tablesync.syncdone_stored": stored,
    }
    synced.link.gated = LSN(300)
    synced.worker()
    assert seen == [("d", None), ("f", None), ("f", None), ("s", LSN(350))]
    assert synced.link.states == ["d", "w", "s"]
    assert synced.publisher.slots == {}
    assert synced.world.store.leaked_slots() == []
    assert synced.rel.copied
    check(synced)


def test_a_skip_that_was_taken_back_while_the_table_waited(synced: Synchronised) -> None:
    """Every other table applies that transaction: its apply worker has read the catalog since."""
    store, subid = synced.world.store, synced.world.sub.oid
    (skipped,) = synced.publisher.transactions(3, 4).final_lsn
    store.update_subscription(subid, subskiplsn=LSN(int(skipped)))
    synced.at_place["tablesync.waiting"] = lambda: store.update_subscription(
        subid, subskiplsn=InvalidXLogRecPtr
    )
    synced.link.gated = LSN(400)
    synced.worker()
    assert (4, 4) in synced.rows()
    check(synced)


def test_readers_see_the_copy_at_f_then_the_table_catching_up(synced: Synchronised) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(len(synced.rows()))

    synced.at_place = {
        "tablesync.copied": look,
        "tablesync.finishedcopy_stored": look,
        "tablesync.batch_published": look,
    }
    synced.link.gated = LSN(400)
    synced.worker()
    assert seen == [0, 3, 4]


def test_a_table_that_somebody_else_wrote_to_is_opened_once(
    synced: Synchronised, caplog: pytest.LogCaptureFixture
) -> None:
    """Its inserted keys are looked for from then on, and no batch reads it anew."""
    lake = synced.world.lake

    def meddle() -> None:
        theirs = {"id": 900, "v": 7}
        lake.commit(lake.tables[IDENT], MAIN, [*lake.rows(IDENT), theirs], foreign=True)
        synced.publisher.committed = 9

    synced.at_place["tablesync.finishedcopy_stored"] = meddle
    synced.link.gated = LSN(900)
    synced.worker(MemoryDestination(lake, failpoint=synced.reached.append))
    assert synced.rows() == [*synced.published(), (900, 7)]
    assert not synced.rel.copied
    shown = [n for n, place in enumerate(synced.reached) if place == "tablesync.batch_published"]
    assert len(shown) == 7  # transactions 4 to 9, and the position of s
    later = synced.reached[shown[0] : shown[-1]]
    assert "publish" in later
    assert not {"table", "create_branch"} & set(later)
    assert caplog.text.count("action=other_writer") == 1


def test_upkeep_stays_away_until_the_table_is_ready(
    synced: Synchronised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a commit without a stamp on the branch that a table catches up on."""
    tended: list[str] = []

    def compact(*_: object) -> int:
        tended.append("compact")
        return 0

    def expire(*_: object, **_kept: float) -> int:
        tended.append("expire")
        return 0

    for module in (expiry, schedule):
        monkeypatch.setattr(module, "FIRST_MAINTENANCE_BATCHES", 1)
    due = Settings().snapshot_expiry_batches
    monkeypatch.setattr(expiry.SnapshotExpiry, "_removable", lambda *_: due)
    monkeypatch.setattr(MemoryDestination, "compact", compact)
    monkeypatch.setattr(MemoryDestination, "expire", expire)
    synced.link.gated = LSN(400)
    synced.worker()
    check(synced)
    assert tended == []
    store, rel = synced.world.store, synced.rel
    store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.READY, rel.srsublsn, Setter.APPLY)
    applier = synced.world.worker()
    for _ in range(10):
        synced.publisher.committed += 1
        applier.apply_batch(synced.publisher.transactions(synced.publisher.committed - 1))
        applier.writer.maintain_changed_tables(applier.rels.values())
    assert set(tended) == {"compact", "expire"}


@pytest.mark.parametrize("place", BEFORE_F)
def test_s_p_1_whoever_dies_before_f_copies_again(synced: Synchronised, place: str) -> None:
    synced.link.gated = LSN(500)
    die(synced, place)
    assert synced.rel.srsubstate in "id"
    synced.worker()
    assert synced.rel.attempt == 1 + (place != "tablesync.started")
    check(synced)
    assert synced.publisher.slots == {}


@pytest.mark.parametrize("place", AFTER_F)
def test_s_p_3_whoever_dies_after_f_does_not(synced: Synchronised, place: str) -> None:
    synced.publisher.committed = 5
    synced.link.gated = LSN(650)
    die(synced, place)
    assert synced.rel.srsubstate == "f"
    synced.worker()
    assert (synced.rel.attempt, synced.copies, synced.publisher.made) == (1, 1, 1)
    check(synced)
    assert synced.publisher.slots == {}


@pytest.mark.parametrize("place", AGAIN)
def test_its_successor_may_die_as_well(synced: Synchronised, place: str) -> None:
    synced.publisher.committed = 5
    synced.link.gated = LSN(650)
    die(synced, "tablesync.batch_published")
    die(synced, place)
    assert synced.rel.srsubstate == "f"
    synced.worker()
    assert (synced.rel.attempt, synced.copies) == (1, 1)
    check(synced)


@pytest.mark.parametrize("place", AFTER_F[2:])
def test_the_next_apply_worker_may_be_behind_the_table(synced: Synchronised, place: str) -> None:
    """It begins where the last one confirmed; ``s`` is where the table is, and not before."""
    synced.publisher.committed = 5
    synced.link.gated = LSN(650)
    die(synced, place)
    synced.link.gated = LSN(200)
    synced.worker()
    assert synced.copies == 1
    check(synced)


@pytest.mark.parametrize("place", [*BEFORE_F, *AFTER_F])
def test_a_source_of_a_shared_table(synced: Synchronised, place: str) -> None:
    """Another one publishes to it all the while."""
    synced.share()
    synced.publisher.committed = 5
    synced.link.gated = LSN(650)
    for where in ("tablesync.copied", "apply.table_written", "tablesync.fenced"):
        synced.at_place[where] = synced.other_publishes
    die(synced, place)
    synced.other_publishes()
    for where in ("tablesync.waiting", "apply.table_written"):
        synced.at_place[where] = synced.other_publishes
    synced.worker()
    assert synced.copies == 1 + (place in BEFORE_F and place in BEFORE_F[3:])
    check(synced)
    others = synced.rows("other")
    assert others == [(n, 0) for n in range(1, len(others) + 1)]
    assert len(others) > 2


@pytest.mark.parametrize("place", AFTER_S)
def test_s_p_4_a_slot_that_is_left_is_listed(synced: Synchronised, place: str) -> None:
    die(synced, place)
    (leaked,) = synced.world.store.leaked_slots()
    assert leaked.slot_name == synced.slot
    assert set(synced.publisher.slots) <= {synced.slot}
    synced.link.gated = LSN(0)
    check(synced)


def test_a_slot_that_is_made_again_is_not_a_leaked_one(synced: Synchronised) -> None:
    """``refresh --recopy`` of a table whose slot was left behind: nobody may drop its slot."""
    die(synced, "tablesync.syncdone_stored")
    synced.publisher.slots.clear()
    store, rel = synced.world.store, synced.rel
    cmds = Setter.SUBSCRIPTIONCMDS
    store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.INIT, None, cmds)
    store.update_rel(rel.srsubid, rel.srrelid, recopy=True, epoch="new", lake_lsn=LSN(0))
    die(synced, "tablesync.datasync_stored")
    assert store.leaked_slots() == []
    synced.worker()
    check(synced)


def test_nor_if_the_publisher_is_called_otherwise_by_then(synced: Synchronised) -> None:
    die(synced, "tablesync.syncdone_stored")
    store, rel = synced.world.store, synced.rel
    store.update_subscription(rel.srsubid, subconninfo="host=10.0.0.7 user=me")
    store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS)
    die(synced, "tablesync.datasync_stored")
    assert store.leaked_slots() == []


@pytest.mark.parametrize("place", ["tablesync.before_fence", "tablesync.fenced"])
def test_a_late_fast_forward_is_seen_or_does_not_land(synced: Synchronised, place: str) -> None:
    synced.link.gated = LSN(600)
    late = Late(synced.world.lake, at=2)
    with pytest.raises(Killed):
        synced.worker(late)

    def too_late() -> None:
        with pytest.raises(ReplicationError, match="main was moved"):
            late.land()

    synced.at_place = {place: late.land if place == "tablesync.before_fence" else too_late}
    synced.publisher.committed = 8
    synced.worker()
    assert synced.at_place == {}
    assert synced.copies == 1
    check(synced)


def gone(synced: Synchronised) -> None:
    synced.publisher.slots.clear()


def moved(synced: Synchronised) -> None:
    synced.publisher.slots[synced.slot] = LSN(790)


def other_timeline(synced: Synchronised) -> None:
    synced.world.store.update_subscription(synced.world.sub.oid, timeline=TIMELINE + 1)


def restored(synced: Synchronised) -> None:
    synced.publisher.committed = 3
    synced.link.gated = LSN(300)


def dropped(synced: Synchronised) -> None:
    del synced.world.lake.tables[IDENT]


@pytest.mark.parametrize("ruin", [gone, moved, other_timeline, restored, dropped])
def test_a_copy_whose_slot_is_no_good_is_made_again(
    synced: Synchronised, ruin: Callable[[Synchronised], None]
) -> None:
    """Main goes back to what it held before: the copy made then is not added to this one."""
    synced.publisher.committed = 5
    synced.link.gated = LSN(650)
    die(synced, "feedback remembered")
    ruin(synced)
    synced.worker()
    assert (synced.rel.attempt, synced.copies) == (2, 2)
    assert synced.rel.epoch is not None
    check(synced)
    assert synced.publisher.slots == {}


def test_another_timeline_ends_the_worker_that_runs(synced: Synchronised) -> None:
    """What it shows in that moment is not believed: its origin is of no timeline."""
    synced.link.gated = LSN(400)
    synced.at_place = {"tablesync.batch_published": lambda: other_timeline(synced)}
    with pytest.raises(WorkerExit, match="was made on timeline 1"):
        synced.worker()
    assert (synced.rel.srsubstate, synced.origin) == ("f", LSN(0))
    assert synced.stamp.lsn > synced.rel.lake_lsn, "it was shown"
    synced.worker()
    assert synced.copies == 2
    check(synced)


@pytest.mark.parametrize("copied", [True, False], ids=["trusted", "not trusted"])
def test_another_timeline_while_the_copy_is_published_stores_no_f(
    synced: Synchronised, copied: bool
) -> None:
    """Also of a copy whose keys are looked up anyway: its rows are of the lost timeline."""
    synced.copies_whole = copied
    synced.at_place = {"tablesync.copy_published": lambda: other_timeline(synced)}
    with pytest.raises(WorkerExit, match="was made on timeline 1"):
        synced.worker()
    assert synced.rel.srsubstate is SubRelState.DATASYNC


def test_feedback_does_not_bring_a_position_back(synced: Synchronised) -> None:
    synced.link.gated = LSN(600)
    synced.at_place = {"feedback remembered": lambda: other_timeline(synced)}
    with pytest.raises(WorkerExit, match="was made on timeline 1"):
        synced.worker()
    assert synced.origin == LSN(0)


def test_a_lake_table_that_was_set_back_is_refused(synced: Synchronised) -> None:
    """Rule 8: nobody knows what it holds, so nothing is copied on top of it."""
    synced.publisher.committed = 5
    synced.link.gated = LSN(650)
    die(synced, "feedback sent")
    lake = synced.world.lake.tables[IDENT]
    tip = lake.snapshots[lake.refs["main"]]
    assert tip.parent_id is not None
    lake.refs["main"] = tip.parent_id
    with pytest.raises(ObjectNotInPrerequisiteState, match="is behind") as caught:
        synced.worker()
    assert "--recopy" in (caught.value.hint or "")
    assert "accept-gap" not in (caught.value.hint or "")


def test_with_temporary_slots_from_now_on(synced: Synchronised) -> None:
    """What has a permanent one goes on with it; what begins again drops it."""
    die(synced, "tablesync.slot_created")
    store, subid = synced.world.store, synced.world.sub.oid
    store.update_subscription(subid, sync_slot=SyncSlot.TEMPORARY)
    synced.worker()
    assert (synced.origin, synced.publisher.slots) == (None, {})
    check(synced)


def test_f_is_gone_on_from_whatever_the_option_says(synced: Synchronised) -> None:
    die(synced, "tablesync.waiting")
    store, subid = synced.world.store, synced.world.sub.oid
    store.update_subscription(subid, sync_slot=SyncSlot.TEMPORARY)
    synced.worker()
    assert (synced.copies, synced.publisher.slots) == (1, {})
    check(synced)


def test_failover_goes_to_the_slot(synced: Synchronised) -> None:
    synced.world.store.update_subscription(synced.world.sub.oid, subfailover=True)
    synced.worker()
    assert synced.publisher.failover


def test_the_table_that_left_takes_nothing_back(synced: Synchronised) -> None:
    """H-7 in ``f``: its row, and its origin, stay gone."""
    store, rel = synced.world.store, synced.rel
    synced.link.gated = LSN(600)

    def leave() -> None:
        store.delete_rel(rel.srsubid, rel.srrelid)
        store.origin_drop(origin_name(rel.srsubid, rel.srrelid))

    synced.at_place = {"apply.table_written": leave}
    with pytest.raises(WorkerExit, match="has left"):
        synced.worker()
    assert store.rel(rel.srsubid, rel.srrelid) is None
    assert [origin.roname for origin in store.origins()] == [origin_name(rel.srsubid)]


SOUND = RemoteSlot(
    active=False, active_pid=None, confirmed_flush_lsn=LSN(500), is_pgoutput_here=True
)


@pytest.mark.parametrize(
    ("known", "slot", "why"),
    [
        (500, SOUND, None),
        (501, SOUND, None),
        (499, SOUND, "beyond 0/1F3"),
        (0, SOUND, "another server's"),
        (500, None, "is gone"),
        (500, RemoteSlot(False, None, None, is_pgoutput_here=True), "beyond"),
        (500, RemoteSlot(False, None, LSN(500), is_pgoutput_here=False), "somebody else's"),
        (
            500,
            RemoteSlot(False, None, LSN(500), is_pgoutput_here=True, invalidation="rows_removed"),
            "rows",
        ),
    ],
)
def test_what_a_slot_is_good_for(known: int, slot: RemoteSlot | None, why: str | None) -> None:
    found = unfit(LSN(known), slot)
    assert (found is None) == (why is None)
    assert (why or "") in (found or "")
