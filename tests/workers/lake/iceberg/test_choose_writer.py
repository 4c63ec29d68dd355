"""Where there is a gateway files are committed by name; elsewhere Spark writes them."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.errcodes import FeatureNotSupported
from tests.workers.lake.files.layouts import ON_READ, metadata
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.files.tables import FileTables, SparkTables
from workers.lake.iceberg.choose_writer import choose_gateway, choose_table_api, choose_tables
from workers.lake.segment import RowsOf
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.staging import Staging
from workers.lake.table import LakeIdent
from workers.lake.writer_choice import (
    AUTO,
    BY_WISH,
    FILES,
    NO_GATEWAY,
    POSSIBLE,
    SPARK,
    WriterChoice,
)

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


def test_files_are_refused_where_there_is_no_gateway(tmp_path: Any) -> None:
    chosen = choose_tables(None, Staging(str(tmp_path), 10), FILES)
    assert chosen.choose_writer(IDENT, AUTO) == WriterChoice(AUTO, SPARK, NO_GATEWAY)
    with pytest.raises(FeatureNotSupported) as error:
        chosen.choose_writer(IDENT, None)
    assert error.value.primary == 'lake table "s.t" cannot have the writer "files"'
    assert error.value.detail == NO_GATEWAY


class Catalog:
    """A table's metadata; counts how often they were read."""

    def __init__(self, **changes: Any) -> None:
        self.found = metadata("long", **changes)
        self.reads = 0

    def metadata(self, ident: LakeIdent, what: str) -> Any:
        del ident, what
        self.reads += 1
        return self.found

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: pytest.fail(name)


def of_files(tmp_path: Any, catalog: Any, writer: str = AUTO) -> FileTables:
    return FileTables(catalog, Staging(str(tmp_path), 10), writer)


def test_who_writes_a_table_is_what_is_asked_for(tmp_path: Any) -> None:
    catalog = Catalog(location=str(tmp_path))
    tables = of_files(tmp_path, catalog)
    assert tables.choose_writer(IDENT, None) == WriterChoice(AUTO, FILES, POSSIBLE)
    assert tables.choose_writer(IDENT, FILES) == WriterChoice(FILES, FILES, BY_WISH)
    assert tables.files(IDENT) is not None
    assert catalog.reads == 1
    assert tables.choose_writer(IDENT, SPARK) == WriterChoice(SPARK, SPARK, BY_WISH)
    assert tables.files(IDENT) is None
    rows, nothing = pa.table({"c0": [1, 2]}), cast("Any", None)
    assert tables.stage(rows.to_batches(), rows.schema, RowsOf(IDENT, ("a",)), None).own is None
    assert not tables.merge_deletes(nothing, IDENT, "b")
    assert tables.join_small(nothing, IDENT, "b", nothing) is None


def test_spark_writes_a_shared_lake_table_if_one_of_its_tables_says_so(tmp_path: Any) -> None:
    tables = of_files(tmp_path, Catalog(location=str(tmp_path)))
    tables.choose_writer(IDENT, SPARK)
    assert tables.choose_writer(IDENT, FILES) == WriterChoice(FILES, SPARK, BY_WISH)


def test_the_default_counts_for_a_table_that_nobody_has_opened(tmp_path: Any) -> None:
    assert of_files(tmp_path, Catalog(location=str(tmp_path)), SPARK).files(IDENT) is None
    assert of_files(tmp_path, Catalog(location=str(tmp_path)), FILES).files(IDENT) is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"properties": ON_READ | {"write.format.default": "orc"}}, "write.format.default"),
        ({"properties": {}}, "Only Spark writes deletes"),
        ({"format_version": 1}, "Only Spark writes deletes"),
    ],
)
def test_why_spark_writes_is_said(tmp_path: Any, changes: dict[str, Any], said: str) -> None:
    tables = of_files(tmp_path, Catalog(location=str(tmp_path), **changes))
    found = tables.choose_writer(IDENT, AUTO)
    assert (found.writer, said in found.reason) == (SPARK, True)
    with pytest.raises(FeatureNotSupported) as error:
        tables.choose_writer(IDENT, FILES)
    assert error.value.detail == found.reason
