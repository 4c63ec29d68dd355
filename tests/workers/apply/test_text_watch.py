"""Text that changes on the publisher without an event: noticed before a batch, said once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest

from catalog.changed_text import StoredTextTypes
from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_subscription_rel import SubRelState
from config.monitor_limits import (
    ALL_TABLES_SECONDS,
    TEXT_COMPARISON_RETRY_SECONDS,
    TEXT_COMPARISON_SECONDS,
)
from tests.workers.subscribed import Subscribed
from tests.workers.text_questions import TextPublisher
from tests.workers.transactions import relation
from workers.apply.text_watch import ChangedText, TextWatch, warn_of_text
from workers.changes.relation_map import LogicalRepRelMap
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.publisher.changing_text import TextType, TextTypes

STAGE = 16400


def stages(label: str, version: str = "700") -> TextTypes:
    stage = TextType(
        "e", "stage", {"16402": label, "16404": "done"}, {"16402": version, "16404": "700"}
    )
    return TextTypes({"v": (STAGE,)}, {STAGE: stage}, {"id": 1, "v": 2})


PLAIN = TextTypes(numbers={"id": 1, "v": 2})


@dataclass(slots=True)
class FailingPublisher(TextPublisher):
    """Answers no question while ``fails`` is set."""

    fails: bool = False
    locked: bool = False

    def moved_partitions(self, came: Collection[int], went: Collection[int]) -> list[str]:
        """The answer, or the error of a lock that lasts."""
        if self.locked:
            raise ReplicationError("canceling statement due to lock timeout", sqlstate="55P03")
        return TextPublisher.moved_partitions(self, came, went)

    def text_types(self, relids: Collection[int]) -> Mapping[int, TextTypes]:
        """The types, or the error of a lost publisher."""
        found = TextPublisher.text_types(self, relids)
        if self.fails:
            raise ConnectionFailure("could not connect to the publisher")
        return found

    def text_mark(self, types: Mapping[int, TextType]) -> str:
        """The mark, or the error of a lost publisher."""
        found = TextPublisher.text_mark(self, types)
        if self.fails:
            raise ConnectionFailure("could not connect to the publisher")
        return found


@dataclass(slots=True)
class Watched:
    """A watch over tables a (relid 1) and b (relid 2), with a publisher and a clock."""

    world: Subscribed
    types: dict[int, TextTypes] = field(default_factory=lambda: {1: stages("new"), 2: PLAIN})
    publisher: FailingPublisher = field(init=False)
    relmap: LogicalRepRelMap = field(default_factory=LogicalRepRelMap)
    now: float = 0.0
    watch: TextWatch = field(init=False)
    found: list[ChangedText] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.publisher = FailingPublisher(self.types)
        for name, relid in (("a", 1), ("b", 2)):
            self.update(name, remote_relid=relid)
        self.start()

    def start(self) -> None:
        """The next worker."""
        self.watch = TextWatch(self.world.store, self.publisher, lambda: self.now)

    def update(self, name: str, **columns: object) -> None:
        self.world.store.update_rel(self.world.sub.oid, self.world.rel(name).srrelid, **columns)

    def turn(self, later: float = TEXT_COMPARISON_SECONDS) -> None:
        """A turn of the loop after a time."""
        self.now += later
        rels = self.world.store.rels(self.world.sub.oid)
        self.found = self.watch.turn(self.world.sub, rels, self.relmap)
        for each in self.found:
            warn_of_text(self.world.sub, each.rel, each.row)
            self.watch.keep(each)

    def batch(self) -> None:
        """A batch is in hand, at the same moment."""
        rels = self.world.store.rels(self.world.sub.oid)
        self.found = self.watch.before_batch(self.world.sub, rels, self.relmap)
        for each in self.found:
            warn_of_text(self.world.sub, each.rel, each.row)
            self.watch.keep(each)

    def changes(self) -> list[tuple[str, ...]]:
        return [row.changes for row in self.world.store.changed_text()]


@pytest.fixture
def watched(world: Subscribed) -> Watched:
    return Watched(world)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == logging.WARNING]


def test_a_renamed_label_is_said_once(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.turn()
    assert (watched.publisher.asked, watched.changes()) == ([{1, 2}], [])
    watched.types[1] = stages("open")
    watched.turn(TEXT_COMPARISON_SECONDS / 2)  # a turn in between asks nothing
    assert (len(watched.publisher.asked), warnings(caplog)) == (1, [])
    watched.turn()
    assert watched.publisher.asked[1:] == [{1}]  # table b has no such type
    (said,) = warnings(caplog)
    assert 'values of table "public.a" have changed' in said.getMessage()
    assert 'column "v": label "new" of type stage is "open"' in said.__dict__["DETAIL"]
    assert said.__dict__["HINT"].startswith("pgsub refresh mysub --recopy public.a")
    watched.turn()
    watched.start()
    watched.turn()
    assert (len(warnings(caplog)), watched.publisher.asked[2:]) == (
        1,
        [{1}],
    )  # the first of a worker
    assert watched.changes() == [('column "v": label "new" of type stage is "open"',)]


def test_a_label_that_is_renamed_and_renamed_back_is_said_before_the_batch(
    watched: Watched,
) -> None:
    """A worker that was away for a while has rows with the other text in its first batch."""
    watched.turn()
    watched.types[1] = stages("new", "731")
    watched.batch()
    said = 'column "v": label "new" of type stage had another name for a while'
    assert [(each.rel.relname, each.copies) for each in watched.found] == [("a", True)]
    assert watched.changes() == [(said,)]
    watched.batch()
    assert watched.found == []


def test_a_new_copy_ends_the_state(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.turn()
    watched.types[1] = stages("open")
    watched.update("a", epoch="another copy")
    watched.turn()
    assert (watched.changes(), warnings(caplog)) == ([], [])
    watched.types[1] = stages("begun")
    watched.turn()
    assert len(watched.changes()) == 1


def test_a_table_in_synchronisation_or_suspended_is_left_alone(watched: Watched) -> None:
    rel = watched.world.rel("a")
    row = replace(rel, srsubstate=SubRelState.DATASYNC, srsublsn=None)
    watched.watch.turn(watched.world.sub, [row], watched.relmap)
    others = ({"remote_relid": None}, {"other_relid": 7}, {"suspend_time": 1})
    for other in (replace(rel, **columns) for columns in others):
        watched.start()
        watched.watch.turn(watched.world.sub, [other], watched.relmap)
    assert watched.publisher.asked == []


def test_a_column_that_comes_later_is_watched(watched: Watched) -> None:
    """Each announcement brings one question: only the publisher knows the types."""
    watched.watch._all_due = float("inf")
    watched.types[1] = PLAIN
    watched.turn()
    watched.turn()
    assert watched.publisher.asked == [{1, 2}]
    for announced, asked in ((("id",), 2), (("id", "v"), 3), (("id", "v"), 4)):
        watched.relmap.update(relation(1, "a", *announced))
        watched.turn()
        watched.turn()
        assert watched.publisher.asked[1:] == [{1}] * (asked - 1)
    watched.relmap.update(relation(1, "a", "id", "v"))
    watched.types[1] = stages("new")
    watched.turn()
    watched.types[1] = stages("open")
    watched.turn()
    assert len(watched.changes()) == 1


@pytest.mark.parametrize("announced", [True, False])
def test_a_column_that_was_dropped_and_added_again_is_another_one(
    watched: Watched, announced: bool
) -> None:
    """The table is announced by the same message, with its next change: a minute is enough."""
    watched.types[1] = TextTypes(numbers={"id": 1, "v": 2})
    watched.relmap.update(relation(1, "a", "id", "v"))
    watched.turn()
    watched.types[1] = TextTypes(numbers={"id": 1, "v": 3})
    watched.turn()
    assert watched.changes() == []  # nobody asks in between for a table that does not change
    if announced:
        watched.relmap.update(relation(1, "a", "id", "v"))
    watched.turn(TEXT_COMPARISON_SECONDS if announced else ALL_TABLES_SECONDS)
    assert watched.changes() == [('column "v" was dropped and added again',)]


def test_a_column_that_triggers_tell_of_is_not_told_here(watched: Watched) -> None:
    """The worker learns at the position that the column is another one."""
    watched.turn()
    watched.watch.told = True
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 3})
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.changes() == []
    watched.types[1] = stages("open")
    watched.turn()
    assert watched.changes() == [('column "v": label "new" of type stage is "open"',)]


def test_a_table_that_is_gone_keeps_what_is_known_of_it(watched: Watched) -> None:
    watched.turn()
    watched.types[1] = TextTypes()
    watched.turn()
    watched.types[1] = stages("open")
    watched.turn()
    assert len(watched.changes()) == 1


@pytest.mark.parametrize("announced", [True, False])
def test_a_column_that_is_not_published_is_none_of_ours(watched: Watched, announced: bool) -> None:
    both = {"v": (STAGE,), "secret": (STAGE,)}
    watched.types[1] = replace(stages("new"), columns=both)
    watched.relmap.update(relation(1, "a", "id", "v"))
    watched.turn()
    watched.start()
    if not announced:
        watched.relmap = LogicalRepRelMap()
    watched.types[1] = replace(stages("open"), columns=both)
    watched.turn()
    assert watched.changes() == [('column "v": label "new" of type stage is "open"',)]


def computed(name: str, version: int, file: int) -> TextTypes:
    """A table whose second column was written in a version of the catalog, the rows in a file."""
    versions = {"id": "23/-1/700", name: f"23/-1/{version}"}
    return TextTypes(numbers={"id": 1, name: 2}, versions=versions, files=f"1:{file}")


@pytest.mark.parametrize("told", [True, False])
def test_values_computed_anew_behind_a_renaming_are_found(watched: Watched, told: bool) -> None:
    """The worker compares while the last announcement has the old name, or there is none."""
    if told:
        watched.relmap.update(relation(1, "a", "id", "old"))
    watched.types[1] = computed("old", 700, 16402)
    watched.turn()
    watched.types[1] = computed("new", 701, 16402)
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.changes() == []
    watched.types[1] = computed("new", 702, 16403)
    watched.relmap.update(relation(1, "a", "id", "new"))
    watched.turn()
    assert watched.changes() == [('values of column "new" were computed anew',)]


def test_an_announcement_from_before_the_copy_hides_no_column(watched: Watched) -> None:
    rel, copied = watched.world.rel("a"), computed("new", 701, 16402)
    row = StoredTextTypes(rel.srsubid, rel.srrelid, rel.epoch or "", copied.as_json())
    watched.world.store.put_text_types(row)
    watched.relmap.update(relation(1, "a", "id", "old"))
    watched.types[1] = copied
    watched.turn()
    watched.types[1] = computed("new", 702, 16403)
    watched.relmap.update(relation(1, "a", "id", "new"))
    watched.turn()
    assert watched.changes() == [('values of column "new" were computed anew',)]


def test_a_dropped_table_is_not_asked_about_before_each_batch(watched: Watched) -> None:
    """It stays in the subscription until a REFRESH; each question opens a session."""
    watched.types[1] = TextTypes()
    announced = relation(1, "a", "id", "v")
    columns = (announced.columns[0], replace(announced.columns[1], typid=STAGE))
    watched.relmap.update(replace(announced, columns=columns))
    for _ in range(3):
        watched.batch()
    assert watched.publisher.asked == [{1, 2}]
    watched.types[1] = stages("new")
    watched.turn(ALL_TABLES_SECONDS)
    watched.types[1] = stages("open")
    watched.batch()
    assert len(watched.changes()) == 1


def test_a_change_that_nobody_acted_on_is_found_again(watched: Watched) -> None:
    """The worker was killed, or could not ask for the table's size, before it took it out."""
    watched.turn()
    watched.types[1] = stages("open")
    rels = watched.world.store.rels(watched.world.sub.oid)
    assert len(watched.watch.before_batch(watched.world.sub, rels, watched.relmap)) == 1
    watched.start()
    watched.batch()
    assert [each.row.changes for each in watched.found] == watched.changes()
    assert len(watched.changes()) == 1


