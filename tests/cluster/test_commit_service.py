"""A commit service beside the cluster: small batches by files, what is large by the executors.

The lake is a REST catalog's, with tables on S3. ``lake.catalog`` tells the commit service what the
cluster's Connect server knows: both commit to the same tables, and fence each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.cluster.spark_cluster import SparkCluster, on_rest_and_s3, spark_cluster
from tests.cluster.test_cluster import LIMITS, PATIENCE, events
from tests.fix_publisher import Database, new_database
from tests.lake.lake_stack import S3_IO, LakePgsub, LakeStack, quick_stack
from tests.lake.rest_catalog import rest_catalog
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.lake.writer_choice import BESIDE, FILES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

NAME = "beside"
ROWS, MORE = 40_000, 9_000
TABLES = ("ranged", "keyless", "quiet")
BY_CLUSTER = "spark.app.id"
"""Only what Spark writes has it in the snapshot's summary; executors' work is of the cluster's."""


@dataclass(slots=True)
class Played:
    """What a run left for the tests; ``copied`` and ``streamed`` are summaries of snapshots."""

    writers: dict[str, tuple[str, str]] = field(default_factory=dict)
    copied: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)
    streamed: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    tasks: Counter[str] = field(default_factory=Counter)
    later_tasks: Counter[str] = field(default_factory=Counter)
    rows: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)
    log: str = ""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeStack]:
    with quick_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, stack: LakeStack) -> Iterator[SparkCluster]:
    # What pgsub needs must hold whatever the server says.
    conf = {**on_rest_and_s3(stack), "spark.sql.catalog.lake.cache-enabled": "true"}
    env = stack.store.environment(*stack.keys)
    with spark_cluster(tmp_path_factory.mktemp("cluster"), conf, env) as running:
        yield running


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory,
    publisher: EmbeddedPublisher,
    stack: LakeStack,
    cluster: SparkCluster,
) -> Iterator[Played]:
    """One subscription; the apply worker is killed on the way, and the commit service twice."""
    folder = tmp_path_factory.mktemp(NAME)
    with ExitStack() as running:
        database = new_database(publisher, NAME, schema=NAME)
        running.callback(database.drop)
        _fill(database)
        env = stack.store.environment(*stack.keys)
        pgsub = LakePgsub(folder / "data", env, catalog=stack.direct_keys())
        running.callback(pgsub.stop)
        pgsub.up(_configuration(database, stack, cluster), timeout=PATIENCE)
        pgsub.wait(NAME, PATIENCE)
        found = Played()
        found.tasks = _tasks(cluster)
        rows = pgsub.status("lake_tables")
        found.writers = {
            row["relation"].rpartition(".")[2]: (row["writer"], row["reason"]) for row in rows
        }
        found.copied = {table: _summaries(pgsub, table) for table in TABLES}
        _change(database, pgsub, found)
        for table in TABLES:
            found.rows[table] = native_rows(database, table), pgsub.rows(NAME, table)
            later = _summaries(pgsub, table).items()
            found.streamed[table] = [each for at, each in later if at not in found.copied[table]]
        found.later_tasks = _tasks(cluster)
        found.log = (pgsub.data_dir / "log" / "pgsub.log").read_text()
        assert pgsub.stop() == 0, pgsub.log_tail()
        yield found


def _configuration(database: Database, stack: LakeStack, cluster: SparkCluster) -> dict[str, Any]:
    return {
        "subscriptions": {NAME: {"connection": database.dsn, "publication": [f"pub_{NAME}"]}},
        "lake": {"catalog": stack.direct_keys()},
        "spark": {
            "remote": cluster.url,
            "staging": f"s3a://{stack.store.bucket}/staging",
            "commit_service": "auto",
        },
        "settings": LIMITS,
    }


def _fill(database: Database) -> None:
    database.run(
        "CREATE TABLE ranged (id bigint PRIMARY KEY, name text, price numeric(12,2))",
        "INSERT INTO ranged SELECT i, 'row ' || i || repeat('x', 90), i / 4.0"
        f" FROM generate_series(1, {ROWS}) i",
        "CREATE TABLE keyless (a int, b text)",
        "ALTER TABLE keyless REPLICA IDENTITY FULL",
        "INSERT INTO keyless SELECT i % 500, 'b' FROM generate_series(1, 3000) i",
        "CREATE TABLE quiet (id int PRIMARY KEY, name text)",
        "INSERT INTO quiet VALUES (1, 'one'), (2, NULL)",
        f"CREATE PUBLICATION pub_{NAME} FOR TABLES IN SCHEMA {NAME}",
    )


