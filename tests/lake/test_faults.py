"""A store and a catalog that slow down, refuse, cut and forget: no row is lost or doubled.

Every case disturbs a few requests of one kind while changes run, and then compares all tables with
PostgreSQL's own subscriber. The worst are commits that took effect, with an answer that says
otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.lake.http_proxy import Fault, HttpProxy, Kind
from tests.lake.lake_stack import LakeStack, lake_pgsub
from tests.twin import NativeTwin
from tests.waiting import wait_until
from workers.lake.table import BRANCH_PREFIX

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

TABLES = ("keyed", "parted", "keyless")
SCHEMA = (
    "CREATE TABLE keyed (id int PRIMARY KEY, name text)",
    "CREATE TABLE parted (id int PRIMARY KEY, name text, at timestamp)",
    "CREATE TABLE keyless (a int, b text)",
    "ALTER TABLE keyless REPLICA IDENTITY FULL",
    "CREATE TABLE large (id int PRIMARY KEY, v text)",
)
LARGE_ROWS: Final = 4_000
UPDATES: Final = (
    "DELETE FROM large WHERE id % 10 = {n}; UPDATE large SET v = repeat(md5(id || '{n}'), 220);"
    " INSERT INTO large SELECT i, 'new {n}' FROM generate_series(1, 4000) i WHERE i % 10 = {n}"
)
"""28 MB: more than a slice that becomes a file."""
DIGEST: Final = "SELECT count(*) AS n, sum(id) AS s, sum(ascii(substr(v, 5, 1)) * id) AS v FROM {t}"
TABLE: Final = r"/namespaces/faults/tables/"
COMMIT: Final = rf"({TABLE}[^/]+|/transactions/commit)$"
FILE: Final = r"\.(parquet|avro)"
NEW_ROWS: Final = r"/pgsub-copy-[^/]*\.parquet"
_TURNS = itertools.count(1)


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    with (
        lake_pgsub(tmp_path_factory.mktemp("faults"), stack.catalog_keys()) as pgsub,
        closing(Flow(pgsub, twin, publisher, "faults")) as flow,
    ):
        flow.both(*SCHEMA)
        flow.pub.run(
            "INSERT INTO keyed SELECT i, 'row ' || i FROM generate_series(1, 5000) i",
            "INSERT INTO parted SELECT i, 'row ' || i, timestamp '2026-01-01' + i * interval '1 h'"
            " FROM generate_series(1, 300) i",
            "INSERT INTO keyless SELECT i, NULL FROM generate_series(1, 30) i",
            f"INSERT INTO large SELECT i, 'old' FROM generate_series(1, {LARGE_ROWS}) i",
            "CREATE PUBLICATION pub_faults FOR TABLES IN SCHEMA faults",
        )
        layout = {"parted": {"partition_by": ["months(at)", "bucket(2, id)"]}}
        flow.subscribe("sub", ["pub_faults"], tables=layout)
        flow.checkpoint("copied", *TABLES)
        yield flow


def work(flow: Flow) -> None:
    """A transaction of all tables, and one of each."""
    turn = next(_TURNS)
    first = 100_000 * turn
    of = {
        "keyed": "INSERT INTO keyed SELECT i, 'new' FROM"
        f" generate_series({first}, {first + 200}) i;"
        f" UPDATE keyed SET name = name || '.' WHERE id % 7 = {turn % 7};"
        f" DELETE FROM keyed WHERE id % 50 = {turn % 50};",
        "parted": f"INSERT INTO parted SELECT i, 'new', timestamp '2026-03-01' + i % 99 * interval"
        f" '1 day' FROM generate_series({first}, {first + 50}) i;"
        f" UPDATE parted SET at = at + interval '1 month' WHERE id % 9 = {turn % 9};"
        f" DELETE FROM parted WHERE id % 40 = {turn % 40};",
        "keyless": f"INSERT INTO keyless SELECT {turn}, 'new' FROM generate_series(1, 5);"
        f" UPDATE keyless SET b = 'moved' WHERE a = {turn};"
        f" DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE a <> {turn} LIMIT 2);",
    }
    flow.pub.execute(f"BEGIN; {' '.join(of.values())} COMMIT")
    for statements in of.values():
        flow.pub.execute(f"BEGIN; {statements.replace(str(first), str(first + 50_000))} COMMIT")


@dataclass(frozen=True)
class Case:
    """Requests to the store or to the catalog that are disturbed."""

    where: str
    kind: Kind
    method: str
    path: str
    times: int = 1
    status: int = 503

    def __str__(self) -> str:
        status = f"-{self.status}" if self.kind in (Kind.REFUSED, Kind.FORGOTTEN) else ""
        kind = self.kind.replace(" ", "-")
        return f"{self.where}-{kind}{status}-{self.method.replace('|', '-')}-{self.times}"

    def fault(self) -> Fault:
        return Fault(self.kind, self.method, self.path, self.times, self.status)


CASES = [
    *(Case("catalog", Kind.FORGOTTEN, "POST", COMMIT, 1, status) for status in (500, 502, 503)),
    Case("catalog", Kind.FORGOTTEN, "POST", COMMIT, 9, 504),
    Case("catalog", Kind.FORGOTTEN, "POST", COMMIT, 20, 503),
    Case("catalog", Kind.CUT_BEHIND, "POST", COMMIT, 1),
    Case("catalog", Kind.CUT_BEHIND, "POST", COMMIT, 5),
    Case("catalog", Kind.TRUNCATED, "POST", COMMIT, 3),
    Case("catalog", Kind.TRUNCATED, "GET", TABLE, 3),
    Case("catalog", Kind.REFUSED, "POST|GET", TABLE, 8, 500),
    Case("catalog", Kind.REFUSED, "POST|GET", TABLE, 8, 429),
    Case("catalog", Kind.CUT, "POST|GET", TABLE, 3),
    Case("store", Kind.FORGOTTEN, "PUT", FILE, 5, 500),
    Case("store", Kind.CUT_BEHIND, "PUT", FILE, 5),
    Case("store", Kind.REFUSED, "PUT|GET|HEAD", FILE, 40),
    Case("store", Kind.TRUNCATED, "GET", FILE, 12),
    Case("store", Kind.CUT, "GET|HEAD|PUT", FILE, 12),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_the_twin_s_behind_a_disturbance(flow: Flow, stack: LakeStack, case: Case) -> None:
    proxy: HttpProxy = getattr(stack, f"{case.where}_proxy")
    with proxy.disturbed(case.fault()) as (fault,):
        work(flow)
        for _ in range(case.times):  # a batch is one request to commit, or a few
            if fault.met < fault.times:
                flow.catch_up()
                work(flow)
        wait_until(lambda: fault.met == fault.times, 120, lambda: (fault, flow.pgsub.log_tail()))
        work(flow)
        check(flow, str(case))


def check(flow: Flow, label: str) -> None:
    """The rows are the twin's, and nothing that a reader or a writer could meet is left."""
    flow.checkpoint(label, *TABLES)
    for table in TABLES:
        assert flow.same(label, table)
    assert flow.pgsub.status("last_errors") == []
    for table in TABLES:
        refs = flow.pgsub.iceberg_table(flow.name, table).metadata.refs
        assert len([name for name in refs if name.startswith(BRANCH_PREFIX)]) <= 1