def test_a_publisher_that_does_not_answer_stops_nothing(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.publisher.fails = True
    with caplog.at_level(logging.INFO):
        watched.turn()
        watched.turn()
    assert (len(watched.publisher.asked), warnings(caplog)) == (1, [])
    assert "could not be compared: could not connect" in caplog.text
    watched.publisher.fails = False
    watched.turn(TEXT_COMPARISON_RETRY_SECONDS)
    watched.types[1] = stages("open")
    watched.turn()
    assert len(watched.changes()) == 1


def test_columns_that_the_lake_has_followed_are_no_others(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """Two columns have swapped their names; the follower knows them by number."""
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 2, "w": 3})
    watched.turn(ALL_TABLES_SECONDS)
    rel = watched.world.rel("b")
    columns = tuple(
        RememberedColumn(n, name, 23, -1, 23, n) for n, name in ((1, "id"), (3, "v"), (2, "w"))
    )
    text = RememberedColumns(rel.epoch or "", 2, 3, {2: 5}, columns).as_text()
    watched.world.store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", text)
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 3, "w": 2})
    watched.turn(ALL_TABLES_SECONDS)
    assert warnings(caplog) == []
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 4, "w": 2})
    watched.turn(ALL_TABLES_SECONDS)
    assert len(warnings(caplog)) == 1
    assert [each.copies for each in watched.found] == [True]


