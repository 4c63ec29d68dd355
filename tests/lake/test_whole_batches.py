"""All tables of a batch become visible at one moment, where the catalog takes a call for several.

Iceberg's test server has the call, and does the work table by table. The proxy lets the server do
the call while no other request is on the way: so the server is what the specification asks for, to
everybody who comes by the proxy.

A reader of several tables reads all of them twice. If no table has changed in between, all tables
were as read at one moment, and every transaction here changes every table: the positions and the
rows must be those of one transaction.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.lake.http_proxy import Fault, HttpProxy, Kind
from tests.lake.lake_stack import LakeStack, lake_pgsub
from tests.object_store import REGION
from tests.twin import NativeTwin
from tests.waiting import wait_until
from workers.lake.metadata.snapshots import LSN_KEY

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

TABLES: Final = tuple(f"t{number}" for number in range(5))
CALL: Final = "transactions/commit"
TOGETHER: Final = "; ".join(f"UPDATE {table} SET n = n + 1" for table in TABLES)
MOMENTS: Final = 12
"""Different moments that a reader has to meet."""


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    stack.catalog_proxy.alone = CALL
    folder = tmp_path_factory.mktemp("whole")
    with running(publisher, twin, folder, stack.catalog_keys(), "whole") as flow:
        yield flow


@contextmanager
def running(
    publisher: EmbeddedPublisher, twin: NativeTwin, folder: Any, keys: Mapping[str, str], name: str
) -> Iterator[Flow]:
    """A subscription to the tables, copied; nothing but batches moves main."""
    with (
        lake_pgsub(folder, keys, status_tables_interval=0, autovacuum=False) as pgsub,
        closing(Flow(pgsub, twin, publisher, name)) as flow,
    ):
        flow.both(*(f"CREATE TABLE {table} (id int PRIMARY KEY, n int)" for table in TABLES))
        flow.pub.run(
            *(f"INSERT INTO {table} VALUES (1, 0), (2, 0)" for table in TABLES),
            f"CREATE PUBLICATION pub_{name} FOR TABLES IN SCHEMA {name}",
        )
        flow.subscribe("sub", [f"pub_{name}"])
        flow.catch_up()
        change(flow)  # each copy ended at a position of its own
        flow.checkpoint("copied", *TABLES)
        yield flow


@pytest.fixture
def calls(stack: LakeStack) -> Iterator[Callable[[], int]]:
    """The number of calls for several tables since the test began."""
    proxy = stack.catalog_proxy
    before = len(proxy.requests)
    yield lambda: sum(CALL in path for _, path in proxy.requests[before:])
    proxy.before = proxy.behind = None


def change(flow: Flow, times: int = 1) -> None:
    for _ in range(times):
        flow.pub.execute(f"BEGIN; {TOGETHER}; COMMIT")


def check(flow: Flow, label: str) -> None:
    """The rows are the twin's, and nothing failed for good."""
    flow.checkpoint(label, *TABLES)
    for table in TABLES:
        assert flow.same(label, table)
    assert flow.pgsub.status("last_errors") == []


def is_atomic(flow: Flow) -> Any:
    (row,) = flow.pgsub.status("pg_subscription")
    return row["atomic_publish"]


# A reader of several tables


def open_catalog(stack: LakeStack, **more: str) -> Catalog:
    from pyiceberg.catalog import load_catalog

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_catalog("lake", **{"s3.region": REGION, **stack.catalog_keys(), **more})


class Reader:
    """Reads all tables again and again; ``moments`` are the positions that were met."""

    def __init__(self, stack: LakeStack, flow: Flow) -> None:
        self.catalog = open_catalog(stack)
        self.schema = flow.name
        self.moments: set[frozenset[str]] = set()

    def look(self) -> bool:
        """Look once; True if a mix was met."""
        tables, again = ([self.catalog.load_table((self.schema, t)) for t in TABLES] for _ in "12")
        heads = [[table.current_snapshot() for table in each] for each in (tables, again)]
        if heads[0] != heads[1]:
            return False
        positions = frozenset(self.position(table) for table in tables)
        values = {n for table in tables for n in table.scan().to_arrow()["n"].to_pylist()}
        assert (len(positions) == 1) == (len(values) == 1), (positions, values)
        self.moments.add(positions)
        return len(positions) > 1

    def position(self, table: Any) -> str:
        return str(table.current_snapshot().summary[LSN_KEY])


