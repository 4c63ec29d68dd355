"""The worker slots, and the decision which worker to launch or stop: no clock, no process.

The slots live in the launcher's memory: ``max_logical_replication_workers`` slots for all kinds of
workers. A slot belongs to its tenant, a worker, until the launcher has reaped the process; a
request to stop is not enough. So a successor never runs at the same time as the predecessor's
process. (A call of the predecessor may still run in the lake; the fence makes the call harmless.) A
tenant is named by slot, subscription and generation; the next tenant of the slot has a
different subscription or generation.

Trace, with two slots and three enabled subscriptions::

    slots: -, -                 decide: launch 1 and 2; 3 has no slot, look again in 5 s
    slots: 1, 2                 1 dies; the launcher reaps the process
    slots: -, 2                 decide: 1 waits for its interval; launch 3
    slots: 3, 2                 decide: 1 has no slot
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import SubCreate
from catalog.pg_subscription_rel import SubRelState

if TYPE_CHECKING:
    from config.guc import Settings  # a command that shows workers needs no settings


class WorkerType(StrEnum):
    """``LogicalRepWorkerType``; the value stands on a worker's command line."""

    APPLY = "apply"
    TABLESYNC = "tablesync"


@dataclass(frozen=True, slots=True)
class LogicalRepWorker:
    """A worker slot in use: a copy of the row, as of the request.

    ``relid`` is 0 for the apply worker. Through ``relstate`` and ``relstate_lsn`` of this row a
    sync worker and the apply worker exchange the table's state (``w`` and ``c`` are stored nowhere
    else). ``attached``: the worker has connected to the launcher. Times are microseconds since
    1970, 0 for never. ``flush_lsn`` is the position that an apply worker last confirmed to the
    publisher. ``spool_bytes`` is the number of bytes received and not yet taken into a batch (None
    before the stream); ``paused_since`` is the time at which the spool became full. ``progress``
    belongs to a copy (None without a copy). ``work`` are the sums of ``work_done``.
    ``applying_commit_time`` is the publisher's commit time of the oldest transaction in the batch
    that is being applied, 0 without a batch. ``parallel`` are the threads that write transactions
    in progress: ``pid`` and ``xid``. ``atomic_publish``: do all tables of a batch become visible at
    one moment? None until an apply worker knows.
    """

    slot: int
    generation: int
    type: WorkerType
    subid: int
    relid: int = 0
    in_use: bool = True
    attached: bool = False
    pid: int | None = None
    launch_time: int = 0
    relstate: str | None = None
    relstate_lsn: LSN | None = None
    last_lsn: LSN = InvalidXLogRecPtr
    last_send_time: int = 0
    last_recv_time: int = 0
    reply_lsn: LSN = InvalidXLogRecPtr
    reply_time: int = 0
    flush_lsn: LSN = InvalidXLogRecPtr
    spool_bytes: int | None = None
    paused_since: int = 0
    phase: str | None = None
    progress: Mapping[str, Any] | None = None
    work: Mapping[str, Any] | None = None
    applying_commit_time: int = 0
    parallel: Sequence[Mapping[str, int]] = ()
    atomic_publish: bool | None = None

    @property
    def tenant(self) -> Tenant:
        """The key of this worker, unique among all past and future workers."""
        return (self.slot, self.subid, self.generation)

    @property
    def is_copying(self) -> bool:
        """Is the worker a sync worker inside a copy?"""
        return self.type is WorkerType.TABLESYNC and self.relstate in (None, SubRelState.DATASYNC)

    @property
    def is_filling(self) -> bool:
        """Does the worker copy a table, or catch up behind its copy?"""
        return self.is_copying or (
            self.type is WorkerType.TABLESYNC and self.relstate == SubRelState.CATCHUP
        )

    def to_json(self) -> dict[str, Any]:
        """The row for the launcher's socket, with LSNs as ``X/X`` text."""
        row = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in _LSN_FIELDS:
            row[name] = None if row[name] is None else str(row[name])
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> LogicalRepWorker:
        """The inverse of ``to_json``; ignores fields of a later version."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in row.items() if name in known}
        values["type"] = WorkerType(values["type"])
        values["parallel"] = tuple(values.get("parallel", ()))
        return cls(**read_lsns(values))


Tenant = tuple[int, int, int]
"""(slot, subid, generation)."""

_LSN_FIELDS: Final = ("relstate_lsn", "last_lsn", "reply_lsn", "flush_lsn")

REPORTED: Final = frozenset(
    {
        "last_lsn",
        "last_send_time",
        "last_recv_time",
        "reply_lsn",
        "reply_time",
        "flush_lsn",
        "spool_bytes",
        "paused_since",
        "phase",
        "progress",
        "work",
        "applying_commit_time",
        "parallel",
        "atomic_publish",
    }
)
"""The fields that a worker may report (``LauncherLink.report``)."""


def read_lsns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Field values with LSNs parsed from text; raises 22P02 for text that is no LSN."""
    return {
        name: LSN.parse(value) if name in _LSN_FIELDS and isinstance(value, str) else value
        for name, value in values.items()
    }


