"""Tables on Azure Data Lake Storage, as docs/catalogs/stores.md has them, behind a JDBC catalog.

Both writers run: pgsub's own files with a signature of the container, and Spark through Iceberg's
client of the store with the account's key. Spark reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS
from tests.integration.flow import Flow
from tests.lake.azurite_store import KEY, NO_NODE, Azurite, azurite, has_node
from tests.lake.catalog_flow import TABLES, ReadBySpark, catalog_flow, expect_files
from tests.twin import NativeTwin

pytestmark = [
    pytest.mark.lake,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not has_node(), reason=NO_NODE),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("adls")) as running:
        yield running


def catalog_of(store: Azurite, folder: Path, keys: dict[str, str]) -> dict[str, str]:
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": store.location("warehouse"),
        **keys,
    }


@pytest.fixture(scope="module", params=["files", "spark"])
def flow(
    request: pytest.FixtureRequest,
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    store: Azurite,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    name = f"adls_{request.param}"
    folder = tmp_path_factory.mktemp(name)
    pgsub = ReadBySpark(folder / "data")
    keys = store.signed("racwdl") if request.param == "files" else store.keys()
    lake = {"catalog": catalog_of(store, folder, keys), "writer": request.param}
    with ExitStack() as after:
        after.callback(pgsub.stop)
        pgsub.up({"subscriptions": {}, "lake": lake, "settings": SETTINGS}, timeout=600)
        found = after.enter_context(catalog_flow(pgsub, twin, publisher, name))
        found.facts["secrets"] = [
            KEY,
            *(parse_qs(key)["sig"][0] for key in keys.values() if "sig=" in key),
        ]
        yield found


def checked(flow: Flow, folder: Path, catalog: dict[str, str], status: int) -> str:
    """What ``check`` says of a file with this catalog."""
    entry = {"connection": flow.pub.dsn, "publication": [f"pub_{flow.name}"]}
    lake = {"catalog": catalog, "writer": "files"}
    content = {"subscriptions": {"other": entry}, "lake": lake, "settings": SETTINGS}
    pgsub = ReadBySpark(folder / "data")
    done = pgsub.command("check", str(pgsub.file(content)), status=status, timeout=600)
    return done.stdout + done.stderr


@pytest.mark.parametrize("label", ["copied", "changed"])
@pytest.mark.parametrize("table", TABLES)
def test_spark_sees_the_rows_of_the_native_subscriber(flow: Flow, table: str, label: str) -> None:
    assert flow.same(label, table)


def test_the_files_lie_in_the_store_and_are_the_writer_s(flow: Flow, store: Azurite) -> None:
    expect_files(flow, store.files("warehouse"))


def test_no_key_and_no_signature_is_in_a_log(flow: Flow) -> None:
    logs = [path for path in (flow.pgsub.data_dir / "log").iterdir() if path.is_file()]
    said = [path.read_bytes() for path in (*logs, flow.pgsub.log_file)]
    assert said
    for secret in flow.facts["secrets"]:
        for written in (secret, quote(secret, safe="")):
            assert not [text for text in said if written.encode() in text]


def test_check_probes_a_catalog_with_tables_there(
    flow: Flow, store: Azurite, tmp_path: Path
) -> None:
    assert "could be created" in checked(
        flow, tmp_path, catalog_of(store, tmp_path, store.keys()), 0
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"warehouse": "abfss://nosuch@devstoreaccount1.dfs.core.windows.net/w"}, "no bucket"),
        ({"adls.auth.shared-key.account.key": "cGxhbnRlZA=="}, "refused the key"),
    ],
    ids=["no container", "wrong key"],
)
def test_check_says_what_the_store_refuses(
    flow: Flow, store: Azurite, tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    told = checked(flow, tmp_path, {**catalog_of(store, tmp_path, store.keys()), **changed}, 1)
    assert said in told, told
    assert "cGxhbnRlZA" not in told
