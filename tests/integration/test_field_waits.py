"""A slot waits for the end of older transactions: who is waited for is said, by every way.

github.com/dimitri/pgcopydb/issues/819, github.com/PeerDB-io/peerdb/issues/2967,
github.com/electric-sql/electric/issues/4515: tools hang for hours without a word, because somebody
left a transaction open. PostgreSQL's own subscriber, the twin, waits as well.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import COMMAND, SETTINGS
from tests.integration.flow import Flow
from tests.waiting import wait_until

pytestmark = pytest.mark.postgres

WAITS = "waits for the end of transaction "


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "waits")
    flow.both(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("t", "later", "given_up")))
    flow.pub.run(
        "CREATE TABLE other (id int)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO later VALUES (2)",
        "CREATE PUBLICATION pub FOR TABLE t",
        "CREATE PUBLICATION given_up FOR TABLE given_up",
    )
    return flow


@contextmanager
def open_transaction(flow: Flow) -> Iterator[tuple[int, Callable[[], object]]]:
    """A session with an open transaction: its pid, and the call that commits."""
    with flow.pub.connect() as holder:
        holder.execute("BEGIN")
        holder.execute("INSERT INTO other VALUES (1)")
        yield holder.info.backend_pid, lambda: holder.execute("COMMIT")


@contextmanager
def creating(
    flow: Flow, name: str, publication: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``pgsub create`` in a process of its own, and the file with its messages."""
    entry = {"connection": flow.pub.dsn, "publication": [publication]}
    file = flow.pgsub.file({"subscriptions": {name: entry}, "settings": SETTINGS}, f"{name}.yaml")
    said = flow.pgsub.scratch / f"{name}.said"
    with said.open("wb") as messages:
        argv = [str(COMMAND), "--data-dir", str(flow.pgsub.data_dir), "create", str(file)]
        # A test run in the background of a shell ignores Ctrl-C, and a child would, too.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=messages)
        signal.signal(signal.SIGINT, before)
    try:
        yield process, said
    finally:
        process.kill()
        process.wait()


def slots(flow: Flow) -> list[tuple[object, ...]]:
    return flow.pub.execute("SELECT slot_name::text FROM pg_replication_slots")


def test_create_says_whom_it_waits_for_and_ctrl_c_leaves_nothing(flow: Flow) -> None:
    with (
        open_transaction(flow) as (pid, _),
        creating(flow, "waits_given_up", "given_up") as (process, said),
    ):
        wait_until(lambda: f" of PID {pid}" in said.read_text(), 60, said.read_text)
        assert WAITS in said.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
        assert "Traceback" not in said.read_text()
        wait_until(lambda: ("waits_given_up",) not in slots(flow), 30, lambda: str(slots(flow)))
    assert all(row["subname"] != "waits_given_up" for row in flow.pgsub.status("pg_subscription"))
    assert ("waits_given_up",) not in slots(flow), "nor when the transaction has ended"


def test_the_end_of_the_transaction_lets_creation_and_copy_go_on(flow: Flow) -> None:
    """And later a sync worker waits as well, which the status says."""
    name = "waits_sub"
    with (
        ThreadPoolExecutor(1) as pool,
        open_transaction(flow) as (pid, commit),
        creating(flow, name, "pub") as (process, said),
    ):
        native = pool.submit(flow.twin.subscribe, flow.sub, flow.pub, f"{name}_native", ["pub"])
        wait_until(lambda: f" of PID {pid}" in said.read_text(), 60, said.read_text)
        assert process.poll() is None
        assert not native.done(), "PostgreSQL waits, too, and says nothing"
        commit()
        assert process.wait(120) == 0, said.read_text()
        native.result(60)
    flow.subscriptions.append(name)
    flow.catch_up()
    assert flow.pgsub.rows("waits", "t", ["id"]) == [(1,)]

    with open_transaction(flow) as (pid, commit):
        flow.pub.run("ALTER PUBLICATION pub ADD TABLE later")
        flow.pgsub.command("refresh", name)

        def told() -> bool:
            text = flow.pgsub.command("status").stdout
            return WAITS in text and f" of PID {pid}" in text

        wait_until(told, 60, lambda: flow.pgsub.command("status").stdout)
        commit()
    flow.sub.execute(f'ALTER SUBSCRIPTION "{name}_native" REFRESH PUBLICATION')
    flow.pub.run("INSERT INTO later VALUES (3)")
    flow.catch_up()
    assert flow.pgsub.rows("waits", "later", ["id"]) == [(2,), (3,)]
