"""The last commit of a batch that waits for the publication, on real tables.

Each test ends with the table's rows: a batch is there once, or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import InternalError, ReplicationError
from tests.workers.lake.two_columns import append, count, delete, stamp
from workers.lake.connect.errors import LakeFailure
from workers.lake.effects import FileSizes
from workers.lake.segment import Segment, SourcePart
from workers.lake.table import MAIN, LakeIdent

pytestmark = pytest.mark.spark

BRANCH = "pgsub_1_1_0"
NEXT = "pgsub_1_1_1"


@pytest.fixture
def table(dest: Any, lake_ident: LakeIdent) -> LakeIdent:
    dest.create_branch(lake_ident, BRANCH)
    return lake_ident


def hold(dest: Any, ident: LakeIdent, segment: Segment, lsn: int, branch: str = BRANCH) -> None:
    dest.write_sources(ident, branch, [SourcePart([segment], stamp(lsn))], may_hold=True)


def refs(dest: Any, ident: LakeIdent) -> dict[str, int]:
    return dict(dest._tables.history(ident).refs)


def snapshots(dest: Any, ident: LakeIdent) -> int:
    return len(dest._tables.history(ident).snapshots)


def manifests(dest: Any, ident: LakeIdent) -> set[str]:
    location = dest._tables.metadata(ident, "testing")["location"]
    folder = Path(location.removeprefix("file:")) / "metadata"
    return {path.name for path in folder.glob("*.avro")}


def data_files(dest: Any, ident: LakeIdent) -> set[str]:
    location = dest._tables.metadata(ident, "testing")["location"]
    folder = Path(location.removeprefix("file:")) / "data"
    return {path.name for path in folder.rglob("*.parquet")}


def test_a_batch_is_one_commit(dest: Any, table: LakeIdent) -> None:
    before = refs(dest, table)
    versions = len(dest._tables.metadata(table, "testing")["metadata-log"])
    for n in range(3):
        hold(dest, table, append(dest, 10 * n, 10), 20 + n)
        seen = refs(dest, table)
        assert seen[MAIN] == seen[BRANCH], "the batch waits in this process"
        dest.publish(table, BRANCH, stamp(20 + n))
    after = refs(dest, table)
    assert after[MAIN] == after[BRANCH] != before[MAIN]
    metadata = dest._tables.metadata(table, "testing")
    assert len(metadata["metadata-log"]) - versions == 3
    assert count(dest, table) == 30
    assert dest.table(table).stamp == stamp(22)


def test_a_commit_of_spark_inside_a_batch_is_no_conflict(dest: Any, table: LakeIdent) -> None:
    """The state of the batch before, or of the branch's creation, lacks the commit of Spark."""
    for n, branch in enumerate((BRANCH, NEXT)):
        before = dest.table(table).snapshot_id
        dest.create_branch(table, branch, before)
        for lsn in (20 + 10 * n, 21 + 10 * n):
            emptied = Segment(("id", "v"), truncate=True)
            parts = [SourcePart([emptied, append(dest, lsn, 10)], stamp(lsn))]
            dest.write_sources(table, branch, parts, may_hold=True)
            dest.publish(table, branch, stamp(lsn))
            assert (count(dest, table), dest.table(table).stamp) == (10, stamp(lsn))


def test_deletes_find_the_rows_of_the_batch_before(dest: Any, table: LakeIdent) -> None:
    hold(dest, table, append(dest, 0, 10), 20)
    dest.publish(table, BRANCH, stamp(20))
    hold(dest, table, delete(dest, 3, 4), 21)
    dest.publish(table, BRANCH, stamp(21))
    hold(dest, table, delete(dest, 4, 5), 22)
    dest.publish(table, BRANCH, stamp(22))
    assert count(dest, table) == 7


def assert_refused(dest: Any, ident: LakeIdent, lsn: int) -> None:
    with pytest.raises(ReplicationError) as refused:
        dest.publish(ident, BRANCH, stamp(lsn))
    assert refused.value.code == "40001"


def fenced_off(dest: Any, iceberg: Any, ident: LakeIdent) -> None:
    """A batch of ten rows, behind the fence of a successor."""
    hold(dest, ident, append(dest, 0, 10), 20)
    iceberg().fence(ident)
    assert_refused(dest, ident, 20)


def test_a_fence_refuses_the_batch_of_a_dead_worker(
    dest: Any, iceberg: Any, table: LakeIdent
) -> None:
    fenced_off(dest, iceberg, table)
    assert (count(dest, table), dest.table(table).stamp) == (0, stamp(10))


def test_a_batch_that_was_refused_is_written_again(
    dest: Any, iceberg: Any, table: LakeIdent
) -> None:
    fenced_off(dest, iceberg, table)
    dest.create_branch(table, NEXT)
    hold(dest, table, append(dest, 0, 10), 20, NEXT)
    dest.publish(table, NEXT, stamp(20))
    assert count(dest, table) == 10


def test_a_commit_to_another_branch_meanwhile_is_no_conflict(
    dest: Any, iceberg: Any, table: LakeIdent
) -> None:
    """The state that the worker knows is old; the catalog refuses, and the second attempt reads."""
    hold(dest, table, append(dest, 0, 10), 20)
    other = iceberg()
    other.create_branch(table, "somebody_s")
    other.write(table, "somebody_s", [append(other, 100, 5)], stamp(15))
    dest.publish(table, BRANCH, stamp(20))
    assert (count(dest, table), count(dest, table, "somebody_s")) == (10, 5)


