"""Where there is a gateway files are committed by name; elsewhere Spark writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.files.tables import FileTables, SparkTables
from workers.lake.iceberg.choose_writer import choose_gateway, choose_table_api, choose_tables
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.staging import Staging
from workers.lake.table import LakeIdent

NO_SESSIONS: Any = None
IDENT = LakeIdent("s", "t")


def test_a_url_with_a_gateway(tmp_path: Any) -> None:
    gateway, close_catalogs = choose_gateway(f"sc://localhost:7/;token=t;{GATEWAY}=1.s")
    assert gateway is not None
    assert close_catalogs is not None
    tables, commits = choose_table_api(gateway, NO_SESSIONS)
    assert isinstance(tables, GatewayTableApi)
    assert commits is tables
    assert isinstance(choose_tables(commits, Staging(str(tmp_path), 10)), FileTables)
    tables.close()


def test_a_url_without_one(tmp_path: Any) -> None:
    assert choose_gateway("sc://localhost:7/;token=t") == (None, None)
    tables, commits = choose_table_api(None, NO_SESSIONS)
    assert isinstance(tables, SqlTableApi)
    assert commits is None
    chosen = choose_tables(commits, Staging(str(tmp_path), 10))
    assert type(chosen) is SparkTables
    rows = pa.table({"c0": [1, 2]})
    assert chosen.stage(rows.to_batches(), rows.schema, None, None).rows == 2
    nothing: Any = None
    assert chosen.writer(nothing, nothing) is None
    assert not chosen.merge_deletes(nothing, IDENT, "b")
    assert chosen.join_small(nothing, IDENT, "b", nothing) is None
    chosen.forget(IDENT)
    tables.close()
