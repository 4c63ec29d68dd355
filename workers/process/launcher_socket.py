"""The launcher's socket: its place, and its messages, one JSON object a line.

The socket lies in the data directory, mode 0600. A Unix socket's path is short (108 bytes on Linux,
less on other systems). If the path of the data directory is too long, the socket lies in a 0700
folder of the runtime directory or of the temporary directory. In all cases the lock file names the
socket.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from catalog import errcodes
from catalog.errcodes import ConnectionFailure, IoError, ProtocolViolation, ReplicationError
from config.limits import SOCKET_CHUNK_BYTES, SOCKET_LINE_BYTES, SOCKET_PATH_BYTES

LOCK_FILE: Final = "pgsub.lock"
SOCKET_NAME: Final = ".s.pgsub"
SOCKET_FOLDER_PREFIX: Final = "pgsub-"


@dataclasses.dataclass(frozen=True, slots=True)
class LockInfo:
    """The lock file's content: the launcher that holds or last held the lock. Information only.

    ``start_time`` is in microseconds since 1970; ``pid_space`` names the processes among which
    ``pid`` is unique.
    """

    pid: int
    socket: Path
    start_time: int
    pid_space: str = ""

    @classmethod
    def own(cls, path: Path, start_time: int) -> LockInfo:
        """The content for the present process."""
        return cls(os.getpid(), path, start_time, own_pid_space())

    def to_json(self) -> bytes:
        """The bytes of the lock file."""
        row = dataclasses.asdict(self) | {"socket": str(self.socket)}
        return json.dumps(row).encode() + b"\n"


def own_pid_space() -> str:
    """The processes among which this pid is unique: a container's, or the host's since boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def read_lock_file(data_dir: Path) -> LockInfo | None:
    """Read the lock file; None if the file is missing, or is not written completely."""
    try:
        row = json.loads((data_dir / LOCK_FILE).read_bytes())
        pid, start_time = int(row["pid"]), int(row["start_time"])
        return LockInfo(pid, Path(row["socket"]), start_time, str(row.get("pid_space", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def make_socket_path(data_dir: Path) -> Path:
    """Find a path to listen on, and make its folder; 58030 if no folder fits."""
    own = data_dir / SOCKET_NAME
    if len(os.fsencode(own)) <= SOCKET_PATH_BYTES:
        return own
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders = [runtime, tempfile.gettempdir(), "/tmp"]  # noqa: S108 (mkdtemp makes it safe)
    for folder in [folder for folder in folders if folder]:
        try:
            made = tempfile.mkdtemp(prefix=SOCKET_FOLDER_PREFIX, dir=folder)
        except OSError:
            continue
        path = Path(made) / SOCKET_NAME
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
            return path
        path.parent.rmdir()
    raise IoError(
        "could not find a place for the launcher's socket",
        detail=f'The path "{own}" is longer than {SOCKET_PATH_BYTES} bytes.',
        hint="Set TMPDIR or XDG_RUNTIME_DIR to a directory that you may write to.",
    )


def remove_socket(path: Path, data_dir: Path) -> None:
    """Remove the socket, and the folder if ``make_socket_path`` made the folder."""
    path.unlink(missing_ok=True)
    if path.parent != data_dir and path.parent.name.startswith(SOCKET_FOLDER_PREFIX):
        try:
            path.parent.rmdir()
        except OSError:
            return  # the folder is in use, or is gone


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message as a line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class LineReader:
    """Turns received bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that ``data`` completes; raise 08P01 for a line without an object."""
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        if len(rest) > SOCKET_LINE_BYTES:
            raise _garbage("message on the launcher's socket is too long")
        self._buffer = rest
        return [_decode(line) for line in lines]


def _decode(line: bytearray) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise _garbage("message on the launcher's socket is not a JSON object")
    return message


def _garbage(primary: str) -> ProtocolViolation:
    return ProtocolViolation(
        primary,
        hint="Stop what else uses the socket in the data directory; the same release of pgsub "
        "must run on both ends.",
    )


def error_fields(error: ReplicationError) -> dict[str, Any]:
    """The fields of an error as a reply carries them; ``reply_error`` is the inverse.

    The class travels by name: several classes share a SQLSTATE. A class that another module made
    travels as the nearest base class in ``catalog.errcodes``.
    """
    return {
        "class": next(each.__name__ for each in type(error).__mro__ if _is_known(each)),
        "sqlstate": error.code,
        "primary": error.primary,
        "detail": error.detail,
        "hint": error.hint,
        "context": error.context,
    }


def reply_error(message: Mapping[str, Any]) -> ReplicationError | None:
    """Rebuild the error that a reply carries; None if the reply carries none."""
    fields = message.get("error")
    if not isinstance(fields, dict):
        return None
    kind = getattr(errcodes, str(fields.get("class")), None)
    if not _is_known(kind):
        kind = ReplicationError
    error: ReplicationError = kind(
        str(fields.get("primary")),
        sqlstate=str(fields.get("sqlstate")),
        detail=fields.get("detail"),
        hint=fields.get("hint"),
    )
    error.context += fields.get("context") or []
    return error


def _is_known(kind: object) -> TypeGuard[type[ReplicationError]]:
    """True for an error class of ``catalog.errcodes``."""
    return (
        isinstance(kind, type)
        and issubclass(kind, ReplicationError)
        and kind.__module__ == errcodes.__name__
    )


def dial(data_dir: Path) -> socket.socket | None:
    """Connect to the launcher of a data directory; None if no launcher runs."""
    info = read_lock_file(data_dir)
    if info is None:
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(os.fspath(info.socket))
    except OSError as error:
        sock.close()
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return None
        raise ConnectionFailure(
            f'could not connect to the launcher on socket "{info.socket}": {error.strerror}'
        ) from None
    return sock


def ask(data_dir: Path, request: Mapping[str, Any], timeout: float) -> dict[str, Any] | None:
    """Send a request and return the reply; None if no launcher runs, or the launcher ended.

    Raises the reply's error, and 08006 if no reply came within ``timeout`` seconds.
    """
    sock = dial(data_dir)
    if sock is None:
        return None
    deadline = time.monotonic() + timeout
    reader = LineReader()
    with sock:
        try:
            sock.settimeout(timeout)
            sock.sendall(encode({**request, "id": 1}))
            while True:
                sock.settimeout(max(deadline - time.monotonic(), 0.001))
                data = sock.recv(SOCKET_CHUNK_BYTES)
                if not data:
                    return None
                for message in reader.feed(data):
                    if message.get("id") == 1:
                        error = reply_error(message)
                        if error is not None:
                            raise error
                        return message
        except TimeoutError:
            raise ConnectionFailure(
                "the launcher does not answer",
                detail=f"There was no reply within {timeout:g} s.",
            ) from None
        except (ConnectionResetError, BrokenPipeError):
            return None
