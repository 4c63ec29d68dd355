"""Copy and stream into tables on S3 behind a REST catalog, beside PostgreSQL's own subscriber.

The lake server is the embedded one. Its worker is killed on the way, and while a partitioned table
changes. Spark and pyiceberg read the tables; the keys of the store are found nowhere but in the
configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import python_rows
from tests.integration.flow import Flow
from tests.integration.readers import by_spark
from tests.lake.lake_stack import LakeStack, lake_pgsub
from tests.security.argument_watch import ArgumentWatch
from tests.twin import NativeTwin, native_rows

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

TABLES = ("changed", "refilled", "keyless", "parted", "parted_keyless")
BY_SPARK = ("spark_changed", "spark_parted")
ROWS = 20_000
SCHEMA = (
    "CREATE TABLE changed (id int PRIMARY KEY, name text, price numeric(10,2), at timestamptz,"
    " day date, ok boolean)",
    "CREATE TABLE refilled (id int PRIMARY KEY, name text)",
    "CREATE TABLE keyless (a int, b text)",
    "ALTER TABLE keyless REPLICA IDENTITY FULL",
    "CREATE TABLE parted (id int PRIMARY KEY, name text, at timestamptz, day date)",
    "CREATE TABLE parted_keyless (a int, b text)",
    "ALTER TABLE parted_keyless REPLICA IDENTITY FULL",
    "CREATE TABLE spark_changed (LIKE changed INCLUDING ALL)",
    "CREATE TABLE spark_parted (LIKE parted INCLUDING ALL)",
)
LAYOUTS: dict[str, dict[str, Any]] = {
    "parted": {"partition_by": ["days(at)", "truncate(1, name)"], "sort_by": ["day DESC"]},
    "parted_keyless": {"partition_by": ["bucket(2, a)"]},
    "spark_changed": {"writer": "spark"},
    "spark_parted": {"writer": "spark", "partition_by": ["days(at)"]},
}


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    folder, catalog = tmp_path_factory.mktemp("rest_on_s3"), stack.catalog_keys()
    with (
        ArgumentWatch(stack.keys) as watch,
        lake_pgsub(folder, catalog, local_relation_rows=1000, copy_range_bytes="256kB") as pgsub,
        closing(Flow(pgsub, twin, publisher, "on_s3")) as flow,
    ):
        _play(flow)
        flow.facts["told"] = watch.told
        yield flow


def _play(flow: Flow) -> None:
    flow.both(*SCHEMA)
    flow.pub.run(
        "INSERT INTO changed SELECT i, 'row ' || i, i / 4.0, timestamptz '2026-01-01 12:00:00+01'"
        " + i * interval '1 hour', date '2026-01-01' + i % 999, i % 2 = 0"
        f" FROM generate_series(1, {ROWS}) i",
        "INSERT INTO refilled SELECT i, 'first' FROM generate_series(1, 50) i",
        "INSERT INTO keyless SELECT i, NULL FROM generate_series(1, 30) i",
        "INSERT INTO parted SELECT i, chr(97 + i % 3) || i, timestamptz '2026-01-01 12:00:00+01'"
        " + i % 20 * interval '1 day', date '2026-01-01' + i FROM generate_series(1, 2000) i",
        "INSERT INTO parted VALUES (-1, NULL, NULL, NULL)",
        "INSERT INTO parted_keyless SELECT i % 5, 'b' || i FROM generate_series(1, 40) i",
        "INSERT INTO spark_changed SELECT * FROM changed",
        "INSERT INTO spark_parted SELECT * FROM parted",
        "CREATE PUBLICATION pub_on_s3 FOR TABLES IN SCHEMA on_s3",
    )
    name = flow.subscribe("sub", ["pub_on_s3"], tables=LAYOUTS)
    flow.checkpoint("copied", *TABLES, *BY_SPARK)
    for table in ("changed", "spark_changed"):
        flow.pub.run(
            f"INSERT INTO {table} (id, name)"
            f" SELECT {ROWS} + i, 'new' FROM generate_series(1, 3000) i",
            f"INSERT INTO {table} (id, name) VALUES (1000000, 'é 🦆 \" \\ '), (1000001, '')",
            f"UPDATE {table} SET name = upper(name) WHERE id % 10 = 0",
            f"DELETE FROM {table} WHERE id % 10 = 1",
        )
    for turn in range(5):
        _move_rows(flow, turn)
    flow.pgsub.kill_worker(name)
    for turn in range(5, 10):
        _move_rows(flow, turn)
    flow.pub.run(
        "UPDATE changed SET id = id + 2000000 WHERE id % 10 = 2",
        "UPDATE spark_changed SET id = id + 2000000 WHERE id % 10 = 2",
        "UPDATE keyless SET b = 'moved' WHERE a % 2 = 0",
        "DELETE FROM keyless WHERE a % 5 = 0",
    )
    flow.pub.execute(
        "BEGIN; TRUNCATE refilled; INSERT INTO refilled VALUES (1, 'second'), (60, NULL); COMMIT"
    )
    flow.checkpoint("changed", *TABLES, *BY_SPARK)


def _move_rows(flow: Flow, turn: int) -> None:
    """New rows and rows that go to other partitions, in one transaction; then a few deletes."""
    first, at = 5000 + 100 * turn, f"2026-02-{turn + 1:02} 08:00+01"
    flow.pub.execute(
        f"BEGIN; INSERT INTO parted SELECT i, 'd' || i, timestamptz '{at}', NULL"
        f" FROM generate_series({first}, {first + 30}) i;"
        f" UPDATE parted SET at = at + interval '1 day', name = 'c' || name WHERE id % 17 = {turn};"
        f" UPDATE parted SET id = id + 100000 WHERE id % 41 = {turn} AND id < 5000; COMMIT"
    )
    flow.pub.run(
        f"UPDATE parted_keyless SET a = a + 1 WHERE ctid IN (SELECT ctid FROM parted_keyless"
        f" WHERE a = {turn % 5} LIMIT 2)",
        f"DELETE FROM parted WHERE id % 29 = {turn}",
        f"UPDATE spark_parted SET at = at + interval '1 day' WHERE id % 17 = {turn}",
    )


@pytest.mark.parametrize("label", ["copied", "changed"])
@pytest.mark.parametrize("table", [*TABLES, *BY_SPARK])
def test_pyiceberg_sees_the_rows_of_the_native_subscriber(
    flow: Flow, table: str, label: str
) -> None:
    assert flow.same(label, table)


@pytest.mark.parametrize("table", TABLES)
def test_spark_sees_the_rows_of_the_native_subscriber(flow: Flow, table: str) -> None:
    found: pa.Table = by_spark(flow.pgsub, flow.name, table)
    assert python_rows(found) == native_rows(flow.sub, table)


def test_every_row_is_in_its_partition(flow: Flow) -> None:
    """Also one that an UPDATE moved, and one without values."""
    (row,) = flow.lake(
        "SELECT count(*) AS rows, count(DISTINCT _partition) AS partitions, count(CASE WHEN NOT"
        " (_partition.at_day <=> CAST(at AS date) AND _partition.name_trunc <=> left(name, 1))"
        " THEN 1 END) AS elsewhere FROM {t}.parted"
    )
    assert row["elsewhere"] == 0
    assert row["rows"] == len(native_rows(flow.sub, "parted"))
    assert row["partitions"] > 60


def test_the_tables_lie_in_the_store(flow: Flow, stack: LakeStack) -> None:
    del flow
    files = stack.store.files("warehouse", stack.keys)
    assert [name for name in files if name.endswith(".parquet")]
    assert [name for name in files if name.endswith("metadata.json")]


def test_the_worker_wrote_the_files_itself(flow: Flow, stack: LakeStack) -> None:
    """Rows, and the deletes of updated and deleted rows; Spark names its files otherwise."""
    del flow
    files = stack.store.files("warehouse", stack.keys)
    assert [name for name in files if "/data/pgsub-" in name and "deletes" not in name]
    assert [name for name in files if "/data/pgsub-" in name and name.endswith("-deletes.parquet")]


@pytest.mark.parametrize("table", ["changed", "spark_changed"])
def test_a_large_table_is_copied_by_tasks_that_write_the_files(
    flow: Flow, stack: LakeStack, table: str
) -> None:
    """With the keys of the store, which no folder holds afterwards; Spark's tables need none."""
    logged = (flow.pgsub.data_dir / "log" / "pgsub.log").read_text()
    [ranges] = re.findall(rf'action=copied .* ranges=(\d+) table "on_s3.{table}"', logged)
    assert int(ranges) > 1
    stored = stack.store.files("warehouse", stack.keys)
    copied = [name for name in stored if f"/{table}/data/pgsub-copy-" in name]
    assert len(copied) == (0 if table in BY_SPARK else int(ranges))
    assert not list(flow.pgsub.data_dir.rglob("store-keys"))


