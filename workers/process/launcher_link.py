"""A worker's connection to the launcher: the worker's slot, its latch, and the other workers.

PostgreSQL keeps the worker slots in shared memory and wakes processes through latches there. Here
the slots are in the launcher's memory (``worker_slots``). A process that reads or changes a slot
asks through the launcher's socket (``launcher_socket``): one JSON object a line, in each
direction. A request has an ``id`` and an ``op``. The reply repeats the ``id``; after a failure
the reply has an ``error`` (``launcher_socket.error_fields``). A message without an ``id`` gets no
reply. The launcher sends a ``push`` without being asked.

=================  ==========================================  ==================================
op                 arguments                                   reply
=================  ==========================================  ==================================
attach             slot, generation                            worker, lake, catalog
find               subid, relid                                worker (or null)
workers            subid                                       workers
launch_sync        subid, relid                                launched, refusal (or null)
set_relstate       subid, relid, state, lsn                    found
wakeup             subid, relid                                found
forget_start_time  subid                                       (empty)
lake_broken        (none)                                      (empty)
report             any of ``worker_slots.REPORTED``            none: sent without an ``id``
catalog_seen       seq                                         none: sent without an ``id``
status             (none)                                      see ``LauncherStatus``
notify             subid (or null), wait (s, null: no wait)    (empty); see below
stop_workers       subid, relid (null: all), wait (s)          (empty); once they are reaped
stop_launcher      (none)                                      (empty)
=================  ==========================================  ==================================

=================  ==========================================  ==================================
push               arguments                                   meaning
=================  ==========================================  ==================================
wakeup             (none)                                      set your latch
lake               url (or null)                               the lake server came up, or died
catalog            seq                                         a command changed the catalog
=================  ==========================================  ==================================

**A slow reader costs the launcher nothing.** The launcher's sockets never block. At most one push
of each kind waits for a reader. The launcher reads no request of a client that does not take its
replies.

**The worker ends with the socket.** A worker without a launcher ends at once (``os._exit``), in the
middle of any work: the remains are those of a crash, and the successor cleans up. The worker cannot
meet a *new* launcher by mistake, because the worker holds the lock of the data directory, too. An
error in the link's thread has the same effect, and is logged (``action=launcher_link``): a worker
without a link would not notice SIGTERM.

**Catalog changes take effect between batches.** A command that changed the catalog sends
``notify`` with ``wait``. The launcher pushes ``catalog`` with a number to the subscription's
workers. The launcher replies when each worker has sent ``catalog_seen`` with the number or a higher
number, or is reaped; after the time the reply is an error with the processes. A worker takes
``catalog_change()`` before it reads the catalog at a batch boundary, and passes the number to
``acknowledge_catalog`` afterwards. The launcher does not wait for a worker that has not attached
yet: the worker reads the catalog later.

A worker's life, with the messages on its socket::

    launcher                                     worker
    slot 2 claimed, generation 7, process started
                                                 connect; attach 2/7
    attached; worker, lake url  ->
                                                 set_relstate w 0/1500; wakeup apply worker
    (to the apply worker)  push wakeup ->
                                                 report last_lsn …
    SIGTERM (disabled, say)                      shutdown_requested, latch; the commit is finished
    SIGCHLD: reaped; slot 2 is free now; push wakeup to the subscription's other workers
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

from catalog.errcodes import AdminShutdown, InternalError, RequiredProcessGone
from catalog.pg_lsn import LSN
from config.limits import (
    LAUNCHER_LAKE_SECONDS,
    LAUNCHER_REPLY_SECONDS,
    REPORT_SECONDS,
    SOCKET_CHUNK_BYTES,
)
from workers.parent_death import die_with_parent
from workers.process import log as worker_log
from workers.process.latch import Latch
from workers.process.launcher_socket import LineReader, dial, encode, reply_error
from workers.process.worker_slots import REPORTED, LogicalRepWorker


class LauncherLink:
    """A worker's connection to the launcher that started the worker; safe to use from any thread.

    A separate thread reads pushes, replies and signals, so that a signal takes effect at once even
    while the main thread is inside a long call. SIGTERM sets ``shutdown_requested``. SIGHUP only
    sets the latch: the launcher stores the settings from the file in the catalog.
    """

    def __init__(
        self,
        sock: socket.socket,
        slot: int,
        generation: int,
        on_lost: Callable[[], None],
    ) -> None:
        self.latch = Latch()
        self.shutdown_requested = threading.Event()
        self.lost = threading.Event()
        self.slot = slot
        self.generation = generation
        self.staging: str | None = None  # ``spark.staging``, from the launcher
        self._sock = sock
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._out = bytearray()
        self._replies: dict[int, Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._report: dict[str, Any] = {}
        self._reported_at = 0.0
        self._closing = False
        self._lake = threading.Condition()
        self._lake_url: str | None = None
        self._catalog_seq = 0
        self._catalog_acknowledged = 0
        self._kick_r, self._kick_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._signal_r, self._signal_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="launcher link", daemon=True)

    @classmethod
    def connect(
        cls,
        data_dir: Path,
        slot: int,
        generation: int,
        *,
        on_lost: Callable[[], None] | None = None,
    ) -> LauncherLink:
        """Connect to the launcher of ``data_dir``; raises 08006 if the launcher is gone.

        In the main thread the link also takes over SIGTERM and SIGHUP, and ignores SIGINT: the
        launcher handles a terminal's Ctrl-C. Without ``on_lost`` the process ends when the launcher
        is gone.
        """
        if on_lost is None:
            die_with_parent()
        sock = dial(data_dir)
        if sock is None:
            raise RequiredProcessGone("the launcher is gone")
        sock.setblocking(False)
        link = cls(sock, slot, generation, on_lost or _exit_process)
        if threading.current_thread() is threading.main_thread():
            link._install_signals()
        link._thread.start()
        return link

    def _install_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _noticed_by_wakeup_fd)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._signal_w, warn_on_full_buffer=False)

    def close(self) -> None:
        """Send the last report and close the link; the process goes on."""
        with self._lock:
            self._closing = True
        self._kick()
        if self._thread.is_alive():
            self._thread.join(LAUNCHER_REPLY_SECONDS)
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(-1)
        self._sock.close()
        for fd in (self._kick_r, self._kick_w, self._signal_r, self._signal_w):
            os.close(fd)

    # -- requests ------------------------------------------------------------------------------

    def attach(self) -> LogicalRepWorker:
        """``logicalrep_worker_attach``: take the slot; return the slot's row without relstate."""
        reply = self._request("attach", slot=self.slot, generation=self.generation)
        self.staging = reply["staging"]
        return LogicalRepWorker.from_json(reply["worker"])

    def find(self, subid: int, relid: int) -> LogicalRepWorker | None:
        """Find the apply worker of a subscription (relid 0), or the sync worker of a table."""
        row = self._request("find", subid=subid, relid=relid)["worker"]
        return LogicalRepWorker.from_json(row) if row else None

    def workers(self, subid: int) -> list[LogicalRepWorker]:
        """All workers of a subscription that have a slot, attached or not."""
        rows = self._request("workers", subid=subid)["workers"]
        return [LogicalRepWorker.from_json(row) for row in rows]

    def launch_sync(self, subid: int, relid: int) -> bool:
        """Start a sync worker for a table; False if a limit is reached, or the worker runs."""
        return bool(self._request("launch_sync", subid=subid, relid=relid)["launched"])

    def stop_sync(self, subid: int, relid: int) -> None:
        """Stop a table's sync worker, without waiting for the end."""
        self._request("stop_sync", subid=subid, relid=relid)

    def set_relstate(self, subid: int, relid: int, state: str | None, lsn: LSN | None) -> bool:
        """Set the state in the slot of a table's sync worker, and set the worker's latch.

        False if the table has no sync worker. After the return every ``find`` sees the state.
        """
        text = None if lsn is None else str(lsn)
        request = {"subid": subid, "relid": relid, "state": state, "lsn": text}
        return bool(self._request("set_relstate", **request)["found"])

    def wakeup(self, subid: int, relid: int) -> bool:
        """Set another worker's latch; False if the worker does not exist."""
        return bool(self._request("wakeup", subid=subid, relid=relid)["found"])

    def forget_start_time(self, subid: int) -> None:
        """``ApplyLauncherForgetWorkerStartTime``: the next start need not wait for its interval."""
        self._request("forget_start_time", subid=subid)

    def lake_broken(self) -> None:
        """Report that the lake server cannot go on; the launcher replaces the server, once."""
        self._request("lake_broken")

    def lake_url(self, timeout: float = LAUNCHER_LAKE_SECONDS) -> str:
        """The lake's URL; waits while the server starts. Call again after losing the server.

        Raises 08006 after ``timeout`` seconds, and 57P01 after SIGTERM.
        """
        with self._lake:
            self._lake.wait_for(
                lambda: self._lake_url is not None or self.shutdown_requested.is_set(), timeout
            )
            if self._lake_url is not None:
                return self._lake_url
        if self.shutdown_requested.is_set():
            raise AdminShutdown("terminating worker due to administrator command")
        raise RequiredProcessGone(
            "the lake server is not running",
            detail=f"It did not come up within {timeout:g} s.",
            hint="See the log in the data directory.",
        )

    def catalog_change(self) -> int | None:
        """The number of a catalog change that a command waits for; call before the reading."""
        with self._lock:
            newer = self._catalog_seq > self._catalog_acknowledged
            return self._catalog_seq if newer else None

    def acknowledge_catalog(self, seq: int | None) -> None:
        """Report that the catalog was read after ``catalog_change`` returned ``seq``.

        None does nothing.
        """
        if seq is None:
            return
        with self._lock:
            self._catalog_acknowledged = max(self._catalog_acknowledged, seq)
            self._out += encode({"op": "catalog_seen", "seq": seq})
        self._kick()

    def report(self, **stats: Any) -> None:
        """Report statistics of this worker for ``status``; returns at once, never fails.

        The names are those of ``worker_slots.REPORTED``; a value is an LSN, a time in microseconds
        since 1970, or None.
        """
        unknown = set(stats) - REPORTED
        if unknown:
            raise InternalError(f"a worker cannot report {', '.join(sorted(unknown))}")
        values = {k: str(v) if isinstance(v, LSN) else v for k, v in stats.items()}
        with self._lock:
            kick = not self._report
            self._report.update(values)
        if kick:
            self._kick()

    def _request(self, op: str, **arguments: Any) -> dict[str, Any]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self.lost.is_set() or self._closing:
                raise RequiredProcessGone("the launcher is gone")
            self._next_id += 1
            number = self._next_id
            self._replies[number] = future
            self._out += encode({"id": number, "op": op, **arguments})
        self._kick()
        try:
            return future.result(LAUNCHER_REPLY_SECONDS)
        except FutureTimeoutError:
            with self._lock:
                self._replies.pop(number, None)
            raise RequiredProcessGone("the launcher does not answer") from None

    # -- the thread ----------------------------------------------------------------------------

    def _kick(self) -> None:
        try:
            os.write(self._kick_w, b"k")
        except BlockingIOError:
            return  # the pipe is full of kicks

    def _run(self) -> None:
        reader = LineReader()
        poll = select.poll()
        poll.register(self._kick_r, select.POLLIN)
        poll.register(self._signal_r, select.POLLIN)
        try:
            while not self._finished():
                pause = self._fill()
                wants = select.POLLIN | (select.POLLOUT if self._out else 0)
                poll.register(self._sock, wants)
                events = dict(poll.poll(pause))
                if self._kick_r in events:
                    os.read(self._kick_r, SOCKET_CHUNK_BYTES)
                if self._signal_r in events:
                    self._take_signals(os.read(self._signal_r, SOCKET_CHUNK_BYTES))
                state = events.get(self._sock.fileno(), 0)
                if state & select.POLLOUT:
                    self._send()
                if state & ~select.POLLOUT:
                    self._receive(reader)
        except (RequiredProcessGone, ConnectionError):
            self._lose()
        except Exception as error:
            worker_log.report(worker_log.unexpected(error), action="launcher_link")
            self._lose()

    def _finished(self) -> bool:
        with self._lock:
            return self._closing and not self._out and not self._report

    def _fill(self) -> float | None:
        """Move a due report into the outgoing bytes.

        Returns the milliseconds until the waiting report is due; None without a waiting report.
        """
        with self._lock:
            if not self._report:
                return None
            left = self._reported_at + REPORT_SECONDS - time.monotonic()
            if left > 0 and not self._closing:
                return left * 1000 + 1
            if self._out:
                return None  # a launcher that does not read gets only one report at a time
            self._out += encode({"op": "report", **self._report})
            self._report.clear()
            self._reported_at = time.monotonic()
            return None

    def _send(self) -> None:
        with self._lock:
            sent = self._sock.send(self._out)
            del self._out[:sent]

    def _receive(self, reader: LineReader) -> None:
        data = self._sock.recv(SOCKET_CHUNK_BYTES)
        if not data:
            raise RequiredProcessGone("the launcher is gone")
        for message in reader.feed(data):
            if "id" in message:
                self._take_reply(message)
            else:
                self._take_push(message)

    def _take_reply(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            future = self._replies.pop(message["id"], None)
            if "catalog" in message:
                self._catalog_seq = self._catalog_acknowledged = int(message["catalog"])
        if "lake" in message:  # set here, because a push may come next
            self._set_lake(message["lake"])
        if future is None:
            return
        error = reply_error(message)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(dict(message))

    def _take_push(self, message: Mapping[str, Any]) -> None:
        if message.get("push") == "lake":
            self._set_lake(message["url"])
        elif message.get("push") == "catalog":
            with self._lock:
                self._catalog_seq = max(self._catalog_seq, int(message["seq"]))
        self.latch.set()

    def _take_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self.shutdown_requested.set()
            with self._lake:
                self._lake.notify_all()
        self.latch.set()

    def _set_lake(self, url: str | None) -> None:
        with self._lake:
            self._lake_url = url
            self._lake.notify_all()

    def _lose(self) -> None:
        with self._lock:
            self.lost.set()
            closing = self._closing
            waiting = list(self._replies.values())
            self._replies.clear()
        if not closing:
            self._on_lost()
        for future in waiting:
            future.set_exception(RequiredProcessGone("the launcher is gone"))
        self.latch.set()


def _exit_process() -> None:
    os._exit(1)


def _noticed_by_wakeup_fd(_number: int, _frame: object) -> None:
    """Do nothing; without a handler the signal would not reach the wake-up descriptor."""
