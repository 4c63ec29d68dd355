"""Spark is asked for the types of generated columns, by names that are no column's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from workers.lake.sql.generated_check import generated_types
from workers.lake.table import LakeColumn, LakeIdent

IDENT = LakeIdent("s", "t")
COLUMNS = (LakeColumn("price", pa.int64()), LakeColumn("v", pa.string()))


class Spark:
    """Takes the query, and says that everything is a long."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def schema(self, sql: str, what: str) -> Any:
        self.asked.append(sql)
        return SimpleNamespace(fields=[SimpleNamespace(dataType=SimpleNamespace(typeName=_long))])


def _long() -> str:
    return "long"


def test_the_query_names_no_column_of_the_table() -> None:
    spark = Spark()
    found = generated_types(spark, IDENT, COLUMNS, (("twice", "price * 2"),))
    assert found == (LakeColumn("twice", pa.int64()),)
    [sql] = spark.asked
    assert "price" not in sql
    assert "s.c0" in sql


def test_a_column_that_is_missing_is_found_without_spark() -> None:
    spark = Spark()
    with pytest.raises(ReplicationError) as error:
        generated_types(spark, IDENT, COLUMNS, (("twice", "cost * 2"),))
    assert (error.value.code, spark.asked) == ("42703", [])
