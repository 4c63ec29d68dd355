"""A REST catalog that lends tokens of Google's store: for each table, for a time.

The configuration has no token. A proxy before the store asks for a token with every request, and
knows the tokens that were lent.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS
from tests.integration.flow import Flow
from tests.lake.catalog_flow import ReadBySpark
from tests.lake.fake_gcs import fake_gcs
from tests.lake.http_proxy import HttpProxy, Tokens
from tests.lake.lender import Lender
from tests.lake.rest_catalog import rest_catalog
from tests.twin import NativeTwin
from tests.waiting import wait_until
from workers.lake.storage.bucket import FileStore

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher, twin: NativeTwin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flow]:
    folder, tokens = tmp_path_factory.mktemp("lent_tokens"), Tokens()

    def new_token(_: int) -> dict[str, str]:
        token = secrets.token_hex(16)
        tokens.valid.add(token)
        return {"gcs.oauth2.token": token}

    lender = Lender(new_token, "gcs.oauth2.token-expires-at")
    pgsub = ReadBySpark(folder / "data")
    with ExitStack() as running:
        store = running.enter_context(fake_gcs(folder))
        to_store = running.enter_context(HttpProxy(store.endpoint, tokens))
        of_store = {"io-impl": FileStore.GCS.value, "gcs.project-id": "tests"}
        freely = {**of_store, "gcs.service.host": store.endpoint, "gcs.no-auth": "true"}
        place = f"gs://{store.bucket}/warehouse"
        catalog = running.enter_context(rest_catalog(folder, place, freely, {}))
        to_catalog = running.enter_context(HttpProxy(catalog.uri))
        to_catalog.rewrite = lender.rewrite
        address = {"type": "rest", "uri": to_catalog.endpoint, "warehouse": place}
        keys = {**address, **of_store, "gcs.service.host": to_store.endpoint}
        lake = {"catalog": keys, "writer": "files"}
        running.callback(pgsub.stop)
        pgsub.up({"subscriptions": {}, "lake": lake, "settings": SETTINGS}, timeout=300)
        flow = running.enter_context(closing(Flow(pgsub, twin, publisher, "lent_tokens")))
        _run(flow, lender)
        flow.facts["tokens"] = [keys["gcs.oauth2.token"] for _, keys in lender.made]
        flow.facts["files"] = store.files("warehouse")
        yield flow


def _run(flow: Flow, lender: Lender) -> None:
    flow.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
    flow.pub.run(
        "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 1000) i",
        "CREATE PUBLICATION pub_tokens FOR TABLE t",
    )
    flow.subscribe("sub", ["pub_tokens"])
    flow.checkpoint("copied", "t")
    flow.pub.run("UPDATE t SET v = 'first' WHERE id % 10 = 0")
    flow.catch_up()
    begun = len(lender.made)
    wait_until(lambda: time.time() - lender.made[begun - 1][0] > 6, 60, "the token is stale")
    flow.pub.run(
        "UPDATE t SET v = 'second' WHERE id % 10 = 1",
        "INSERT INTO t SELECT i, 'new' FROM generate_series(2001, 2200) i",
        "DELETE FROM t WHERE id % 10 = 2",
    )
    flow.checkpoint("changed", "t")
    assert len(lender.made) > begun, "the worker asked for a new token before the end of the old"


@pytest.mark.parametrize("label", ["copied", "changed"])
def test_rows_are_those_of_the_native_subscriber(flow: Flow, label: str) -> None:
    assert flow.same(label, "t")


def test_the_worker_wrote_the_files_with_lent_tokens(flow: Flow) -> None:
    rows = [name for name in flow.facts["files"] if "/t" in name and name.endswith(".parquet")]
    assert rows
    assert all("/data/pgsub-" in name for name in rows)
    (row,) = flow.pgsub.status("lake_tables")
    assert (row["configured"], row["writer"]) == ("files", "files")


def test_no_lent_token_is_in_a_log(flow: Flow) -> None:
    logs = [path for path in (flow.pgsub.data_dir / "log").iterdir() if path.is_file()]
    said = [path.read_bytes() for path in (*logs, flow.pgsub.log_file)]
    assert said
    assert flow.facts["tokens"]
    for token in flow.facts["tokens"]:
        assert not [text for text in said if token.encode() in text]
