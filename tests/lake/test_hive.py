"""A Hive Metastore as the catalog, as docs/catalogs/hive.md has it.

Commits with the metastore's locks and tables on S3, written by ``files``; commits without locks and
tables on the local disk, written by ``spark``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS, Pgsub
from tests.integration.flow import Flow
from tests.lake import versitygw
from tests.lake.catalog_flow import TABLES, ReadBySpark, catalog_flow
from tests.lake.hive_metastore import HiveMetastore, hive_metastore
from tests.lake.metastore_proxy import MetastoreProxy
from tests.object_store import REGION, ObjectStore, object_store
from tests.ports import free_port
from tests.twin import NativeTwin
from workers.lake.iceberg.catalog_probe import COMPARE_AND_SET

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

NO_LOCKS = {"hadoop.iceberg.engine.hive.lock-enabled": "false"}
PLACES = ["s3", "disk"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A fast store where its program can be had, else one that takes any keys."""
    made = versitygw.file_store if versitygw.can_be_had() else object_store
    with made(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def metastore(
    store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiveMetastore]:
    with hive_metastore(tmp_path_factory.mktemp("metastore"), store.bucket) as running:
        yield running


@pytest.fixture(scope="module")
def lakes(
    metastore: HiveMetastore, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """``lake`` of a configuration file: with locks on S3, without locks on the local disk."""
    catalog = {"type": "hive", "uri": metastore.uri}
    on_s3 = {
        **catalog,
        "warehouse": f"s3://{store.bucket}/warehouse",
        "client.region": REGION,
        "s3.endpoint": store.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": versitygw.KEYS.key,
        "s3.secret-access-key": versitygw.KEYS.secret,
    }
    on_disk = {**catalog, **NO_LOCKS, "warehouse": str(tmp_path_factory.mktemp("disk") / "lake")}
    return {
        "s3": {"catalog": on_s3, "writer": "files"},
        "disk": {"catalog": on_disk, "writer": "spark"},
    }


@pytest.fixture(scope="module", params=PLACES)
def flow(
    request: pytest.FixtureRequest,
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    lakes: dict[str, dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    place = request.param
    pgsub = ReadBySpark(tmp_path_factory.mktemp(place) / "data")
    with ExitStack() as after:
        after.callback(pgsub.stop)
        pgsub.up({"subscriptions": {}, "lake": lakes[place], "settings": SETTINGS}, timeout=300)
        played = after.enter_context(catalog_flow(pgsub, twin, publisher, f"on_{place}"))
        played.facts["place"] = place
        yield played


@pytest.mark.parametrize("label", ["copied", "changed"])
@pytest.mark.parametrize("table", TABLES)
def test_spark_sees_the_rows_of_the_native_subscriber(flow: Flow, table: str, label: str) -> None:
    assert flow.same(label, table)


def test_the_writer_is_the_configured_one_and_the_table_keeps_branches(
    flow: Flow, lakes: dict[str, dict[str, Any]]
) -> None:
    asked = lakes[flow.facts["place"]]["writer"]
    assert {row["writer"] for row in flow.pgsub.status("lake_tables")} == {asked}
    refs = flow.lake("SELECT name FROM {t}.orders.refs")
    assert [row["name"] for row in refs if row["name"] != "main"]


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher) -> Iterator[Database]:
    made = new_database(publisher, "hive", schema="hive")
    made.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub_hive FOR TABLE t")
    yield made
    made.drop()


def check(
    database: Database, lake: dict[str, Any], folder: Path, **catalog: str
) -> tuple[int, str]:
    """Exit status and words of ``check``, with other keys in ``lake.catalog``."""
    pgsub = Pgsub(folder / "data")
    entry = {"connection": database.dsn, "publication": ["pub_hive"]}
    content = {
        "subscriptions": {"checked": entry},
        "lake": {**lake, "catalog": {**lake["catalog"], **catalog}},
        "settings": SETTINGS,
    }
    done = pgsub.command("check", str(pgsub.file(content)), status=None, timeout=600)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("place", PLACES)
def test_both_ways_to_commit_pass_the_probe(
    lakes: dict[str, dict[str, Any]], database: Database, tmp_path: Path, place: str
) -> None:
    status, said = check(database, lakes[place], tmp_path)
    assert status == 0, said
    assert "could be created" in said


def test_an_old_metastore_is_refused_without_locks_and_fit_with_locks(
    metastore: HiveMetastore, lakes: dict[str, dict[str, Any]], database: Database, tmp_path: Path
) -> None:
    with MetastoreProxy(metastore, old=True) as proxy:
        status, said = check(database, lakes["disk"], tmp_path / "without", uri=proxy.uri)
        assert status == 1
        assert f"0A000: the Hive Metastore of the lake does not keep {COMPARE_AND_SET}" in said
        assert "leave iceberg.engine.hive.lock-enabled out" in said
        status, said = check(database, lakes["s3"], tmp_path / "with", uri=proxy.uri)
        assert status == 0, said


@pytest.mark.parametrize(("old", "left"), [(False, [1, 2]), (True, [1])], ids=["new", "old"])
def test_an_old_metastore_would_lose_one_of_two_commits_at_the_same_moment(
    metastore: HiveMetastore,
    lakes: dict[str, dict[str, Any]],
    tmp_path: Path,
    *,
    old: bool,
    left: list[int],
) -> None:
    """The reason for the refusal: a commit comes between the comparison and the change of another.

    The commit of row 1 has compared, and is held before the change. Row 2 is committed meanwhile.
    """
    table, pgsub = f"lake.raced.{'old' if old else 'new'}", Pgsub(tmp_path / "data")
    with MetastoreProxy(metastore, old=old) as proxy:
        catalog = {**lakes["disk"]["catalog"], "uri": proxy.uri}
        content = {"subscriptions": {}, "lake": {"catalog": catalog}, "settings": SETTINGS}
        try:
            pgsub.up(content, timeout=300)
            pgsub.command("sql", "CREATE SCHEMA IF NOT EXISTS lake.raced")
            pgsub.command("sql", f"CREATE TABLE {table} (n int) USING iceberg")
            hold = proxy.hold_change()
            first = threading.Thread(
                target=pgsub.command, args=("sql", f"INSERT INTO {table} VALUES (1)")
            )
            first.start()
            assert hold.arrived.wait(120)
            pgsub.command("sql", f"INSERT INTO {table} VALUES (2)")
            hold.release()
            first.join(120)
            rows = pgsub.sql(f"SELECT n FROM {table} ORDER BY n")
        finally:
            pgsub.stop()
    assert [row["n"] for row in rows] == left


@pytest.mark.parametrize(
    ("catalog", "words", "more"),
    [
        ({"uri": ""}, "08001: the lake's store or catalog could not be reached", "Are uri,"),
        (
            {"warehouse": "s3://nobodys/lake"},
            "58030: the lake's store has no bucket of the warehouse's name",
            "Make the bucket",
        ),
    ],
    ids=["nobody listens", "no bucket"],
)
def test_check_says_what_cannot_be_reached(
    lakes: dict[str, dict[str, Any]],
    database: Database,
    tmp_path: Path,
    catalog: dict[str, str],
    words: str,
    more: str,
) -> None:
    if "uri" in catalog:
        catalog = {"uri": f"thrift://127.0.0.1:{free_port()}"}
    status, said = check(database, lakes["s3"], tmp_path, **catalog)
    assert status == 1
    assert words in said
    assert more in said


def test_check_says_what_the_metastore_cannot_do(
    store: ObjectStore, lakes: dict[str, dict[str, Any]], database: Database, tmp_path: Path
) -> None:
    """A new metastore, with a file in the place of the warehouse's folder, or without its tables of
    locks."""
    folder, file = tmp_path / "metastore", tmp_path / "file"
    folder.mkdir()
    file.touch()
    with hive_metastore(folder, store.bucket, locks=False) as bare:
        warehouse = str(file / "lake")
        status, said = check(
            database, lakes["disk"], tmp_path / "one", uri=bare.uri, warehouse=warehouse
        )
        assert status == 1
        assert "58030: the Hive Metastore could not use a folder of the warehouse" in said
        status, said = check(database, lakes["s3"], tmp_path / "two", uri=bare.uri)
        assert status == 1
        assert "58030: the Hive Metastore gave no lock" in said
