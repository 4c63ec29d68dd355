"""No changes come: the small files of a table's last batches are joined and published."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errcodes import LakeBroken, ReplicationError, RequiredProcessGone
from catalog.lake_maintenance import COMPACTION
from catalog.pg_subscription_rel import SubscriptionRel
from config.guc import Settings
from config.limits import IDLE_AFTER_SECONDS
from tests.workers.maintained import A, Clock, RecordingLake, branches, play
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.lake.effects import FileSizes
from workers.lake.table import MAIN, LakeIdent, Stamp
from workers.proto.messages import Insert
from workers.tables.maintenance.schedule import Maintenance

B = relation(2, "b", "id", "v")
A_TABLE = LakeIdent("public", "a")


class Resting(RecordingLake):
    """Whose rewrites take so many files, and leave a commit on the branch."""

    files = 3

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.few: list[int] = []
        self.last = A_TABLE
        self.shown: list[Stamp] = []

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, deleted_share: float | None = None
    ) -> int:
        self.few.append(sizes.few)
        self.last = ident
        found = super().compact(ident, branch, sizes, deleted_share=deleted_share)
        if deleted_share is not None:
            return found
        if self.files:
            table = self.lake.tables[ident]
            self.lake.commit(table, branch, self.lake.rows(ident, branch))
        return self.files

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        self.shown.append(stamp)
        return super().publish(ident, branch, stamp)


class World:
    """A worker with its tables and its clock; a minute has passed since it began."""

    def __init__(self, world: Subscribed, **settings: Any) -> None:
        self.of, self.clock = world, Clock()
        self.settings = Settings.model_validate(settings)
        self.dest = Resting(world.lake)
        self.worker: Applier = world.worker(self.dest)
        self.worker.writer.maintenance = Maintenance(
            self.dest,
            settings=lambda: self.settings,
            record=world.store.add_lake_upkeep,
            clock=self.clock,
        )
        self.clock.now += 60

    def play(self, batches: int = 3) -> None:
        play(self.worker, self.dest, batches)

    def rest(self, *rels: SubscriptionRel, after: float = IDLE_AFTER_SECONDS) -> int:
        """How many rewrites there are after so many seconds."""
        self.clock.now += after
        self.worker.writer.maintain_idle_table(rels or [self.of.rel("a"), self.of.rel("b")])
        return len(self.dest.few)


def test_what_is_tidied_is_shown_at_the_position_of_the_last_batch(world: Subscribed) -> None:
    resting = World(world)
    resting.play()
    (branch,) = branches(resting.dest)
    table, rows, position = world.lake.tables[A_TABLE], world.rows("a"), world.position()
    shown = table.refs[MAIN]
    assert resting.rest() == 1
    assert resting.dest.few == [2]
    assert resting.dest.shown[-1] == resting.dest.shown[-2]
    assert table.refs[MAIN] == table.refs[branch] != shown
    assert (world.rows("a"), world.position()) == (rows, position)
    assert world.store.in_flight(world.sub.oid) == []
    resting.play(1)
    assert branches(resting.dest) == {branch}
    assert len(world.rows("a")) == 4


def test_once_in_a_naptime_in_which_nothing_comes(world: Subscribed) -> None:
    resting = World(world)
    resting.play()
    assert resting.rest(after=IDLE_AFTER_SECONDS / 2) == 0
    assert resting.rest(after=IDLE_AFTER_SECONDS / 2) == 1
    resting.play()
    assert resting.rest(after=59) == 1
    resting.play(1)
    assert resting.rest(after=IDLE_AFTER_SECONDS / 2) == 1
    assert resting.rest(after=IDLE_AFTER_SECONDS / 2) == 2
    assert resting.rest(after=600) == 2, "nothing has come since"


@pytest.mark.parametrize(("batches", "settings"), [(2, {}), (3, {"autovacuum": "off"}), (0, {})])
def test_not_at_all(world: Subscribed, batches: int, settings: dict[str, Any]) -> None:
    resting = World(world, **settings)
    resting.play(batches)
    assert resting.rest() == 0


def test_not_in_the_first_minute_of_a_worker(world: Subscribed) -> None:
    resting = World(world)
    resting.clock.now -= 60
    resting.play()
    assert resting.rest() == 0
    assert resting.rest(after=60) == 1


def test_where_nothing_was_rewritten_nothing_is_shown(world: Subscribed) -> None:
    resting = World(world)
    resting.dest.files = 0
    resting.play()
    assert resting.rest() == 1
    assert len(resting.dest.shown) == 3


def test_dead_rows_of_a_table_that_changes_no_more_go_until_none_is_left(
    world: Subscribed,
) -> None:
    resting = World(world)
    resting.dest.files = 0
    resting.play(2)  # too few files to matter
    resting.dest.rows, resting.dest.rewrites = (1_200_000, 400_000), [0, 2, 2]
    resting.play(1)
    assert len(resting.dest.vacuumed) == 1, "behind the batch"
    assert resting.rest(after=IDLE_AFTER_SECONDS) == 2
    assert [resting.rest(after=60) for _ in range(3)] == [3, 4, 4], "the last found none"
    assert len(resting.dest.vacuumed) == 3
    assert len(world.rows("a")) == 3


def test_what_was_tidied_behind_the_last_batch_is_shown_too(world: Subscribed) -> None:
    """Nobody else would: the next batch, which never comes."""
    resting = World(world, compaction_batches=100)
    resting.play(9)
    assert not resting.dest.compacted
    resting.play(1)
    assert resting.dest.compacted == [10]
    table, rows = world.lake.tables[A_TABLE], world.rows("a")
    (branch,) = branches(resting.dest)
    assert table.refs[MAIN] != table.refs[branch]
    assert resting.rest() == 1, "and there are no files to rewrite"
    assert table.refs[MAIN] == table.refs[branch]
    assert world.rows("a") == rows
    shown = len(resting.dest.shown)
    assert resting.rest(after=60) == 1
    assert len(resting.dest.shown) == shown, "once"


def test_what_cannot_be_shown_is_no_error_of_the_subscription(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say: no transaction is at fault, and disable_on_error has nothing to stop."""
    resting = World(world)
    resting.play()
    rows = world.rows("a")
    full = ReplicationError("could not write", sqlstate="53100")

    def publish(*_: Any) -> None:
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(resting.dest, "publish", publish)
        resting.rest()
    [said] = [each for each in world.store.lake_upkeep(world.sub.oid) if each.failed]
    assert (said.kind, said.error) == (COMPACTION, "could not write")
    assert resting.rest(after=59) == 1
    assert resting.rest(after=1) == 2, "tried again in the next naptime, on another branch"
    [said] = world.store.lake_upkeep(world.sub.oid)
    assert said.error is None
    assert resting.rest(after=600) == 2
    assert world.rows("a") == rows
    resting.play(1)
    assert world.rows("a") == [*rows, (4, 1)]
    assert world.store.in_flight(world.sub.oid) == []


