"""What only the real lake can show: races, files, readers, maintenance, errors."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from tests.waiting import wait_until
from tests.workers.lake import contract
from tests.workers.lake.two_columns import COLUMNS, append, count, delete, stamp
from workers.lake.connect.errors import LakeFailure
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, FileSizes
from workers.lake.new_layout import NewTable
from workers.lake.segment import Segment
from workers.lake.sql.statements import branch_path, set_properties, sql_text, table_path
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.sql.table_metadata import read_history, read_properties
from workers.lake.storage.file_system import FileSystem
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeColumn, LakeIdent

Make = Callable[..., Any]


def test_an_adopted_table_keeps_what_its_owner_set_for_readers(
    dest: Any, iceberg: Make, lake_ident: LakeIdent
) -> None:
    """What a new one gets only makes our own batches cheap."""
    session = dest._sessions.get()
    cost = "read.split.open-file-cost"
    assert read_properties(session, lake_ident)[cost] == str(512 << 10)
    session.command(set_properties(lake_ident, {cost: "4194304"}), "setting it")
    iceberg().adopt_table(lake_ident, owner="you", stamp=stamp(50), former_owners=["me"])
    assert read_properties(session, lake_ident)[cost] == "4194304"


def test_a_released_session_stops_what_runs_in_it(
    dest: Any, iceberg: Make, lake_ident: LakeIdent
) -> None:
    """A killed worker's call goes on in the server, until its session is released."""
    session = dest._sessions.get()
    dest.create_branch(lake_ident, "pgsub_1_1_0")
    slow = session.spark.range(0, 4, 1, 1).selectExpr(
        "id", "CAST(java_method('java.lang.Thread', 'sleep', 2000L) AS STRING) AS v"
    )
    errors: list[BaseException] = []

    def run() -> None:
        try:
            target = branch_path(lake_ident, "pgsub_1_1_0").sql(dialect="spark")
            session.append(slow, target, {}, "appending slowly")
        except ReplicationError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    successor = iceberg()
    wait_until(lambda: session.used and thread.is_alive(), what="the slow append")
    thread.join(1.0)  # it is under way: it takes 8 s
    successor.release_sessions([session.ids])
    thread.join(30)
    assert len(errors) == 1, errors
    assert count(successor, lake_ident, "pgsub_1_1_0") == 0
    with pytest.raises(ReplicationError, match="successor"):
        dest._sessions.get()


@pytest.mark.parametrize("direct", [True, False], ids=["by the API", "by Spark"])
def test_a_clock_that_was_ahead_is_told(iceberg: Make, lake_ident: LakeIdent, direct: bool) -> None:
    """Ten minutes, when the last commits were made. It goes on when the clock has come there."""
    dest, branch = iceberg(direct=direct), "pgsub_1_1_1"
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, branch)
    dest.write(lake_ident, branch, [append(dest, 0, 3)], stamp(20))
    newest = sql_text(
        "SELECT max_by(file, `timestamp`) FROM", table_path(lake_ident, "metadata_log_entries")
    )
    found = dest._sessions.get().query(newest, "looking").column(0)[0].as_py()
    file = Path(found.removeprefix("file:"))
    metadata = file.read_text()

    def later(time: re.Match[str]) -> str:
        return f"{time[1]}{int(time[2]) + 600_000}"

    file.write_text(re.sub(r'("(?:timestamp-ms|last-updated-ms)"\s*:\s*)(\d+)', later, metadata))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    other = iceberg(direct=direct)
    commits: list[Callable[[], object]] = [
        lambda: other.write(lake_ident, branch, [append(other, 3, 1)], stamp(30)),
        lambda: other.publish(lake_ident, branch, stamp(20)),
        lambda: other.fence(lake_ident),
    ]
    for commit in commits:
        with pytest.raises(ReplicationError, match="the clock of the lake server") as caught:
            commit()
        assert caught.value.code == "58000"
    file.write_text(metadata)
    last = iceberg(direct=direct)
    last.write(lake_ident, branch, [append(last, 3, 1)], stamp(30))
    last.publish(lake_ident, branch, stamp(30))
    assert count(last, lake_ident) == 4


