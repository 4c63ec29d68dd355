"""Tables on Google Cloud Storage, as docs/catalogs/stores.md has them, behind a JDBC catalog.

Spark writes the rows and the deletes through Iceberg's client of the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS
from tests.integration.flow import Flow
from tests.lake.catalog_flow import TABLES, ReadBySpark, catalog_flow
from tests.lake.fake_gcs import FakeGcs, fake_gcs
from tests.twin import NativeTwin

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as running:
        yield running


def catalog_of(store: FakeGcs, folder: Path) -> dict[str, str]:
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": f"gs://{store.bucket}/warehouse",
        "gcs.project-id": "tests",
        "gcs.service.host": store.endpoint,
        "gcs.no-auth": "true",
    }


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    store: FakeGcs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    folder = tmp_path_factory.mktemp("on_gcs")
    pgsub = ReadBySpark(folder / "data")
    lake = {"catalog": catalog_of(store, folder)}
    with ExitStack() as after:
        after.callback(pgsub.stop)
        pgsub.up({"subscriptions": {}, "lake": lake, "settings": SETTINGS}, timeout=600)
        yield after.enter_context(catalog_flow(pgsub, twin, publisher, "on_gcs"))


@pytest.mark.parametrize("label", ["copied", "changed"])
@pytest.mark.parametrize("table", TABLES)
def test_spark_sees_the_rows_of_the_native_subscriber(flow: Flow, table: str, label: str) -> None:
    assert flow.same(label, table)


def test_the_files_lie_in_the_store_and_are_spark_s(flow: Flow, store: FakeGcs) -> None:
    files = store.files("warehouse")
    assert [name for name in files if name.endswith("metadata.json")]
    assert [name for name in files if name.endswith(".parquet")]
    assert not [name for name in files if "/data/pgsub-" in name]
    writers = {row["lake_table"]: row["writer"] for row in flow.pgsub.status("lake_tables")}
    assert {writers[table] for table in TABLES} == {"spark"}


def test_check_probes_a_catalog_with_tables_there(
    flow: Flow, store: FakeGcs, tmp_path: Path
) -> None:
    pgsub = ReadBySpark(tmp_path / "data")
    catalog = catalog_of(store, tmp_path)
    entry = {"connection": flow.pub.dsn, "publication": ["pub_on_gcs"]}
    content = {"subscriptions": {"other": entry}, "lake": {"catalog": catalog}}
    done = pgsub.command("check", str(pgsub.file({**content, "settings": SETTINGS})), timeout=600)
    assert "could be created" in done.stdout + done.stderr
    left = [name for name in store.files("warehouse") if "pgsub_probe" in name]
    # A catalog in a database leaves the metadata file of the commit that the catalog refused.
    assert not [name for name in left if not name.endswith(".metadata.json")]