def test_a_column_that_is_added_under_the_name_of_one_whose_drop_was_followed_is_new(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """No comparison came between the drop and the addition."""
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 2})
    watched.turn(ALL_TABLES_SECONDS)
    rel = watched.world.rel("b")
    left = (RememberedColumn(1, "id", 23, -1, 23, 1),)
    text = RememberedColumns(rel.epoch or "", 2, 2, {2: 5}, left, {2: 2}).as_text()
    watched.world.store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", text)
    watched.types[2] = TextTypes(numbers={"id": 1, "v": 3})
    watched.turn(ALL_TABLES_SECONDS)
    assert warnings(caplog) == []
    assert watched.found == []


def test_each_batch_is_looked_at_before(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """A row of the batch may have the new text in its key."""
    watched.turn()
    watched.batch()
    marks = watched.publisher.marks
    watched.batch()
    assert (watched.publisher.marks, len(watched.publisher.asked), warnings(caplog)) == (
        marks + 1,
        2,
        [],
    )
    watched.types[1] = stages("open")
    watched.batch()
    assert (len(warnings(caplog)), watched.publisher.asked[2:]) == (1, [{1}])
    assert [each.copies for each in watched.found] == [True]
    watched.batch()
    assert (watched.found, len(watched.publisher.asked)) == ([], 3)


def test_a_batch_of_tables_without_such_text_asks_nothing(watched: Watched) -> None:
    watched.types[1] = PLAIN
    watched.turn()
    watched.relmap.update(relation(1, "a", "id", "v"))
    for _ in range(3):
        watched.batch()
    assert (watched.publisher.marks, len(watched.publisher.asked)) == (0, 1)


def test_a_new_column_of_a_type_of_its_own_is_looked_at_before_the_next_batch(
    watched: Watched,
) -> None:
    watched.types[1] = PLAIN
    watched.turn()
    announced = relation(1, "a", "id", "v")
    columns = (announced.columns[0], replace(announced.columns[1], typid=STAGE))
    watched.relmap.update(replace(announced, columns=columns))
    watched.types[1] = stages("new")
    watched.batch()
    watched.types[1] = stages("open")
    watched.batch()
    assert watched.publisher.asked[1:] == [{1}, {1}]
    assert watched.changes() == [('column "v": label "new" of type stage is "open"',)]


def test_the_types_of_a_new_column_are_known_behind_its_batch(watched: Watched) -> None:
    """A label is renamed before the next look by the clock, and before the next batch."""
    watched.types[1] = PLAIN
    watched.turn()
    watched.batch()
    announced = relation(1, "a", "id", "v")
    columns = (announced.columns[0], replace(announced.columns[1], typid=STAGE))
    watched.relmap.update(replace(announced, columns=columns))
    watched.types[1] = stages("new")
    watched.turn(0.0)
    watched.types[1] = stages("open")
    watched.batch()
    assert watched.changes() == [('column "v": label "new" of type stage is "open"',)]


def test_a_table_that_joins_with_an_older_text_is_compared(watched: Watched) -> None:
    """Its types are of its copy's snapshot; the other table has told of the label meanwhile."""
    watched.turn()
    rel = watched.world.rel("b")
    before = StoredTextTypes(rel.srsubid, rel.srrelid, "copied", stages("new").as_json())
    watched.types[1] = watched.types[2] = stages("open")
    watched.batch()
    watched.update("b", epoch="copied")
    watched.world.store.put_text_types(before)
    watched.batch()
    assert len(watched.changes()) == 2


def test_a_publisher_that_does_not_answer_is_not_asked_before_each_batch(watched: Watched) -> None:
    watched.turn()
    watched.publisher.fails = True
    for _ in range(3):
        watched.batch()
    assert watched.publisher.marks == 1
    watched.publisher.fails = False
    watched.types[1] = stages("open")
    watched.now += TEXT_COMPARISON_RETRY_SECONDS
    watched.batch()
    assert len(watched.changes()) == 1


def in_files(*relids: int) -> TextTypes:
    return replace(PLAIN, files=" ".join(f"{each}:{each}" for each in relids))


@pytest.mark.parametrize("mode", ["tell", "copy"])
def test_partitions_that_came_and_went_are_told_and_copied_where_asked(
    watched: Watched, mode: str
) -> None:
    watched.watch.on_attach = lambda: mode
    watched.types[2] = in_files(5, 6)
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.publisher.partitions == []
    told = ['partition "p7" was attached, with rows', 'partition "p5" was detached']
    watched.publisher.moved = told
    watched.types[2] = in_files(6, 7)
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.publisher.partitions == [({7}, {5})]
    assert watched.changes() == [tuple(told)]
    (found,) = watched.found
    assert found.copies == (mode == "copy")
    assert "rows of table" in found.row.primary("b")
    assert found.row.detail.endswith("The lake has the rows of before.")
    watched.turn(ALL_TABLES_SECONDS)
    assert len(watched.publisher.partitions) == 1


def test_an_empty_partition_is_nothing(watched: Watched) -> None:
    watched.types[2] = in_files(5)
    watched.turn(ALL_TABLES_SECONDS)
    watched.types[2] = in_files(5, 6)
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.publisher.partitions == [({6}, set())]
    assert (watched.changes(), watched.found) == ([], [])


def test_partitions_are_asked_about_until_there_is_an_answer(watched: Watched) -> None:
    """The question waits a moment for a lock on a partition."""
    watched.types[2] = in_files(5)
    watched.turn(ALL_TABLES_SECONDS)
    watched.types[2] = in_files(5, 6)
    watched.publisher.locked = True
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.changes() == []
    watched.publisher.locked = False
    watched.publisher.moved = ['partition "p6" was attached, with rows']
    watched.turn(ALL_TABLES_SECONDS)
    assert watched.changes() == [('partition "p6" was attached, with rows',)]