def test_several_tables_at_once(iceberg: Make, lake_ident: LakeIdent) -> None:
    dest = iceberg()
    idents = [LakeIdent("many", f"{lake_ident.table}_{n}") for n in range(4)]
    errors: list[BaseException] = []

    def work(ident: LakeIdent) -> None:
        try:
            dest.create_table(ident, COLUMNS, owner="me", relid=1, stamp=stamp(10))
            dest.create_branch(ident, "pgsub_1_1_1")
            for n in range(2):
                dest.write(ident, "pgsub_1_1_1", [append(dest, n, 1)], stamp(20 + n))
                dest.publish(ident, "pgsub_1_1_1", stamp(20 + n))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[ident]) for ident in idents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [count(dest, ident) for ident in idents] == [2] * 4


def test_pyiceberg_reads_the_same_catalog(
    dest: Any, lake_server: Lake, lake_ident: LakeIdent
) -> None:
    catalog_module = pytest.importorskip("pyiceberg.catalog")
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    dest.write(lake_ident, "pgsub_1_1_1", [append(dest, 0, 3)], stamp(20))
    dest.publish(lake_ident, "pgsub_1_1_1", stamp(20))
    lake = lake_server.data_dir / "lake"
    catalog = catalog_module.load_catalog(
        "lake", type="sql", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=str(lake)
    )
    table = catalog.load_table((lake_ident.schema, lake_ident.table))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert table.current_snapshot().summary["pgsub.lsn"] == "0/14"
    assert table.properties["pgsub.owner"] == "me"
    catalog.close()


def test_rows_that_somebody_else_added_are_known(dest: Any, lake_ident: LakeIdent) -> None:
    """Also under a fence; what only moves rows, or takes some away, is nothing of the kind."""
    branch, session = "pgsub_1_1_1", dest._sessions.get()

    def batch(lsn: int, *segments: Segment) -> bool:
        dest.create_branch(lake_ident, branch)
        dest.compact(lake_ident, branch, FileSizes())
        dest.write(lake_ident, branch, segments, stamp(lsn))
        dest.publish(lake_ident, branch, stamp(lsn))
        dest.drop_branches(lake_ident)
        return bool(dest.table(lake_ident).written_by_others)

    for n in range(10):
        assert not batch(20 + n, append(dest, n * 10, 10), delete(dest, n * 10))
    session.command(sql_text("DELETE FROM", table_path(lake_ident), "WHERE id = 1"), "deleting")
    assert not batch(40, append(dest, 200, 1))
    session.command(
        sql_text("UPDATE", table_path(lake_ident), "SET id = 300 WHERE id = 2"), "updating"
    )
    assert dest.table(lake_ident).written_by_others
    assert dest.fence(lake_ident).written_by_others
    assert batch(50, append(dest, 201, 1))


def test_large_stagings_are_private_files(
    iceberg: Make, lake_server: Lake, lake_ident: LakeIdent
) -> None:
    dest = iceberg(local_relation_rows=10)
    staged = append(dest, 0, 100).append
    assert staged is not None
    (name,) = staged.paths
    assert Path(name).stat().st_mode & 0o777 == 0o600
    dest.discard(staged)
    assert not Path(name).exists()


def test_nothing_private_is_world_readable(lake_server: Lake) -> None:
    logs = [*lake_server.data_dir.glob("log/*"), lake_server.data_dir / "lake/server.properties"]
    assert logs
    assert {path.stat().st_mode & 0o077 for path in logs} == {0}
    command = Path(f"/proc/{lake_server.server.process.pid}/cmdline").read_bytes()
    assert lake_server.server.token.encode() not in command


