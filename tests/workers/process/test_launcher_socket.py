"""Messages and errors on the launcher's socket, and where the socket is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalog import errcodes
from catalog.errcodes import ProtocolViolation, ReplicationError
from config.limits import SOCKET_LINE_BYTES, SOCKET_PATH_BYTES
from workers.process.launcher_socket import (
    LOCK_FILE,
    LineReader,
    LockInfo,
    encode,
    error_fields,
    make_socket_path,
    read_lock_file,
    remove_socket,
    reply_error,
)


def test_lines_arrive_in_pieces() -> None:
    reader = LineReader()
    data = encode({"a": "ö\n"}) + encode({"b": 2})
    messages = [message for byte in data for message in reader.feed(bytes([byte]))]
    assert messages == [{"a": "ö\n"}, {"b": 2}]


@pytest.mark.parametrize("line", [b"\n", b"[1]\n", b"nonsense\n", b"\xff\xfe\n"])
def test_what_is_no_message_is_a_protocol_violation(line: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        LineReader().feed(line)


def test_a_line_without_end_is_not_collected_for_ever() -> None:
    reader = LineReader()
    for _ in range(SOCKET_LINE_BYTES // 2**20):
        assert reader.feed(b"x" * 2**20) == []
    with pytest.raises(ProtocolViolation, match="too long"):
        reader.feed(b"x")


def test_a_deep_directory_s_socket_lies_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    path = make_socket_path(deep)
    try:
        assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
        assert path.parent != deep
        assert path.parent.stat().st_mode & 0o777 == 0o700
    finally:
        remove_socket(path, deep)
    assert not path.parent.exists()


def test_the_lock_file_is_read_back(tmp_path: Path) -> None:
    info = LockInfo(17, Path("/run/x"), 5)
    (tmp_path / LOCK_FILE).write_bytes(info.to_json())
    assert read_lock_file(tmp_path) == info


ERRORS = [
    each
    for each in vars(errcodes).values()
    if isinstance(each, type) and issubclass(each, ReplicationError)
]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_arrives_with_its_class_and_all_its_fields(kind: type[ReplicationError]) -> None:
    error = kind("not now", detail="Because.", hint="Wait.", sqlstate="57P03")
    error.context.append("while testing")
    (message,) = LineReader().feed(encode({"id": 1, "error": error_fields(error)}))
    arrived = reply_error(message)
    assert arrived is not None
    assert type(arrived) is kind
    assert error_fields(arrived) == error_fields(error)


def test_an_error_of_an_inner_module_arrives_as_its_nearest_common_class() -> None:
    class Missing(errcodes.IoError):
        """Known at one end only."""

    arrived = reply_error({"error": error_fields(Missing("no file"))})
    assert type(arrived) is errcodes.IoError
    assert arrived.code == "58030"


@pytest.mark.parametrize("name", [None, "Path", "Policy", "policy", "no such class"])
def test_an_error_of_an_unknown_class_arrives_all_the_same(name: str | None) -> None:
    fields = {"class": name, "sqlstate": "55006", "primary": "not waiting", "detail": None}
    arrived = reply_error({"id": 1, "error": fields})
    assert type(arrived) is ReplicationError
    assert (arrived.code, arrived.primary) == ("55006", "not waiting")
