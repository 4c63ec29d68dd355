"""Tell systemd that the launcher is ready, how it does, and that it is alive (``sd_notify``).

A service of ``Type=notify`` names a datagram socket in ``NOTIFY_SOCKET``; a message is one datagram
of ``KEY=value`` lines. Without the variable nothing is sent. The variables are taken out of the
environment, so that no child speaks for the launcher.

===========  =====================================================================================
message      sent
===========  =====================================================================================
READY=1      once, when every enabled subscription has a worker, or an error that says why not
STATUS=…     with READY, and after each change: the tables by state, the lag, errors by SQLSTATE
WATCHDOG=1   twice in ``WatchdogSec``, from the launcher's loop: a loop that hangs sends nothing
STOPPING=1   once, when the launcher begins to stop
===========  =====================================================================================

A socket whose queue is full takes no message. Such a message is sent again at the next turn: a
service without its READY would be ended when its start takes too long.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress

from catalog.errcodes import ReplicationError
from catalog.namespace import printable
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import SERVICE_START_POLL_SECONDS, SERVICE_STATUS_SECONDS
from subscriber.status.health import subscription_checks
from workers.process.worker_slots import LogicalRepWorker

State = tuple[bool, str]
"""Is the service ready, and the text of ``STATUS=``."""


class ServiceManager:
    """Sends messages to ``address``; None: there is no service manager."""

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self._watchdog_seconds = watchdog_seconds
        self._ready = False
        self._stopping = False
        self._text = ""
        self._next_look = 0.0
        self._next_ping = 0.0

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str], pid: int) -> ServiceManager:
        """The service manager that started the process ``pid``."""
        address = environ.pop("NOTIFY_SOCKET", None)
        microseconds = environ.pop("WATCHDOG_USEC", "")
        watched = environ.pop("WATCHDOG_PID", str(pid))
        if not microseconds.isdecimal() or watched != str(pid):
            return cls(address)
        return cls(address, int(microseconds) / 1e6)

    def turn(self, now: float, phase: str, read: Callable[[], State]) -> None:
        """Send what is due; ``read`` tells the state, and is called once in some seconds."""
        if self._address is None:
            return
        if self._watchdog_seconds and now >= self._next_ping:
            self._next_ping = now + self._watchdog_seconds / 2
            self._send("WATCHDOG=1")
        if phase == "stopping":
            self._stopping = self._stopping or self._send("STOPPING=1", "STATUS=stopping")
            self._next_look = now + SERVICE_START_POLL_SECONDS
        elif now >= self._next_look:
            self._look(now, phase, read)

    def next_deadline(self) -> float | None:
        """When the next ``turn`` is due."""
        if self._address is None:
            return None
        due = [] if self._stopping else [self._next_look]
        if self._watchdog_seconds:
            due.append(self._next_ping)
        return min(due, default=None)

    def _look(self, now: float, phase: str, read: Callable[[], State]) -> None:
        ready, text = read() if phase == "running" else (False, "the lake server is starting")
        lines = ["READY=1"] if ready and not self._ready else []
        if text != self._text:
            lines.append(f"STATUS={text}")
        if lines and self._send(*lines):
            self._ready, self._text = self._ready or ready, text
        pause = SERVICE_STATUS_SECONDS if self._ready else SERVICE_START_POLL_SECONDS
        self._next_look = now + pause

    def _send(self, *lines: str) -> bool:
        """Send one datagram; a service manager that is gone or busy must not stop the launcher."""
        address = self._address or ""
        if address.startswith("@"):
            address = "\0" + address[1:]
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(errors="backslashreplace"), address)
            return True
        return False


def service_state(
    store: CatalogStore, workers: Sequence[LogicalRepWorker], now_microseconds: int
) -> State:
    """Whether every enabled subscription has started, and a line about the tables."""
    try:
        checks = list(subscription_checks(workers, store))
        states = Counter(
            str(rel.srsubstate) for sub in store.subscriptions() for rel in store.rels(sub.oid)
        )
        errors = sorted({each.sqlstate for each in store.last_errors()})
    except ReplicationError as error:
        return False, f"the catalog cannot be read: SQLSTATE {error.code}"
    tables = ", ".join(f"{states[state]} {state}" for state in sorted(states, reverse=True))
    commit_times = [row.applying_commit_time for row in workers if row.applying_commit_time]
    lag = max((now_microseconds - each for each in commit_times), default=0)
    text = f"tables: {tables or 'none'}; lag {max(lag, 0) / 1e6:.1f} s"
    waiting = [check.name for check in checks if not check.ok]
    if waiting:
        text += f"; waiting for {', '.join(waiting)}"
    if errors:
        text += f"; errors {', '.join(errors)}, see pgsub status"
    return not waiting, printable(text.replace("\n", " "))