def test_a_client_without_the_token_is_refused(lake_server: Lake) -> None:
    from workers.lake.connect.sessions import Sessions

    bare = Sessions(lake_server.url.split("/;")[0], "me", lambda user_id, session_id: None)
    with pytest.raises(ReplicationError) as error:
        bare.get().query("SELECT 1", "asking")
    assert error.value.code == "08006"
    bare.close()


def test_an_error_says_one_line_and_no_row(dest: Any, lake_ident: LakeIdent) -> None:
    table = pa.table({"c0": pa.array([1], pa.int64()), "c1": ["s3cret"]})
    staged = dest.stage(table.to_batches(), table.schema)
    segment = Segment(("id",), ("id",), append=staged, defaults=(("v", "CAST(c1 AS INT)"),))
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    with pytest.raises(ReplicationError) as error:
        dest.write(lake_ident, "pgsub_1_1_1", [segment], stamp(20))
    report = error.value.report()
    assert "s3cret" not in report
    assert "\tat " not in report
    assert str(lake_ident) in report
    assert error.value.code == "22018"


@pytest.fixture
def copied_table(database: Any) -> Iterator[Any]:
    database.run(
        "CREATE TABLE public.copied (id bigint, v text)",
        "INSERT INTO public.copied SELECT g, CASE WHEN g % 3 = 0 THEN NULL WHEN g % 3 = 1 THEN ''"
        " ELSE E'a\"b\\nc, ' || g END FROM generate_series(1, 5000) g",
    )
    with database.connect() as connection:
        connection.autocommit = False
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        snapshot = connection.execute("SELECT pg_export_snapshot()").fetchone()[0]
        database.run("DELETE FROM public.copied WHERE id < 100")
        yield snapshot, database.dsn
        connection.rollback()


@pytest.fixture
def plan(copied_table: Any) -> Callable[..., CopyPlan]:
    snapshot, conninfo = copied_table
    select = "COPY (SELECT id, v FROM public.copied WHERE {}) TO STDOUT (FORMAT csv)"
    ranges = ["ctid < '(5,0)'", "ctid >= '(5,0)' AND ctid < '(20,0)'", "ctid >= '(20,0)'"]

    def plan(**changes: Any) -> CopyPlan:
        given = {
            "conninfo": conninfo,
            "passfile": None,
            "snapshot": snapshot,
            "statements": tuple(select.format(each) for each in ranges),
            "columns": COLUMNS,
            "relation": "public.copied",
        }
        return CopyPlan(**(given | changes))

    return plan