def test_what_is_given_up_leaves_no_file(dest: Any, table: LakeIdent) -> None:
    before = manifests(dest, table), data_files(dest, table)
    hold(dest, table, append(dest, 0, 10), 20)
    assert manifests(dest, table) > before[0]
    assert data_files(dest, table) > before[1]
    dest.drop_branches(table, prefix=BRANCH)
    assert (manifests(dest, table), data_files(dest, table)) == before
    assert count(dest, table) == 0


def test_what_was_published_stays_when_the_branch_goes(dest: Any, table: LakeIdent) -> None:
    hold(dest, table, append(dest, 0, 10), 20)
    dest.publish(table, BRANCH, stamp(20))
    dest.drop_branches(table, prefix=BRANCH)
    assert count(dest, table) == 10


def test_an_answer_that_was_lost(dest: Any, table: LakeIdent) -> None:
    """The table has the snapshot: the batch is published, and not written again."""
    hold(dest, table, append(dest, 0, 10), 20)
    held = dest._tables._loaded._held[table].commit
    held.snapshot.set_refs()
    held.snapshot._refused, held.snapshot.made = held.snapshot.made, None
    dest.publish(table, BRANCH, stamp(20))
    assert (count(dest, table), snapshots(dest, table)) == (10, 2)


def test_an_error_behind_the_effect(dest: Any, table: LakeIdent, monkeypatch: Any) -> None:
    """The history tells that the batch is published, and the next batch follows."""
    failed = LakeFailure("the lake failed while publishing")
    hold(dest, table, append(dest, 0, 10), 20)
    move = dest._tables.fast_forward

    def fails(*given: Any, **more: Any) -> None:
        held = dest._tables._loaded._held[table].commit
        held.snapshot.set_refs()
        raise failed

    monkeypatch.setattr(dest._tables, "fast_forward", fails)
    dest.publish(table, BRANCH, stamp(20))
    monkeypatch.setattr(dest._tables, "fast_forward", move)
    hold(dest, table, append(dest, 10, 10), 21)
    dest.publish(table, BRANCH, stamp(21))
    assert (count(dest, table), snapshots(dest, table)) == (20, 3)


def test_nothing_is_written_over_a_batch_that_waits(dest: Any, table: LakeIdent) -> None:
    hold(dest, table, append(dest, 0, 10), 20)
    with pytest.raises(InternalError):
        hold(dest, table, append(dest, 10, 10), 21)


def test_a_batch_of_several_commits_is_on_the_branch(dest: Any, table: LakeIdent) -> None:
    """``main`` is behind the branch then; only the last commit could wait, and does not."""
    slices = [append(dest, 0, 10)], [append(dest, 10, 10)]
    for segments in slices:
        dest.write_sources(table, BRANCH, [SourcePart(segments, None)], may_hold=True)
    dest.write_sources(table, BRANCH, [SourcePart([], stamp(20))], may_hold=True)
    seen = refs(dest, table)
    assert seen[MAIN] != seen[BRANCH]
    dest.publish(table, BRANCH, stamp(20))
    assert count(dest, table) == 20


def small_batches(dest: Any, table: LakeIdent, lsn: int) -> None:
    """Eight batches of a row, compacted: ``main`` is behind the branch, with the same rows."""
    for n in range(8):
        hold(dest, table, append(dest, 100 * lsn + n, 1), lsn + n)
        dest.publish(table, BRANCH, stamp(lsn + n))
    main = refs(dest, table)[MAIN]
    assert dest.compact(table, BRANCH, FileSizes()) >= 8
    assert refs(dest, table)[BRANCH] != main == refs(dest, table)[MAIN]


def test_the_batch_behind_a_compaction_is_one_commit(dest: Any, table: LakeIdent) -> None:
    small_batches(dest, table, 20)
    before = refs(dest, table)
    hold(dest, table, delete(dest, 2003, 2005), 40)
    assert refs(dest, table) == before, "the batch waits in this process"
    dest.publish(table, BRANCH, stamp(40))
    after = refs(dest, table)
    assert after[MAIN] == after[BRANCH] not in before.values()
    assert count(dest, table) == 6
    assert dest.table(table).stamp == stamp(40)


def test_a_fence_refuses_the_batch_behind_a_compaction(
    dest: Any, iceberg: Any, table: LakeIdent
) -> None:
    """And the compaction with it: the successor's ``main`` has the small files."""
    small_batches(dest, table, 20)
    hold(dest, table, append(dest, 0, 10), 40)
    iceberg().fence(table)
    assert_refused(dest, table, 40)
    assert (count(dest, table), dest.table(table).stamp) == (8, stamp(27))


def test_a_commit_of_another_writer_behind_a_compaction_stays(
    dest: Any, iceberg: Any, table: LakeIdent
) -> None:
    small_batches(dest, table, 20)
    hold(dest, table, append(dest, 0, 10), 40)
    session = iceberg()._sessions.get()
    session.query(f"DELETE FROM lake.{table.schema}.`{table.table}` WHERE id = 2003", "deleting")
    assert_refused(dest, table, 40)
    assert count(dest, table) == 7


def test_a_table_whose_columns_changed_is_40001(dest: Any, iceberg: Any, table: LakeIdent) -> None:
    hold(dest, table, append(dest, 0, 10), 20)
    session = iceberg()._sessions.get()
    session.query(f"ALTER TABLE lake.{table.schema}.`{table.table}` ADD COLUMN w int", "altering")
    assert_refused(dest, table, 20)
    assert count(dest, table) == 0
