"""Rows of a copy that wait for a commit: once on the branch, whatever comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import IoError, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from tests.workers.lake.contract import Make
from tests.workers.lake.two_columns import COLUMNS, append, count, stamp
from workers.lake.memory.destination import MemoryDestination
from workers.lake.segment import RowsOf, Segment
from workers.lake.staged_rows import Staged
from workers.lake.table import MAIN, LakeIdent, Stamp
from workers.sync.copied_rows import CopiedRows

IDENT = LakeIdent("public", "a")
BRANCH = "pgsub_1_1_1"
REL = SubscriptionRel(7, 16385, SubRelState.DATASYNC, None, "public", "a", "public", "a")
COPIED, REACHED = Stamp("pg_1", LSN(80), "e", LSN(80)), Stamp("pg_1", LSN(100), "e", LSN(80))


class Watched(MemoryDestination):
    """Counts what is discarded; ``errors`` are raised by the writes in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.discarded: list[Staged] = []
        self.errors: list[Exception] = []

    def discard(self, staged: Staged) -> None:
        self.discarded.append(staged)

    def write_sources(self, *of: Any, **more: Any) -> Any:
        if self.errors:
            raise self.errors.pop()
        return super().write_sources(*of, **more)

    def on_branch(self) -> tuple[int, Stamp | None, int]:
        """Rows, position and number of snapshots."""
        table = self.lake.tables[IDENT]
        tip = table.snapshots[table.refs[BRANCH]]
        return len(self.lake.rows(IDENT, BRANCH)), tip.stamp, len(table.snapshots)


@pytest.fixture
def dest() -> Watched:
    made = Watched()
    made.create_table(IDENT, COLUMNS, owner="u", relid=1, stamp=Stamp("pg_1", LSN(0), "e", LSN(0)))
    made.create_branch(IDENT, BRANCH)
    return made


def waiting(dest: Any, rows: int = 5) -> CopiedRows:
    staged = append(dest, 1, rows)
    return CopiedRows(dest, REL, BRANCH, rows, staged)


def test_rows_and_the_position_of_s_are_one_commit(dest: Watched) -> None:
    rows = waiting(dest)
    assert dest.on_branch()[2] == 1
    rows.write(REACHED)
    assert dest.on_branch() == (5, REACHED, 2)
    assert len(dest.discarded) == 1


def test_a_batch_goes_on_top_of_the_rows(dest: Watched) -> None:
    rows = waiting(dest)
    for _ in range(2):
        rows.write_before_batch(COPIED)
        assert dest.on_branch() == (5, COPIED, 2)
    dest.write(IDENT, BRANCH, [append(dest, 6, 2)], Stamp("pg_1", LSN(90), "e", LSN(80)))
    rows.write(REACHED)
    assert dest.on_branch() == (7, REACHED, 4)


def test_rows_that_have_a_commit_get_the_position_alone(dest: Watched) -> None:
    dest.write(IDENT, BRANCH, [append(dest, 1, 5)], COPIED)
    rows = CopiedRows(dest, REL, BRANCH, 5)
    rows.write_before_batch(COPIED)
    assert dest.on_branch() == (5, COPIED, 2)
    rows.write(REACHED)
    assert dest.on_branch() == (5, REACHED, 3)


def test_rows_whose_commit_failed_are_not_forgotten(dest: Watched) -> None:
    """A position alone would publish a copy without rows."""
    rows = waiting(dest)
    dest.errors = [IoError("the store is away")]
    with pytest.raises(IoError) as failed:
        rows.write(REACHED)
    assert failed.value.tables == (REL,), "on_error: suspend looks at it"
    assert rows.waiting is not None
    rows.write(REACHED)
    assert dest.on_branch() == (5, REACHED, 2)


def test_what_is_staged_goes_with_an_error_and_stays_without(dest: Watched) -> None:
    rows = waiting(dest)
    with rows.discarded_on_error():
        assert dest.discarded == []
    with pytest.raises(IoError), rows.discarded_on_error():
        raise IoError("lost")
    assert len(dest.discarded) == 1
    assert dest.on_branch()[0] == 0


