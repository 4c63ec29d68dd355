"""Copy and stream where Spark is a cluster: staged rows by a shared folder, and by an S3 store.

A master, two workers with an executor each and a Connect server, all processes of their own, and
``pgsub`` with ``spark.remote`` and ``spark.staging``. Machines of their own they are not: what
they share is the loopback interface, and the disk of the shared folder.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.cluster.spark_cluster import SparkCluster, spark_cluster
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS, Pgsub
from tests.object_store import ObjectStore, object_store
from tests.security.argument_watch import ArgumentWatch
from tests.twin import native_rows
from workers.lake.connect.session import LakeSession
from workers.lake.writer_choice import NO_GATEWAY, SPARK

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

PATIENCE = 600.0
KEY, SECRET = "planted6e1fKeyId", "planted9a0cSecretKey"
"""Of pgsub alone; the cluster has others."""
SPARK_KEYS = ("sparks-own-key", "sparks-own-secret")

ROWS, FEW = 40_000, 3_000
TABLES = ("ranged", "single", "whole")
"""Copied in ranges by the executors, through the worker's own connection, and without a key."""

LIMITS = {**SETTINGS, "local_relation_rows": 1000, "copy_range_bytes": "1MB", "copy_workers": 2}
"""So that a few thousand rows are staged, and a few megabytes copied in ranges."""