def _change(database: Database, pgsub: LakePgsub, found: Played) -> None:
    """Small batches and batches beyond what is sent inside a plan; what dies, dies between them."""
    for turn in range(4):
        _small(database, turn)
    pgsub.wait(NAME, PATIENCE)
    found.pids.append(_kill_commit_service(pgsub))
    for turn in range(4, 8):
        _small(database, turn)
    pgsub.wait(NAME, PATIENCE)
    database.run(
        f"INSERT INTO ranged SELECT {ROWS} + i, 'new ' || i FROM generate_series(1, {MORE}) i",
        "UPDATE ranged SET name = upper(name) WHERE id % 4 = 0",
        "UPDATE keyless SET b = 'c' || a WHERE a % 3 = 0",
        "DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE a = 7 LIMIT 2)",
    )
    pgsub.kill_worker(NAME)
    found.pids.append(_kill_commit_service(pgsub))
    for turn in range(8, 12):
        _small(database, turn)
    pgsub.wait(NAME, PATIENCE)
    found.pids.append(pgsub.lake_server().pid)


def _small(database: Database, turn: int) -> None:
    database.run(
        f"INSERT INTO ranged VALUES ({10**6 + turn}, 'é 🦆 \" \\ {turn}', {turn})",
        f"UPDATE ranged SET price = -price, id = id + 2000000 WHERE id = {100 + turn}",
        f"DELETE FROM ranged WHERE id BETWEEN {200 + 10 * turn} AND {205 + 10 * turn}",
        f"UPDATE quiet SET name = 'turn {turn}' WHERE id = 2",
    )


def _kill_commit_service(pgsub: LakePgsub) -> int:
    """At once, perhaps in the middle of a batch; the pid."""

    def running() -> Any:
        try:
            return pgsub.lake_server()
        except AssertionError:
            return None

    service = wait_until(running, PATIENCE, "the commit service runs")
    service.kill()
    return int(service.pid)


def _summaries(pgsub: LakePgsub, table: str) -> dict[int, dict[str, str]]:
    """Those of all snapshots."""
    return {
        each.snapshot_id: dict(each.summary.additional_properties)
        for each in pgsub.iceberg_table(NAME, table).metadata.snapshots
        if each.summary is not None
    }


def _tasks(cluster: SparkCluster) -> Counter[str]:
    """Tasks that went well, by executor."""
    return Counter(
        each["Task Info"]["Executor ID"]
        for each in events(cluster)
        if each["Event"] == "SparkListenerTaskEnd"
        and each["Task End Reason"]["Reason"] == "Success"
    )


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_are_the_publisher_s(played: Played, table: str) -> None:
    publisher_s, lake_s = played.rows[table]
    assert len(publisher_s) >= 2
    assert lake_s == publisher_s


@pytest.mark.parametrize("table", TABLES)
def test_status_says_who_writes_and_why(played: Played, table: str) -> None:
    assert played.writers[table] == (FILES, BESIDE)


def test_executors_copy_in_ranges(played: Played, cluster: SparkCluster) -> None:
    """Of both workers; the copy's commit is the cluster's."""
    assert len(played.tasks) >= 2
    assert "driver" not in played.tasks
    snapshots = played.copied["ranged"].values()
    copies = [each for each in snapshots if each.get("added-records") == str(ROWS)]
    assert [BY_CLUSTER in each for each in copies] == [True]
    assert any("MapInArrow" in str(each) for each in events(cluster))


def test_small_batches_are_files(played: Played) -> None:
    """Committed through the gateway; Spark's fences after a death add no row."""
    with_rows = [
        each
        for each in played.streamed["quiet"]
        if int(each.get("added-records", 0)) or int(each.get("added-position-deletes", 0))
    ]
    assert len(with_rows) >= 3
    assert not [each for each in with_rows if BY_CLUSTER in each]


def test_the_launcher_starts_the_commit_service_again(played: Played) -> None:
    assert len(set(played.pids)) == 3
    assert played.log.count("action=lake_exit") == 2
    assert played.log.count("action=lake_up") == 3


def test_whole_rows_are_matched_by_executors(played: Played) -> None:
    assert played.later_tasks.total() > played.tasks.total()
    assert "driver" not in played.later_tasks


def test_two_catalogs_are_refused(
    tmp_path: Path, publisher: EmbeddedPublisher, stack: LakeStack, cluster: SparkCluster
) -> None:
    """``lake.catalog`` names a catalog that is not the cluster's: not one row is written."""
    s3 = {"io-impl": S3_IO, "s3.endpoint": stack.store.endpoint, "s3.path-style-access": "true"}
    env = stack.store.environment(*stack.keys)
    with ExitStack() as running:
        place = f"s3://{stack.store.bucket}/other"
        other = running.enter_context(rest_catalog(tmp_path, place, s3, env))
        database = new_database(publisher, "apart", schema=NAME)
        running.callback(database.drop)
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY)", f"CREATE PUBLICATION pub_{NAME} FOR TABLE t"
        )
        pgsub = LakePgsub(tmp_path / "data", env)
        content = _configuration(database, stack, cluster)
        keys = {**stack.direct_keys(), "uri": other.uri, "warehouse": place}
        file = pgsub.file(content | {"lake": {"catalog": keys}})
        done = pgsub.command("check", str(file), status=None)
        assert done.returncode != 0
        assert "do not have the same catalog" in done.stdout + done.stderr
