"""The contract of ``SegmentWriter``: both implementations, on one lake and without their driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.contract import (
    PUBLISHED,
    Make,
    append,
    full,
    merge,
    probe,
    rows_to_append,
    stage,
    stamp,
)
from tests.workers.lake.watched import Watched, delete, update, with_rows
from workers.lake.effects import Counts, Effect, counts, joined
from workers.lake.files.segment_writer import FileSegmentWriter
from workers.lake.interfaces.segment_writer import Barrier, Commit, NewRows, SegmentWriter
from workers.lake.segment import Segment
from workers.lake.sql.merge_results import read_outcomes
from workers.lake.sql.other_writers import OtherWriters
from workers.lake.sql.segment_writer import MergeSegmentWriter
from workers.lake.table import LakeIdent

KINDS: dict[str, type[SegmentWriter]] = {"files": FileSegmentWriter, "merge": MergeSegmentWriter}


@dataclass(slots=True)
class Writing:
    """One writer on a branch of a table with the rows 0 to 9, and the steps it took."""

    table: Watched
    branch: str
    writer: Any
    steps: list[type[object]]
    sources: set[str] = field(default_factory=set)

    def apply(self, segment: Segment, **properties: str) -> None:
        """Run the segment's steps; new rows that come back are given to the same writer."""
        assert self.writer.accepts(segment)
        self.sources.add(segment.source)
        for step in self.writer.steps(segment):
            self.steps.append(type(step))
            if isinstance(step, NewRows):
                self.apply(step.segment, **properties)
            elif isinstance(step, Commit):
                step.run(properties)

    def publish(self) -> Counts:
        """What the batch did; the branch is published."""
        dest: Any = self.table.dest
        effects = [self.writer.effect(source) for source in self.sources or {""}]
        names = [merge.operation for effect in effects for merge in effect.merges]
        outcomes = read_outcomes(self.table.session, {self.table.ident: names}) if names else {}
        parts = [Effect(self.table.ident, self.branch, e.counts, e.merges) for e in effects]
        (found,) = counts([reduce(joined, parts)], outcomes)
        dest._tables.fast_forward(self.table.ident, self.branch)
        return found

    def refused(self, segment: Segment) -> ReplicationError:
        """The error of a segment, while it is applied or when the batch is counted."""
        try:
            self.apply(segment)
            self.publish()
        except ReplicationError as error:
            return error
        raise AssertionError("no error")

    def summaries(self) -> list[dict[str, str]]:
        """The summaries of the branch's snapshots that ``main`` does not have, oldest first."""
        metadata = self.table.metadata
        snapshots = {each["snapshot-id"]: each for each in metadata["snapshots"]}
        at, found = metadata["refs"][self.branch]["snapshot-id"], []
        while at != metadata["refs"]["main"]["snapshot-id"]:
            found.append(snapshots[at]["summary"])
            at = snapshots[at]["parent-snapshot-id"]
        return found[::-1]


def writing(table: Watched, kind: str) -> Writing:
    dest: Any = table.dest
    branch = table.branch()
    chosen = dest._writer(table.session, table.ident, branch).writers
    (writer,) = [each for each in chosen.in_order if isinstance(each, KINDS[kind])]
    return Writing(table, branch, writer, [])


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def writer(kind: str, iceberg: Make, lake_ident: LakeIdent) -> Writing:
    return writing(with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 10), kind)


def test_changes_and_new_rows(writer: Writing) -> None:
    dest = writer.table.dest
    changes = merge(dest, [update(1), update(2, 20), delete(3), update(70), delete(71)])
    writer.apply(replace(changes, append=rows_to_append(dest, [(3, "again", None)])), note="x")
    assert {summary["note"] for summary in writer.summaries()} == {"x"}
    assert writer.publish() == Counts(appended=1, merged=3, update_missing=1, delete_missing=1)
    found = {row[0]: row[1] for row in writer.table.rows()}
    assert found == {n: f"v{n}" for n in (0, *range(4, 10))} | {1: "new", 20: "new", 3: "again"}


def test_segments_see_the_ones_before_them(writer: Writing) -> None:
    dest = writer.table.dest
    writer.apply(append(dest, [(50, "a", None)]))
    writer.apply(merge(dest, [update(50, 51), delete(0)]))
    writer.apply(merge(dest, [delete(51)]))
    assert writer.publish() == Counts(appended=1, merged=3)
    assert [row[0] for row in writer.table.rows()] == list(range(1, 10))


def test_values_that_were_not_sent_stay(writer: Writing) -> None:
    """The branch has to be read for them: nothing is committed before the barrier."""
    dest = writer.table.dest
    changes = [(0, 1, 1, "new", None, True), (0, 2, 2, "new", "sent", False)]
    writer.apply(merge(dest, changes, unchanged=True))
    assert [step for step in writer.steps if step is not Barrier] == [Commit]
    assert writer.publish() == Counts(merged=2)
    assert [row[:3] for row in writer.table.rows()[1:3]] == [(1, "new", "big1"), (2, "new", "sent")]