@contextmanager
def changing(flow: Flow) -> Iterator[None]:
    """Transactions run, one behind the other."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.05):
            change(flow)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def test_a_reader_never_sees_a_mix(flow: Flow, stack: LakeStack, calls: Callable[[], int]) -> None:
    reader = Reader(stack, flow)
    with changing(flow):
        while len(reader.moments) < MOMENTS:
            assert not reader.look()
    check(flow, "read")
    assert calls() >= MOMENTS - 1
    assert is_atomic(flow) is True


# Faults of the call


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_answer_of_5xx_behind_the_effect(
    flow: Flow, stack: LakeStack, calls: Callable[[], int], status: int
) -> None:
    """The tables are looked at: there is no second call."""
    fault = Fault(Kind.FORGOTTEN, "POST", CALL, 1, status)
    with stack.catalog_proxy.disturbed(fault):
        change(flow)
        check(flow, f"forgotten {status}")
    assert (fault.met, calls()) == (1, 1)


@pytest.mark.parametrize("kind", [Kind.CUT_BEHIND, Kind.CUT])
def test_a_connection_that_is_cut(flow: Flow, stack: LakeStack, kind: Kind) -> None:
    fault = Fault(kind, "POST", CALL, 1)
    with stack.catalog_proxy.disturbed(fault):
        change(flow)
        wait_until(lambda: fault.met, 120, flow.pgsub.log_tail)
        change(flow, 2)
        check(flow, kind)


def test_a_refusal_of_a_call_that_would_be_done(
    flow: Flow, stack: LakeStack, calls: Callable[[], int]
) -> None:
    """409, and no table has changed: the call is made again."""
    fault = Fault(Kind.REFUSED, "POST", CALL, 2, 409)
    with stack.catalog_proxy.disturbed(fault):
        change(flow)
        check(flow, "refused")
    assert (fault.met, calls()) == (2, 3)


def test_another_writer_at_the_last_moment(
    flow: Flow, stack: LakeStack, calls: Callable[[], int]
) -> None:
    """409 for one table: no other table shows the batch, and all of them show it together."""
    proxy, meddled = stack.catalog_proxy, list[int]()
    other = open_catalog(stack, uri=stack.catalog.uri)

    def meddle(path: str, _: bytes) -> None:
        if CALL in path and len(meddled) < 2:
            table = other.load_table((flow.name, TABLES[3]))
            head = table.current_snapshot()
            assert head is not None
            meddled.append(head.snapshot_id)
            table.append(pa.table(table.schema().as_arrow().empty_table()))

    reader = Reader(stack, flow)
    proxy.before = meddle
    change(flow)
    wait_until(lambda: len(meddled) == 2, 120, flow.pgsub.log_tail)
    check(flow, "overtaken")
    assert calls() >= 3
    proxy.before = None
    change(flow)
    flow.catch_up()
    assert not reader.look()
    assert reader.moments


# The worker dies


def test_a_worker_that_is_killed_right_behind_the_call(flow: Flow, stack: LakeStack) -> None:
    """The batch is visible, and the worker has stored nothing of that."""
    killed: list[int] = []

    def kill(path: str, _: bytes) -> None:
        if CALL in path and not killed:
            killed.append(flow.pgsub.kill_worker(flow.subscriptions[0]))

    stack.catalog_proxy.behind = kill
    change(flow)
    wait_until(lambda: killed, 120, flow.pgsub.log_tail)
    change(flow, 2)
    check(flow, "killed behind")
    reader = Reader(stack, flow)
    assert not reader.look()
    assert reader.moments


def test_a_dead_worker_s_call_that_lands_behind_the_fence(
    flow: Flow, stack: LakeStack, calls: Callable[[], int]
) -> None:
    """The successor has fenced the tables by then: the catalog refuses the call as a whole."""
    held: list[int] = []

    def hold(path: str, _: bytes) -> None:
        if CALL in path and not held:
            fences = flow.pgsub.log_tail(10_000).count("action=fence")
            held.append(flow.pgsub.kill_worker(flow.subscriptions[0]))
            fenced = fences + len(TABLES)
            wait_until(partial(_has_fenced, flow, fenced), 180, flow.pgsub.log_tail)

    stack.catalog_proxy.before = hold
    change(flow)
    wait_until(lambda: calls() > 1, 240, flow.pgsub.log_tail)
    change(flow, 2)
    check(flow, "late")
    reader = Reader(stack, flow)
    assert not reader.look()
    assert reader.moments


def _has_fenced(flow: Flow, times: int) -> bool:
    return flow.pgsub.log_tail(10_000).count("action=fence") >= times


# A catalog without the call


def test_a_catalog_that_refuses_the_call_after_all(flow: Flow, stack: LakeStack) -> None:
    """Table by table from then on, until the next worker asks again.

    One refusal could be of a change of an old state.
    """
    fault = Fault(Kind.REFUSED, "POST", CALL, 2, 404)
    with stack.catalog_proxy.disturbed(fault):
        change(flow)
        wait_until(lambda: is_atomic(flow) is False, 120, flow.pgsub.log_tail)
        check(flow, "not found")
    assert "does not move several tables in one call" in flow.pgsub.log_tail(10_000)
    flow.pgsub.kill_worker(flow.subscriptions[0])
    wait_until(lambda: is_atomic(flow) is True, 120, flow.pgsub.log_tail)


def without_the_call(path: str, content: bytes) -> bytes:
    """The catalog's configuration, without the endpoint."""
    if not path.startswith("/v1/config"):
        return content
    said = json.loads(content)
    said["endpoints"] = [each for each in said["endpoints"] if CALL not in each]
    return json.dumps(said).encode()


def test_without_the_call_a_reader_can_see_a_mix(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What the reader is good for: one table's main moves a while later, and the mix is seen."""
    seen, held = threading.Event(), threading.Event()

    def hold(path: str, body: bytes) -> None:
        if path.endswith(f"/{TABLES[2]}") and b'"ref-name":"main"' in body:
            held.set()
            assert seen.wait(120)

    with HttpProxy(stack.catalog.uri) as proxy:
        proxy.rewrite = without_the_call
        keys = {**stack.catalog_keys(), "uri": proxy.endpoint}
        folder = tmp_path_factory.mktemp("single")
        with running(publisher, twin, folder, keys, "single") as flow:
            assert is_atomic(flow) is False
            reader = Reader(stack, flow)
            assert not reader.look()
            proxy.before = hold
            change(flow)
            wait_until(held.is_set, 120, flow.pgsub.log_tail)
            try:
                wait_until(reader.look, 60, flow.pgsub.log_tail)
            finally:
                seen.set()
            check(flow, "without")
            assert not any(CALL in path for _, path in proxy.requests)
