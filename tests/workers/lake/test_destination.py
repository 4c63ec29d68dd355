"""What every lake must do, run against Iceberg and against the twin in memory."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError, UniqueViolation
from tests.workers.lake.contract import (
    BRANCH,
    COLUMNS,
    PUBLISHED,
    Change,
    Make,
    Table,
    append,
    merge,
    probe,
    probe_any,
    read_rows,
    rows_to_append,
    stage,
    stamp,
)
from workers.lake.effects import Counts, Effect
from workers.lake.segment import Segment
from workers.lake.table import LakeColumn, LakeIdent


def test_a_new_table_is_empty_and_stamped(make: Make, lake_ident: LakeIdent) -> None:
    dest = make()
    assert dest.table(lake_ident) is None
    made = dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    assert (made.columns, made.owner, made.stamp) == (COLUMNS, "me", stamp(10))
    assert made.snapshot_id is not None
    assert dest.table(lake_ident) == made


def test_a_table_that_exists_is_refused_and_dropped_on_request(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    with pytest.raises(ReplicationError) as error:
        table.dest.create_table(table.ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    assert error.value.code == "42P07"
    table.dest.drop_table(table.ident)
    table.dest.drop_table(table.ident)
    assert table.dest.table(table.ident) is None


def test_an_adopted_table_keeps_its_rows_and_has_one_owner(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    adopted = table.dest.adopt_table(table.ident, owner="me", stamp=stamp(30, "other"))
    assert adopted.stamp == stamp(30, "other")
    assert table.rows() == [(1, "a", None, None)]
    with pytest.raises(ReplicationError) as error:
        table.dest.adopt_table(table.ident, owner="you", stamp=stamp(30))
    assert error.value.code == "55006"


def test_nothing_shows_before_publish(table: Table) -> None:
    branch = table.branch()
    counts = table.dest.write(
        table.ident, branch, [append(table.dest, [(1, "a", "x"), (2, None, "")])], stamp(20)
    )
    assert counts == Counts(appended=2)
    assert (table.rows(), table.lsn()) == ([], 10)
    table.dest.publish(table.ident, branch, stamp(20))
    assert (table.rows(), table.lsn()) == ([(1, "a", "x", None), (2, None, "", None)], 20)


def test_a_branch_stands_for_many_batches(table: Table) -> None:
    branch = table.branch()
    for n in range(3):
        segment = append(table.dest, [(n, "a", None)])
        table.dest.write(table.ident, branch, [segment], stamp(20 + n))
        table.dest.publish(table.ident, branch, stamp(20 + n))
    assert [row[0] for row in table.rows()] == [0, 1, 2]
    table.dest.publish(table.ident, branch, stamp(22))  # again: nothing happens


def test_publishing_says_which_snapshot_is_shown(table: Table) -> None:
    branch = table.branch()
    table.dest.write(table.ident, branch, [append(table.dest, [(1, "a", None)])], stamp(20))
    shown = table.dest.publish(table.ident, branch, stamp(20))
    found = table.dest.table(table.ident)
    assert found is not None
    assert shown == found.snapshot_id


def test_updates_deletes_key_changes_and_unchanged_values(table: Table) -> None:
    table.batch([append(table.dest, [(n, f"v{n}", f"big{n}") for n in range(1, 6)])], 20)
    counts = table.batch(
        [
            merge(
                table.dest,
                [
                    (0, 1, 2, "was 1", None, True),  # 1 → 2 and 2 → 1: a swap
                    (0, 2, 1, "was 2", "new", False),
                    (1, 3, None, None, None, False),
                    (0, 4, 4, "v4'", None, False),
                    (0, 99, 99, "nobody", None, False),
                    (1, 98, None, None, None, False),
                ],
                unchanged=True,
            )
        ],
        30,
    )
    assert counts == Counts(merged=4, update_missing=1, delete_missing=1)
    assert table.rows() == [
        (1, "was 2", "new", None),
        (2, "was 1", "big1", None),
        (4, "v4'", None, None),
        (5, "v5", "big5", None),
    ]


def test_only_deletes_and_only_missing_rows(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None), (2, "b", None)])], 20)
    assert table.batch([merge(table.dest, [(1, 1, None, None, None, False)])], 30).merged == 1
    again = table.batch([merge(table.dest, [(1, 1, None, None, None, False)])], 40)
    assert again == Counts(delete_missing=1)
    assert (table.rows(), table.lsn()) == ([(2, "b", None, None)], 40)


def test_segments_apply_in_order_and_truncate_discards_what_is_before(table: Table) -> None:
    table.batch([append(table.dest, [(1, "old", None)])], 20)
    counts = table.batch(
        [
            append(table.dest, [(2, "gone", None)]),
            append(table.dest, [(3, "a", None), (4, "b", None)], truncate=True),
            merge(table.dest, [(0, 3, 5, "moved", None, False)]),
            append(table.dest, [(3, "again", None)]),
        ],
        30,
    )
    assert counts.merged == 1
    assert [row[:2] for row in table.rows()] == [(3, "again"), (4, "b"), (5, "moved")]
    assert table.lsn() == 30


def test_a_batch_that_ends_in_truncate_or_is_empty_is_stamped(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    table.batch([Segment((), truncate=True)], 30)
    assert (table.rows(), table.lsn()) == ([], 30)
    table.batch([Segment((), truncate=True)], 35)
    assert (table.rows(), table.lsn()) == ([], 35)
    table.batch([], 40)
    assert table.lsn() == 40


def test_a_key_that_is_there_twice_is_an_error(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None), (1, "b", None), (2, "c", None)])], 20)
    branch = table.branch()
    for change in [(0, 1, 1, "x", None, False)], [(1, 1, None, None, None, False)]:
        with pytest.raises(ReplicationError) as error:
            table.dest.write(table.ident, branch, [merge(table.dest, change)], stamp(30))
        assert error.value.code == "23505"
        assert str(table.ident) in error.value.primary
        assert "id" in error.value.primary
    assert table.lsn() == 20


def test_what_was_put_into_several_tables_is_counted_together(table: Table) -> None:
    dest = table.dest
    other = Table(dest, LakeIdent(table.ident.schema, f"{table.ident.table}_too"))
    third = Table(dest, LakeIdent(table.ident.schema, f"{table.ident.table}_three"))
    table.batch([append(dest, [(1, "a", None), (2, "b", None)])], 20)
    other.batch([append(dest, [(1, "c", None), (1, "d", None), (3, "e", None)])], 20)

    def put(into: Table, *segments: Segment) -> Effect:
        return dest.write_branch(into.ident, into.branch(), segments, stamp(30))

    def update(key: int) -> Change:
        return (0, key, key, "x", None, False)

    def delete(key: int) -> Change:
        return (1, key, None, None, None, False)

    effects = [
        put(table, merge(dest, [update(1), update(9)]), merge(dest, [delete(2)])),
        put(third, append(dest, [(5, "f", None)])),
        put(other, merge(dest, [delete(3), delete(4)])),
    ]
    assert dest.count(effects) == [
        Counts(merged=2, update_missing=1),
        Counts(appended=1),
        Counts(merged=1, delete_missing=1),
    ]
    assert dest.count([]) == []
    with pytest.raises(ReplicationError) as error:
        dest.count([put(table, merge(dest, [delete(2)])), put(other, merge(dest, [update(1)]))])
    assert error.value.code == "23505"
    assert str(other.ident) in error.value.primary


def test_a_probe_finds_keys_that_are_there(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None), (4, "d", "x")])], 20)
    asked: list[list[int]] = []

    def answer(found: list[int]) -> Segment:
        asked.append(found)
        changes = merge(table.dest, [(0, 4, 2, "moved", None, True)], unchanged=True)
        return replace(changes, append=rows_to_append(table.dest, [(4, "new", None)]))

    counts = table.batch([probe(table.dest, [2, 4, 5, 1], answer)], 30)
    assert asked == [[1, 4]]
    assert counts == Counts(appended=1, merged=1)
    assert [row[:3] for row in table.rows()] == [
        (1, "a", None),
        (2, "moved", "x"),
        (4, "new", None),
    ]
    assert table.lsn() == 30


def test_a_probe_counts_rows_and_may_change_nothing(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None), (1, "b", None), (2, "c", None)])], 20)
    asked: list[list[int]] = []

    def answer(found: list[int]) -> Segment:
        asked.append(found)
        return Segment(PUBLISHED, ("id",))

    table.batch([probe(table.dest, [1, 7], answer), probe(table.dest, [], answer)], 30)
    assert asked == [[1, 1], []]
    assert (len(table.rows()), table.lsn()) == (3, 30)


def test_a_probe_sees_what_comes_before_it_and_may_refuse(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None), (3, "c", None)])], 20)
    moved = merge(table.dest, [(0, 1, 2, "moved", None, False), (1, 3, None, None, None, False)])

    def refuse(found: list[int]) -> Segment:
        raise UniqueViolation(f"found {found}")

    branch = table.branch()
    with pytest.raises(UniqueViolation, match=r"found \[2\]$"):
        table.dest.write(
            table.ident, branch, [moved, probe(table.dest, [1, 2, 3], refuse)], stamp(30)
        )
    emptied = replace(moved, truncate=True)
    branch = table.branch()
    with pytest.raises(UniqueViolation, match=r"found \[\]$"):
        table.dest.write(
            table.ident, branch, [emptied, probe(table.dest, [1, 2, 3], refuse)], stamp(30)
        )
    assert table.lsn() == 20


def test_publish_wants_exactly_the_stamp(table: Table) -> None:
    branch = table.branch()
    with pytest.raises(ReplicationError) as error:
        table.dest.publish(table.ident, branch, stamp(20))
    assert error.value.code == "40001"
    table.dest.write(table.ident, branch, [append(table.dest, [(1, "a", None)])], stamp(20))
    with pytest.raises(ReplicationError) as error:
        table.dest.publish(table.ident, branch, stamp(21))
    assert error.value.code == "40001"
    assert table.rows() == []


def test_a_branch_older_than_a_fence_is_never_published(make: Make, lake_ident: LakeIdent) -> None:
    zombie = Table(make(), lake_ident)
    branch = zombie.branch()
    zombie.dest.write(lake_ident, branch, [append(zombie.dest, [(1, "late", None)])], stamp(20))
    successor = make()
    fenced = successor.fence(lake_ident)
    assert fenced.stamp == stamp(10)
    with pytest.raises(ReplicationError) as error:
        zombie.dest.publish(lake_ident, branch, stamp(20))
    assert error.value.code == "40001"
    assert read_rows(successor, lake_ident) == []


def test_a_fence_after_a_publish_carries_the_position_on(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    before = table.dest.table(table.ident)
    fenced = table.dest.fence(table.ident)
    assert fenced.stamp == stamp(20)
    assert before is not None
    assert fenced.snapshot_id != before.snapshot_id
    assert len(table.rows()) == 1


def test_a_branch_begins_where_it_is_told(table: Table) -> None:
    """And cannot be shown any more when main has left that snapshot."""
    found = table.dest.table(table.ident)
    assert found is not None
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    table.dest.create_branch(table.ident, "pgsub_1_9_9", found.snapshot_id)
    table.dest.write(table.ident, "pgsub_1_9_9", [append(table.dest, [(2, "b", None)])], stamp(30))
    with pytest.raises(ReplicationError) as error:
        table.dest.publish(table.ident, "pgsub_1_9_9", stamp(30))
    assert error.value.code == "40001"
    assert table.rows() == [(1, "a", None, None)]


def test_a_publish_that_was_done_already_is_no_error(table: Table) -> None:
    branch = table.branch()
    table.dest.write(table.ident, branch, [append(table.dest, [(1, "a", None)])], stamp(20))
    table.dest.publish(table.ident, branch, stamp(20))
    table.dest.fence(table.ident)  # main is ahead of the branch now
    table.dest.publish(table.ident, branch, stamp(20))
    assert (len(table.rows()), table.lsn()) == (1, 20)


def test_rollback_sets_main_back(table: Table) -> None:
    base = table.dest.table(table.ident)
    assert base is not None
    assert base.snapshot_id is not None
    table.batch([append(table.dest, [(1, "a", None)])], 20)
    table.dest.rollback(table.ident, base.snapshot_id)
    assert (table.rows(), table.lsn()) == ([], 10)
    table.batch([append(table.dest, [(2, "b", None)])], 30)
    assert [row[0] for row in table.rows()] == [2]


def test_dropped_branches_are_gone_and_the_kept_one_is_not(table: Table) -> None:
    first, kept = table.branch(), table.branch()
    table.dest.write(table.ident, kept, [append(table.dest, [(1, "a", None)])], stamp(20))
    table.dest.drop_branches(table.ident, keep=kept)
    table.dest.drop_branches(LakeIdent("contract", "no such table"))
    with pytest.raises(ReplicationError):
        table.dest.write(table.ident, first, [append(table.dest, [(2, "b", None)])], stamp(20))
    table.dest.publish(table.ident, kept, stamp(20))
    assert [row[0] for row in table.rows()] == [1]


def test_lake_only_columns_get_their_default_and_keep_it(table: Table) -> None:
    segment = append(table.dest, [(1, "a", None)], defaults=(("local note", "'x'"),))
    table.batch([segment], 20)
    table.batch([merge(table.dest, [(0, 1, 1, "b", None, False)])], 30)
    (row,) = table.rows()
    assert row[:2] == (1, "b")
    assert row[3] in ("x", "'x'")  # the twin evaluates no expressions


def test_large_stagings_are_files_that_are_removed(make: Make, lake_ident: LakeIdent) -> None:
    table = Table(make(local_relation_rows=10), lake_ident)
    segment = append(table.dest, [(n, f"v{n}", None) for n in range(500)])
    table.batch([segment], 20)
    changes = merge(
        table.dest, [(n % 2, n, n, "new", None, True) for n in range(400)], unchanged=True
    )
    assert table.batch([changes], 30) == Counts(merged=400)
    assert len(table.rows()) == 300
    for staged in (segment.append, changes.merge):
        assert staged is not None
        table.dest.discard(staged)
        table.dest.discard(staged)


def test_released_sessions_can_do_nothing_more(make: Make, lake_ident: LakeIdent) -> None:
    zombie, successor = make(), make()
    table = Table(zombie, lake_ident)
    branch = table.branch()
    zombie.write(lake_ident, branch, [append(zombie, [(1, "a", None)])], stamp(20))
    ids = zombie._session if hasattr(zombie, "_session") else zombie._sessions.get().ids  # type: ignore[attr-defined]  # the twin has one
    successor.release_sessions([ids, ("nobody", "00000000-0000-4000-8000-000000000000")])
    with pytest.raises(ReplicationError) as error:
        zombie.publish(lake_ident, branch, stamp(20))
    assert error.value.code.startswith("08")
    assert read_rows(successor, lake_ident) == []


@pytest.mark.parametrize(
    "name",
    [
        "select",
        "..",
        "a/b",
        "q\"uo`te's",
        "новая 🙂",
        "a.b",
        "branch_x",
        "refs",
        "new\nline;--",
        "{s}",
    ],
)
def test_hostile_names(make: Make, name: str, lake_ident: LakeIdent) -> None:
    dest = make()
    ident = LakeIdent(lake_ident.table, name)
    column = f"c{name}"
    columns = (LakeColumn(column, pa.int64()), LakeColumn(column.upper() + "x", pa.string()))
    dest.create_table(ident, columns, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(ident, BRANCH)
    staged = stage(dest, c0=pa.array([1, 2], pa.int64()), c1=pa.array(["a", "b"]))
    names = tuple(c.name for c in columns)
    dest.write(ident, BRANCH, [Segment(names, (column,), append=staged)], stamp(20))
    dest.publish(ident, BRANCH, stamp(20))
    changes = stage(
        dest,
        op=pa.array([1, 0], pa.int8()),
        b0=pa.array([1, 2], pa.int64()),
        c0=pa.array([None, 3], pa.int64()),
        c1=pa.array([None, "c"]),
    )
    dest.write(ident, BRANCH, [Segment(names, (column,), merge=changes)], stamp(30))
    dest.publish(ident, BRANCH, stamp(30))
    assert read_rows(dest, ident) == [(3, "c")]
    assert dest.table(ident) is not None
    dest.drop_table(ident)


def test_rows_that_have_any_of_several_keys(table: Table) -> None:
    held = [(1, "a", "x"), (2, "b", "y"), (3, None, None), (4, "d", "z")]
    table.batch([append(table.dest, held)], 20)
    told: list[list[tuple[int | None, ...]]] = []

    def resolve(found: list[tuple[int | None, ...]]) -> Segment:
        told.append(sorted(found, key=str))
        return append(table.dest, [(9 + len(told), "new", None)])

    others = {"v": ["b", "a"], "big": ["x", "none"]}
    table.batch(
        [
            probe_any(table.dest, [1, 4, 7], others, resolve),
            probe_any(table.dest, None, others, resolve),
            probe_any(table.dest, [10], {"v": []}, resolve),
        ],
        30,
    )
    assert told == [
        [(0, 1, 0), (1, None, None), (None, 0, None)],
        [(None, 0, None), (None, 1, 0)],
        [(0, None)],  # a row of the same batch
    ]
    assert [row[0] for row in table.rows()] == [1, 2, 3, 4, 10, 11, 12]