@pytest.mark.parametrize("kind", [RequiredProcessGone, LakeBroken])
def test_without_a_lake_server_there_is_no_worker(
    world: Subscribed, kind: type[RequiredProcessGone], monkeypatch: pytest.MonkeyPatch
) -> None:
    resting = World(world)
    resting.play()

    def publish(*_: Any) -> None:
        raise kind("gone")

    monkeypatch.setattr(resting.dest, "publish", publish)
    with pytest.raises(kind):
        resting.rest()


def test_a_table_that_is_another_one_now_is_not_tended_either(world: Subscribed) -> None:
    """``rest`` shows a batch, and the next upkeep may be hours later: the table is copied again."""
    resting = World(world, compaction_batches=100)
    resting.play(9)
    resting.worker.apply_batch(batch([A, Insert(1, row("10", "1"))], after=1000))
    rel = world.rel("a")
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="another")
    resting.worker.writer.maintain_changed_tables([world.rel("a")])
    assert resting.dest.compacted == []
    resting.worker.writer.maintain_changed_tables([rel])
    assert resting.dest.compacted == [], "its turn is over"


def test_a_branch_whose_upkeep_failed_is_not_used_again(world: Subscribed) -> None:
    resting = World(world)
    resting.play()
    (branch,) = branches(resting.dest)
    resting.dest.failing = True
    assert resting.rest() == 1
    resting.dest.failing = False
    resting.play(1)
    assert branches(resting.dest) != {branch}
    assert len(world.rows("a")) == 4


