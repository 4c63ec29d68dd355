"""A REST catalog that lends the keys of the store: for each table, for a time, with a token.

The configuration has no key. The proxy of the catalog puts the keys of a role into each answer
about a table, as a catalog does that lends keys. They end in five minutes and five seconds: pgsub
asks for new ones when the five seconds are over, and the old keys are still good then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.lake.lake_stack import LENT_SETS, LakeStack, lake_pgsub, lake_stack
from tests.lake.lender import Lender
from tests.twin import NativeTwin
from tests.waiting import wait_until

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

ROLE = "lender"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeStack]:
    with lake_stack(tmp_path_factory.mktemp("lent"), role=ROLE) as running:
        yield running


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    lender = Lender(
        lambda number: stack.lent[min(number, LENT_SETS - 1)], "s3.session-token-expires-at-ms"
    )
    stack.catalog_proxy.rewrite = lender.rewrite
    catalog = stack.catalog_keys()
    without = {key: value for key, value in catalog.items() if "key" not in key}
    folder = tmp_path_factory.mktemp("lent_keys")
    with (
        lake_pgsub(folder, catalog, configured=without) as pgsub,
        closing(Flow(pgsub, twin, publisher, "lent_keys")) as flow,
    ):
        flow.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
        flow.pub.run(
            "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 1000) i",
            "CREATE PUBLICATION pub_lent FOR TABLE t",
        )
        flow.subscribe("sub", ["pub_lent"])
        flow.checkpoint("copied", "t")
        flow.pub.run("UPDATE t SET v = 'first' WHERE id % 10 = 0")
        flow.catch_up()
        begun = len(lender.made)
        wait_until(lambda: time.time() - lender.made[begun - 1][0] > 6, 60, "the keys are stale")
        flow.pub.run(
            "UPDATE t SET v = 'second' WHERE id % 10 = 1",
            "INSERT INTO t SELECT i, 'new' FROM generate_series(2001, 2200) i",
            "DELETE FROM t WHERE id % 10 = 2",
        )
        flow.checkpoint("changed", "t")
        flow.facts["keys"] = [keys for _, keys in lender.made]
        yield flow


@pytest.mark.parametrize("label", ["copied", "changed"])
def test_rows_are_those_of_the_native_subscriber(flow: Flow, label: str) -> None:
    assert flow.same(label, "t")


def test_the_worker_wrote_the_files_with_lent_keys(flow: Flow) -> None:
    files = flow.pgsub.iceberg_table(flow.name, "t").inspect.files()
    assert all("/pgsub-" in str(path) for path in files["file_path"].to_pylist())
    (row,) = flow.pgsub.status("lake_tables")
    assert (row["configured"], row["writer"]) == ("auto", "files")
    assert len({keys["s3.access-key-id"] for keys in flow.facts["keys"]}) > 2


def test_no_lent_key_is_in_a_log(flow: Flow) -> None:
    logs = [path for path in (flow.pgsub.data_dir / "log").iterdir() if path.is_file()]
    said = [path.read_bytes() for path in (*logs, flow.pgsub.log_file)]
    assert said
    for keys in flow.facts["keys"]:
        for name in ("s3.secret-access-key", "s3.session-token"):
            assert not [text for text in said if keys[name].encode() in text]
