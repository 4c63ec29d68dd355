"""Tables on Google Cloud Storage, as docs/catalogs/stores.md has them, behind a JDBC catalog.

Both writers run: pgsub's own files, and Spark through Iceberg's client of the store. Spark reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS
from tests.integration.flow import Flow
from tests.lake.catalog_flow import TABLES, ReadBySpark, catalog_flow, expect_files
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


@pytest.fixture(scope="module", params=["files", "spark"])
def flow(
    request: pytest.FixtureRequest,
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    store: FakeGcs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    name = f"gcs_{request.param}"
    folder = tmp_path_factory.mktemp(name)
    pgsub = ReadBySpark(folder / "data")
    lake = {"catalog": catalog_of(store, folder), "writer": request.param}
    with ExitStack() as after:
        after.callback(pgsub.stop)
        pgsub.up({"subscriptions": {}, "lake": lake, "settings": SETTINGS}, timeout=600)
        yield after.enter_context(catalog_flow(pgsub, twin, publisher, name))


@pytest.mark.parametrize("label", ["copied", "changed"])
@pytest.mark.parametrize("table", TABLES)
def test_spark_sees_the_rows_of_the_native_subscriber(flow: Flow, table: str, label: str) -> None:
    assert flow.same(label, table)


def test_the_files_lie_in_the_store_and_are_the_writer_s(flow: Flow, store: FakeGcs) -> None:
    expect_files(flow, store.files("warehouse"))


def test_check_probes_a_catalog_with_tables_there(
    flow: Flow, store: FakeGcs, tmp_path: Path
) -> None:
    pgsub = ReadBySpark(tmp_path / "data")
    catalog = catalog_of(store, tmp_path)
    entry = {"connection": flow.pub.dsn, "publication": [f"pub_{flow.name}"]}
    content = {"subscriptions": {"other": entry}, "lake": {"catalog": catalog, "writer": "files"}}
    done = pgsub.command("check", str(pgsub.file({**content, "settings": SETTINGS})), timeout=600)
    assert "could be created" in done.stdout + done.stderr
    left = [name for name in store.files("warehouse") if "pgsub_probe" in name]
    # A catalog in a database leaves the metadata file of the commit that the catalog refused.
    assert not [name for name in left if not name.endswith(".metadata.json")]


def test_check_says_that_the_bucket_is_missing(flow: Flow, store: FakeGcs, tmp_path: Path) -> None:
    pgsub = ReadBySpark(tmp_path / "data")
    catalog = {**catalog_of(store, tmp_path), "warehouse": "gs://nosuch/warehouse"}
    entry = {"connection": flow.pub.dsn, "publication": [f"pub_{flow.name}"]}
    content = {"subscriptions": {"other": entry}, "lake": {"catalog": catalog}}
    file = pgsub.file({**content, "settings": SETTINGS})
    done = pgsub.command("check", str(file), status=1, timeout=600)
    assert "has no bucket of the warehouse's name" in done.stderr