def test_whole_rows(writer: Writing) -> None:
    dest = writer.table.dest
    writer.apply(append(dest, [(60, "a", None)] * 3))

    def decide(found: list[Any]) -> Any:
        (_, *first), (_, *second) = sorted(found)
        return [(*first, 1, None, None), (*second, 0, 61, "b")], [(62, "c", None)]

    # The table's column "local note" is published nowhere; the file writer leaves the update of
    # rows that keep such a value to Spark.
    segment = full(dest, [(60, "a", 2)], decide)
    if not writer.writer.accepts(segment):
        assert writer.writer.__class__ is FileSegmentWriter
        return
    writer.apply(segment)
    assert writer.publish() == Counts(appended=4, merged=2)
    assert [row[:2] for row in writer.table.rows()[10:]] == [(60, "a"), (61, "b"), (62, "c")]


def test_rows_of_one_source(kind: str, iceberg: Make, lake_ident: LakeIdent) -> None:
    from tests.workers.lake.contract import COLUMNS
    from workers.lake.table import SOURCE_COLUMN, LakeColumn

    columns = (*COLUMNS, LakeColumn(SOURCE_COLUMN, pa.string()))
    writer = writing(Watched(iceberg(), lake_ident, columns), kind)
    dest = writer.table.dest
    for source in ("one", "two"):
        writer.apply(append(dest, [(1, "a", None), (2, "b", None)], source=source))
    writer.apply(merge(dest, [update(1), delete(2), delete(3)], source="two"))
    assert writer.publish() == Counts(appended=4, merged=2, delete_missing=1)
    found = [(row[0], row[1], row[4]) for row in writer.table.rows()]
    assert sorted(found) == [(1, "a", "one"), (1, "new", "two"), (2, "b", "one")]


def test_a_key_of_two_rows_is_an_error(writer: Writing) -> None:
    dest = writer.table.dest
    writer.apply(append(dest, [(5, "again", None)]))
    error = writer.refused(merge(dest, [update(5)]))
    assert error.code == "23505"
    assert f'key (id) is not unique in lake table "{writer.table.ident}"' in error.primary


def test_two_changes_of_one_row_are_an_error(writer: Writing) -> None:
    assert writer.refused(merge(writer.table.dest, [update(5), delete(5)])).code == "23505"


def test_an_empty_commit_carries_its_properties(writer: Writing) -> None:
    writer.writer.commit_empty({"note": "x"})
    (summary,) = writer.summaries()
    assert summary["note"] == "x"
    assert writer.writer.effect().counts == Counts()


def test_files_of_another_layout_are_not_added(writer: Writing) -> None:
    """The table was altered between staging and commit."""
    dest = writer.table.dest
    staged = writer.table.own_rows([(n, "x", None) for n in range(20)])
    writer.table.command("ALTER TABLE", "ADD COLUMN w INT")
    assert writer.refused(Segment(PUBLISHED, ("id",), append=staged)).code == "40001"
    dest.discard(staged)


def not_for_files(dest: Any) -> Sequence[Segment]:
    one = rows_to_append(dest, [(1, "a", None)])
    return (
        Segment(PUBLISHED, ("id",)),
        Segment(PUBLISHED, ("id",), append=one, generated=(("local note", "v"),)),
        Segment(PUBLISHED, ("id",), append=one, defaults=(("local note", "v"),)),
        Segment(PUBLISHED, ("id",), append=one, source="one", from_branch="pgsub_2"),
        probe(dest, [1], lambda _: Segment(PUBLISHED)),
    )


def test_who_accepts_what(writer: Writing) -> None:
    """Spark writes everything."""
    is_merge = isinstance(writer.writer, MergeSegmentWriter)
    for segment in not_for_files(writer.table.dest):
        assert writer.writer.accepts(segment) == is_merge, segment
    changes = merge(writer.table.dest, [update(1)])
    assert writer.writer.accepts(changes)
    writer.writer.other_writers = OtherWriters(7)
    assert writer.writer.accepts(changes) == is_merge
    assert writer.writer.accepts(append(writer.table.dest, [(1, "a", None)]))


def test_the_writers_of_a_table(iceberg: Make, through_spark: Make, lake_ident: LakeIdent) -> None:
    """Files come first; without the Java API only Spark writes."""
    for make, expected in ((iceberg, list(KINDS.values())), (through_spark, [MergeSegmentWriter])):
        dest: Any = make()
        ident = LakeIdent(lake_ident.schema, f"{lake_ident.table}_{len(expected)}")
        table = Watched(dest, ident)
        chosen = dest._writer(table.session, ident, table.branch()).writers
        assert [type(each) for each in chosen.in_order] == expected
        assert chosen.in_order[-1] is chosen.merge
        stage(dest, c0=pa.array([1], pa.int64()))
        assert stamp(1)
