"""Partitioned tables: files by partition, without Spark, also where the owner changes the spec."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from tests.workers.lake.contract import Make, append, full, merge, stamp
from tests.workers.lake.files.test_merge_delete_files import by_pyiceberg_and_duckdb
from tests.workers.lake.watched import NEVER, Adopted, Watched, delete, update
from workers.lake.column_changes import AddColumn, ColumnChange, DropColumn, RenameColumn
from workers.lake.effects import Counts, FileSizes
from workers.lake.files import find_rows, held_rows
from workers.lake.segment import Segment
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent, Stamp

DEFINITION = (
    "(id BIGINT, v STRING, big STRING, n INT) USING iceberg"
    " PARTITIONED BY (truncate(1, v), bucket(3, id))"
)
LETTERS = ("a", "b", None)


def word(n: int) -> str | None:
    letter = LETTERS[n % 3]
    return None if letter is None else f"{letter}{n}"


@pytest.fixture(params=[2, 3])
def table(iceberg: Make, lake_ident: LakeIdent, request: pytest.FixtureRequest) -> Watched:
    """Rows 0 to 19 in partitions by the first letter of ``v`` and the bucket of ``id``."""
    version = f" TBLPROPERTIES ('format-version' = '{request.param}')"
    dest = iceberg(local_relation_rows=10, format_version=request.param)
    table = Adopted(dest, lake_ident, DEFINITION + version)
    table.command("ALTER TABLE", "WRITE LOCALLY ORDERED BY id DESC")
    table.batch([append(dest, [(n, word(n), None) for n in range(20)])], 20)
    return table


def stamp_of(turn: int, more: int = 0) -> Stamp:
    return stamp(100 + 2 * turn + more)


def values(table: Watched) -> dict[Any, Any]:
    return {row[0]: row[1] for row in table.rows()}


def check_places(table: Watched, *, spark: bool = False) -> None:
    """Every row is in the partition that Spark computes for it, and in a file of pgsub."""
    wrong = (
        "NOT (_partition.id_bucket <=> lake.system.bucket(3, id)"
        " AND _partition.v_trunc <=> lake.system.truncate(1, v))"
    )
    assert table.query(f"count(CASE WHEN {wrong} THEN 1 END)") == [(0,)]
    assert spark or table.by_spark() == 0


def test_a_batch_is_one_snapshot_of_files_by_partition(table: Watched, lake_server: Lake) -> None:
    """With updates that move rows from partition to partition, and one that changes the key."""
    check_places(table)
    assert table.query("count(*)", "data_files") == [(9,)]
    ids = [row[0] for row in table.query("id, _file, _pos")]
    assert len(ids) == 20
    changes = [update(0, v="b!"), update(1, 50, v="b1"), update(2), delete(3), update(99)]
    branch = table.branch()
    assert table.commits(branch) == ["0/14", "0/A"]
    table.batch([merge(table.dest, changes), append(table.dest, [(60, None, None)])], 30)
    expected = {n: word(n) for n in range(20) if n not in (1, 3)}
    expected |= {0: "b!", 50: "b1", 2: "new", 60: None}
    assert values(table) == expected
    check_places(table)
    assert by_pyiceberg_and_duckdb(lake_server, table.ident) == [sorted(expected)] * 2
    assert table.query("count(*)", "files") != table.query("count(*)", "data_files")


def test_rows_of_a_file_are_in_the_table_s_order(table: Watched) -> None:
    found: dict[str, list[tuple[int, int]]] = {}
    for id, file, at in table.query("id, _file, _pos"):
        found.setdefault(file, []).append((at, id))
    for rows in found.values():
        ids = [id for _, id in sorted(rows)]
        assert ids == sorted(ids, reverse=True)


def test_counts_are_those_of_a_table_without_partitions(table: Watched) -> None:
    changes = [update(0, v="b!"), delete(3), delete(98), update(99)]
    counts = table.batch([merge(table.dest, changes)], 30)
    assert (counts.merged, counts.update_missing, counts.delete_missing) == (2, 1, 1)
    assert (counts.rows, counts.deleted) == (21, 2)
    assert table.batch([append(table.dest, [(60, None, None)])], 40) == Counts(appended=1)


@pytest.mark.parametrize("table", [2], indirect=True)
def test_small_batches_leave_few_files(
    table: Watched, lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of new rows and one of deletes in a partition, beside a file that was there before.

    No batch opens a file to look for rows: the process has written all of them.
    """

    def opened(*args: Any) -> Any:
        raise AssertionError(args)

    monkeypatch.setattr(find_rows, "open_file", opened)
    monkeypatch.setattr(held_rows, "HELD_FILE_ROWS", 4)
    dest, chance, model = table.dest, random.Random(3), {n: word(n) for n in range(20)}
    branch = table.branch()
    for turn in range(12):
        if turn == 8:  # from here on Iceberg merges the manifests that the batches write again
            few = "SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '3')"
            table.command("ALTER TABLE", few)
        here = chance.sample(sorted(model), 6)
        changes = [update(key, v=f"{chance.choice('abc')}{turn}") for key in here[:5]]
        new = 100 + turn
        segments: list[Segment] = [merge(dest, [*changes, *map(delete, here[5:])])]
        segments.append(append(dest, [(new, word(new), None)]))
        dest.write(table.ident, branch, segments, stamp_of(turn))
        dest.publish(table.ident, branch, stamp_of(turn))
        model |= {key: str(change[3]) for key, change in zip(here, changes, strict=False)}
        model = {key: model.get(key, word(key)) for key in {*model, new} - {*here[5:]}}
        assert values(table) == model
    check_places(table)
    assert by_pyiceberg_and_duckdb(lake_server, table.ident) == [sorted(model)] * 2
    files = Counter(content for (content,) in table.query("content", "files"))
    places = len(set(table.query("partition.id_bucket, partition.v_trunc", "data_files")))
    assert files[0] < 4 * places, "every fourth row or so a file became large"
    assert files[1] <= places, "and no more deletes than partitions"
    folder = local_path(table.metadata["location"]) / "metadata"
    named = {path.rpartition("/")[2] for (path,) in table.query("path", "all_manifests")}
    assert {path.name for path in folder.glob("*-m*.avro")} == named


