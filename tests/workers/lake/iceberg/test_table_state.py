"""A table is read, and made, through the gateway as it is through Spark."""

from __future__ import annotations

from getpass import getuser
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import FeatureNotSupported
from tests.workers.lake.contract import Make
from tests.workers.lake.two_columns import COLUMNS, append, delete, stamp
from workers.lake.api.table_api import Gateway
from workers.lake.connect.errors import LakeFailure
from workers.lake.iceberg.new_table import make_table, make_table_with_snapshot
from workers.lake.iceberg.table_state import branches, read_columns, read_state
from workers.lake.metadata.snapshots import stamp_properties
from workers.lake.metadata.table_schema import columns_of, schema_json
from workers.lake.sql.statements import sql_text, table_path
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


@pytest.fixture
def sessions(iceberg: Make) -> Any:
    destination: Any = iceberg()
    return destination._sessions


def same_either_way(sessions: Any, own: Gateway, ident: LakeIdent) -> None:
    """Columns, history, properties and branches; what only one of them lists aside."""
    here, there = (read_state(sessions, each, ident) for each in (own, None))
    assert here is not None
    assert there is not None
    assert here.columns == there.columns == read_columns(sessions, own, ident)
    assert here.history == there.history
    assert here.properties.items() - {("owner", getuser())} <= there.properties.items()
    assert sorted(branches(sessions, own, ident)) == sorted(branches(sessions, None, ident))


def test_a_table_is_the_same_through_the_gateway(
    dest: Any, sessions: Any, own: Gateway, lake_ident: LakeIdent
) -> None:
    same_either_way(sessions, own, lake_ident)
    for lsn, segment in ((20, append(dest, 1, 5)), (30, delete(dest, 2))):
        dest.create_branch(lake_ident, BRANCH)
        dest.write(lake_ident, BRANCH, [segment], stamp(lsn))
        dest.publish(lake_ident, BRANCH, stamp(lsn))
        same_either_way(sessions, own, lake_ident)
    dest.fence(lake_ident)
    session = dest._sessions.get()
    for statement in (
        ("ALTER TABLE", "CREATE TAG `a tag`"),
        ("ALTER TABLE", "ADD COLUMN s STRUCT<a: INT>"),
        ("ALTER TABLE", "ADD COLUMN m MAP<INT, INT>"),
        ("INSERT INTO", "(id) VALUES (77)"),
        ("ALTER TABLE", "DROP COLUMN v"),
    ):
        session.command(sql_text(statement[0], table_path(lake_ident), statement[1]), "altering")
        same_either_way(sessions, own, lake_ident)
    assert read_columns(sessions, own, lake_ident) == (
        COLUMNS[0],
        LakeColumn("s", pa.null()),
        LakeColumn("m", pa.null()),
    )


def test_the_state_of_shared_tables_too(iceberg: Make, own: Gateway, lake_ident: LakeIdent) -> None:
    dest: Any = iceberg()
    of = [stamp(10), stamp(20)]
    shared = [type(each)(each.origin, each.lsn, each.epoch, each.floor, "s") for each in of]
    dest.create_table(lake_ident, COLUMNS, owner="shared", relid=7, stamp=shared[0])
    dest.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [], shared[1])
    same_either_way(dest._sessions, own, lake_ident)
    dest.publish(lake_ident, BRANCH, shared[1])
    same_either_way(dest._sessions, own, lake_ident)
    assert dest.table(lake_ident).position("s") == shared[1]


def test_no_table_and_no_schema(sessions: Any, own: Gateway, lake_ident: LakeIdent) -> None:
    for ident in (lake_ident, LakeIdent("no such schema", "t")):
        for each in (own, None):
            assert read_state(sessions, each, ident) is None
            assert branches(sessions, each, ident) == []


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_is_made_as_spark_makes_it(
    sessions: Any, own: Gateway, lake_ident: LakeIdent, version: int
) -> None:
    other = LakeIdent(lake_ident.schema, f"{lake_ident.table}_by_spark")
    how: dict[str, Any] = {"owner": "me", "relid": 7, "format_version": version}
    summary = stamp_properties(stamp(10))
    here = make_table_with_snapshot(own, sessions, lake_ident, MANY, **how, summary=summary)
    make_table(sessions.get(), other, MANY, **how)
    there = own.metadata(other, "reading")
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
    }
    assert columns_of(here) == columns_of(there) == MANY
    folders = [each["location"].rsplit("/", 1) for each in (here, there)]
    assert folders[0][0] == folders[1][0]
    [snapshot] = here["snapshots"]
    assert snapshot["summary"].items() >= summary.items()
    assert here["refs"] == {
        MAIN: {"snapshot-id": here["current-snapshot-id"], "type": "branch"},
    }
    same_either_way(sessions, own, lake_ident)


def test_a_table_that_is_there_stays_as_it_is(
    dest: Any, sessions: Any, own: Gateway, lake_ident: LakeIdent
) -> None:
    """The call of a worker that is dead by then comes when its successor has published."""
    dest.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [append(dest, 1, 5)], stamp(20))
    dest.publish(lake_ident, BRANCH, stamp(20))
    before = own.metadata(lake_ident, "reading")
    how: dict[str, Any] = {"owner": "me", "relid": 7, "format_version": 2}
    with pytest.raises(LakeFailure):
        make_table_with_snapshot(
            own, sessions, lake_ident, COLUMNS, **how, summary=stamp_properties(stamp(0))
        )
    assert own.metadata(lake_ident, "reading") == before
    assert dest.table(lake_ident).stamp == stamp(20)


def test_a_branch_comes_in_place_of_one_of_its_name(
    dest: Any, own: Gateway, lake_ident: LakeIdent
) -> None:
    first = dest.table(lake_ident).snapshot_id
    dest.create_branch(lake_ident, BRANCH, first)
    dest.write(lake_ident, BRANCH, [append(dest, 1, 5)], stamp(20))
    written = own.tip(lake_ident, BRANCH, "reading")
    assert written != first
    dest.create_branch(lake_ident, BRANCH, first)
    assert own.tip(lake_ident, BRANCH, "reading") == first
    dest.create_branch(lake_ident, BRANCH)
    assert own.tip(lake_ident, BRANCH, "reading") == dest.table(lake_ident).snapshot_id


def test_a_type_the_lake_has_no_use_for_is_refused() -> None:
    with pytest.raises(FeatureNotSupported):
        schema_json([LakeColumn("t", pa.time64("us"))])


@pytest.mark.parametrize("type", ["time", "timestamp_ns", "variant"])
def test_what_spark_may_refuse_is_asked_of_spark(type: str) -> None:
    field = {"id": 1, "name": "t", "required": False, "type": type}
    assert (
        columns_of({"current-schema-id": 0, "schemas": [{"schema-id": 0, "fields": [field]}]})
        is None
    )
