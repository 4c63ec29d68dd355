"""Who reads the lake's tables in the tests: each gives a table's rows as Arrow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from tests.harness import Pgsub
from workers.lake.connect.user_query import run_query
from workers.process.launcher_client import query_launcher

EXTENSIONS: Final = sorted(
    Path(sys.prefix).glob("lib/python3*/site-packages/duckdb_ext*/**/*.duckdb_extension")
)


def by_spark(pgsub: Pgsub, schema: str, table: str) -> pa.Table:
    status = query_launcher(pgsub.data_dir)
    assert status is not None
    assert status.lake_url is not None
    return run_query(status.lake_url, f"SELECT * FROM lake.{schema}.{table}")


def by_duckdb(pgsub: Pgsub, schema: str, table: str) -> pa.Table:
    """As docs/reading.md says; the file of the extension is all that the wheels add."""
    metadata = pgsub.iceberg_table(schema, table).metadata_location
    with duckdb.connect() as connection:
        for extension in EXTENSIONS:
            connection.execute(f"LOAD '{extension}'")
        return connection.execute("SELECT * FROM iceberg_scan(?)", [metadata]).fetch_arrow_table()


def by_pyiceberg(pgsub: Pgsub, schema: str, table: str) -> pa.Table:
    return pgsub.arrow(schema, table)


READERS: Final = {"spark": by_spark, "duckdb": by_duckdb, "pyiceberg": by_pyiceberg}
