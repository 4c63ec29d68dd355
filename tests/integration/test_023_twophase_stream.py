"""PostgreSQL's 023_twophase_stream: what is sent while it runs, and then prepared.

``parallel`` works as ``on`` (docs/fidelity.md), and is played with a small ``spool_memory``: there
the transactions lie in files. The twin's subscription keeps ``on``. No parallel worker can fail to
prepare here; the disk can refuse the file of a prepared transaction. All of it takes minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.harness import Pgsub
from tests.integration.flow import Flow, first
from tests.integration.prepared import (
    a_flow,
    await_enabled,
    await_prepared,
    crash,
    natives,
    ours,
    prepare,
)
from tests.servers import every_version
from tests.waiting import wait_until

MEMORY: Final = "64kB"
LARGE: Final = (
    "INSERT INTO test_tab SELECT i, sha256(i::text::bytea) FROM generate_series(3, 1000) i",
    "UPDATE test_tab SET b = sha256(b) WHERE a % 2 = 0",
    "DELETE FROM test_tab WHERE a % 3 = 0",
)
KEPT: Final = [a for a in range(1, 1001) if a % 3]
"""The keys that are left of the large transaction and of the two rows before it."""

pytestmark = pytest.mark.timeout(600)  # the first test waits for the whole flow


@pytest.fixture(scope="module", params=every_version(since=15))
def flow(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Flow]:
    with a_flow(pgsub, request.param, "t023", logical_decoding_work_mem=MEMORY) as flow:
        flow.pub.run(
            "CREATE TABLE test_tab (a int PRIMARY KEY, b bytea)",
            "INSERT INTO test_tab VALUES (1, 'foo'), (2, 'bar')",
            "CREATE PUBLICATION pub FOR TABLE test_tab",
        )
        flow.sub.run("CREATE TABLE test_tab (a int PRIMARY KEY, b bytea, c int)")
        flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
        flow.lake("CREATE TABLE {t}.test_tab (a int, b binary, c int)")
        adopted = {"test_tab": {"adopt": True}}
        name = flow.subscribe("sub", ["pub"], tables=adopted, streaming="on", two_phase=True)
        await_enabled(flow, name)
        _play(flow, name, "on")
        _crash(flow, name)
        with flow.pgsub.settings(spool_memory=MEMORY):
            flow.pgsub.command("alter", name, "SET", "(streaming", "=", "parallel)")
            _play(flow, name, "parallel")
            _in_a_file(flow, name)
            _refused(flow, name)
        _drop(flow, name)
        yield flow


def _play(flow: Flow, name: str, mode: str) -> None:
    """Each large transaction is prepared; what is left of it is deleted afterwards."""
    for label, between, end in (
        ("commit", "", "COMMIT"),
        ("rollback", "", "ROLLBACK"),
        ("beside a rollback", "INSERT INTO test_tab VALUES (99999, 'foobar')", "ROLLBACK"),
        ("beside a commit", "INSERT INTO test_tab VALUES (99999, 'foobar')", "COMMIT"),
    ):
        prepare(flow, "large", *LARGE)
        await_prepared(flow, name, 1)
        if not between:
            flow.record(f"{mode}: {label}, prepared", "test_tab")
        _end(flow, f"{mode}: {label}", *([between] if between else []), f"{end} PREPARED 'large'")
    flow.facts[f"{mode}: left"] = (ours(flow, name), natives(flow, name))
    flow.facts[f"{mode}: streamed"] = _streamed(flow, name)


def _end(flow: Flow, label: str, *statements: str) -> None:
    flow.pub.run(*statements)
    flow.checkpoint(label, "test_tab")
    flow.pub.run("DELETE FROM test_tab WHERE a > 2")


def _streamed(flow: Flow, name: str) -> int:
    """How many transactions the walsender of ours has sent while they ran."""
    counted = "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s"
    return int(wait_until(lambda: flow.pub.value(counted, (name,)), 60, "the slot is counted"))


def _crash(flow: Flow, name: str) -> None:
    prepare(flow, "large", *LARGE)
    crash(flow, publisher=True, subscribers=name)
    _end(flow, "crash", "COMMIT PREPARED 'large'")


def _in_a_file(flow: Flow, name: str) -> None:
    """The transaction is looked for on the disk while it runs."""
    with flow.pub.connect() as connection:
        connection.execute(("BEGIN; " + "; ".join(LARGE)).encode())
        wait_until(lambda: _bytes_in_files(flow, name) > 0, 60, "the transaction lies in a file")
        connection.execute("PREPARE TRANSACTION 'large'")
    flow.facts["file: prepared"] = await_prepared(flow, name, 1)
    _end(flow, "file", "COMMIT PREPARED 'large'")


def _bytes_in_files(flow: Flow, name: str) -> int:
    """In the open files of the spool, which have no name."""
    worker = flow.pgsub.worker(name)
    if worker is None:
        return 0
    folder = str(flow.pgsub.data_dir / "spool")
    files = Path(f"/proc/{worker['pid']}/fd").iterdir()
    return sum(file.stat().st_size for file in files if os.readlink(file).startswith(folder))


def _refused(flow: Flow, name: str) -> None:
    """For a while nobody may write where prepared transactions are kept."""
    (folder,) = (flow.pgsub.data_dir / "prepared").iterdir()
    folder.chmod(0o500)
    try:
        prepare(flow, "large", *LARGE)
        wait_until(lambda: _refusals(flow) > 1, 60, flow.pgsub.log_tail)
        flow.facts["refused: prepared"] = (len(ours(flow, name)), len(natives(flow, name)))
    finally:
        folder.chmod(0o700)
    await_prepared(flow, name, 1)
    _end(flow, "refused", "COMMIT PREPARED 'large'")


def _refusals(flow: Flow) -> int:
    return flow.pgsub.log_tail(10_000).count("could not write prepared transaction")


def _drop(flow: Flow, name: str) -> None:
    prepare(flow, "left", *LARGE)
    await_prepared(flow, name, 1)
    left = natives(flow, name)
    flow.drop(name)
    flow.pub.run("ROLLBACK PREPARED 'left'")
    flow.sub.run(*(f"ROLLBACK PREPARED '{gid}'" for gid in left))
    flow.facts["slots left"] = flow.pub.execute("SELECT slot_name FROM pg_replication_slots")
    flow.facts["left"] = flow.pgsub.status("pg_prepared_xacts")
    flow.facts["files left"] = list((flow.pgsub.data_dir / "prepared").iterdir())


def keys(flow: Flow, label: str) -> list[int]:
    """The keys at a checkpoint, where the rows are the twin's and have no third column."""
    rows = flow.same(label, "test_tab")
    assert {row[2] for row in rows} == {None}
    return first(rows)