@dataclass(slots=True)
class Played:
    """What a run left for the tests."""

    place: str
    own: str
    rows: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    counted: int = 0
    writers: set[tuple[str, str]] = field(default_factory=set)
    staged: set[str] = field(default_factory=set)
    left: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    said: bytes = b""
    log: str = ""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, store: ObjectStore) -> Iterator[SparkCluster]:
    conf = {
        # What pgsub needs must hold whatever the server says.
        "spark.sql.catalog.lake.cache-enabled": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.hadoop.fs.s3a.endpoint": store.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    env = store.environment(*SPARK_KEYS)
    with spark_cluster(tmp_path_factory.mktemp("cluster"), conf, env) as running:
        yield running


@pytest.fixture(scope="module", params=["folder", "s3"])
def played(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    publisher: EmbeddedPublisher,
    store: ObjectStore,
    cluster: SparkCluster,
) -> Iterator[Played]:
    """One subscription from its copy to its last change, with a killed worker on the way."""
    name = f"by_{request.param}"
    folder = tmp_path_factory.mktemp(name)
    if request.param == "s3":
        place, env = f"s3a://{store.bucket}/{name}", store.environment(KEY, SECRET)
    else:
        place, env = str(folder / "shared"), {}
        Path(place).mkdir()
    with ExitStack() as stack:
        watch = stack.enter_context(ArgumentWatch([KEY, SECRET]))
        database = new_database(publisher, name, schema=name)
        stack.callback(database.drop)
        _fill(database)
        pgsub = Pgsub(folder / "data", env=env, lake_dir=cluster.lake_dir)
        stack.callback(pgsub.stop)
        pgsub.up(
            {
                "subscriptions": {
                    name: {"connection": database.dsn, "publication": [f"pub_{name}"]}
                },
                "spark": {"remote": cluster.url, "staging": place},
                "settings": LIMITS,
            },
            timeout=PATIENCE,
        )
        pgsub.wait(name, PATIENCE)
        own = f"{place}/{(pgsub.data_dir / 'staging' / 'id').read_text()}"
        found = Played(place, own, told=watch.told)
        _change(database, pgsub, name)
        for table in TABLES:
            found.rows[table] = native_rows(database, table), pgsub.rows(name, table)
        [row] = pgsub.sql(f"SELECT count(*) AS n FROM lake.{name}.ranged")
        found.counted = row["n"]
        rows = pgsub.status("lake_tables")
        found.writers = {(each["writer"], each["reason"]) for each in rows}
        found.log = (pgsub.data_dir / "log" / "pgsub.log").read_text()
        assert pgsub.stop() == 0, pgsub.log_tail()
        assert watch.alive
        found.left = _left(found, store)
        files = [path for path in folder.rglob("*") if path.is_file()]
        found.said = b"\n".join(path.read_bytes() for path in files)
        yield found


def _fill(database: Database) -> None:
    database.run(
        "CREATE TABLE ranged (id bigint PRIMARY KEY, name text, price numeric(12,2),"
        " at timestamptz, day date, ok boolean)",
        "INSERT INTO ranged SELECT i, 'row ' || i || repeat('x', 60), i / 4.0,"
        " timestamptz '2026-01-01 12:00+00' + i * interval '1 minute', date '2026-01-01' + i % 999,"
        f" i % 2 = 0 FROM generate_series(1, {ROWS}) i",
        "CREATE TABLE single (id int PRIMARY KEY, name text)",
        f"INSERT INTO single SELECT i, 'first ' || i FROM generate_series(1, {FEW}) i",
        "CREATE TABLE whole (a int, b text)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        f"INSERT INTO whole SELECT i, NULL FROM generate_series(1, {FEW}) i",
        f"CREATE PUBLICATION pub_{database.schema} FOR TABLES IN SCHEMA {database.schema}",
    )


def _change(database: Database, pgsub: Pgsub, name: str) -> None:
    """Batches that are staged and batches that are not; a worker is killed between them."""
    database.run(
        f"INSERT INTO ranged SELECT i + {ROWS}, 'new ' || i FROM generate_series(1, 9000) i",
        "UPDATE ranged SET name = upper(name), ok = NULL WHERE id % 10 = 0",
        "DELETE FROM ranged WHERE id % 10 = 1",
        "INSERT INTO single VALUES (0, 'é 🦆 \" \\ ')",
    )
    pgsub.wait(name, PATIENCE)
    database.run(
        "UPDATE whole SET b = 'b' || a WHERE a % 2 = 0",
        "DELETE FROM whole WHERE a % 5 = 0",
    )
    database.execute(
        "BEGIN; TRUNCATE single;"
        " INSERT INTO single SELECT i, 'second' FROM generate_series(1, 2000) i; COMMIT"
    )
    pgsub.kill_worker(name)
    database.run(
        "UPDATE ranged SET id = id + 1000000 WHERE id % 10 = 2",
        "UPDATE ranged SET price = -price WHERE id BETWEEN 100 AND 120",
    )
    pgsub.wait(name, PATIENCE)


def _left(found: Played, store: ObjectStore) -> list[str]:
    """Files in the place after an orderly end."""
    if found.place.startswith("s3a://"):
        return store.files(found.place.removeprefix(f"s3a://{store.bucket}/"))
    return [str(path) for path in Path(found.place).rglob("*") if path.is_file()]


def events(cluster: SparkCluster) -> Iterator[dict[str, Any]]:
    """What Spark's listeners were told so far; the last line may be under way."""
    for path in cluster.events.rglob("*"):
        if path.is_file():
            for line in path.read_text(errors="replace").splitlines():
                if line.endswith("}"):
                    yield json.loads(line)


@pytest.mark.parametrize("table", TABLES)
def test_copy_and_stream_arrive(played: Played, table: str) -> None:
    publisher_s, lake_s = played.rows[table]
    assert len(publisher_s) > 1_000
    assert lake_s == publisher_s


def test_spark_sql_counts_the_same(played: Played) -> None:
    assert played.counted == len(played.rows["ranged"][0])


def test_rows_were_staged_in_the_place(played: Played, cluster: SparkCluster) -> None:
    """Spark's plans name the files they read: for the copy of a table, and for batches."""
    name = played.own if "://" in played.own else f"file:{played.own}"
    plans = [json.dumps(each) for each in events(cluster) if "SQLExecutionStart" in each["Event"]]
    assert len([plan for plan in plans if name in plan]) > 3


def test_executors_of_both_workers_had_part(played: Played, cluster: SparkCluster) -> None:
    del played
    heard = list(events(cluster))
    assert len([each for each in heard if each["Event"] == "SparkListenerExecutorAdded"]) >= 2
    tasks = Counter(
        each["Task Info"]["Executor ID"]
        for each in heard
        if each["Event"] == "SparkListenerTaskEnd"
        and each["Task End Reason"]["Reason"] == "Success"
    )
    assert len(tasks) >= 2
    assert "driver" not in tasks


def test_tables_were_copied_by_executors(played: Played, cluster: SparkCluster) -> None:
    assert "action=copied" in played.log
    assert any("MapInArrow" in json.dumps(each) for each in events(cluster))


def test_without_a_catalog_of_ours_spark_writes_and_no_server_is_started(played: Played) -> None:
    assert played.writers == {(SPARK, NO_GATEWAY)}
    assert "action=lake_start" not in played.log


def test_nothing_is_left_in_the_place(played: Played) -> None:
    assert played.left == []


def test_the_store_s_key_is_told_to_nobody(played: Played, cluster: SparkCluster) -> None:
    """Not in files of ours, logs, Spark's logs and events, argument lists; it has its own."""
    secrets = (KEY, SECRET)
    assert played.told == []
    heard = cluster.said() + "".join(map(json.dumps, events(cluster)))
    assert "SparkListenerSQLExecutionStart" in heard
    for secret in secrets:
        assert secret.encode() not in played.said
        assert secret not in heard


@pytest.fixture
def sessions(cluster: SparkCluster) -> Iterator[list[LakeSession]]:
    made = [LakeSession(cluster.url, "tests", str(uuid.uuid4())) for _ in range(2)]
    yield made
    for session in made:
        session.close()


def test_our_sessions_do_not_follow_the_server_s_configuration(
    sessions: list[LakeSession],
) -> None:
    session = sessions[0]
    session.configure()
    assert session.conf("spark.sql.catalog.lake.cache-enabled") == "false"
    assert session.conf("spark.sql.ansi.enabled") == "true"


def test_our_sessions_see_what_others_have_committed(sessions: list[LakeSession]) -> None:
    """The server's own keep a table as they saw it first."""
    one, other = sessions
    one.command("CREATE NAMESPACE IF NOT EXISTS lake.seen", "making")
    one.command("CREATE TABLE lake.seen.t (id int) USING iceberg", "making")
    for number in (1, 2):
        count = one.query("SELECT count(*) AS n FROM lake.seen.t", "counting")
        assert count["n"].to_pylist() == [number - 1]
        other.command(f"INSERT INTO lake.seen.t VALUES ({number})", "inserting")
