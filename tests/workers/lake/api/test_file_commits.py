"""Commits that name files: what they write, and which changed tables they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errcodes import InternalError, IoError, ReplicationError
from tests.workers.lake.contract import Make
from tests.workers.lake.two_columns import append, stamp
from workers.lake.api import file_commits
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.sql.table_metadata import read_history
from workers.lake.staged_rows import LayoutId, NewFile
from workers.lake.storage.local_store import LocalStore
from workers.lake.table import LakeIdent

BRANCH = "pgsub_1_1_1"
WHAT = "testing"


@pytest.fixture
def commit(
    gateway_tables: GatewayTableApi, dest: Any, lake_ident: LakeIdent
) -> Callable[..., FileTotals]:
    """Commits to an existing branch; parts of the change may be given."""
    dest.create_branch(lake_ident, BRANCH)
    layout = LayoutId(gateway_tables.metadata(lake_ident, WHAT)["table-uuid"], 0, 0, 2)

    def commit(**given: Any) -> FileTotals:
        branch = given.pop("branch", BRANCH)
        change = FileChange(replace(layout, **given.pop("layout", {})), **given)
        return gateway_tables.commit_files(lake_ident, branch, change, WHAT)

    return commit


def test_a_commit_says_what_it_is_given_whatever_that_holds(
    gateway_tables: GatewayTableApi,
    dest: Any,
    lake_ident: LakeIdent,
    commit: Callable[..., FileTotals],
) -> None:
    said = {"plain": "x", "new\nline\r": "\\n \"'`; é 🦆 \x01", "json": '{"a": ["b"]}', "none": ""}
    before = gateway_tables.tip(lake_ident, BRANCH, WHAT)
    made = commit(summary=said, expected_tip=before)
    after = gateway_tables.tip(lake_ident, BRANCH, WHAT)
    assert made == FileTotals(rows=0, deleted=0, tip=after, parent=before)
    snapshots = gateway_tables.metadata(lake_ident, WHAT)["snapshots"]
    (snapshot,) = [each for each in snapshots if each["snapshot-id"] == after]
    assert snapshot["parent-snapshot-id"] == before
    assert {key: snapshot["summary"][key] for key in said} == said
    assert dest.table(lake_ident).snapshot_id == before, "main is where it was"


def test_a_replaced_file_that_stays_is_an_error(commit: Callable[..., FileTotals]) -> None:
    """Each of its rows would be there twice; Iceberg does not notice."""
    unknown = NewFile("file:/unknown.parquet", 10, 1)
    with pytest.raises(InternalError, match="0 of 1 replaced files left the table"):
        commit(removed=[unknown], changes_rows=True)


@pytest.mark.parametrize(
    "given",
    [
        {"layout": {"uuid": "another"}},
        {"layout": {"schema_id": 1}},
        {"layout": {"spec_id": 1}},
        {"layout": {"format_version": 3}},
        {"expected_tip": 1},
        {"branch": "pgsub_1_1_2"},
    ],
    ids=str,
)
def test_a_table_that_is_not_as_it_was_is_not_written_to(
    gateway_tables: GatewayTableApi,
    dest: Any,
    lake_ident: LakeIdent,
    commit: Callable[..., FileTotals],
    given: Any,
) -> None:
    before = read_history(dest._sessions.get(), lake_ident)
    with pytest.raises(ReplicationError) as error:
        commit(**dict(given))
    assert error.value.code == "40001"
    assert str(lake_ident) in error.value.primary
    assert read_history(dest._sessions.get(), lake_ident) == before


def test_a_branch_that_is_not_there_has_no_tip(
    gateway_tables: GatewayTableApi, dest: Any, lake_ident: LakeIdent
) -> None:
    assert dest.table(lake_ident) is not None
    with pytest.raises(ReplicationError) as error:
        gateway_tables.tip(lake_ident, BRANCH, WHAT)
    assert error.value.code == "40001"


def test_a_file_that_is_lost_is_the_storage_s_failure(
    gateway_tables: GatewayTableApi,
    dest: Any,
    lake_ident: LakeIdent,
    commit: Callable[..., FileTotals],
) -> None:
    location = gateway_tables.metadata(lake_ident, WHAT)["location"]
    before = read_history(dest._sessions.get(), lake_ident)
    with pytest.raises(IoError) as error:
        commit(added=[NewFile(f"{location}/data/none.parquet", 1, 1)])
    assert error.value.code == "58030"
    assert read_history(dest._sessions.get(), lake_ident) == before


@pytest.mark.parametrize("kind", ["added", "added_deletes"])
def test_a_file_that_the_store_has_just_confirmed_is_not_looked_for(
    gateway_tables: GatewayTableApi,
    commit: Callable[..., FileTotals],
    lake_ident: LakeIdent,
    kind: str,
) -> None:
    """Each look is a request to an object store."""
    location = gateway_tables.metadata(lake_ident, WHAT)["location"]
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_metadata(schema, footer := pa.BufferOutputStream())
    path = f"{location}/data/none.parquet"
    file = NewFile(path, 1, 1, footer=footer.getvalue().to_pybytes())
    with pytest.raises(IoError):
        commit(**{kind: [file]})
    assert commit(**{kind: [file]}, stored=[path]).tip


def test_a_commit_behind_another_process_s_commit_to_the_branch(
    gateway_tables: GatewayTableApi,
    commit: Callable[..., FileTotals],
    iceberg: Make,
    lake_ident: LakeIdent,
) -> None:
    """The table as of the last commit does not count any more."""
    first = commit()
    layout = LayoutId(gateway_tables.metadata(lake_ident, WHAT)["table-uuid"], 0, 0, 2)
    other: Any = iceberg()
    second = other._tables.commit_files(lake_ident, BRANCH, FileChange(layout), WHAT)
    assert second.parent == first.tip
    assert commit().parent == second.tip
    with pytest.raises(ReplicationError):
        commit(expected_tip=second.tip)


def test_writing_goes_on_after_a_gateway_of_somebody_else_was_closed(
    dest: Any, iceberg: Make, lake_ident: LakeIdent
) -> None:
    iceberg().close()
    dest.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [append(dest, 0, 3)], stamp(20))
    assert dest.publish(lake_ident, BRANCH, stamp(20)) is not None


# -- what a branch's rows are read from -----------------------------------------------------------

PLAIN: dict[str, Any] = {
    "data-file": {"file-path": "file:/lake/a.parquet", "file-format": "parquet"},
    "delete-files": [
        {
            "file-path": "/lake/b.parquet",
            "file-format": "PARQUET",
            "content": "POSITION_DELETES",
        },
        {
            "file-path": "file:///lake/c.puffin",
            "file-format": "puffin",
            "content": "position-deletes",
        },
    ],
}


def test_files_such_as_ours_are_read_here() -> None:
    assert file_commits.is_readable(PLAIN, LocalStore())
    assert file_commits.is_readable({"data-file": PLAIN["data-file"]}, LocalStore())


@pytest.mark.parametrize(
    ("of", "change"),
    [
        ("data-file", {"file-format": "orc"}),
        ("data-file", {"file-path": "s3://bucket/a.parquet"}),
        ("data-file", {"file-path": "hdfs://host/a.parquet"}),
        ("delete-files", {"file-format": "avro"}),
        ("delete-files", {"content": "EQUALITY_DELETES"}),
        ("delete-files", {"file-path": "s3://bucket/b.parquet"}),
    ],
)
def test_others_are_read_by_spark(of: str, change: dict[str, str]) -> None:
    if of == "data-file":
        assert not file_commits.is_readable({**PLAIN, of: PLAIN[of] | change}, LocalStore())
        return
    first, second = PLAIN[of]
    assert not file_commits.is_readable({**PLAIN, of: [first | change, second]}, LocalStore())
    assert not file_commits.is_readable({**PLAIN, of: [first, second | change]}, LocalStore())
