"""The order of a batch's commits, and the choice of a writer, with writers that only take notes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, Merge
from workers.lake.iceberg.branch_writer import BranchWriter
from workers.lake.iceberg.choose_writer import Writers
from workers.lake.interfaces.segment_writer import (
    Barrier,
    Commit,
    CommitNames,
    CopyRun,
    Declined,
    NewRows,
    Properties,
    SegmentWriter,
    Step,
    WriterEffect,
)
from workers.lake.metadata.snapshots import LSN_KEY, OPERATION, SOURCES, History, Snapshot
from workers.lake.segment import KeyLookup, Segment, SourcePart, no_keys_found
from workers.lake.sql.segment_writer import MergeSegmentWriter
from workers.lake.table import LakeIdent, Stamp

IDENT = LakeIdent("s", "t")
STAMP = Stamp("pg_1", LSN(30), "e", LSN(5))


def segment(name: str, **more: Any) -> Segment:
    return Segment((name,), **more)


@dataclass(slots=True)
class NoteTaker(SegmentWriter):
    """Each segment is one commit; ``log`` gets what is done, and whether it has the position."""

    name: str
    log: list[str]
    refuses: Sequence[str] = ()
    declines: Sequence[str] = ()
    hands_back: Sequence[str] = ()
    joins: bool = False
    done: Counts = field(default_factory=Counts)
    merges: tuple[Merge, ...] = ()

    def note(self, what: str, properties: Properties) -> None:
        named = OPERATION in properties
        assert named != (LSN_KEY in properties)
        self.log.append(f"{self.name}: {what}{'' if named else ' at the position'}")

    def accepts(self, segment: Segment) -> bool:
        return segment.columns[0] not in self.refuses

    def steps(self, segment: Segment) -> Iterator[Step]:
        name = segment.columns[0]
        if name in self.declines:
            yield Barrier()
            self.log.append(f"{self.name}: declines {name}")
            raise Declined
        yield (
            self.commit((name,), segment.source) if self.joins else Commit(partial(self.note, name))
        )
        if name in self.hands_back:
            yield NewRows(Segment((f"rows of {name}",)))

    def commit(self, work: tuple[str, ...], source: str = "") -> Commit:
        """Of several sources; a name begins with the source."""
        sources = frozenset(name[0] for name in work) if source else frozenset([""])
        return replace(self.together(work), sources=sources)

    def together(self, work: tuple[str, ...]) -> Commit:
        sources = frozenset(name[0] for name in work)
        return Commit(partial(self.note, " ".join(work)), True, sources, work, self.together)

    def commit_empty(self, properties: Properties) -> None:
        self.note("nothing", properties)

    def accepts_copy(self, plan: CopyPlan) -> bool:
        return False

    def copy(self, plan: CopyPlan, run: CopyRun, properties: Properties) -> int:
        raise AssertionError

    def effect(self, source: str = "") -> WriterEffect:
        return WriterEffect(self.done, self.merges)

    def truncate(self, source: str) -> Commit:
        def run(properties: Properties) -> None:
            self.log.append(f"{self.name}: truncate{source}")

        return Commit(run, carries_properties=False)

    def find_keys(self, segment: Segment, lookup: KeyLookup) -> pa.Table:
        self.log.append(f"{self.name}: looks up keys of {segment.columns[0]}")
        return no_keys_found(0)


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def files(log: list[str]) -> NoteTaker:
    return NoteTaker("files", log)


@pytest.fixture
def spark(log: list[str]) -> NoteTaker:
    return NoteTaker("spark", log)


@pytest.fixture
def writer(files: NoteTaker, spark: NoteTaker) -> BranchWriter:
    merge = cast("MergeSegmentWriter", spark)
    return BranchWriter(
        cast("Any", None), IDENT, "b", Writers((files, spark), merge, CommitNames())
    )


def test_only_the_last_commit_has_the_position(writer: BranchWriter, log: list[str]) -> None:
    writer.write([SourcePart([segment("a"), segment("b")], STAMP)])
    assert log == ["files: a", "files: b at the position"]


def test_a_batch_of_nothing_is_an_empty_commit(writer: BranchWriter, log: list[str]) -> None:
    writer.write([SourcePart([], STAMP)])
    assert log == ["files: nothing at the position"]


def test_what_comes_before_a_truncate_is_left_out(writer: BranchWriter, log: list[str]) -> None:
    batch = [segment("a"), segment("b", truncate=True), segment("c"), segment("d", truncate=True)]
    writer.write([SourcePart(batch, STAMP)])
    assert log == ["spark: truncate", "files: d at the position"]


def test_a_truncate_cannot_have_the_position(
    writer: BranchWriter, log: list[str], files: NoteTaker, spark: NoteTaker
) -> None:
    files.refuses = spark.refuses = ["a"]
    writer.write([SourcePart([segment("a", truncate=True, source=" one")], STAMP)])
    assert log == ["spark: truncate one", "files: nothing at the position"]


def test_the_first_that_accepts_writes(
    writer: BranchWriter, log: list[str], files: NoteTaker
) -> None:
    files.refuses = ["b"]
    writer.write([SourcePart([segment("a"), segment("b"), segment("c")], STAMP)])
    assert log == ["files: a", "spark: b", "files: c at the position"]


def test_a_writer_that_declines_has_seen_all_before_it(
    writer: BranchWriter, log: list[str], files: NoteTaker
) -> None:
    files.declines = ["b"]
    writer.write([SourcePart([segment("a"), segment("b")], STAMP)])
    assert log == ["files: a", "files: declines b", "spark: b at the position"]


def test_new_rows_beside_changes_are_anybody_s(
    writer: BranchWriter, log: list[str], files: NoteTaker, spark: NoteTaker
) -> None:
    files.declines, spark.hands_back = ["a"], ["a"]
    writer.write([SourcePart([segment("a")], STAMP)])
    assert log == ["files: declines a", "spark: a", "files: rows of a at the position"]
    log.clear()
    files.refuses = ["rows of a"]
    writer.write([SourcePart([segment("a")], STAMP)])
    assert log == ["files: declines a", "spark: a", "spark: rows of a at the position"]


def test_keys_are_looked_up_behind_all_before_them(writer: BranchWriter, log: list[str]) -> None:
    def decide(found: pa.Table) -> Segment:
        assert found.num_rows == 0
        log.append("decided")
        return segment("c")

    lookup = KeyLookup(None, decide)
    writer.write([SourcePart([segment("a"), segment("b", key_lookup=lookup)], STAMP)])
    assert log == ["files: a", "spark: looks up keys of b", "decided", "files: c at the position"]


def test_an_error_of_a_decision_leaves_no_position(writer: BranchWriter, log: list[str]) -> None:
    def decide(found: pa.Table) -> Segment:
        raise ReplicationError("a key is there", sqlstate="23505")

    batch = [segment("a"), segment("b", key_lookup=KeyLookup(None, decide)), segment("c")]
    with pytest.raises(ReplicationError):
        writer.write([SourcePart(batch, STAMP)])
    assert log == ["files: a", "spark: looks up keys of b"]


def test_the_effect_is_that_of_both(
    writer: BranchWriter, files: NoteTaker, spark: NoteTaker
) -> None:
    files.done = Counts(appended=1, merged=2, rows=10, deleted=3)
    spark.done, spark.merges = Counts(appended=4, update_origin_differs=1), (Merge(5, 2),)
    [effect] = writer.write([SourcePart([], STAMP)])
    assert (effect.ident, effect.branch, effect.merges) == (IDENT, "b", spark.merges)
    assert effect.counts == Counts(appended=5, merged=2, update_origin_differs=1)
    assert (effect.counts.rows, effect.counts.deleted) == (10, 3)


def of(source: str, *names: str, **more: Any) -> SourcePart:
    """The segments of a source; each name begins with the source."""
    segments = [segment(name, source=source, **more) for name in names]
    return SourcePart(segments, replace(STAMP, source=source))


@pytest.fixture
def shared(writer: BranchWriter, files: NoteTaker) -> BranchWriter:
    """The writer of a shared table without positions yet."""
    files.joins = True
    history = History({"b": 1}, {1: Snapshot(1, None, None)})
    writer.tables = cast("Any", SimpleNamespace(history=lambda ident: history))
    return writer


def test_the_sources_of_a_table_share_a_commit(shared: BranchWriter, log: list[str]) -> None:
    effects = shared.write([of("x", "x1", "x2"), of("y", "y1"), of("z", "z1", "z2")])
    assert log == ["files: x1 y1 z1", "files: x2 z2 at the position"]
    assert [effect.commits for effect in effects] == [2, 0, 0]
    assert effects[0].snapshots == {1}


def test_a_source_s_truncate_leaves_the_segments_of_others(
    shared: BranchWriter, log: list[str]
) -> None:
    emptied = of("y", "y1", "y2", truncate=True)
    shared.write([of("x", "x1"), emptied])
    assert log == ["files: x1", "spark: truncatey", "files: y2 at the position"]


def test_a_look_up_waits_for_its_own_source_alone(shared: BranchWriter, log: list[str]) -> None:
    def decide(found: pa.Table) -> Segment:
        return segment("y1", source="y")

    looked_up = of("y", "y", key_lookup=KeyLookup(None, decide))
    shared.write([of("x", "x1"), looked_up])
    assert log == ["spark: looks up keys of y", "files: x1 y1 at the position"]
    log.clear()
    shared.write([replace(looked_up, segments=[segment("y0", source="y"), *looked_up.segments])])
    assert log == ["files: y0", "spark: looks up keys of y", "files: y1 at the position"]


def test_what_spark_commits_stays_alone(
    shared: BranchWriter, log: list[str], files: NoteTaker
) -> None:
    files.refuses = ["y1"]
    shared.write([of("x", "x1"), of("y", "y1"), of("z", "z1")])
    assert log == ["files: x1", "spark: y1", "files: z1 at the position"]


def test_the_position_of_every_source_is_in_the_last_commit(
    shared: BranchWriter, files: NoteTaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Properties] = []
    monkeypatch.setattr(NoteTaker, "note", lambda self, what, properties: seen.append(properties))
    shared.write([of("x", "x1"), of("y", "y1")])
    [properties] = seen
    assert sorted(json.loads(properties[SOURCES])) == ["x", "y"]


def test_each_commit_has_a_name_of_its_own() -> None:
    names, others = CommitNames(), CommitNames()
    assert len({names.next(), names.next(), others.next(), others.next()}) == 4