class WorkerSlots:
    """All worker slots; not thread safe."""

    def __init__(self, size: int) -> None:
        self._rows: list[LogicalRepWorker | None] = [None] * size

    def rows(self) -> list[LogicalRepWorker]:
        """The slots in use, by number."""
        return [row for row in self._rows if row is not None]

    def find(self, subid: int, relid: int) -> LogicalRepWorker | None:
        """``logicalrep_worker_find``: the worker of a subscription (relid 0) or of a table."""
        return next((row for row in self.rows() if (row.subid, row.relid) == (subid, relid)), None)

    def of(self, subid: int) -> list[LogicalRepWorker]:
        """``logicalrep_workers_find``: all workers of a subscription."""
        return [row for row in self.rows() if row.subid == subid]

    def free(self) -> bool:
        """True if a worker could be launched now."""
        return None in self._rows

    def claim(
        self, subid: int, relid: int, generation: int, launch_time: int
    ) -> LogicalRepWorker | None:
        """Take the lowest free slot for a worker that will be started; None without a free slot."""
        if None not in self._rows:
            return None
        slot = self._rows.index(None)
        kind = WorkerType.TABLESYNC if relid else WorkerType.APPLY
        row = LogicalRepWorker(slot, generation, kind, subid, relid, launch_time=launch_time)
        self._rows[slot] = row
        return row

    def get(self, tenant: Tenant) -> LogicalRepWorker | None:
        """The row, or None if the slot has another tenant."""
        slot = tenant[0]
        row = self._rows[slot] if 0 <= slot < len(self._rows) else None
        return row if row is not None and row.tenant == tenant else None

    def update(self, tenant: Tenant, **changes: Any) -> LogicalRepWorker | None:
        """Change fields of a tenant's row; return the new row, or None if the tenant is gone."""
        row = self.get(tenant)
        if row is None:
            return None
        row = dataclasses.replace(row, **changes)
        self._rows[row.slot] = row
        return row

    def release(self, tenant: Tenant) -> LogicalRepWorker | None:
        """Free the slot of a reaped process; return the last row, None for another tenant."""
        row = self.get(tenant)
        if row is not None:
            self._rows[row.slot] = None
        return row


class SubscriptionState(Protocol):
    """The columns of pg_subscription that ``decide`` needs."""

    @property
    def oid(self) -> int:
        """The subscription's oid."""

    @property
    def subenabled(self) -> bool:
        """True if the subscription is enabled."""

    @property
    def subcreate(self) -> str:
        """The progress of CREATE or DROP."""


@dataclass(frozen=True, slots=True)
class Actions:
    """The decisions after a look at the catalog and the slots.

    ``launch`` are the subscriptions with an apply worker to start now; the launcher stores the
    start times first. ``no_slot`` are the subscriptions without a free slot; the launcher stores
    their start times, too, so that the warning comes once per interval. ``stop`` are the workers of
    dropped and disabled subscriptions. ``wake`` are the seconds until the next look; None if only
    an event can change the decisions.
    """

    launch: tuple[int, ...] = ()
    no_slot: tuple[int, ...] = ()
    stop: tuple[LogicalRepWorker, ...] = ()
    wake: float | None = None


def decide(
    subscriptions: Sequence[SubscriptionState],
    slots: Sequence[LogicalRepWorker],
    last_start_times: Mapping[int, float],
    now: float,
    settings: Settings,
) -> Actions:
    """One turn of PostgreSQL's ``ApplyLauncherMain``.

    ``slots`` are the slots in use, with or without an attached worker. ``last_start_times`` has the
    last start of each subscription's apply worker, on the clock of ``now``; after an exit on
    purpose the subscription has no entry. A subscription waits only for the interval after its last
    start.
    """
    wanted = {sub.oid for sub in subscriptions if is_wanted(sub)}
    applying = {row.subid for row in slots if row.type is WorkerType.APPLY}
    free = settings.max_logical_replication_workers - len(slots)
    interval = settings.wal_retrieve_retry_interval
    launch, no_slot, waits = [], [], []
    for subid in [sub.oid for sub in subscriptions if sub.oid in wanted - applying]:
        last = last_start_times.get(subid)
        if last is not None and now - last < interval:
            waits.append(last + interval - now)
        elif free > 0:
            free -= 1
            launch.append(subid)
        else:
            no_slot.append(subid)
            waits.append(interval)
    return Actions(
        launch=tuple(launch),
        no_slot=tuple(no_slot),
        stop=tuple(row for row in slots if row.subid not in wanted),
        wake=min(waits, default=None),
    )


def is_wanted(sub: SubscriptionState) -> bool:
    """True if workers of this subscription should run."""
    return sub.subenabled and sub.subcreate == SubCreate.READY


class SyncRefusal(Enum):
    """The reason why no sync worker is launched for a table; the apply worker asks again later."""

    NOT_WANTED = "the subscription is gone or disabled"
    RUNNING = "a worker synchronises the table, or is not reaped yet"
    SYNC_LIMIT = "max_sync_workers_per_subscription is reached"
    NO_SLOT = "no worker slot is free"


def refuse_sync(
    subid: int,
    relid: int,
    subscriptions: Sequence[SubscriptionState],
    slots: Sequence[LogicalRepWorker],
    settings: Settings,
) -> SyncRefusal | None:
    """Whether a table's sync worker must not be launched now, and why.

    The last slots are kept for enabled subscriptions whose apply worker is not running (it may be
    waiting for its interval): table synchronisation never keeps an apply worker out.
    """
    wanted = {sub.oid for sub in subscriptions if is_wanted(sub)}
    if subid not in wanted:
        return SyncRefusal.NOT_WANTED
    own = [row for row in slots if row.subid == subid and row.type is WorkerType.TABLESYNC]
    if any(row.relid == relid for row in own):
        return SyncRefusal.RUNNING
    if len(own) >= settings.max_sync_workers_per_subscription:
        return SyncRefusal.SYNC_LIMIT
    applying = {row.subid for row in slots if row.type is WorkerType.APPLY}
    kept = len(wanted - applying)
    if len(slots) + kept >= settings.max_logical_replication_workers:
        return SyncRefusal.NO_SLOT
    return None
