"""``pgsub`` commands without the seconds that their imports take.

A process that has imported everything forks one child per command. The child is a process of its
own with the command's arguments, environment and streams, and runs what the console script runs;
only what its imports would have cost is missing. Tests about starting a command start a real one.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

_LENGTH: Final = 8
_STREAMS: Final = 3

_OF_THE_LAKE: Final = (
    "workers.changes.column_checks",
    "workers.lake.api.session_catalogs",
    "workers.lake.connect.sessions",
    "workers.lake.connect.user_query",
    "workers.lake.generated_columns",
    "workers.lake.iceberg.destination",
    "workers.tables.new_table",
)

_starting: Final = threading.Lock()


def run(
    argv: Sequence[str], *, env: Mapping[str, str], stdin: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """One command to its end; as ``subprocess.run`` with text."""
    request = json.dumps({"argv": list(argv), "env": dict(env), "cwd": os.getcwd()}).encode()
    with (
        socket.socket(socket.AF_UNIX) as connection,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode())
        given.seek(0)
        connection.settimeout(timeout)
        with _starting:
            server = _server()
        connection.connect(str(server))
        streams = [stream.fileno() for stream in (given, out, err)]
        socket.send_fds(connection, [len(request).to_bytes(_LENGTH, "big")], streams)
        connection.sendall(request)
        pid = int.from_bytes(connection.recv(_LENGTH, socket.MSG_WAITALL), "big")
        try:
            ended = connection.recv(_LENGTH, socket.MSG_WAITALL)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(argv), timeout) from None
        status = int.from_bytes(ended, "big") if ended else -signal.SIGKILL
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(
            list(argv), status, out.read().decode(), err.read().decode()
        )


@cache
def _server() -> Path:
    """The socket of this process's server, which ends with it.

    Not with the thread that needed it first, as a child would that asks to die with its parent.
    """
    folder = tempfile.TemporaryDirectory(prefix="pgsub-commands-")
    path = Path(folder.name) / "socket"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "from tests.commands import serve; serve()", str(path)],
        stdin=subprocess.PIPE,  # never written to: it ends when this process does
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    assert process.stdout.read(1), "the commands' server ended"

    def end() -> None:
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return path


def needed_modules() -> list[str]:
    """All modules of ``subscriber``, and those that its commands import when they need the lake."""
    import subscriber

    found = pkgutil.walk_packages(subscriber.__path__, "subscriber.")
    return [*(module.name for module in found), *_OF_THE_LAKE]


def serve() -> None:
    """The server, until its standard input ends; says so on standard output when it listens."""
    for name in needed_modules():
        importlib.import_module(name)
    gc.freeze()  # a child that collects does not copy what is here

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a command here
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        os.write(1, b".")
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os._exit(_command(connection))
            connection.close()


def _command(connection: socket.socket) -> int:
    """What a child does with one request."""
    from subscriber.cli import main
    from workers.process import failpoints

    head, streams, _, _ = socket.recv_fds(connection, _LENGTH, _STREAMS)
    request = _read(connection, int.from_bytes(head, "big"))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    importlib.reload(failpoints)  # the one module that reads the environment when it is imported
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    connection.sendall(os.getpid().to_bytes(_LENGTH, "big"))
    status = main()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(status.to_bytes(_LENGTH, "big"))
    return status


def _read(connection: socket.socket, length: int) -> dict[str, Any]:
    data = b""
    while len(data) < length:
        data += connection.recv(length - len(data))
    request: dict[str, Any] = json.loads(data)
    return request