# -- on real tables -------------------------------------------------------------------------------


def files(dest: Any, ident: LakeIdent, rows: int) -> CopiedRows:
    """Rows in data files, as a copy writes them."""
    table = pa.table({"c0": pa.array(range(rows), pa.int64()), "c1": ["v"] * rows})
    names, branch = ("id", "v"), BRANCH
    staged = dest.stage(table.to_batches(), table.schema, RowsOf(ident, names, "", "copy"))
    assert staged.own is not None
    rel = replace(REL, lake_schema=ident.schema, lake_table=ident.table)
    return CopiedRows(dest, rel, branch, rows, Segment(names, append=staged))


@pytest.fixture
def lake(iceberg: Make, lake_ident: LakeIdent) -> Any:
    made = iceberg(local_relation_rows=10)
    table = made.create_table(
        lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(0), branch=BRANCH
    )
    made.create_branch(lake_ident, BRANCH, table.snapshot_id)
    return made


def versions(dest: Any, ident: LakeIdent) -> int:
    return len(dest._tables.metadata(ident, "testing")["metadata-log"])


def test_rows_position_and_main_are_one_commit(lake: Any, lake_ident: LakeIdent) -> None:
    rows, before = files(lake, lake_ident, 50), versions(lake, lake_ident)
    rows.write(stamp(20), published_next=True)
    assert (count(lake, lake_ident), versions(lake, lake_ident)) == (0, before)
    lake.publish(lake_ident, BRANCH, stamp(20))
    assert (count(lake, lake_ident), versions(lake, lake_ident)) == (50, before + 1)
    assert lake.table(lake_ident).stamp == stamp(20)
    refs = lake._tables.history(lake_ident).refs
    assert refs[MAIN] == refs[BRANCH]


def test_a_fence_refuses_the_rows_of_a_dead_worker(
    lake: Any, iceberg: Make, lake_ident: LakeIdent
) -> None:
    rows = files(lake, lake_ident, 50)
    rows.write(stamp(20), published_next=True)
    successor: Any = iceberg()
    successor.fence(lake_ident)
    with pytest.raises(ReplicationError) as refused:
        lake.publish(lake_ident, BRANCH, stamp(20))
    assert refused.value.code == "40001"
    assert count(lake, lake_ident) == 0
    successor.drop_branches(lake_ident)
    lists: list[str] = []
    successor.discard_copy(lake_ident, "copy", lambda _uuid, files: lists.extend(files))
    location = lake._tables.metadata(lake_ident, "testing")["location"]
    [left] = list_data(location)
    assert lists == [], "no snapshot had the file"
    successor.discard_files(lake_ident, "copy", [f"elsewhere/{left}"])
    assert list_data(location) == [left], "a file on a list waits for readers"
    successor.discard_files(lake_ident, "copy")
    assert list_data(location) == []


def test_rows_that_nobody_committed_are_found_by_the_copy_id(
    lake: Any, iceberg: Make, lake_ident: LakeIdent
) -> None:
    """The worker was killed while it waited for the answer c."""
    files(lake, lake_ident, 50)
    location = lake._tables.metadata(lake_ident, "testing")["location"]
    assert len(list_data(location)) == 1
    iceberg().discard_copy(lake_ident, "copy")
    assert not list_data(location)


def test_catch_up_on_top_of_rows_that_waited(lake: Any, lake_ident: LakeIdent) -> None:
    rows = files(lake, lake_ident, 50)
    rows.write_before_batch(stamp(20))
    lake.write(lake_ident, BRANCH, [append(lake, 100, 2)], stamp(25))
    rows.write(stamp(30), published_next=True)
    lake.publish(lake_ident, BRANCH, stamp(30))
    assert (count(lake, lake_ident), lake.table(lake_ident).stamp) == (52, stamp(30))


def list_data(location: str) -> list[str]:
    folder = Path(location.removeprefix("file:")) / "data"
    return [path.name for path in folder.rglob("*.parquet")]
