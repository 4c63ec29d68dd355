"""The gateway: how it is found, and what its errors are to a worker."""

from __future__ import annotations

import gc
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import FamilyProcessGone, IoError, ReplicationError
from tests.fix_lake import Lake
from tests.waiting import wait_until
from tests.workers.lake.two_columns import append, stamp
from workers.lake.api import iceberg_threads, table_api
from workers.lake.api.table_api import Gateway, Totals, gateway_of
from workers.lake.connect.errors import LakeFailure
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.server import gateway_port
from workers.lake.server.gateway_port import GatewayServer
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.sql.table_metadata import read_history
from workers.lake.staged_rows import LayoutId, NewFile
from workers.lake.storage.local_store import LocalStore
from workers.lake.table import LakeIdent

BRANCH = "pgsub_1_1_1"
SECRET = "0a.b=c"
WHAT = "testing"


def write_connection(path: Path, port: int) -> None:
    """As the JVM does: whole, or not there."""
    secret = SECRET.encode()
    partial = path.with_suffix(".partial")
    partial.write_bytes(struct.pack("!ii", port, len(secret)) + secret)
    partial.rename(path)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Which gateways were told to run Spark Connect."""
    found: list[tuple[int, str]] = []
    monkeypatch.setattr(gateway_port, "_serve", lambda *where: found.append(where))
    return found


@pytest.fixture
def left_sockets() -> Iterator[None]:
    """py4j leaves a socket that could not be connected to be collected; so do it here."""
    yield
    gc.collect()


NO_SOCKET = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def server_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "lake server"]


# -- the server's side ----------------------------------------------------------------------------


def test_spark_connect_is_started_once_as_soon_as_the_jvm_says_where(
    tmp_path: Path, told: list[tuple[int, str]]
) -> None:
    path = tmp_path / "gateway"
    server = GatewayServer(path, used=True)
    assert server.environment() == {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(path)}
    server.poll()
    assert (told, server.parameter()) == ([], "")
    write_connection(path, 4711)
    server.poll()
    assert not path.exists(), "it holds a secret"
    server.poll()
    wait_until(lambda: told)
    assert told == [(4711, SECRET)]
    assert server.parameter() == f";{GATEWAY}=4711.{SECRET}"


def test_workers_that_may_not_use_it_are_not_told(
    tmp_path: Path, told: list[tuple[int, str]]
) -> None:
    server = GatewayServer(tmp_path / "gateway", used=False)
    write_connection(tmp_path / "gateway", 4711)
    server.poll()
    wait_until(lambda: told)
    assert server.parameter() == ""


@NO_SOCKET
@pytest.mark.usefixtures("left_sockets")
def test_a_jvm_that_is_gone_by_then_ends_the_thread_quietly(
    tmp_path: Path, closed_port: int
) -> None:
    before = set(server_threads())
    write_connection(tmp_path / "gateway", closed_port)
    GatewayServer(tmp_path / "gateway", used=True).poll()
    wait_until(lambda: set(server_threads()) <= before)


# -- a worker's side ------------------------------------------------------------------------------


def test_a_url_says_where_the_gateway_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr(table_api, "connect", lambda *where: asked.append(where))
    url = "sc://localhost:7/;token=t"
    assert gateway_of(f"{url};{GATEWAY}=4711.{SECRET}") is not None
    assert gateway_of(f"sc://localhost:7/;{GATEWAY}=4712.x;token=t") is not None
    assert asked == [(4711, SECRET), (4712, "x")]
    for other in (url, "sc://localhost:7", f"sc://{GATEWAY}:7/;token={GATEWAY}"):
        assert gateway_of(other) is None


@NO_SOCKET
@pytest.mark.usefixtures("left_sockets")
def test_where_nobody_listens_the_lake_server_is_gone(closed_port: int) -> None:
    alone = Gateway(closed_port, SECRET)
    with pytest.raises(FamilyProcessGone) as error:
        alone.metadata(LakeIdent("s", "t"), "reading")
    assert error.value.code == "08006"
    assert error.value.primary == "lost the lake server while reading"
    assert SECRET not in error.value.report()
    alone.close()


@NO_SOCKET
@pytest.mark.usefixtures("left_sockets")
def test_one_with_another_secret_gets_no_answer(lake_server: Lake) -> None:
    port = lake_server.url.split(f";{GATEWAY}=")[1].split(".")[0]
    stranger = Gateway(int(port), SECRET)
    with pytest.raises(FamilyProcessGone):
        stranger.metadata(LakeIdent("s", "t"), "reading")
    stranger.close()


def test_a_table_that_is_not_there_is_an_answer(own: Gateway, lake_ident: LakeIdent) -> None:
    for ask in (own.metadata, lambda ident, what: own.tip(ident, BRANCH, what)):
        with pytest.raises(LakeFailure) as error:
            ask(lake_ident, "reading")
        assert error.value.primary == "the lake failed while reading"
        assert str(lake_ident) in (error.value.detail or "")
        assert "\n" not in (error.value.detail or "")


def test_what_java_says_may_be_a_value_and_is_not_shown(own: Gateway) -> None:
    with pytest.raises(LakeFailure) as error, own._translated("reading"):
        own._gateway.jvm.java.lang.Integer.parseInt("s3cret")
    assert error.value.detail == "NumberFormatException."
    assert "s3cret" in error.value.message
    assert "s3cret" not in error.value.report()


def test_metadata_is_the_newest_and_any_thread_may_ask(
    own: Gateway, dest: Any, lake_ident: LakeIdent
) -> None:
    before = own.metadata(lake_ident, WHAT)
    assert [field["name"] for field in before["schemas"][0]["fields"]] == ["id", "v"]
    alter = sql_text("ALTER TABLE", table_path(lake_ident), "ADD COLUMN w INT")
    dest._sessions.get().command(alter, "altering")
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(own.metadata, lake_ident, WHAT) for _ in range(12)]
    assert {each.result()["current-schema-id"] for each in asked} == {1}
    assert before["current-schema-id"] == 0


# -- commits --------------------------------------------------------------------------------------


@pytest.fixture
def commit(own: Gateway, dest: Any, lake_ident: LakeIdent) -> Callable[..., Totals]:
    """Commits to a branch that is there; what is given besides may differ."""
    dest.create_branch(lake_ident, BRANCH)
    shape = LayoutId(own.metadata(lake_ident, WHAT)["table-uuid"], 0, 0, 2)

    def commit(**given: Any) -> Totals:
        usual: dict[str, Any] = {"branch": BRANCH, "properties": {}, "what": WHAT}
        usual["shape"] = replace(shape, **given.pop("shape", {}))
        return own.commit(lake_ident, **(usual | given))

    return commit


def test_a_commit_says_what_it_is_given_whatever_that_holds(
    own: Gateway, dest: Any, lake_ident: LakeIdent, commit: Callable[..., Totals]
) -> None:
    said = {"plain": "x", "new\nline\r": "\\n \"'`; é 🦆 \x01", "json": '{"a": ["b"]}', "none": ""}
    before = own.tip(lake_ident, BRANCH, WHAT)
    made = commit(properties=said, tip=before)
    after = own.tip(lake_ident, BRANCH, WHAT)
    assert made == Totals(rows=0, dead=0, tip=after, before=before)
    snapshots = own.metadata(lake_ident, WHAT)["snapshots"]
    (snapshot,) = [each for each in snapshots if each["snapshot-id"] == after]
    assert snapshot["parent-snapshot-id"] == before
    assert {key: snapshot["summary"][key] for key in said} == said
    assert dest.table(lake_ident).snapshot_id == before, "main is where it was"


def test_no_commit_waits_for_a_pool_of_threads(
    own: Gateway, lake_ident: LakeIdent, commit: Callable[..., Totals]
) -> None:
    """Where that cannot be said any more, removals take 10 ms again, and nobody else would tell."""
    commit()
    files = own._gateway.jvm.java.lang.Class.forName(iceberg_threads._FILE_IO)
    pool = files.getDeclaredField(iceberg_threads._REMOVING_POOL)
    pool.setAccessible(True)
    assert "Direct" in pool.get(None).getClass().getName()
    assert "Direct" in own._ready().in_this_thread.getClass().getName()


def test_no_reader_waits_for_a_pool_of_threads(own: Gateway) -> None:
    """The same of 10 ms for each data file with deletes, in each scan."""
    own._ready()
    pools = own._gateway.jvm.org.apache.iceberg.util.ThreadPools
    assert "Direct" in pools.getDeleteWorkerPool().getClass().getName()


@pytest.mark.parametrize(
    "given",
    [
        {"shape": {"uuid": "another"}},
        {"shape": {"schema_id": 1}},
        {"shape": {"spec_id": 1}},
        {"shape": {"format_version": 3}},
        {"tip": 1},
        {"branch": "pgsub_1_1_2"},
    ],
    ids=str,
)
def test_a_table_that_is_not_as_it_was_is_not_written_to(
    own: Gateway, dest: Any, lake_ident: LakeIdent, commit: Callable[..., Totals], given: Any
) -> None:
    before = read_history(dest._sessions.get(), lake_ident)
    with pytest.raises(ReplicationError) as error:
        commit(**dict(given))
    assert error.value.code == "40001"
    assert str(lake_ident) in error.value.primary
    assert read_history(dest._sessions.get(), lake_ident) == before


def test_a_branch_that_is_not_there_has_no_tip(
    own: Gateway, dest: Any, lake_ident: LakeIdent
) -> None:
    assert dest.table(lake_ident) is not None
    with pytest.raises(ReplicationError) as error:
        own.tip(lake_ident, BRANCH, WHAT)
    assert error.value.code == "40001"


def test_a_file_that_is_lost_is_the_storage_s_failure(
    own: Gateway, dest: Any, lake_ident: LakeIdent, commit: Callable[..., Totals]
) -> None:
    location = own.metadata(lake_ident, WHAT)["location"]
    before = read_history(dest._sessions.get(), lake_ident)
    with pytest.raises(IoError) as error:
        commit(rows=[NewFile(f"{location}/data/none.parquet", 1, 1)])
    assert error.value.code == "58030"
    assert read_history(dest._sessions.get(), lake_ident) == before


def test_writing_goes_on_after_a_gateway_of_somebody_else_was_closed(
    dest: Any, iceberg: Callable[..., Any], lake_ident: LakeIdent
) -> None:
    iceberg().close()
    dest.create_branch(lake_ident, BRANCH)
    dest.write(lake_ident, BRANCH, [append(dest, 0, 3)], stamp(20))
    assert dest.publish(lake_ident, BRANCH, stamp(20)) is not None


# -- what py4j would do by itself -----------------------------------------------------------------


@pytest.fixture
def mute() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a gateway that takes a call and breaks off, and the calls."""
    calls: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, connection.makefile("rb") as said:
                        assert said.readline() == b"A\n"
                        said.readline()
                        connection.sendall(b"!yv\n")
                        calls.append(said.readline())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1]), calls
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@NO_SOCKET
def test_a_call_without_an_answer_is_not_made_again_and_nothing_is_logged(
    mute: tuple[int, list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    port, calls = mute
    with pytest.raises(FamilyProcessGone):
        Gateway(port, SECRET).tip(LakeIdent("a", "b"), BRANCH, WHAT)
    assert len(calls) == 1
    assert caplog.records == []


def test_what_is_collected_is_told_by_the_next_call_and_by_nobody_else(
    own: Gateway, dest: Any, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dest.table(lake_ident) is not None
    own.metadata(lake_ident, WHAT)
    gc.collect()
    client = own._gateway.client
    held = list(client.dropped)
    assert held, "objects that Java keeps until it hears"
    asked: list[str] = []
    send = client.send_command

    def listening(command: str, *more: Any) -> Any:
        asked.append(command)
        return send(command, *more)

    monkeypatch.setattr(client, "send_command", listening)
    own.metadata(lake_ident, WHAT)
    assert all(any(f"\n{each}\n" in command for command in asked) for each in held)
    assert not set(held) & set(client.dropped)


# -- what a branch's rows are read from -----------------------------------------------------------

PLAIN: dict[str, Any] = {
    "data-file": {"file-path": "file:/lake/a.parquet", "file-format": "parquet"},
    "delete-files": [
        {
            "file-path": "/lake/b.parquet",
            "file-format": "PARQUET",
            "content": "POSITION_DELETES",
        },
        {
            "file-path": "file:///lake/c.puffin",
            "file-format": "puffin",
            "content": "position-deletes",
        },
    ],
}


def test_files_such_as_ours_are_read_here() -> None:
    assert table_api._is_plain(PLAIN, LocalStore())
    assert table_api._is_plain({"data-file": PLAIN["data-file"]}, LocalStore())


@pytest.mark.parametrize(
    ("of", "change"),
    [
        ("data-file", {"file-format": "orc"}),
        ("data-file", {"file-path": "s3://bucket/a.parquet"}),
        ("data-file", {"file-path": "hdfs://host/a.parquet"}),
        ("delete-files", {"file-format": "avro"}),
        ("delete-files", {"content": "EQUALITY_DELETES"}),
        ("delete-files", {"file-path": "s3://bucket/b.parquet"}),
    ],
)
def test_others_are_read_by_spark(of: str, change: dict[str, str]) -> None:
    if of == "data-file":
        assert not table_api._is_plain({**PLAIN, of: PLAIN[of] | change}, LocalStore())
        return
    first, second = PLAIN[of]
    assert not table_api._is_plain({**PLAIN, of: [first | change, second]}, LocalStore())
    assert not table_api._is_plain({**PLAIN, of: [first, second | change]}, LocalStore())
