"""A table's columns, to and from Iceberg's schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.errcodes import FeatureNotSupported
from workers.lake.metadata.table_schema import columns_of, schema_json
from workers.lake.table import LakeColumn


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