@pytest.mark.parametrize("table", BY_SPARK)
def test_spark_wrote_the_files_of_its_tables(flow: Flow, table: str) -> None:
    """Through a worker's death too; the other tables' files are the workers' own."""
    files = flow.pgsub.iceberg_table(flow.name, table).inspect.all_files()
    paths = [str(path) for path in files["file_path"].to_pylist()]
    assert paths
    assert not [path for path in paths if "/pgsub-" in path]
    rows = flow.pgsub.status("lake_tables")
    assert [row["writer"] for row in rows if row["lake_table"] == table] == ["spark"]


def test_tables_of_the_store_have_small_row_groups_whoever_makes_them(flow: Flow) -> None:
    """More tasks write at a time than there are processors, with a row group in memory each."""
    flow.lake("CREATE TABLE {t}.of_a_user USING iceberg AS SELECT id FROM {t}.changed")
    dictionaries = {"of_a_user": 256, "changed": 128, "spark_changed": 128}
    for table, kilobytes in dictionaries.items():
        properties = flow.pgsub.iceberg_table(flow.name, table).properties
        assert properties["write.parquet.row-group-size-bytes"] == str(16 << 20)
        assert properties["write.parquet.dict-size-bytes"] == str(kilobytes << 10)


def test_the_store_s_keys_are_told_to_nobody(flow: Flow, stack: LakeStack) -> None:
    """Not in argument lists, logs and status."""
    assert flow.facts["told"] == []
    logs = [path for path in (flow.pgsub.data_dir / "log").iterdir() if path.is_file()]
    assert logs
    said = [path.read_bytes() for path in (*logs, flow.pgsub.log_file)]
    shown = [str(flow.pgsub.status(view)).encode() for view in ("pg_subscription", "last_errors")]
    for secret in stack.keys:
        assert not [text for text in (*said, *shown) if secret.encode() in text]


def test_only_the_owner_reads_the_configuration_of_the_server(flow: Flow, stack: LakeStack) -> None:
    holding = [
        path
        for path in Path(flow.pgsub.data_dir).rglob("*")
        if path.is_file() and stack.keys.secret.encode() in path.read_bytes()
    ]
    assert holding
    assert {oct(path.stat().st_mode & 0o077) for path in holding} == {"0o0"}
