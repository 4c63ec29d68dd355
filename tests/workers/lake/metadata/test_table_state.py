"""A table's state, read from its metadata file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.workers.lake.two_columns import stamp
from workers.lake.metadata.snapshots import stamp_properties
from workers.lake.metadata.table_state import state_of
from workers.lake.table import MAIN, LakeColumn


def metadata(type: str) -> dict[str, Any]:
    field = {"id": 1, "name": "v", "required": True, "type": type}
    return {
        "current-schema-id": 3,
        "schemas": [{"schema-id": 0, "fields": []}, {"schema-id": 3, "fields": [field]}],
        "location": "/lake/t",
        "properties": {"pgsub.owner": "me"},
        "refs": {MAIN: {"snapshot-id": 5, "type": "branch"}},
        "snapshots": [
            {"snapshot-id": 5, "timestamp-ms": 7, "summary": stamp_properties(stamp(10))}
        ],
    }


def test_the_current_columns_with_branches_and_properties() -> None:
    state = state_of(metadata("long"))
    assert state is not None
    assert state.columns == (LakeColumn("v", pa.int64(), False),)
    assert (state.history.refs, state.history.stamp()) == ({MAIN: 5}, stamp(10))
    assert state.properties == {"pgsub.owner": "me"}
    assert state.folders == ("/lake/t",)


def test_a_column_that_only_spark_can_tell() -> None:
    assert state_of(metadata("variant")) is None
