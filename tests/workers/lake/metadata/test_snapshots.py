"""What a table's chain of snapshots says."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.pg_lsn import LSN
from workers.lake.metadata.snapshots import (
    Snapshot,
    history_of_new_table,
    lake_table,
    stamp_properties,
    tip_to_publish,
    written_by_others,
)
from workers.lake.table import LakeIdent, Stamp


def stamp(epoch: str, source: str = "") -> Stamp:
    return Stamp("pg_1", LSN(5), epoch, LSN(0), source)


def ours(epoch: str) -> Snapshot:
    return Snapshot(1, None, stamp(epoch))


def of(source: str, **epochs: str) -> Snapshot:
    """A commit of a source of a shared table, and the copies of all of them at that time."""
    sources = {name: stamp(epoch, name) for name, epoch in epochs.items()}
    return Snapshot(1, None, sources[source], sources)


NO_STAMP, THEIRS = Snapshot(1, None, None), Snapshot(1, None, None, foreign=True)


@pytest.mark.parametrize(
    ("newest_first", "said"),
    [
        ([], False),
        ([ours("e"), NO_STAMP, ours("e")], False),
        ([THEIRS, ours("e")], True),
        ([ours("e"), THEIRS, NO_STAMP, ours("e")], True),  # a fence, or a batch, on top of it
        ([ours("e"), THEIRS], False),  # before the copy
        ([ours("e"), THEIRS, ours("before")], False),  # after another copy
        ([THEIRS, ours("e"), THEIRS, ours("before")], True),
    ],
)
def test_rows_of_others_since_the_table_is_ours(newest_first: list[Snapshot], said: bool) -> None:
    assert written_by_others(newest_first, {}) == ({""} if said else set())


@pytest.mark.parametrize(
    ("newest_first", "said"),
    [
        ([of("a", a="1", b="1"), of("b", a="1", b="1"), THEIRS], set()),
        ([THEIRS, of("a", a="1", b="1")], {"a", "b"}),
        ([of("a", a="1", b="1"), THEIRS, of("a", a="1")], {"a"}),  # before the copy of b
        ([of("b", a="1", b="2"), THEIRS, of("b", a="1", b="1")], {"a"}),  # b was copied again
        ([of("b", a="1", b="2"), THEIRS, of("a", a="1", b="1")], {"a"}),
        ([of("a", a="2", b="2"), of("b", a="1", b="2"), THEIRS, of("a", a="1", b="1")], set()),
        ([THEIRS, of("b", a="1", b="2"), THEIRS, of("b", a="1", b="1")], {"a", "b"}),
        # What a itself committed has expired; others still list it.
        ([of("b", a="1", b="1"), THEIRS, of("b", a="1", b="1")], {"a", "b"}),
    ],
)
def test_each_source_of_a_shared_table_has_its_copy(
    newest_first: list[Snapshot], said: set[str]
) -> None:
    sources = next(commit.sources for commit in newest_first if commit.sources)
    assert written_by_others(newest_first, sources) - {""} == said


def test_a_new_table_has_one_snapshot_of_an_unknown_time() -> None:
    position = Stamp("pg_1", LSN(5), "e", LSN(0))
    history = history_of_new_table(7, stamp_properties(position))
    table = lake_table(LakeIdent("s", "t"), (), {"pgsub.owner": "me"}, history)
    assert (table.snapshot_id, table.stamp, table.records, table.files) == (7, position, 0, 0)
    assert table.owner == "me"
    assert list(table.snapshots) == []
    assert not table.written_by_others


def refs(main: int, branch: int | None, *, aged: bool = True) -> dict[str, Any]:
    """Metadata with snapshots 1 ← 2 ← 3 and 1 ← 4."""
    parents = {1: None, 2: 1, 3: 2, 4: 1}
    snapshots = [
        {"snapshot-id": n, "timestamp-ms": n, "summary": {"operation": "append"}}
        | ({} if parent is None else {"parent-snapshot-id": parent})
        for n, parent in parents.items()
    ]
    found: dict[str, Any] = {"main": {"snapshot-id": main, "type": "branch"}}
    if branch is not None:
        age = {"max-ref-age-ms": 9} if aged else {}
        found["b"] = {"snapshot-id": branch, "type": "branch", **age}
    return {"snapshots": snapshots, "refs": found}


@pytest.mark.parametrize(
    ("metadata", "published"),
    [
        (refs(1, 3), 3),
        (refs(3, 3), 3),
        (refs(3, 2), 3),  # published already, and main has moved on
        (refs(4, 3), None),
        (refs(1, None), None),
        (refs(1, 3, aged=False), None),
    ],
)
def test_main_moves_forward_only(metadata: dict[str, Any], published: int | None) -> None:
    assert tip_to_publish(metadata, "b") == published
