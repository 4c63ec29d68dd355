"""How many requests a batch costs, to the catalog and to the store: each costs time and money.

A batch is one transaction of 1,000 rows of one table. The proxies of the stack count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.lake.http_proxy import HttpProxy
from tests.lake.lake_stack import LakeStack, lake_pgsub
from tests.twin import NativeTwin

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

BATCHES = 10
MOST = {"inserts": 6.2, "updates": 9.8, "by days": 6.2}
"""Requests of a batch, on the average: no more than docs/performance.md shows."""
_FILE = re.compile(
    r"(?:(?P<list>snap-[^/]*\.avro)|(?P<manifest>m\d+\.avro)|(?P<deletes>deletes\.parquet)"
    r"|(?P<rows>\.parquet))$"
)


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    folder, catalog = tmp_path_factory.mktemp("requests"), stack.catalog_keys()
    # Nothing but the batches asks: no status tables, no maintenance.
    with (
        lake_pgsub(folder, catalog, status_tables_interval=0, autovacuum=False) as pgsub,
        closing(Flow(pgsub, twin, publisher, "requests")) as flow,
    ):
        flow.both(
            "CREATE TABLE inserts (id int PRIMARY KEY, v text)",
            "CREATE TABLE updates (id int PRIMARY KEY, v text)",
            "CREATE TABLE by_days (id int PRIMARY KEY, v text, at timestamp)",
        )
        flow.pub.run(
            "INSERT INTO updates SELECT i, 'old' FROM generate_series(1, 100000) i",
            "CREATE PUBLICATION pub_requests FOR TABLES IN SCHEMA requests",
        )
        layout = {"by_days": {"partition_by": ["days(at)"]}}
        flow.subscribe("sub", ["pub_requests"], tables=layout)
        flow.catch_up()
        yield flow


def kind(method: str, path: str) -> str:
    """A request without names and numbers."""
    bare = path.partition("?")[0]
    found = _FILE.search(bare)
    return f"{method} {found.lastgroup if found else bare.rsplit('/', 1)[-1]}"


STATEMENTS = {
    "inserts": "INSERT INTO inserts SELECT i, 'new' FROM generate_series({0}001, {0}999) i",
    "updates": "UPDATE updates SET v = 'v{0}' WHERE id % 100 = {0}",
    "by days": "INSERT INTO by_days SELECT i, 'new', timestamp '2026-01-{0:02}'"
    " FROM generate_series({0}001, {0}999) i",
}


@pytest.mark.parametrize("what", MOST)
def test_requests_of_a_batch(flow: Flow, stack: LakeStack, what: str) -> None:
    proxies = (stack.catalog_proxy, stack.store_proxy)
    for turn in (10, 11):
        run(flow, STATEMENTS[what].format(turn))
    before = [len(proxy.requests) for proxy in proxies]
    for turn in range(12, 12 + BATCHES):
        run(flow, STATEMENTS[what].format(turn))
    counts = [count(proxy, since) for proxy, since in zip(proxies, before, strict=True)]
    print(f"\n{what}: requests of a batch, catalog then store")
    for each in counts:
        print("  ", {name: number / BATCHES for name, number in each.most_common()})
    total = sum(sum(each.values()) for each in counts) / BATCHES
    assert total <= MOST[what], (total, counts)
    assert total > 1


def run(flow: Flow, statement: str) -> None:
    """A transaction that is in the lake, and nothing else."""
    flow.pub.execute(statement)
    flow.pgsub.wait(flow.subscriptions[0])


def count(proxy: HttpProxy, since: int) -> Counter[str]:
    """The requests from number ``since`` on, by kind."""
    return Counter(kind(*each) for each in proxy.requests[since:])