@pytest.mark.parametrize("where", ["catalog", "store"])
def test_what_is_down_is_waited_for_and_said(flow: Flow, stack: LakeStack, where: str) -> None:
    """The pauses become longer, and ``status`` has the error and the time of the next attempt."""
    proxy: HttpProxy = getattr(stack, f"{where}_proxy")
    with proxy.down():
        work(flow)
        wait_until(lambda: waits(flow), 180, flow.pgsub.log_tail)
        work(flow)
    check(flow, f"{where} was down")


def waits(flow: Flow) -> bool:
    """Has the worker failed again and again, and is the next attempt put off?

    It meets the store first in Java, where the rows of a table without a key are looked for.
    """
    return any(
        "the lake's store or catalog could not be reached" in error["message"]
        and error["failures"] > 4
        and error["next_attempt_time"]
        for error in flow.pgsub.status("last_errors")
    )


def test_a_slow_store_and_catalog(flow: Flow, stack: LakeStack) -> None:
    """Every request takes 30 ms more."""
    stack.store_proxy.pause = stack.catalog_proxy.pause = 0.03
    try:
        work(flow)
        check(flow, "slow")
    finally:
        stack.store_proxy.pause = stack.catalog_proxy.pause = 0.0


def test_a_copy_behind_disturbances(flow: Flow, stack: LakeStack) -> None:
    """The table is copied again while commits and uploads are forgotten."""
    lost = Fault(Kind.FORGOTTEN, "POST", COMMIT, 4, 500)
    uploads = Fault(Kind.CUT_BEHIND, "PUT", FILE, 4)
    with stack.catalog_proxy.disturbed(lost), stack.store_proxy.disturbed(uploads):
        flow.pgsub.command("refresh", flow.subscriptions[0], "--recopy", f"{flow.name}.keyed")
        work(flow)
        check(flow, "copied again")
    assert (lost.met, uploads.met) == (4, 4)


@pytest.mark.parametrize("times", [1, 5])
def test_files_of_updates_before_the_commit(flow: Flow, stack: LakeStack, times: int) -> None:
    """Uploads are forgotten while the transaction runs, and commits behind its COMMIT."""
    flow.pub.run(f"ALTER DATABASE {flow.pub.name} SET logical_decoding_work_mem = '64kB'")
    flow.pub.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
    upload = Fault(Kind.FORGOTTEN, "PUT", NEW_ROWS, 1, 500)
    lost = Fault(Kind.FORGOTTEN, "POST", TABLE + "large", times, 503)
    with flow.pub.connect() as one, stack.store_proxy.disturbed(upload):
        one.execute("BEGIN; " + UPDATES.format(n=times))
        wait_until(lambda: upload.met, 120, flow.pgsub.log_tail)
        with stack.catalog_proxy.disturbed(lost):
            one.execute("COMMIT")
            flow.catch_up()
    assert lost.met == times
    native = flow.sub.execute(DIGEST.format(t="large"))
    assert [tuple(row.values()) for row in flow.lake(DIGEST.format(t="{t}.large"))] == native
    work(flow)
    check(flow, f"files before the commit, {times}")
