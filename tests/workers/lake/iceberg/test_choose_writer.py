"""Where there is a gateway files are committed by name; elsewhere Spark writes them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.errcodes import FeatureNotSupported
from tests.workers.lake.files.layouts import ON_READ, metadata
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.lake_url import COMMIT_SERVICE, GATEWAY
from workers.lake.connect.session_conf import processors
from workers.lake.copy_plan import CopyPlan
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.tables import FileTables, SparkTables
from workers.lake.iceberg.choose_writer import choose_gateway, choose_table_api, choose_tables
from workers.lake.segment import RowsOf
from workers.lake.sql.other_writers import NO_OTHER_WRITERS
from workers.lake.sql.row_queries import RowQueries
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.s3_access import S3Access
from workers.lake.storage.staging import Staging
from workers.lake.table import LakeIdent
from workers.lake.writer_choice import (
    ANOTHER_TABLE,
    AUTO,
    BESIDE,
    BY_WISH,
    FILES,
    NO_GATEWAY,
    POSSIBLE,
    SPARK,
    WriterChoice,
)

NO_SESSIONS: Any = None
IDENT = LakeIdent("s", "t")


def test_a_session_reads_by_as_many_tasks_as_the_process_has_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not as many as the machine has: a container, or ``taskset``, may give fewer."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 5, 7}, raising=False)
    _, keys, _ = choose_gateway(f"sc://localhost:7/;token=t;{GATEWAY}=1.s", {})
    assert set(keys.values()) == {"3"}


def test_a_url_with_a_gateway(tmp_path: Any) -> None:
    url = f"sc://localhost:7/;token=t;{GATEWAY}=1.s"
    gateway, keys, close_catalogs = choose_gateway(url, {"spark.my.key": "1"})
    tasks = "spark.sql.iceberg.read.adaptive-split-size.parallelism"
    assert keys == {"spark.my.key": "1", tasks: str(processors())}
    assert choose_gateway(url, {tasks: "7"})[1] == {tasks: "7"}
    assert gateway is not None
    assert close_catalogs is not None
    tables, commits = choose_table_api(gateway, NO_SESSIONS)
    assert isinstance(tables, GatewayTableApi)
    assert commits is tables
    assert isinstance(choose_tables(commits, Staging(str(tmp_path), 10)), FileTables)
    tables.close()


def test_a_commit_service_has_no_sessions_and_copies_nothing(tmp_path: Any) -> None:
    url = f"sc://spark:7/;token=t;{COMMIT_SERVICE}=1.s"
    gateway, keys, close_catalogs = choose_gateway(url, {"a": "b"})
    assert keys == {"a": "b"}
    assert gateway is not None
    assert gateway.beside
    assert close_catalogs is None
    _, commits = choose_table_api(gateway, NO_SESSIONS)
    tables = choose_tables(commits, Staging(str(tmp_path), 10))
    assert isinstance(tables, FileTables)
    catalog: Any = Catalog(location=str(tmp_path))
    plan = CopyPlan("", None, "", ("COPY",), ())
    for beside in (False, True):
        tables = FileTables(catalog, Staging(str(tmp_path), 10), AUTO, KeyCache(), beside=beside)
        ranges: Any = None
        queries = RowQueries(NO_SESSIONS, Staging(str(tmp_path), 10), IDENT, "b", ranges)
        writer = tables.writer(queries, NO_OTHER_WRITERS)
        assert writer is not None
        assert writer.accepts_copy(plan) is not beside
        reason = BESIDE if beside else POSSIBLE
        assert tables.choose_writer(IDENT, None) == WriterChoice(AUTO, FILES, reason)


def test_a_url_without_one(tmp_path: Any) -> None:
    assert choose_gateway("sc://localhost:7/;token=t", {}) == (None, {}, None)
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
    assert chosen.rewrite(nothing, IDENT, "b", nothing) is None
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
    """A table's metadata; counts how often they were read. ``answers``: what else it can do."""

    def __init__(self, **changes: Any) -> None:
        self.found = metadata("long", **changes)
        self.reads = 0
        self.newest: list[bool] = []
        self.stores: Iterator[ObjectStore] = iter(())
        self.answers: dict[str, Any] = {}

    def metadata_and_store(self, ident: LakeIdent, what: str, *, newest: bool) -> Any:
        del ident, what
        self.reads += 1
        self.newest.append(newest)
        return self.found, next(self.stores, None)

    def __getattr__(self, name: str) -> Any:
        return self.answers.get(name, lambda *_, **__: pytest.fail(name))


