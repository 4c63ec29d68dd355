"""The catalog in a PostgreSQL database, as docs/catalogs/jdbc.md has it, and tables on S3."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import new_database
from tests.harness import SETTINGS, Pgsub, python_rows
from tests.integration.flow import Flow
from tests.integration.readers import by_spark
from tests.lake.catalog_flow import TABLES, catalog_flow
from tests.object_store import ANYBODY, REGION, ObjectStore, object_store
from tests.twin import NativeTwin, native_rows

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

LAKE_PASSWORD = "planted3secret"


class JdbcPgsub(Pgsub):
    """``pgsub`` with a JDBC catalog; pyiceberg reads the same tables of the database."""

    catalog: Mapping[str, str] = {}

    def iceberg_table(self, schema: str, table: str) -> Table:
        """The table as pyiceberg loads it."""
        address = self.catalog["uri"].removeprefix("jdbc:postgresql://")
        login = f"{self.catalog['jdbc.user']}:{self.catalog['jdbc.password']}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = {"s3.region": REGION, "warehouse": self.catalog["warehouse"], **self.catalog}
            uri = f"postgresql+psycopg://{login}@{address}"
            with closing(SqlCatalog("lake", **{**known, "uri": uri})) as catalog:
                return catalog.load_table((schema, table))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def catalog(publisher: EmbeddedPublisher, store: ObjectStore) -> Iterator[dict[str, str]]:
    """``lake.catalog``: a database with a role of its own."""
    database = new_database(publisher, "lake_catalog")
    database.run(
        f"CREATE ROLE lake LOGIN PASSWORD '{LAKE_PASSWORD}'",
        "GRANT ALL ON SCHEMA public TO lake",
    )
    found = conninfo_to_dict(database.dsn)
    yield {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{found['host']}:{found['port']}/{database.name}",
        "jdbc.user": "lake",
        "jdbc.password": LAKE_PASSWORD,
        "jdbc.schema-version": "V1",
        "warehouse": f"s3://{store.bucket}/warehouse",
        "client.region": REGION,
        "s3.endpoint": store.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": ANYBODY.key,
        "s3.secret-access-key": ANYBODY.secret,
    }
    database.drop()
    publisher.execute("DROP ROLE lake")


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    catalog: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    pgsub = JdbcPgsub(tmp_path_factory.mktemp("jdbc") / "data")
    pgsub.catalog = catalog
    with ExitStack() as after:
        after.callback(pgsub.stop)
        content = {"subscriptions": {}, "lake": {"catalog": catalog}, "settings": SETTINGS}
        pgsub.command("fetch", str(pgsub.file(content)), timeout=600)
        pgsub.up(content, timeout=300)
        yield after.enter_context(catalog_flow(pgsub, twin, publisher, "on_jdbc"))


@pytest.mark.parametrize("label", ["copied", "changed"])
@pytest.mark.parametrize("table", TABLES)
def test_pyiceberg_sees_the_rows_of_the_native_subscriber(
    flow: Flow, table: str, label: str
) -> None:
    assert flow.same(label, table)


@pytest.mark.parametrize("table", TABLES)
def test_spark_sees_the_rows_of_the_native_subscriber(flow: Flow, table: str) -> None:
    assert python_rows(by_spark(flow.pgsub, flow.name, table)) == native_rows(flow.sub, table)


def test_the_catalog_is_in_the_database(flow: Flow, catalog: dict[str, str]) -> None:
    assert not flow.pgsub.lake_catalog_file().exists()
    assert sorted(_tables(catalog)) == [("on_jdbc", "orders"), ("on_jdbc", "parted")]


def _tables(catalog: dict[str, str]) -> list[tuple[str, str]]:
    """The catalog's tables, but for those of status."""
    address = catalog["uri"].removeprefix("jdbc:")
    with psycopg.connect(address, user="lake", password=LAKE_PASSWORD) as connection:
        found = connection.execute("SELECT table_namespace, table_name FROM iceberg_tables")
        known = [(schema, name) for schema, name in found]
    return [each for each in known if each[0] != "pg_catalog" or "probe" in each[1]]


def test_the_files_are_the_worker_s(flow: Flow, store: ObjectStore) -> None:
    del flow
    files = store.files("warehouse")
    assert [name for name in files if "/data/pgsub-" in name and name.endswith("-deletes.parquet")]


def test_check_probes_the_catalog_and_the_password_is_told_to_nobody(
    flow: Flow, catalog: dict[str, str], tmp_path: Path
) -> None:
    other = Pgsub(tmp_path / "other")
    entry = {"connection": flow.pub.dsn, "publication": ["pub_on_jdbc"]}
    tables = {f"on_jdbc.{name}": {"to": f"other.{name}"} for name in TABLES}
    subscriptions = {"other": {**entry, "tables": tables}}
    content = {"subscriptions": subscriptions, "lake": {"catalog": catalog}}
    done = other.command("check", str(other.file(content)), timeout=600)
    assert "could be created" in done.stdout + done.stderr
    assert LAKE_PASSWORD not in done.stdout + done.stderr
    assert not [name for _, name in _tables(catalog) if "probe" in name]
    logs = [path.read_text() for path in (flow.pgsub.data_dir / "log").iterdir() if path.is_file()]
    assert not [log for log in logs if LAKE_PASSWORD in log]
