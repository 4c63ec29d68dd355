"""The launcher's answers: a method for every ``op`` of the protocol of ``launcher_link``.

All answers are computed in the launcher's main thread between two waits and are consistent. Some
requests have to wait, for a worker to reach a batch boundary or to end: a ``Waiter`` remembers the
request, and every turn of the loop checks the waiters.

``launcher_link`` does not describe three ops. ``lake_alive`` (lake_pid, health) comes from the
process that watches the lake server. ``fork_python`` (socket) comes from the program that Spark
starts as its Python. ``hold`` (subid, wait) is for commands only: the launcher stops the
subscription's workers and starts no worker before the command's connection ends. Holds are not
stored, and end with a killed command.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from catalog.errcodes import ObjectInUse, ProtocolViolation, ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState
from subscriber.launcher.lake_budget import Health
from subscriber.launcher.socket_server import Client
from subscriber.launcher.worker_processes import WorkerProcesses
from workers.process.launcher_socket import error_fields
from workers.process.worker_slots import REPORTED, LogicalRepWorker, Tenant, read_lsns


class Launcher(Protocol):
    """The part of the launcher that the answers use."""

    @property
    def workers(self) -> WorkerProcesses:
        """Slots and processes."""

    @property
    def lake_url(self) -> str | None:
        """The lake's URL, None while the lake is down."""

    @property
    def staging(self) -> str | None:
        """The folder in which the lake's Spark sees staged rows; None: in the data directory."""

    @property
    def lake_pid(self) -> int | None:
        """The lake server's process."""

    @property
    def lake_restarts(self) -> int:
        """Starts of the lake server after the first."""

    @property
    def phase(self) -> str:
        """starting, running or stopping."""

    @property
    def start_time(self) -> int:
        """Microseconds since 1970."""

    def launch_sync(self, subid: int, relid: int) -> str | None:
        """Start a sync worker; the refusal, None if the worker was started."""

    def retry_at_once(self) -> None:
        """Start workers that wait because of a repeated error."""

    def forget_start_time(self, subid: int) -> None:
        """Let the apply worker's next start come at once."""

    def replace_lake(self) -> None:
        """End a lake server that cannot go on; a new server follows."""

    def lake_alive(self, lake_pid: int, health: Health) -> None:
        """The lake server has answered the watching process."""

    def look_at_catalog(self) -> None:
        """Read pg_subscription in the current turn of the loop."""

    def begin_stop(self) -> None:
        """End the launcher and its processes."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """A request to answer once ``awaited`` is empty, and to refuse at ``deadline``."""

    client: Client
    number: Any
    awaited: Callable[[], list[LogicalRepWorker]]
    what: str
    deadline: float


Answer = Mapping[str, Any] | Waiter | None
"""Fields of a reply; None: no reply."""


class Requests:
    """Turns messages into answers."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._waiters: list[Waiter] = []
        self._catalog_seq = 0
        self._holds: dict[Client, int] = {}
        self._ops: Final[dict[str, Callable[[Client, Mapping[str, Any]], Answer]]] = {
            "attach": self._attach,
            "find": self._find,
            "workers": self._workers,
            "launch_sync": self._launch_sync,
            "stop_sync": self._stop_sync,
            "set_relstate": self._set_relstate,
            "wakeup": self._wakeup,
            "forget_start_time": self._forget_start_time,
            "lake_broken": self._lake_broken,
            "lake_alive": self._lake_alive,
            "fork_python": self._fork_python,
            "report": self._report,
            "catalog_seen": self._catalog_seen,
            "status": self._status,
            "notify": self._notify,
            "stop_workers": self._stop_workers,
            "hold": self._hold,
            "stop_launcher": self._stop_launcher,
        }

    def take(self, client: Client, message: Mapping[str, Any]) -> None:
        """Answer a message; a wrong message gets an error and never ends the launcher."""
        number = message.get("id")
        try:
            op = self._ops.get(str(message.get("op")))
            if op is None:
                raise ProtocolViolation("unknown request on the launcher's socket")
            answer = op(client, message)
        except ReplicationError as error:
            _refuse(client, number, error)
        except (KeyError, TypeError, ValueError):
            _refuse(client, number, ProtocolViolation("malformed request on the launcher's socket"))
        else:
            if isinstance(answer, Waiter):
                self._waiters.append(answer)
                self.settle()
            elif number is not None:
                client.send({"id": number, **(answer or {})})

    def settle(self) -> None:
        """Answer the waiters with nothing left to wait for, and those past the deadline."""
        now = time.monotonic()
        still = []
        for waiter in self._waiters:
            if waiter.client.closed:
                continue
            awaited = waiter.awaited()
            if not awaited:
                waiter.client.send({"id": waiter.number})
            elif waiter.deadline <= now:
                _refuse(waiter.client, waiter.number, _late(waiter.what, awaited))
            else:
                still.append(waiter)
        self._waiters = still

    def next_deadline(self) -> float | None:
        """When ``settle`` has a refusal to send."""
        return min((waiter.deadline for waiter in self._waiters), default=None)

    @property
    def held_subscriptions(self) -> set[int]:
        """The subscriptions with workers stopped by a command."""
        return set(self._holds.values())

    def end_hold(self, client: Client) -> None:
        """End the connection's hold: the subscription's workers may run again."""
        subid = self._holds.pop(client, None)
        if subid is not None:
            self._launcher.forget_start_time(subid)

    # -- from workers --------------------------------------------------------------------------

    def _attach(self, client: Client, message: Mapping[str, Any]) -> Answer:
        workers = self._launcher.workers
        tenant = workers.tenant_of(int(message["slot"]), int(message["generation"]))
        row = tenant and workers.attach(tenant, client, self._catalog_seq)
        if not row:
            raise ObjectInUse(
                f"worker slot {int(message['slot'])} is not waiting for a worker of generation "
                f"{int(message['generation'])}"
            )
        workers.wake(row.subid, but=row.tenant)
        return {
            "worker": row.to_json(),
            "lake": self._launcher.lake_url,
            "staging": self._launcher.staging,
            "catalog": self._catalog_seq,
        }

    def _find(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        row = self._launcher.workers.slots.find(message["subid"], message["relid"])
        return {"worker": row.to_json() if row else None}

    def _workers(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        rows = self._launcher.workers.slots.of(message["subid"])
        return {"workers": [row.to_json() for row in rows]}

    def _launch_sync(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        refusal = self._launcher.launch_sync(int(message["subid"]), int(message["relid"]))
        return {"launched": refusal is None, "refusal": refusal}

    def _stop_sync(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        workers, relid = self._launcher.workers, int(message["relid"])
        row = workers.slots.find(int(message["subid"]), relid) if relid else None
        if row is not None:
            workers.stop(row.tenant)
        return {}

    def _set_relstate(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        subid, relid = message["subid"], message["relid"]
        workers = self._launcher.workers
        state = None if message["state"] is None else SubRelState(message["state"]).value
        lsn = None if message["lsn"] is None else LSN.parse(message["lsn"])
        row = workers.slots.find(subid, relid) if relid else None
        if row is None:
            return {"found": False}
        workers.slots.update(row.tenant, relstate=state, relstate_lsn=lsn)
        workers.wake(subid, relid)
        return {"found": True}

    def _wakeup(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        return {"found": self._launcher.workers.wake(message["subid"], message["relid"])}

    def _forget_start_time(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        self._launcher.forget_start_time(int(message["subid"]))
        return {}

    def _lake_broken(self, _client: Client, _message: Mapping[str, Any]) -> Answer:
        self._launcher.replace_lake()
        return {}

    def _lake_alive(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        health = Health.from_json(message["health"])
        self._launcher.lake_alive(int(message["lake_pid"]), health)
        return {}

    def _fork_python(self, _client: Client, message: Mapping[str, Any]) -> Answer:
        return {"forked": self._launcher.workers.fork_spark_python(str(message["socket"]))}

    def _report(self, client: Client, message: Mapping[str, Any]) -> Answer:
        values = {name: value for name, value in message.items() if name in REPORTED}
        self._launcher.workers.slots.update(_tenant(client), **read_lsns(values))
        return None

    def _catalog_seen(self, client: Client, message: Mapping[str, Any]) -> Answer:
        child = self._launcher.workers.children.get(_tenant(client))
        if child is not None:
            child.catalog_seen = max(child.catalog_seen, int(message["seq"]))
            self.settle()
        return None

    # -- from commands -------------------------------------------------------------------------

    def _status(self, _client: Client, _message: Mapping[str, Any]) -> Answer:
        launcher = self._launcher
        return {
            "pid": os.getpid(),
            "start_time": launcher.start_time,
            "phase": launcher.phase,
            "lake_url": launcher.lake_url,
            "lake_pid": launcher.lake_pid,
            "lake_restarts": launcher.lake_restarts,
            "workers": [row.to_json() for row in launcher.workers.slots.rows()],
            "totals": launcher.workers.totals.to_json(),
        }

    def _notify(self, client: Client, message: Mapping[str, Any]) -> Answer:
        subid, wait = message["subid"], message["wait"]
        workers = self._launcher.workers
        self._catalog_seq = seq = self._catalog_seq + 1
        asked: set[Tenant] = set()
        for row in workers.slots.rows():
            worker = workers.children[row.tenant].client
            if worker is not None and subid in (None, row.subid):
                worker.push("catalog", seq=seq)
                # A copy may take hours, and the worker reads the catalog at the end. No change
                # concerns a copy earlier: a command that takes the table away stops the worker.
                if not row.is_copying:
                    asked.add(row.tenant)
        self._launcher.look_at_catalog()
        self._launcher.retry_at_once()
        if subid is not None:
            self._launcher.forget_start_time(int(subid))
        if wait is None:
            return {}

        def awaited() -> list[LogicalRepWorker]:
            return [
                row
                for row in workers.slots.rows()
                if row.tenant in asked and workers.children[row.tenant].catalog_seen < seq
            ]

        what = "has not come to a batch boundary"
        return Waiter(client, message["id"], awaited, what, time.monotonic() + float(wait))

    def _hold(self, client: Client, message: Mapping[str, Any]) -> Answer:
        subid = int(message["subid"])
        workers = self._launcher.workers
        self._holds[client] = subid
        self._launcher.look_at_catalog()  # the look stops running workers

        def awaited() -> list[LogicalRepWorker]:
            return workers.slots.of(subid)

        deadline = time.monotonic() + float(message["wait"])
        return Waiter(client, message["id"], awaited, "has not ended", deadline)

    def _stop_workers(self, client: Client, message: Mapping[str, Any]) -> Answer:
        subid, relid = int(message["subid"]), message["relid"]
        workers = self._launcher.workers
        asked = {row.tenant for row in workers.slots.of(subid) if relid in (None, row.relid)}
        for tenant in asked:
            workers.stop(tenant)

        def awaited() -> list[LogicalRepWorker]:
            return [row for row in workers.slots.rows() if row.tenant in asked]

        deadline = time.monotonic() + float(message["wait"])
        return Waiter(client, message["id"], awaited, "has not ended", deadline)

    def _stop_launcher(self, _client: Client, _message: Mapping[str, Any]) -> Answer:
        self._launcher.begin_stop()
        return {}


def _tenant(client: Client) -> Tenant:
    if client.tenant is None:
        raise ProtocolViolation("not attached to a worker slot")
    return client.tenant


def _late(what: str, awaited: list[LogicalRepWorker]) -> ObjectInUse:
    pids = ", ".join(str(row.pid) for row in awaited)
    return ObjectInUse(f"a worker {what} in time", detail=f"Waited for PID {pids}.")


def _refuse(client: Client, number: Any, error: ReplicationError) -> None:
    if number is not None:
        client.send({"id": number, "error": error_fields(error)})
