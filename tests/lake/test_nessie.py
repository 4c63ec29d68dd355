"""Nessie 0.99.0 would lose rows, and is refused before the first row by what Nessie lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS, Pgsub
from tests.lake import nessie_catalog, versitygw
from tests.lake.lake_stack import catalog_client
from tests.lake.newer_java import newer_java
from tests.object_store import ObjectStore, object_store
from workers.lake.iceberg.catalog_probe import BRANCHES

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

SCHEMA = "nessie"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A fast store where its program can be had, else one that takes any keys."""
    folder = tmp_path_factory.mktemp("store")
    made = versitygw.file_store if versitygw.can_be_had() else object_store
    with made(folder) as running:
        yield running


@pytest.fixture(scope="module")
def catalog(
    store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Nessie's keys of ``lake.catalog``."""
    java = newer_java(nessie_catalog.LEAST_JAVA)
    if java is None:
        pytest.skip(nessie_catalog.NO_JAVA)
    folder = tmp_path_factory.mktemp("nessie")
    with nessie_catalog.nessie_catalog(java, folder, store, versitygw.KEYS) as running:
        yield running


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher) -> Iterator[Database]:
    made = new_database(publisher, SCHEMA, schema=SCHEMA)
    made.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        f"CREATE PUBLICATION pub_nessie FOR TABLES IN SCHEMA {SCHEMA}",
    )
    yield made
    made.drop()


def tables(catalog: dict[str, str]) -> list[tuple[str, ...]]:
    """The names of all tables."""
    with catalog_client(catalog) as client:
        return [name for space in client.list_namespaces() for name in client.list_tables(space)]


@pytest.mark.parametrize(
    ("command", "begin"), [("check", "0A000: "), ("up", "sqlstate=0A000 ")], ids=["check", "up"]
)
def test_nessie_is_refused_by_what_it_lacks_and_no_table_is_made(
    catalog: dict[str, str],
    store: ObjectStore,
    database: Database,
    tmp_path: Path,
    command: str,
    begin: str,
) -> None:
    pgsub = Pgsub(tmp_path / "data")
    entry = {"connection": database.dsn, "publication": ["pub_nessie"]}
    content = {
        "subscriptions": {"refused": entry},
        "lake": {"catalog": catalog},
        "settings": SETTINGS,
    }
    done = pgsub.command(command, str(pgsub.file(content)), status=1, timeout=600)
    said = done.stdout + done.stderr
    assert f"{begin}the catalog of the lake does not keep {BRANCHES}" in said
    assert not tables(catalog)
    assert not [name for name in store.files("", versitygw.KEYS) if f"/{SCHEMA}/" in name]


def test_nessie_breaks_the_promises_that_docs_catalogs_names(catalog: dict[str, str]) -> None:
    """With these, rows are lost without an error: the reason for the refusal."""
    with catalog_client(catalog) as client:
        client.create_namespace("plain")
        client.create_table("plain.t", pa.schema([("n", pa.int32())]))
        one, stale = (client.load_table("plain.t") for _ in range(2))
        for number, table in enumerate((one, stale)):
            table.append(pa.table({"n": pa.array([number], pa.int32())}))
        one.refresh()
        one.manage_snapshots().create_branch(one.snapshots()[-1].snapshot_id, "work").commit()
        made = client.load_table("plain.t")
        assert made.scan().to_arrow().column("n").to_pylist() == [1]
        assert len(made.snapshots()) == 1
        assert "work" not in made.refs()
        client.drop_table("plain.t")
        client.drop_namespace("plain")
