"""Text that changes on the publisher without an event: noticed before a batch, said once."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from catalog.changed_text import StoredTextTypes
from catalog.pg_subscription_rel import SubRelState
from config.monitor_limits import (
    ALL_TABLES_SECONDS,
    TEXT_COMPARISON_RETRY_SECONDS,
    TEXT_COMPARISON_SECONDS,
)
from tests.workers.transactions import relation
from tests.workers.watched_text import PLAIN, Watched, stages, warnings
from workers.publisher.changing_text import TextTypes


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


def test_a_table_that_is_gone_keeps_what_is_known_of_it(watched: Watched) -> None:
    watched.turn()
    watched.types[1] = TextTypes()
    watched.turn()
    watched.types[1] = stages("open")
    watched.turn()
    assert len(watched.changes()) == 1


def test_a_dropped_table_is_not_asked_about_before_each_batch(watched: Watched) -> None:
    """It stays in the subscription until a REFRESH; each question opens a session."""
    watched.types[1] = TextTypes()
    watched.announce_stage()
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
    watched.announce_stage()
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
    watched.announce_stage()
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
