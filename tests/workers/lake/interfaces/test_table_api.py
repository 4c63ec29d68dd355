"""The contract of ``TableApi``, on both implementations and the real lake server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from getpass import getuser
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.table_layout import LayoutField
from tests.fix_lake import Lake
from tests.workers.lake.contract import Make
from tests.workers.lake.two_columns import COLUMNS, append, count, delete, stamp
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.sessions import Sessions
from workers.lake.interfaces.table_api import TableApi
from workers.lake.metadata.snapshots import OWNER, stamp_properties
from workers.lake.metadata.table_schema import columns_of
from workers.lake.metadata.table_state import TableState
from workers.lake.new_layout import PLAIN, NewLayout, NewTable
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.table import MAIN, LakeColumn, LakeIdent

BRANCH = "pgsub_1_1_1"
TYPES: list[pa.DataType] = [
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.string(),
    pa.binary(),
    pa.decimal128(38, 0),
    pa.decimal128(10, 2),
    pa.list_(pa.field("element", pa.decimal128(5, 5))),
    pa.list_(pa.field("element", pa.string())),
]
MANY = (
    LakeColumn("sure", pa.int64(), False),
    *(LakeColumn(f"c {at}. `\"'é", type) for at, type in enumerate(TYPES)),
    LakeColumn("C 1. `\"'é", pa.int32()),
)
NEW = NewTable("me", 7, 2)
LAID_OUT = NewLayout(
    (LayoutField("sure", "bucket", 4), LayoutField(MANY[6].name, "day"), LayoutField(MANY[2].name)),
    (
        LayoutField(MANY[9].name, "truncate", 3, descending=True),
        LayoutField("sure", nulls_first=True),
    ),
    None,
    (("write.parquet.compression-level", "3"),),
)


@pytest.fixture(params=["gateway_tables", "sql_tables"])
def tables(request: pytest.FixtureRequest, lake_server: object) -> TableApi:
    """Each implementation."""
    del lake_server  # marks the test
    found: TableApi = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def created(tables: TableApi, lake_ident: LakeIdent) -> TableState:
    """A table of two columns."""
    return tables.create_table(lake_ident, COLUMNS, NEW, stamp_properties(stamp(10)))


def publish(dest: Any, ident: LakeIdent, lsn: int, *segments: Any) -> None:
    dest.create_branch(ident, BRANCH)
    dest.write(ident, BRANCH, segments, stamp(lsn))
    dest.publish(ident, BRANCH, stamp(lsn))


def command(sessions: Sessions, ident: LakeIdent, words: str, more: str) -> None:
    session = sessions.get()
    session.set_properties({})
    session.command(sql_text(words, table_path(ident), more), "changing the table")


# -- reading --------------------------------------------------------------------------------------


def same_either_way(here: TableApi, there: TableApi, ident: LakeIdent) -> None:
    """Columns, history, properties and branches; without a property that only one lists."""
    one, other = here.describe(ident), there.describe(ident)
    assert one is not None
    assert other is not None
    assert one.columns == other.columns == here.columns(ident) == there.columns(ident)
    assert one.history == other.history == here.history(ident) == there.history(ident)
    assert one.properties.items() - {("owner", getuser())} <= other.properties.items()
    assert sorted(here.branches(ident)) == sorted(there.branches(ident))


def test_both_describe_a_table_alike(
    dest: Any,
    sessions: Sessions,
    gateway_tables: GatewayTableApi,
    sql_tables: SqlTableApi,
    lake_ident: LakeIdent,
) -> None:
    both = gateway_tables, sql_tables
    same_either_way(*both, lake_ident)
    for lsn, segment in ((20, append(dest, 1, 5)), (30, delete(dest, 2))):
        publish(dest, lake_ident, lsn, segment)
        same_either_way(*both, lake_ident)
    dest.fence(lake_ident)
    for statement in (
        ("ALTER TABLE", "CREATE TAG `a tag`"),
        ("ALTER TABLE", "ADD COLUMN s STRUCT<a: INT>"),
        ("ALTER TABLE", "ADD COLUMN m MAP<INT, INT>"),
        ("INSERT INTO", "(id) VALUES (77)"),
        ("ALTER TABLE", "DROP COLUMN v"),
    ):
        command(sessions, lake_ident, *statement)
        same_either_way(*both, lake_ident)
    assert gateway_tables.columns(lake_ident) == (
        COLUMNS[0],
        LakeColumn("s", pa.null()),
        LakeColumn("m", pa.null()),
    )


def test_both_describe_a_shared_table_alike(
    iceberg: Make, gateway_tables: GatewayTableApi, sql_tables: SqlTableApi, lake_ident: LakeIdent
) -> None:
    dest: Any = iceberg()
    of = [stamp(10), stamp(20)]
    shared = [type(each)(each.origin, each.lsn, each.epoch, each.floor, "s") for each in of]
    dest.create_table(lake_ident, COLUMNS, owner="shared", relid=7, stamp=shared[0])
    dest.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [], shared[1])
    same_either_way(gateway_tables, sql_tables, lake_ident)
    dest.publish(lake_ident, BRANCH, shared[1])
    same_either_way(gateway_tables, sql_tables, lake_ident)
    assert dest.table(lake_ident).position("s") == shared[1]


def test_a_missing_table_or_schema_has_no_description(
    tables: TableApi, lake_ident: LakeIdent
) -> None:
    for ident in (lake_ident, LakeIdent("no such schema", "t")):
        assert tables.describe(ident) is None
        assert tables.branches(ident) == []
        for read in (tables.columns, tables.history):
            with pytest.raises(ReplicationError):
                read(ident)


def test_any_thread_may_call_and_nothing_is_cached(
    tables: TableApi, created: TableState, sessions: Sessions, lake_ident: LakeIdent
) -> None:
    assert created.columns == COLUMNS
    command(sessions, lake_ident, "ALTER TABLE", "ADD COLUMN w INT")
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(tables.columns, [lake_ident] * 6))
    assert found == [(*COLUMNS, LakeColumn("w", pa.int32()))] * 6


# -- creating and dropping tables -----------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_a_new_table_has_one_empty_snapshot(
    tables: TableApi, lake_ident: LakeIdent, version: int
) -> None:
    summary = stamp_properties(stamp(10))
    made = tables.create_table(lake_ident, MANY, replace(NEW, format_version=version), summary)
    found = tables.describe(lake_ident)
    assert found is not None
    assert made.columns == found.columns == MANY
    assert made.history.refs == found.history.refs
    assert made.history.stamp() == found.history.stamp() == stamp(10)
    [snapshot] = found.history.snapshots.values()
    [said] = made.history.snapshots.values()
    assert (said.records, said.files) == (snapshot.records, snapshot.files) == (0, 0)
    assert said.committed in (snapshot.committed, 0), "of a time that is not known none is said"
    assert made.properties[OWNER] == found.properties[OWNER] == "me"


@pytest.mark.parametrize(("version", "layout"), [(2, LAID_OUT), (3, PLAIN)])
def test_both_create_the_same_table(
    gateway_tables: GatewayTableApi,
    sql_tables: SqlTableApi,
    lake_ident: LakeIdent,
    version: int,
    layout: NewLayout,
) -> None:
    """With partitions and a sort order, and without."""
    other = LakeIdent(lake_ident.schema, f"{lake_ident.table}_by_spark")
    new = replace(NEW, format_version=version, layout=layout)
    summary = stamp_properties(stamp(10))
    gateway_tables.create_table(lake_ident, MANY, new, summary)
    sql_tables.create_without_snapshot(other, MANY, new)
    here, there = (gateway_tables.metadata(each, "reading") for each in (lake_ident, other))
    differ = {key for key in {*here, *there} if here.get(key) != there.get(key)}
    assert differ == {
        "table-uuid",
        "location",
        "last-updated-ms",
        # It has a snapshot.
        "last-sequence-number",
        "current-snapshot-id",
        "refs",
        "snapshots",
        "snapshot-log",
        # Spark sets the order in a second commit.
        *(("sort-orders", "metadata-log") if layout.sort_by else ()),
    }
    assert here["sort-orders"][-1] == there["sort-orders"][-1]
    assert columns_of(here) == columns_of(there) == MANY
    folders = [each["location"].rsplit("/", 1) for each in (here, there)]
    assert folders[0][0] == folders[1][0]
    [snapshot] = here["snapshots"]
    assert snapshot["summary"].items() >= summary.items()
    assert here["refs"] == {
        MAIN: {"snapshot-id": here["current-snapshot-id"], "type": "branch"},
    }
    same_either_way(gateway_tables, sql_tables, lake_ident)


def test_an_existing_table_is_not_created_and_stays_as_it_is(
    dest: Any, tables: TableApi, gateway_tables: GatewayTableApi, lake_ident: LakeIdent
) -> None:
    """The call of a worker that is dead by then comes when its successor has published."""
    publish(dest, lake_ident, 20, append(dest, 1, 5))
    before = gateway_tables.metadata(lake_ident, "reading")
    with pytest.raises(ReplicationError) as error:
        tables.create_table(lake_ident, COLUMNS, NEW, stamp_properties(stamp(0)))
    assert error.value.code == "42P07"
    assert gateway_tables.metadata(lake_ident, "reading") == before
    assert dest.table(lake_ident).stamp == stamp(20)


@pytest.mark.usefixtures("created")
def test_a_dropped_table_is_gone_and_may_be_missing(
    tables: TableApi, lake_ident: LakeIdent
) -> None:
    tables.drop_table(lake_ident)
    assert tables.describe(lake_ident) is None
    tables.drop_table(lake_ident)


@pytest.mark.usefixtures("created")
def test_a_table_whose_files_must_not_be_deleted_is_dropped_without_the_files(
    tables: TableApi, lake_ident: LakeIdent, lake_server: Lake
) -> None:
    """A catalog with branches of its own sets the property for every table."""
    tables.set_properties(lake_ident, {"gc.enabled": "false"}, "testing")
    tables.drop_table(lake_ident)
    assert tables.describe(lake_ident) is None
    left = lake_server.data_dir.rglob(f"*-{lake_ident.table}-*/metadata/*.metadata.json")
    assert list(left)


def test_a_renamed_table_has_its_rows_and_history_under_the_new_name(
    dest: Any, tables: TableApi, lake_ident: LakeIdent
) -> None:
    publish(dest, lake_ident, 20, append(dest, 1, 5))
    before = tables.describe(lake_ident)
    new = LakeIdent(f"{lake_ident.schema}_moved", 'odd `na"me')
    tables.rename_table(lake_ident, new)
    try:
        assert tables.describe(lake_ident) is None
        assert tables.describe(new) == before
        with pytest.raises(ReplicationError) as missing:
            tables.rename_table(lake_ident, new)
        publish(dest, new, 30, append(dest, 6, 9))
        assert dest.table(new).stamp == stamp(30)
        tables.create_table(lake_ident, COLUMNS, NEW, stamp_properties(stamp(0)))
        with pytest.raises(ReplicationError) as taken:
            tables.rename_table(lake_ident, new)
        assert (missing.value.code, taken.value.code) == ("42P01", "42P07")
    finally:
        tables.drop_table(new)


def test_properties_are_added_to_those_that_a_table_has(
    tables: TableApi, created: TableState, lake_ident: LakeIdent
) -> None:
    tables.set_properties(lake_ident, {OWNER: "you", "more": "it's"}, "testing")
    found = tables.describe(lake_ident)
    assert found is not None
    assert found.properties.items() >= {(OWNER, "you"), ("more", "it's")}
    kept = created.properties.keys() - {OWNER, "owner", "current-snapshot-id"}
    assert {key: found.properties.get(key) for key in kept} == {
        key: created.properties[key] for key in kept
    }


# -- branches -------------------------------------------------------------------------------------


def test_a_branch_begins_at_main_or_at_a_snapshot_and_replaces_one_of_its_name(
    dest: Any, tables: TableApi, lake_ident: LakeIdent
) -> None:
    first = dest.table(lake_ident).snapshot_id
    publish(dest, lake_ident, 20, append(dest, 1, 5))
    newest = dest.table(lake_ident).snapshot_id
    for at, expected in ((first, first), (None, newest), (first, first), (newest, newest)):
        tables.create_branch(lake_ident, BRANCH, at)
        assert tables.history(lake_ident).refs == {MAIN: newest, BRANCH: expected}
        assert sorted(tables.branches(lake_ident)) == sorted([MAIN, BRANCH])
        tables.check_branch(lake_ident, BRANCH)
    tables.drop_branch(lake_ident, BRANCH)
    tables.drop_branch(lake_ident, BRANCH)
    assert tables.branches(lake_ident) == [MAIN]
    tables.check_branch(lake_ident, BRANCH)


def test_a_branch_that_was_created_by_another_client_is_refused(
    dest: Any, tables: TableApi, sessions: Sessions, lake_ident: LakeIdent
) -> None:
    before = dest.table(lake_ident).snapshot_id
    command(sessions, lake_ident, "ALTER TABLE", f"CREATE BRANCH {BRANCH}")
    tables.commit_empty(lake_ident, BRANCH, {"a": "b"})
    for refused in (tables.check_branch, tables.fast_forward):
        with pytest.raises(ReplicationError) as error:
            refused(lake_ident, BRANCH)
        assert error.value.code == "40001"
    assert dest.table(lake_ident).snapshot_id == before


def test_main_is_moved_to_a_branch_that_descends_from_it(
    dest: Any, tables: TableApi, lake_ident: LakeIdent
) -> None:
    tables.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [append(dest, 1, 5)], stamp(20))
    assert count(dest, lake_ident) == 0
    tip = tables.history(lake_ident).refs[BRANCH]
    assert tables.fast_forward(lake_ident, BRANCH) == tip
    assert tables.history(lake_ident).refs == {MAIN: tip, BRANCH: tip}
    assert tables.fast_forward(lake_ident, BRANCH) in (tip, None)
    assert count(dest, lake_ident) == 5


def test_main_is_not_moved_behind_a_fence(
    dest: Any, tables: TableApi, lake_ident: LakeIdent
) -> None:
    tables.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [append(dest, 1, 5)], stamp(20))
    tables.commit_empty(lake_ident, MAIN, {"pgsub.fence": "x"})
    before = tables.history(lake_ident)
    with pytest.raises(ReplicationError):
        tables.fast_forward(lake_ident, BRANCH)
    assert tables.history(lake_ident) == before
    assert before.stamp() == stamp(10), "the fence has no position of its own"


def test_main_is_set_back(dest: Any, tables: TableApi, lake_ident: LakeIdent) -> None:
    before = dest.table(lake_ident).snapshot_id
    publish(dest, lake_ident, 20, append(dest, 1, 5))
    tables.set_main(lake_ident, before)
    assert (dest.table(lake_ident).snapshot_id, count(dest, lake_ident)) == (before, 0)


# -- commits without rows, and maintenance --------------------------------------------------------


@pytest.mark.usefixtures("created")
@pytest.mark.parametrize("columns", [None, COLUMNS], ids=["columns are read", "columns are known"])
def test_an_empty_commit_says_what_it_is_given(
    tables: TableApi, lake_ident: LakeIdent, columns: tuple[LakeColumn, ...] | None
) -> None:
    tables.create_branch(lake_ident, BRANCH)
    for ref, lsn in ((MAIN, 20), (BRANCH, 30)):
        before = tables.history(lake_ident)
        tables.commit_empty(lake_ident, ref, stamp_properties(stamp(lsn)), columns)
        after = tables.history(lake_ident)
        tip = after.tip(ref)
        assert tip is not None
        assert (tip.parent_id, tip.stamp, tip.records) == (before.refs[ref], stamp(lsn), 0)
        assert {**after.refs, ref: None} == {**before.refs, ref: None}, "no other ref has moved"


def test_an_expiry_keeps_young_snapshots_and_the_last_ones(
    dest: Any, tables: TableApi, lake_ident: LakeIdent
) -> None:
    for lsn in range(20, 25):
        publish(dest, lake_ident, lsn, append(dest, lsn, 1))
    tables.drop_branch(lake_ident, BRANCH)
    times = list(dest.table(lake_ident).snapshots)
    tables.expire_snapshots(lake_ident, older_than=times[0] - 1, retain_last=1)
    assert list(dest.table(lake_ident).snapshots) == times
    tables.expire_snapshots(lake_ident, older_than=time.time() + 60, retain_last=3)
    assert list(dest.table(lake_ident).snapshots) == times[-3:]
    assert (dest.table(lake_ident).stamp, count(dest, lake_ident)) == (stamp(24), 5)


# -- a successor ----------------------------------------------------------------------------------


def test_a_worker_whose_session_a_successor_has_closed_moves_main_no_more(
    dest: Any, iceberg: Make, tables: TableApi, sessions: Sessions, lake_ident: LakeIdent
) -> None:
    tables.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [append(dest, 1, 5)], stamp(20))
    tables.history(lake_ident)
    before = dest.table(lake_ident).snapshot_id
    iceberg().release_sessions([sessions.get().ids])
    refused: list[Any] = [
        lambda: tables.fast_forward(lake_ident, BRANCH),
        lambda: tables.commit_empty(lake_ident, MAIN, {}),
        lambda: tables.set_main(lake_ident, before),
        lambda: tables.history(lake_ident),
    ]
    for call in refused:
        with pytest.raises(ReplicationError) as error:
            call()
        assert error.value.code == "08006"
    assert dest.table(lake_ident).snapshot_id == before