def test_a_table_that_was_left_without_a_snapshot_is_finished(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """Killed between CREATE TABLE and the empty snapshot."""
    dest: Any = iceberg()
    sql = SqlTableApi(dest._sessions)
    sql.create_without_snapshot(lake_ident, COLUMNS, NewTable("me", 7, 2))
    for columns, owner in ((COLUMNS[:1], "me"), (COLUMNS, "you")):
        with pytest.raises(ReplicationError) as error:
            dest.create_table(lake_ident, columns, owner=owner, relid=7, stamp=stamp(10))
        assert error.value.code == "42P07"
    made = dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    assert (made.stamp, made.records) == (stamp(10), 0)
    assert dest.table(lake_ident) == made


def test_a_table_that_a_dead_worker_made_meanwhile_is_finished(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """It was not there when it was looked for; once something is published to it, it is not new."""
    dest: Any = iceberg()
    earlier = replace(stamp(10), epoch="of the attempt before")
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=earlier)
    for columns, owner, lsn in ((COLUMNS[:1], "me", 10), (COLUMNS, "you", 10), (COLUMNS, "me", 9)):
        with pytest.raises(ReplicationError) as error:
            dest.create_table(lake_ident, columns, owner=owner, relid=7, stamp=stamp(lsn))
        assert error.value.code == "42P07"
    made = dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    assert (made.stamp, made.records) == (stamp(10), 0)
    assert dest.table(lake_ident) == made
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    dest.write(lake_ident, "pgsub_1_1_1", [append(dest, 1, 1)], stamp(20))
    dest.publish(lake_ident, "pgsub_1_1_1", stamp(20))
    with pytest.raises(ReplicationError) as error:
        dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    assert error.value.code == "42P07"


def test_a_catalog_that_makes_no_table_with_a_snapshot_makes_one_without(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as refuse to stage one."""
    dest: Any = iceberg()

    def refuse(*_: Any, **__: Any) -> Any:
        raise LakeFailure("the lake failed while staging")

    monkeypatch.setattr(dest._tables, "_create_at_once", refuse)
    made = dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    assert (made.stamp, made.records) == (stamp(10), 0)
    assert dest.table(lake_ident) == made


@pytest.mark.timeout(300)
def test_a_parallel_copy_reads_the_snapshot(
    dest: Any, lake_ident: LakeIdent, plan: Callable[..., CopyPlan]
) -> None:
    seen: list[tuple[int, int]] = []
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    copy = dest.copy
    progress = lambda done, total: seen.append((done, total))  # noqa: E731 - a callback
    assert copy(lake_ident, "pgsub_1_1_1", plan(stamp=stamp(20)), progress) == 5000
    assert seen[0] == (0, 3)
    assert seen[-1] == (3, 3)
    assert count(dest, lake_ident) == 0
    history = partial(read_history, dest._sessions.get(), lake_ident)
    copied = history().refs
    assert history().tip_stamp("pgsub_1_1_1") == stamp(20)
    dest.write(lake_ident, "pgsub_1_1_1", [], stamp(20))
    assert history().refs == copied, "it has that stamp"
    dest.write(lake_ident, "pgsub_1_1_1", [], stamp(21))
    assert history().tip_stamp("pgsub_1_1_1") == stamp(21)
    dest.write(lake_ident, "pgsub_1_1_1", [], stamp(20))
    assert history().refs != copied
    dest.publish(lake_ident, "pgsub_1_1_1", stamp(20))
    sql = sql_text(
        "SELECT count(*), count(DISTINCT id), count(v), sum(length(v)) FROM", table_path(lake_ident)
    )
    found = dest._sessions.get().query(sql, "counting").to_pylist()[0]
    assert list(found.values())[:3] == [5000, 5000, 3334]

    wrong = (LakeColumn("id", pa.int64()), LakeColumn("v", pa.int64()))
    with pytest.raises(ReplicationError) as error:
        copy(lake_ident, "pgsub_1_1_1", plan(columns=wrong), progress)
    assert (error.value.code, '"v"' in error.value.primary) == ("22003", True)
    with pytest.raises(ReplicationError) as error:
        copy(lake_ident, "pgsub_1_1_1", plan(snapshot="00000003-00000001-9"), progress)
    assert (error.value.code, "snapshot" in error.value.primary) == ("08006", True)
    with pytest.raises(ReplicationError) as error:
        copy(lake_ident, "pgsub_1_1_1", plan(conninfo="host=127.0.0.1 port=1"), progress)
    assert error.value.code == "08006"


@pytest.mark.timeout(300)
def test_a_parallel_copy_computes_what_is_generated(
    iceberg: Make, lake_ident: LakeIdent, plan: Callable[..., CopyPlan]
) -> None:
    dest: Any = iceberg()
    generated = (("twice", "id * 2"),)
    columns = (*COLUMNS, *dest.generated_columns(lake_ident, COLUMNS, generated))
    dest.create_table(lake_ident, columns, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    dest.copy(lake_ident, "pgsub_1_1_1", plan(generated=generated), lambda done, total: None)
    sql = sql_text(
        "SELECT count(*), sum(twice) - 2 * sum(id) FROM", branch_path(lake_ident, "pgsub_1_1_1")
    )
    [found] = dest._sessions.get().query(sql, "counting").to_pylist()
    assert list(found.values()) == [5000, 0]


def python_daemons(lake_server: Lake) -> set[int]:
    jvm = psutil.Process(lake_server.server.process.pid)
    return {child.pid for child in jvm.children()}


@pytest.mark.timeout(300)
def test_a_session_is_handed_over_warm_and_with_nothing_set(
    dest: Any,
    iceberg: Make,
    lake_server: Lake,
    lake_ident: LakeIdent,
    plan: Callable[..., CopyPlan],
) -> None:
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    dest.copy(lake_ident, "pgsub_1_1_1", plan(), lambda done, total: None)
    dest.write(lake_ident, "pgsub_1_1_1", [delete(dest, 200)], stamp(20))
    ids = dest.idle_session()
    assert ids is not None
    assert dest._sessions.get().ids != ids
    dest.close()
    daemons = python_daemons(lake_server)
    assert len(daemons) == 1  # of all sessions that ever copied here

    other = iceberg(session=ids)
    assert other._sessions.get().ids == ids
    other.create_branch(lake_ident, "pgsub_1_1_2")
    other.copy(lake_ident, "pgsub_1_1_2", plan(), lambda done, total: None)
    other._sessions.get().command(
        sql_text("DELETE FROM", branch_path(lake_ident, "pgsub_1_1_2"), "WHERE id = 300"),
        "deleting",
    )
    history = read_history(other._sessions.get(), lake_ident)
    assert history.tip_stamp("pgsub_1_1_2") is None
    assert history.tip_stamp("pgsub_1_1_1") == stamp(20)
    assert python_daemons(lake_server) == daemons


def test_a_handed_over_session_that_the_server_has_forgotten_is_no_fence(iceberg: Make) -> None:
    first = iceberg()._sessions.get()
    first.query("SELECT 1", "asking")
    other = iceberg(session=first.ids)
    other.release_sessions([first.ids])
    taken = other._sessions.get()
    assert taken.ids != first.ids
    assert taken.query("SELECT 1 AS n", "asking").to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])
def test_old_deletes_that_two_tasks_rewrite_are_counted_once(
    iceberg: Make, lake_ident: LakeIdent, vectors: bool
) -> None:
    """The rows of one data file end in several tasks, each of which rewrites its old deletes.

    Of a file's deletion vectors, which format 3 has one of, Iceberg makes one.
    """
    dest = iceberg(format_version=3 if vectors else 2, direct=False)
    session = dest._sessions.get()
    session._set(
        {
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.shuffle.partitions": "4",
        }
    )
    table = contract.Table(dest, lake_ident)
    table.batch([contract.append(dest, [(n, "a", None) for n in range(100)])], 20)
    first = [(1, 0, None, None, None, False)]
    assert table.batch([contract.merge(dest, first)], 30) == Counts(merged=1)
    changes = [(n % 2, n, n, "b", None, False) for n in range(1, 120)]
    counts = table.batch([contract.merge(dest, changes)], 40)
    query = sql_text(
        "SELECT max(summary['added-position-deletes']) - 1 AS more FROM",
        table_path(lake_ident, "snapshots"),
    )
    [found] = session.query(query, "reading").to_pylist()
    assert vectors or found["more"] > 99, "several tasks"
    assert counts == Counts(merged=99, update_missing=10, delete_missing=10)
    assert count(dest, lake_ident) == 49


@pytest.mark.parametrize("here", [True, False], ids=["by the API", "by Spark"])
def test_the_file_system_of_a_table_is_synchronised(
    dest: Any, iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """Also if this worker has not read the table yet."""
    other = iceberg()
    if not here:
        monkeypatch.setattr(other._durability, "_tables", SqlTableApi(other._sessions))
    calls: list[int] = []
    monkeypatch.setattr(FileSystem, "synchronise", lambda each: calls.append(each.descriptor))
    other.make_durable([])
    other.make_durable([lake_ident])
    assert len(calls) == 1
    (folder,) = other._durability._folders[lake_ident]
    assert local_path(folder).stat().st_dev == os.fstat(calls[0]).st_dev
