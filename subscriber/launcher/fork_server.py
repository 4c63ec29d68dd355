"""Forks workers from a process with all modules loaded.

A fresh Python interpreter spends four seconds of CPU on a worker's imports. ``multiprocessing``'s
fork server imports ``workers.fork_server_preload`` once and forks a worker in a few hundredths of a
second. Measured on two cores, from start to first query: 4.2 s fresh, 0.25 s forked.

The fork server opens no connection and starts no thread. Its only thread belongs to the memory
allocator and is prepared for forks. The fork server ends with the launcher, and a worker ends with
the fork server (``die_with_parent``): a killed launcher takes all processes along. Workers inherit
the descriptor of the data directory's lock; Spark's Python, which writes to no table, does not.

At the start the fork server loads for seconds, and a request for a process waits. For every worker
a thread makes the request, waits for the worker's end, and wakes the launcher's loop after both.

``call_forked`` is for the launcher itself: what needs the libraries of a worker, such as CREATE,
runs in a forked process. The launcher would load 100 MB for a moment's work, and keep them.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, reduction
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any, Final

from catalog.errcodes import InternalError, ReplicationError
from workers.parent_death import die_with_parent
from workers.process import log as server_log
from workers.process.log import CONSOLE_ENV, FORMAT_ENV

log = logging.getLogger(__name__)

_PRELOAD: Final = ["workers.fork_server_signals", __name__, "workers.fork_server_preload"]

_ENVIRONMENT: Final = {
    # Python never imports from the current directory, even a module with a name of pgsub.
    "PYTHONSAFEPATH": "1",
    # No code multiplies matrices; a pool of threads would only be in the way of a fork.
    "OPENBLAS_NUM_THREADS": "1",
    # An array of this size, in bytes, is a mapping of its own: freed, it is the system's again. By
    # default glibc soon keeps arrays up to 32 MB between others, and they stay.
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    # Arrow's default, mimalloc, has a heap for each thread: with thirty requests at a time a worker
    # grew to 500 MB for rows of a few kilobytes, and to 226 MB with jemalloc, at the same speed.
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
}

_USERS_CHOICE: Final = ("ARROW_DEFAULT_MEMORY_POOL",)
"""Variables of ``_ENVIRONMENT`` that stay as the user has set them."""

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_MULTIPROCESSING: Final = threading.Lock()
"""Held for calls of ``multiprocessing``: any call may read the exit status of any process, once."""

_STATUS_UNKNOWN: Final = 255
"""``multiprocessing``'s exit status for a process after the end of the fork server."""

STATUS: Final = "status"
"""Instead of a worker's kind: the forked process writes the status tables and ends."""

WATCH: Final = "watch"
"""Instead of a worker's kind: the forked process asks the lake server whether it lives."""

PROBE: Final = "probe"
"""Instead of a worker's kind: the forked process probes the lake's catalog and ends."""

PYTHON: Final = "python"
"""Instead of a worker's kind: the forked process is Spark's Python."""

MODULE: Final = "module"
"""Instead of a worker's kind: the forked process runs ``main`` of a module that the launcher was
given by name, and ends. The launcher itself knows no command."""

_MODULES: Final = {
    STATUS: "subscriber.status.lake_tables",
    WATCH: "subscriber.launcher.lake_watch",
    PROBE: "subscriber.launcher.daily_probe",
    PYTHON: "workers.lake.server.spark_python",
}
"""The module with the ``main`` of each kind that is no worker."""

_PR_SET_NAME: Final = 15


def begin_loading() -> None:
    """Start the fork server unless running; loading overlaps with the start of the lake server.

    Call from the main thread: the kernel ties the fork server's death signal to the thread.
    """
    _CONTEXT.set_forkserver_preload(_PRELOAD)
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_environment())
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _environment() -> dict[str, str]:
    """The variables of ``_ENVIRONMENT``, with what the user has chosen."""
    chosen = {name: os.environ[name] for name in _USERS_CHOICE if os.environ.get(name)}
    return _ENVIRONMENT | chosen


class _Descriptor:
    """A file descriptor on the way to the forked process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _receive_descriptor, (reduction.DupFd(self.fd),)


def _receive_descriptor(duplicate: Any) -> _Descriptor:
    return _Descriptor(duplicate.detach())


@contextmanager
def _without_script() -> Iterator[None]:
    """Hide the launcher's script from ``multiprocessing`` while a process is started.

    Otherwise every forked process runs the script's imports, the whole command line, before any
    work: 0.05 s of CPU and memory of its own. A forked process needs no more than the module of
    the call.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