def test_whole_rows_are_found_in_their_partitions(table: Watched) -> None:
    """A table without a key: Spark finds the rows, and files of format 2 hold the changes."""
    table.command("ALTER TABLE", "DROP COLUMN n")

    def resolve(hits: list[tuple[Any, ...]]) -> tuple[Any, Any]:
        assert len(hits) == 2
        (_, first, at), (_, second, other) = sorted(hits)
        return [(first, at, 1, None, None), (second, other, 0, 4, "c4")], [(70, "z", None)]

    segment = full(table.dest, [(3, "a3", 1), (4, "b4", 1)], resolve)
    table.batch([segment], 30)
    expected = {n: word(n) for n in range(20) if n != 3} | {4: "c4", 70: "z"}
    assert values(table) == expected
    check_places(table, spark=table.metadata["format-version"] > 2)


def test_the_owner_changes_the_partitions(table: Watched, lake_server: Lake) -> None:
    """A batch that began before is refused and reads again; old files keep their place."""
    branch = table.branch()
    table.dest.write(table.ident, branch, [merge(table.dest, [update(1, v="a")])], stamp(NEVER - 1))
    table.command("ALTER TABLE", "DROP PARTITION FIELD truncate(1, v)")
    table.command("ALTER TABLE", "ADD PARTITION FIELD bucket(2, v)")
    refused = table.refused([merge(table.dest, [delete(5)])], branch)
    assert refused.code == "40001"
    table.dest.drop_branches(table.ident)
    changes = [update(0, v="b!"), update(2), delete(3)]
    table.batch([merge(table.dest, changes), append(table.dest, [(60, "c", None)])], NEVER + 1)
    table.batch([merge(table.dest, [update(0, v="again"), delete(6), delete(60)])], NEVER + 2)
    expected = {n: word(n) for n in range(20) if n not in (3, 6)} | {0: "again", 2: "new"}
    assert values(table) == expected
    assert table.by_spark() == 0
    specs = {spec for (spec,) in table.query("spec_id", "data_files")}
    assert len(specs) == 2
    wrong = "NOT (_partition.v_bucket_2 <=> lake.system.bucket(2, v))"
    newest = f"_spec_id = {max(specs)} AND {wrong}"
    assert table.query(f"count(CASE WHEN {newest} THEN 1 END)") == [(0,)]
    assert by_pyiceberg_and_duckdb(lake_server, table.ident)[0] == sorted(expected)


def test_any_sequence_of_batches_and_maintenance(table: Watched, lake_server: Lake) -> None:
    """Beside a dictionary: moves, deletes, new rows, joined files, merged deletes, vacuum."""
    chance, model = random.Random(11), {n: word(n) for n in range(20)}
    dest, branch = table.dest, table.branch()
    for turn in range(10):
        here = chance.sample(sorted(model), 5)
        new = [100 + 3 * turn + n for n in range(3)]
        changes = [update(key, v=f"{chance.choice('abc')}{turn}") for key in here[:3]]
        segments: list[Segment] = [merge(dest, [*changes, *map(delete, here[3:])])]
        segments.append(append(dest, [(key, word(key), None) for key in new]))
        for change in changes:
            model[change[1]] = str(change[3])
        for key in here[3:]:
            del model[key]
        model |= {key: word(key) for key in new}
        dest.write(table.ident, branch, segments, stamp_of(turn))
        if turn % 5 == 3:
            dest.compact(table.ident, branch, FileSizes(few=2))
        if turn % 5 == 4:
            dest.compact(table.ident, branch, FileSizes(), deleted_share=0.1)
        dest.write(table.ident, branch, [], stamp_of(turn, 1))
        dest.publish(table.ident, branch, stamp_of(turn, 1))
        assert values(table) == model
        check_places(table, spark=True)
    assert by_pyiceberg_and_duckdb(lake_server, table.ident) == [sorted(model)] * 2
    deletes = table.query("count(*)", "delete_files")[0][0]
    assert deletes <= 9 * 9, "as many as partitions, and a few for each"


def test_the_layout_s_columns_stay(table: Watched) -> None:
    """Iceberg refuses what pgsub therefore asks for first."""
    dest, ident = table.dest, table.ident
    refused: list[ColumnChange] = [
        DropColumn(2),
        DropColumn(1),
        AddColumn("v_trunc", pa.int32()),
        RenameColumn(4, "id_bucket"),
    ]
    before = table.metadata
    for change in refused:
        with pytest.raises(ReplicationError) as caught:
            dest.change_columns(ident, [change], str)
        assert caught.value.code == "XX000"
    assert table.metadata == before
    table.command("ALTER TABLE", "DROP PARTITION FIELD truncate(1, v)")
    lake = dest.change_columns(ident, [RenameColumn(2, "v_dropped_2")], str)
    found = {each.name: each for each in lake.columns}
    assert found["id"].partition_fields == ("id_bucket",)
    assert found["v_dropped_2"].partition_fields == ("v_trunc",)
    assert [name for name, each in found.items() if each.sorts] == ["id"]
    assert [name for name, each in found.items() if each.in_layout] == ["id", "v_dropped_2"]
