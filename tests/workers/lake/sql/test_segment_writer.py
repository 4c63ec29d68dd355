"""Batches that Spark writes, though the server has the Java API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.contract import (
    Make,
    append,
    merge,
)
from tests.workers.lake.watched import Adopted, Watched, delete, update, with_rows
from workers.lake.effects import Counts
from workers.lake.files import segment_writer
from workers.lake.segment import Segment
from workers.lake.sql.staged_frame import frame
from workers.lake.staged_rows import Staged
from workers.lake.storage import staging
from workers.lake.storage.staging import staged_columns, staged_schema
from workers.lake.table import LakeIdent


def test_a_table_with_folders_by_hash_is_written_by_spark(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    definition = "(id BIGINT, v STRING, big STRING, n INT) USING iceberg PARTITIONED BY (v)"
    definition += " TBLPROPERTIES ('write.object-storage.enabled' = 'true')"
    table = Adopted(iceberg(local_relation_rows=10), lake_ident, definition)
    rows = [(n, "ab"[n % 2], None) for n in range(20)]
    table.batch([append(table.dest, rows)], 20)
    changes = [update(1, v="b"), update(2, 50, v="c"), delete(3), delete(99)]
    counts = table.batch([merge(table.dest, changes)], 30)
    assert counts == Counts(merged=3, delete_missing=1)
    expected = {n: "ab"[n % 2] for n in range(20) if n not in (2, 3)} | {1: "b", 50: "c"}
    assert {row[0]: row[1] for row in table.rows()} == expected
    assert table.by_spark() == len(table.on_disk())
    assert table.query("count(*)", "partitions") == [(3,)]
    staged = changes_of(table, merge(table.dest, [update(n) for n in range(20)])).merge
    assert staged is not None
    assert len(staged.paths) == 1, "Spark reads them, and better from a file"
    table.dest.discard(staged)


def staged_table(staged: Staged) -> pa.Table:
    return staged_columns(staged, staged_schema(staged).names)


def changes_of(table: Watched, segment: Segment) -> Segment:
    """The segment with its changes staged as those of the table."""
    assert segment.merge is not None
    rows = staged_table(segment.merge)
    table.dest.discard(segment.merge)
    staged = table.dest.stage(rows.to_batches(max_chunksize=7), rows.schema, changes_of=table.ident)
    return replace(segment, merge=staged)


@pytest.mark.parametrize("left_to_spark", [False, True])
def test_changes_stay_in_memory_where_they_are_made_here(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, left_to_spark: bool
) -> None:
    """Spark, which has to make them after all, reads them from a file: a plan should be small."""
    table = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 300)
    changes = [update(n) if n % 2 else delete(n) for n in range(40, 340)]
    segment = changes_of(table, merge(table.dest, changes))
    assert segment.merge is not None
    assert (segment.merge.paths, staged_table(segment.merge).num_rows) == ((), 300)
    read: list[bool] = []

    def framed(session: Any, staged: Staged) -> Any:
        read.append(bool(staged.paths))
        return frame(session, staged)

    if left_to_spark:
        monkeypatch.setattr(segment_writer.FileSegmentWriter, "accepts", lambda *_: False)
        monkeypatch.setattr("workers.lake.sql.segment_writer.frame", framed)
    counts = table.batch([segment], 30)
    assert counts == Counts(merged=260, update_missing=20, delete_missing=20)
    assert read == [True] * left_to_spark
    assert bool(table.by_spark()) == left_to_spark
    found = {row[0]: row[1] for row in table.rows()}
    assert found == {n: f"v{n}" if n < 40 else "new" for n in range(300) if n < 40 or n % 2}


def test_more_changes_than_there_is_room_for_go_to_a_file(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for one segment of them: the next one has it when that is discarded."""
    monkeypatch.setattr(staging, "STAGED_MEMORY_BYTES", 2_000)
    ten = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 10)

    def staged(key: int, changes: int) -> Segment:
        return changes_of(ten, merge(ten.dest, [update(n) for n in range(key, key + changes)]))

    one, other = staged(0, 40), staged(1, 40)
    assert [bool(each.merge and each.merge.paths) for each in (one, other)] == [False, True]
    assert ten.batch([one, other], 30) == Counts(merged=19, update_missing=61)
    for each in (one, other):
        assert each.merge is not None
        ten.dest.discard(each.merge)
    for changes in (1_000, 40):
        rows = staged(0, changes).merge
        assert rows is not None
        assert len(rows.paths) == (changes == 1_000)
        ten.dest.discard(rows)