class ForkedWorker:
    """A worker process with the methods of ``subprocess.Popen``.

    ``pid`` is None before the fork. ``on_change`` runs in a thread, after the fork and after the
    end. A process that could not be forked counts as ended with status 1.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log_fd: int,
        console_fd: int | None,
        pass_fds: Sequence[int],
        on_change: Callable[[], None],
    ) -> None:
        self.pid: int | None = None
        self._status: int | None = None
        self._lock = threading.Lock()
        self._early_signals: list[int] = []
        self._on_change = on_change
        console = None if console_fd is None else _Descriptor(console_fd)
        inherited = [_Descriptor(fd) for fd in pass_fds]
        self._process = _CONTEXT.Process(
            target=_run_worker,
            args=(list(argv), _Descriptor(log_fd), console, inherited, os.environ.get(FORMAT_ENV)),
        )
        begin_loading()
        self._thread = threading.Thread(target=self._attend, name="worker", daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None before the end."""
        return self._status

    def wait(self) -> int:
        """Wait for the end; the exit status."""
        self._thread.join()
        return self._status or 0

    def send_signal(self, number: int) -> None:
        """Send a signal, before the fork as soon as the process exists, after the end never."""
        with self._lock:
            if self._status is not None:
                return
            if self.pid is None:
                self._early_signals.append(number)
            else:
                _kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _attend(self) -> None:
        status = 1
        try:
            status = self._live()
        except (OSError, EOFError) as error:
            log.warning("action=worker_fork could not fork a worker: %s", type(error).__name__)
        with self._lock:
            self._status = status
        self._on_change()

    def _live(self) -> int:
        with _MULTIPROCESSING, _without_script():
            self._process.start()
        watch = _pidfd(self._process.pid)
        with self._lock:
            self.pid = self._process.pid
            for number in self._early_signals:
                _kill(self.pid, number)
        self._on_change()
        wait([self._process.sentinel])
        with _MULTIPROCESSING:
            status = self._process.exitcode
            self._process.close()
        if status is None or status == _STATUS_UNKNOWN:
            _end_orphan(self.pid, watch)
        if watch is not None:
            os.close(watch)
        return _STATUS_UNKNOWN if status is None else status


def _kill(pid: int | None, number: int) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _pidfd(pid: int | None) -> int | None:
    """A descriptor to wait for the end of exactly one process, on systems with pidfds."""
    if pid is None or sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # gone already, or an old kernel


def _end_orphan(pid: int | None, watch: int | None) -> None:
    """End a worker whose fork server is gone, and wait: the exit status cannot be known."""
    if watch is None:
        return
    ended = select.poll()
    ended.register(watch, select.POLLIN)
    if not ended.poll(0):
        _kill(pid, signal.SIGKILL)
        ended.poll()


def _run_worker(
    argv: list[str],
    log_file: _Descriptor,
    console: _Descriptor | None,
    inherited: list[_Descriptor],
    log_format: str | None,
) -> None:
    """Become the worker, in the forked process. ``inherited`` stays open until the end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until the worker sets a handler
    os.setsid()
    for fd in (1, 2):
        os.dup2(log_file.fd, fd)
    if console is not None:
        os.environ[CONSOLE_ENV] = str(console.fd)
    if log_format is not None:
        os.environ[FORMAT_ENV] = log_format
    _set_name(f"pgsub {argv[0]}")
    status = 1
    try:
        status = _main(argv)
    except ReplicationError as error:
        server_log.report(error)
    except SystemExit as reason:
        status = reason.code if isinstance(reason.code, int) else 1
    finally:
        # Skip the interpreter's shutdown, which would wait for a thread inside a lake call. An
        # unexpected error leaves no traceback in the log: a traceback may quote a row.
        del inherited
        os._exit(status)


def call_forked(call: Callable[..., None], *words: str, pass_fds: Sequence[int]) -> None:
    """Call a function of a module in a forked process, and wait; raise the error that it raises.

    The call prints where this process prints. ``pass_fds`` stay open until its end.
    """
    answers, answer = _CONTEXT.Pipe(duplex=False)
    held = [_Descriptor(fd) for fd in pass_fds]
    given = call, words, answer, _Descriptor(2), held, os.environ.get(FORMAT_ENV)
    process = _CONTEXT.Process(target=_call, args=given, daemon=True)
    with answers:
        with answer, _MULTIPROCESSING, _without_script():
            process.start()
        try:
            fields = answers.recv()
        except EOFError:
            fields = None
    wait([process.sentinel])
    with _MULTIPROCESSING:
        process.join()
        process.close()
    if fields is None:
        raise InternalError("a process of the launcher ended without an answer")
    if fields:
        context = fields.pop("context")
        error = ReplicationError(**fields)
        error.context = context
        raise error


def _call(
    call: Callable[..., None],
    words: Sequence[str],
    answer: Connection,
    stderr: _Descriptor,
    held: list[_Descriptor],
    log_format: str | None,
) -> None:
    """Run a call of ``call_forked``, in the forked process; answer with the fields of an error."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    os.setsid()
    for fd in (1, 2):
        os.dup2(stderr.fd, fd)
    if log_format is not None:
        os.environ[FORMAT_ENV] = log_format
    _set_name(f"pgsub {call.__name__.strip('_')}")
    fields: dict[str, Any] = {}
    try:
        call(*words)
    except Exception as raised:
        error = server_log.unexpected(raised)
        fields = {"primary": error.primary, "detail": error.detail, "hint": error.hint}
        fields |= {"sqlstate": error.code, "context": error.context}
    with suppress(OSError):
        answer.send(fields)
    sys.stderr.flush()
    del held
    os._exit(0)


def _main(argv: list[str]) -> int:
    kind, *words = argv
    if kind == MODULE:
        module, *words = words
    elif kind in _MODULES:
        module = _MODULES[kind]
    else:
        from workers.main import main

        return main(argv)
    die_with_parent()  # without a connection, the process cannot notice the launcher's death
    status: int = importlib.import_module(module).main(words)
    return status


def _set_name(name: str) -> None:
    """Set the name for ``ps -o comm`` and ``top``: at most 15 bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
