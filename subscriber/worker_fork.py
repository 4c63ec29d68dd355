"""Workers forked from a process that has everything loaded.

A worker started from nothing spends four seconds of CPU on imports; ``multiprocessing``'s fork
server, with ``workers.preload`` in it, starts one in a few hundredths of a second. Measured on two
cores: 4.2 s from start to first query with a fresh interpreter, 0.25 s forked.

The fork server is one single-threaded process that opens no connection. It ends with the launcher,
and a worker ends with the fork server (``die_with_parent``), so a killed launcher still takes
everybody along. Workers inherit the family lock's descriptor as every child of the launcher does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing import forkserver, reduction
from multiprocessing.connection import wait
from typing import Any, Final

from workers.log import CONSOLE_ENV

_PRELOAD: Final = ["workers.preload"]
_CONTEXT: Final = multiprocessing.get_context("forkserver")


def begin_loading() -> None:
    """Start the fork server; it loads while the lake server is starting."""
    _CONTEXT.set_forkserver_preload(_PRELOAD)
    forkserver.ensure_running()


class _Descriptor:
    """A file descriptor that travels to the forked process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _received, (reduction.DupFd(self.fd),)


def _received(duplicate: Any) -> _Descriptor:
    return _Descriptor(duplicate.detach())


class ForkedWorker:
    """A worker process as ``subprocess.Popen`` would show it; ``on_exit`` runs in a thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log_fd: int,
        console_fd: int | None,
        pass_fds: Sequence[int],
        on_exit: Callable[[], None],
    ) -> None:
        console = None if console_fd is None else _Descriptor(console_fd)
        inherited = [_Descriptor(fd) for fd in pass_fds]
        self._process = _CONTEXT.Process(
            target=_run_worker, args=(list(argv), _Descriptor(log_fd), console, inherited)
        )
        self._process.start()
        self._on_exit = on_exit
        threading.Thread(target=self._watch, name="worker exit", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid or 0

    def _watch(self) -> None:
        wait([self._process.sentinel])
        self._on_exit()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """Until it has ended."""
        self._process.join()
        return self._process.exitcode or 0

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended: its number may be somebody else's by now."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run_worker(
    argv: list[str],
    log_file: _Descriptor,
    console: _Descriptor | None,
    inherited: list[_Descriptor],
) -> None:
    """In the forked process: become the worker. ``inherited`` stays open as long as it lives."""
    from workers.main import main

    os.setsid()
    for fd in (1, 2):
        os.dup2(log_file.fd, fd)
    if console is not None:
        os.environ[CONSOLE_ENV] = str(console.fd)
    status = main(argv)
    # Without the interpreter's own end: a lake call that a thread is still in must not hold it.
    del inherited
    os._exit(status)
