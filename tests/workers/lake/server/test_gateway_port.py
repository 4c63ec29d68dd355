"""The lake server's side of the gateway: when it starts Spark Connect, and whom it tells."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

from tests.waiting import wait_until
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.server import gateway_port
from workers.lake.server.gateway_port import GatewayServer

SECRET = "0a.b=c"


def write_connection(path: Path, port: int) -> None:
    """As the JVM does: whole, or not there."""
    secret = SECRET.encode()
    partial = path.with_suffix(".partial")
    partial.write_bytes(struct.pack("!ii", port, len(secret)) + secret)
    partial.rename(path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The gateways that were asked to run Spark Connect."""
    found: list[tuple[int, str]] = []
    monkeypatch.setattr(gateway_port, "_serve", lambda *where: found.append(where))
    return found


def server_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "lake server"]


def test_spark_connect_is_started_once_as_soon_as_the_jvm_says_where(
    tmp_path: Path, started: list[tuple[int, str]]
) -> None:
    path = tmp_path / "gateway"
    server = GatewayServer(path, used=True)
    assert server.environment() == {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(path)}
    server.poll()
    assert (started, server.parameter()) == ([], "")
    write_connection(path, 4711)
    server.poll()
    assert not path.exists(), "it holds a secret"
    server.poll()
    wait_until(lambda: started)
    assert started == [(4711, SECRET)]
    assert server.parameter() == f";{GATEWAY}=4711.{SECRET}"


def test_workers_that_may_not_use_it_are_not_told(
    tmp_path: Path, started: list[tuple[int, str]]
) -> None:
    server = GatewayServer(tmp_path / "gateway", used=False)
    write_connection(tmp_path / "gateway", 4711)
    server.poll()
    wait_until(lambda: started)
    assert server.parameter() == ""


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.usefixtures("left_sockets")
def test_a_jvm_that_is_gone_by_then_ends_the_thread_quietly(
    tmp_path: Path, closed_port: int
) -> None:
    before = set(server_threads())
    write_connection(tmp_path / "gateway", closed_port)
    GatewayServer(tmp_path / "gateway", used=True).poll()
    wait_until(lambda: set(server_threads()) <= before)
