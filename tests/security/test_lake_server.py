"""The embedded lake server towards other users of the machine, who reach its ports too."""

from __future__ import annotations

import socket
import struct
import uuid
from contextlib import suppress
from itertools import islice
from pathlib import Path

import psutil
import pytest

from catalog.errcodes import ConnectionFailure
from tests.fix_lake import Lake
from tests.processes import command_line
from workers.lake.api.own_gateway import OwnGateway
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.connect.session import LakeSession


def listening(process: psutil.Process) -> list[tuple[str, int]]:
    found = process.net_connections(kind="tcp")
    return [each.laddr[:2] for each in found if each.laddr and each.status == psutil.CONN_LISTEN]


@pytest.mark.parametrize("token", ["", ";token=", ";token=guess"])
def test_nothing_is_answered_without_the_token(lake_server: Lake, token: str) -> None:
    url = lake_server.url.split(";token=")[0]
    stranger = LakeSession(f"{url}{token}", "stranger", str(uuid.uuid4()))
    with pytest.raises(ConnectionFailure) as error:
        stranger.query("SELECT 1", "asking")
    assert error.value.detail == "gRPC status UNAUTHENTICATED."
    stranger.close()


def test_it_listens_on_the_loopback_interface_only(lake_server: Lake) -> None:
    ports = listening(psutil.Process(lake_server.server.process.pid))
    assert len(ports) > 1, "Spark Connect, and what Spark's own parts talk through"
    assert {address for address, _ in ports} == {"127.0.0.1"}


def test_spark_s_own_ports_and_gateways_ask_who_is_there(lake_server: Lake) -> None:
    """What comes through them is deserialized or called: without a password, anybody's code.

    Every process that uses the lake has a gateway of its own, beside the ports of Spark's parts.
    """
    connect = int(lake_server.url.split(":")[2].split("/")[0])
    own = OwnGateway.open(*gateway(lake_server.url))
    ports = {port for _, port in listening(psutil.Process(lake_server.server.process.pid))}
    gateways = {port for port in ports - {connect} if asks_for_the_secret(port)}
    assert len(gateways) > 1, "the shared gateway and the gateway of this process"
    for port in ports - {connect} - gateways:
        answer = rpc(port, b"let me in")
        assert b"SaslMessage" in answer, f"port {port} took a message from a stranger: {answer!r}"
    own.close()


def asks_for_the_secret(port: int) -> bool:
    """Whether the port is a gateway's, and the gateway refuses a guess."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(b"A\nguess\n")
        with sock.makefile("rb") as answers, suppress(ConnectionResetError):
            return answers.readline().startswith(b"!x") and not told_the_time(port, "guess")
    return False


def gateway(url: str) -> tuple[int, str]:
    port, secret = url.split(f";{GATEWAY}=")[1].split(".")
    return int(port), secret


@pytest.mark.parametrize("word", ["guess", ""])
def test_the_gateway_does_nothing_without_its_secret(lake_server: Lake, word: str) -> None:
    port, secret = gateway(lake_server.url)
    assert told_the_time(port, secret)
    assert not told_the_time(port, word)


def told_the_time(port: int, secret: str) -> bool:
    """Whether the gateway calls a method of Java's for who says this."""
    call = "c\nz:java.lang.System\nnanoTime\ne\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(f"A\n{secret}\n{call}".encode())
        with sock.makefile("rb") as answers, suppress(ConnectionResetError):
            return any(answer.startswith(b"!yL") for answer in islice(answers, 2))
    return False


def rpc(port: int, body: bytes) -> bytes:
    """An RpcRequest of Spark's transport protocol; the frame that answers it."""
    request = struct.pack(">Bqi", 3, 1, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(struct.pack(">q", 8 + len(request)) + request)
        [size] = struct.unpack(">q", sock.recv(8, socket.MSG_WAITALL))
        return sock.recv(size - 8, socket.MSG_WAITALL)


def content(path: Path) -> bytes:
    """The bytes of a file; none of a folder, and of a file that goes meanwhile."""
    with suppress(IsADirectoryError, FileNotFoundError):
        return path.read_bytes()
    return b""


def test_the_token_is_in_no_argument_list_and_no_file(lake_server: Lake) -> None:
    token = lake_server.url.split(";token=")[1].split(";")[0]
    server = psutil.Process(lake_server.server.process.pid)
    for word in (token, gateway(lake_server.url)[1]):
        for process in [server, *server.children(recursive=True)]:
            assert word not in " ".join(command_line(process))
        for path in lake_server.data_dir.rglob("*"):
            assert word.encode() not in content(path), path
