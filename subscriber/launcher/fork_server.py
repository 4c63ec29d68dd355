"""Workers forked from a process that has everything loaded.

A worker started from nothing spends four seconds of CPU on imports; ``multiprocessing``'s fork
server, with ``workers.fork_server_preload`` in it, starts one in a few hundredths of a second.
Measured on two cores: 4.2 s from start to first query with a fresh interpreter, 0.25 s forked.

The fork server opens no connection and starts no thread; the one it has is the allocator's, which
minds a fork. It ends with the launcher, and a worker ends with the fork server
(``die_with_parent``), so a killed launcher still takes everybody along. Workers inherit the family
lock's descriptor as every child of the launcher does.

Asking the fork server for a process waits until it has loaded, which takes seconds at the start,
so each worker has a thread that asks, waits for the end, and wakes the launcher's loop for both.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import forkserver, reduction
from multiprocessing.connection import wait
from typing import Any, Final

from catalog.errcodes import ReplicationError
from workers.process import log as server_log
from workers.process.log import CONSOLE_ENV
from workers.process.parent_death import die_with_parent

log = logging.getLogger(__name__)

_PRELOAD: Final = ["__main__", "workers.fork_server_signals", "workers.fork_server_preload"]
"""``__main__`` is the launcher's own script, which every forked process would import by itself."""

_ENVIRONMENT: Final = {
    # A module named like one of ours in the current directory is never imported.
    "PYTHONSAFEPATH": "1",
    # Nobody multiplies matrices here; a pool of threads for it would only be in a fork's way.
    "OPENBLAS_NUM_THREADS": "1",
}

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_MULTIPROCESSING: Final = threading.Lock()
"""``multiprocessing`` reads an exit status once, and any of its calls may do so for any process."""

_STATUS_UNKNOWN: Final = 255
"""What ``multiprocessing`` says of a process whose fork server is gone."""

STATUS: Final = "status"
"""Not a worker's kind: the forked process writes status tables, and ends."""

_PR_SET_NAME: Final = 15


def begin_loading() -> None:
    """See to it that a fork server runs; it loads while the lake server is starting.

    Must run in the main thread, to which the kernel ties the fork server's death signal.
    """
    _CONTEXT.set_forkserver_preload(_PRELOAD)
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Descriptor:
    """A file descriptor that travels to the forked process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _received, (reduction.DupFd(self.fd),)


def _received(duplicate: Any) -> _Descriptor:
    return _Descriptor(duplicate.detach())


class ForkedWorker:
    """A worker process as ``subprocess.Popen`` would show it.

    ``pid`` is None until it is forked. ``on_change`` runs in a thread, when it is forked and when
    it has ended. A process that could not be forked has ended with status 1.
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
            target=_run_worker, args=(list(argv), _Descriptor(log_fd), console, inherited)
        )
        begin_loading()
        self._thread = threading.Thread(target=self._attend, name="worker", daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs or is about to."""
        return self._status

    def wait(self) -> int:
        """Until it has ended."""
        self._thread.join()
        return self._status or 0

    def send_signal(self, number: int) -> None:
        """Send it, if need be as soon as the process is forked; nothing if it has ended."""
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
        with _MULTIPROCESSING:
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
            _make_sure(self.pid, watch)
        if watch is not None:
            os.close(watch)
        return _STATUS_UNKNOWN if status is None else status


def _kill(pid: int | None, number: int) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _pidfd(pid: int | None) -> int | None:
    """A descriptor that tells when exactly this process has ended, where the system has them."""
    if pid is None or sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # gone already, or an old kernel


def _make_sure(pid: int | None, watch: int | None) -> None:
    """The fork server is gone and cannot say how a worker is: end it, and wait for that."""
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
) -> None:
    """In the forked process: become the worker. ``inherited`` stays open as long as it lives."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until the worker takes it over
    os.setsid()
    for fd in (1, 2):
        os.dup2(log_file.fd, fd)
    if console is not None:
        os.environ[CONSOLE_ENV] = str(console.fd)
    _set_name(f"pgsub {argv[0]}")
    status = 1
    try:
        status = _main(argv)
    except ReplicationError as error:
        server_log.report(error)
    except SystemExit as reason:
        status = reason.code if isinstance(reason.code, int) else 1
    finally:
        # Without the interpreter's own end: a lake call that a thread is still in must not hold
        # it. After another error the traceback would go to the log, and may quote a row.
        del inherited
        os._exit(status)


def _main(argv: list[str]) -> int:
    if argv[0] == STATUS:
        from subscriber.status.lake_tables import main as write_status_tables

        die_with_parent()  # it has no connection to the launcher that would tell
        return write_status_tables(argv[1:])
    from workers.main import main

    return main(argv)


def _set_name(name: str) -> None:
    """What ``ps -o comm`` and ``top`` show: at most 15 bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