def test_a_table_that_is_another_one_now_is_left_alone(world: Subscribed) -> None:
    """It left, or is copied again: its main is not ours to move."""
    resting = World(world)
    resting.play()
    rel = world.rel("a")
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="another")
    assert resting.rest(world.rel("a")) == 0
    assert resting.rest(world.rel("b")) == 0
    assert resting.rest(rel) == 1


def test_one_table_at_a_time_the_untidiest_first(world: Subscribed) -> None:
    resting = World(world)
    resting.play(3)
    for n in range(4):
        resting.worker.apply_batch(batch([B, Insert(2, row(str(n), "1"))], after=1000 + 100 * n))
        resting.worker.writer.maintain_changed_tables(resting.worker.rels.values())
    seen: list[str] = []
    for _ in range(2):
        resting.rest(after=60)
        seen.append(resting.dest.last.table)
    assert seen == ["b", "a"]
    assert (len(world.rows("a")), len(world.rows("b"))) == (3, 4)


def test_a_table_that_fails_each_time_keeps_no_other_from_its_turn(world: Subscribed) -> None:
    resting = World(world)
    resting.play(3)
    for n in range(3):
        resting.worker.apply_batch(batch([B, Insert(2, row(str(n), "1"))], after=1000 + 100 * n))
        resting.worker.writer.maintain_changed_tables(resting.worker.rels.values())
    seen: list[str] = []
    for _ in range(3):
        resting.dest.failing = not seen  # the first is
        resting.rest(after=60)
        seen.append(resting.dest.last.table)
    assert seen == ["a", "b", "a"]


def test_somebody_who_moved_main_meanwhile_is_not_outrun(world: Subscribed) -> None:
    """What was tidied is given up then, and no worker ends for it."""
    resting = World(world)
    resting.play()
    rows = [*world.rows("a"), (9, 9)]
    world.put("a", *rows)
    assert resting.rest() == 1
    assert world.rows("a") == rows
    assert not world.rel("a").copied, "inserted keys are looked for from now on"
    resting.play(1)
    assert world.rows("a") == sorted([*rows, (4, 1)])
    assert world.store.in_flight(world.sub.oid) == []
    assert refused_key(world) == "23505"


def refused_key(world: Subscribed) -> str:
    """What becomes of a key that somebody else has inserted."""
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch([A, Insert(1, row("9", "1"))], after=5000))
    return caught.value.code


def test_a_quiet_table_has_its_turn_while_others_change(world: Subscribed) -> None:
    resting = World(world)
    resting.play()
    for n in range(5):
        resting.clock.now += IDLE_AFTER_SECONDS / 2
        resting.worker.apply_batch(batch([B, Insert(2, row(str(n), "1"))], after=1000 + 100 * n))
        resting.worker.writer.maintain_changed_tables(resting.worker.rels.values())
        resting.rest(after=0)
    assert (resting.dest.few, resting.dest.last.table) == ([2], "a")


@pytest.mark.parametrize("place", ["apply.branches_written", "apply.one_table_published"])
def test_whoever_dies_meanwhile_leaves_the_rows_as_they_are(
    world: Subscribed, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def reach(name: str) -> None:
        if name == place:
            raise Died

    resting = World(world)
    resting.play()
    rows = world.rows("a")
    with monkeypatch.context() as patch:
        patch.setattr("workers.process.failpoints.reach", reach)
        with pytest.raises(Died):
            resting.rest()
    successor = world.worker()
    assert world.rows("a") == rows
    assert world.store.in_flight(world.sub.oid) == []
    successor.apply_batch(batch([A, Insert(1, row("50", "1"))], after=5000))
    assert world.rows("a") == [*rows, (50, 1)]