def test_s_023_1_prepared_and_committed(flow: Flow) -> None:
    assert flow.facts["on: streamed"] >= 4, "the transactions came at their PREPARE"
    assert keys(flow, "on: commit, prepared") == [1, 2]
    assert keys(flow, "on: commit") == KEPT


def test_s_023_2_prepared_and_rolled_back(flow: Flow) -> None:
    assert keys(flow, "on: rollback, prepared") == [1, 2]
    assert keys(flow, "on: rollback") == [1, 2]


def test_s_023_3_both_crash_before_commit_prepared(flow: Flow) -> None:
    assert keys(flow, "crash") == KEPT


def test_s_023_4_another_transaction_commits_in_between(flow: Flow) -> None:
    assert keys(flow, "on: beside a rollback") == [1, 2, 99999]
    assert keys(flow, "on: beside a commit") == [*KEPT, 99999]
    assert flow.facts["on: left"] == ([], [])


def test_s_023_6_and_in_parallel(flow: Flow) -> None:
    assert flow.facts["parallel: streamed"] >= flow.facts["on: streamed"] + 4
    assert keys(flow, "parallel: commit, prepared") == [1, 2]
    assert keys(flow, "parallel: commit") == KEPT
    assert keys(flow, "parallel: rollback") == [1, 2]
    assert keys(flow, "parallel: beside a rollback") == [1, 2, 99999]
    assert keys(flow, "parallel: beside a commit") == [*KEPT, 99999]
    assert flow.facts["parallel: left"] == ([], [])


def test_s_023_7_it_lies_in_a_file_when_it_is_prepared(flow: Flow) -> None:
    assert [row["remote_gid"] for row in flow.facts["file: prepared"]] == ["large"]
    assert keys(flow, "file") == KEPT


def test_s_023_8_what_cannot_be_prepared_here_is_prepared_later(flow: Flow) -> None:
    assert flow.facts["refused: prepared"] == (0, 1)
    assert keys(flow, "refused") == KEPT


def test_s_023_9_drop_leaves_nothing(flow: Flow) -> None:
    assert flow.facts["slots left"] == []
    assert flow.facts["left"] == []
    assert flow.facts["files left"] == []