def of_files(tmp_path: Any, catalog: Any, writer: str = AUTO) -> FileTables:
    return FileTables(catalog, Staging(str(tmp_path), 10), writer, KeyCache())


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
    assert tables.rewrite(nothing, IDENT, "b", nothing) is None


def test_spark_writes_a_shared_lake_table_if_one_of_its_tables_says_so(tmp_path: Any) -> None:
    tables = of_files(tmp_path, Catalog(location=str(tmp_path)))
    tables.choose_writer(IDENT, SPARK)
    assert tables.choose_writer(IDENT, FILES) == WriterChoice(FILES, SPARK, ANOTHER_TABLE)
    assert tables.choose_writer(IDENT, SPARK) == WriterChoice(SPARK, SPARK, BY_WISH)


def test_tables_of_a_shared_lake_table_are_opened_at_one_time(tmp_path: Any) -> None:
    """The word that came first is not lost while the other table's word is taken in."""
    tables = of_files(tmp_path, Catalog(location=str(tmp_path)))

    class Meanwhile(dict[LakeIdent, str]):
        """The other table is opened between the look and the note, if it can be."""

        other: threading.Thread | None = None

        def get(self, key: LakeIdent, default: Any = None) -> Any:
            found = super().get(key, default)
            if self.other is None:
                self.other = threading.Thread(target=tables.choose_writer, args=(IDENT, SPARK))
                self.other.start()
                self.other.join(0.5)
            return found

    tables._asked = asked = Meanwhile()
    tables.choose_writer(IDENT, FILES)
    assert asked.other is not None
    asked.other.join()
    assert tables.files(IDENT) is None


def test_files_of_a_former_word_are_removed(tmp_path: Any) -> None:
    """A copy through files failed; now the table, or the whole lake, is Spark's."""
    (tmp_path / "data").mkdir()
    left = tmp_path / "data" / "pgsub-copy-7f-1.parquet"
    left.touch()
    removed: list[str] = []
    catalog = Catalog(location=str(tmp_path))
    catalog.answers["remove_files"] = lambda _ident, files, _uuid: removed.extend(files)
    of_files(tmp_path, catalog, SPARK).remove_copied(IDENT, "7f")
    assert removed == [str(left)]
    tables = of_files(tmp_path, catalog)
    tables.choose_writer(IDENT, SPARK)
    tables.remove_copied(IDENT, "7f")
    assert removed == [str(left)] * 2


def test_a_table_is_read_again_when_its_keys_end(tmp_path: Any) -> None:
    lent = {"s3.access-key-id": "k", "s3.session-token-expires-at-ms": "1000"}
    catalog = Catalog(location="s3://bucket/t")
    bucket = Bucket(FileStore.S3, "bucket")
    accesses = S3Access.of(bucket, lent), S3Access.of(bucket, {})
    catalog.stores = iter([ObjectStore(bucket, access) for access in accesses])
    tables = of_files(tmp_path, catalog)
    first = tables.files(IDENT)
    second = tables.files(IDENT)
    assert first is not None
    assert second is not None
    assert (first.store.is_stale, second.store.is_stale) == (True, False)
    assert tables.files(IDENT) is second
    assert catalog.newest == [False, True], "the state of a moment ago has the same keys"


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
