"""Names of lake types in Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from catalog.errcodes import FeatureNotSupported
from workers.lake.sql.spark_typemap import arrow_type, schema_ddl, spark_ddl, spark_ddl_or_void


def test_ddl() -> None:
    assert spark_ddl(pa.list_(pa.decimal128(38, 3))) == "ARRAY<DECIMAL(38,3)>"
    schema = pa.schema(
        [("op", pa.int8()), ("c0", pa.timestamp("us")), ("c1", pa.timestamp("us", "UTC"))]
    )
    assert schema_ddl(schema) == "op TINYINT, c0 TIMESTAMP_NTZ, c1 TIMESTAMP"
    with pytest.raises(FeatureNotSupported):
        spark_ddl(pa.duration("us"))


def spark(name: str, **more: object) -> SimpleNamespace:
    return SimpleNamespace(typeName=lambda: name, **more)


def test_a_type_that_is_read_is_the_one_that_was_written() -> None:
    assert arrow_type(spark("timestamp")) == pa.timestamp("us", "UTC")
    assert arrow_type(spark("decimal", precision=9, scale=2)) == pa.decimal128(9, 2)
    dates = spark("array", elementType=spark("date"))
    assert arrow_type(dates) == pa.list_(pa.field("element", pa.date32()))


def test_what_no_published_column_has_is_null() -> None:
    assert arrow_type(spark("struct")) == pa.null()
    assert spark_ddl_or_void(pa.null()) == "VOID"
    assert spark_ddl_or_void(pa.int64()) == "BIGINT"
