"""The apply worker: one per subscription, it applies what the publisher committed.

PostgreSQL's ``worker.c``. Changes arrive transaction by transaction, in commit order. Where the
native worker applies a transaction row by row and commits it, this one takes *batches of whole
transactions*: while the lake is busy with one batch, the receive thread collects the next, so an
idle lake takes a single transaction at once and a busy one thousands together. A position is only
ever the end LSN of a commit; transactions are applied whole or skipped whole.

One turn of the loop, at a batch boundary:

1. The subscription is read again if the catalog changed: gone or disabled ends the worker, as does
   any change that needs another connection or another start.
2. ``process_syncing_tables_for_apply`` decides about tables that are not ready. While one of them
   is in ``c`` no batch is closed; receiving, spooling and feedback go on.
3. A batch is taken. For each table the gate decides, transaction by transaction; what is left is
   cut, folded, and written to the tables' branches.
4. When every branch is complete the batch is published, the origin moves, and the transactions
   become durable: the receive thread reports them to the publisher at once.

A worked trace. Tables a (r) and b (s at 300); the flush list is empty, gated = durable = 250::

    received  C 260 (a), C 310 (a, b), C 350 (b)      flush list 260 310 350
    batch     260 310 350; gated = 350
    gate      a takes all; b takes what commits at or after 300: 310 and 350
    write     a's branch: 260 310 → stamp 350;  b's branch: 310 350 → stamp 350
    publish   in_flight {a, b}; ff a; ff b; origin 350; in_flight {}
    durable   350; feedback flush = 350; b: durable ≥ 300, so r is stored

An error that one transaction is to blame for must not stop the ones before it, nor leave a part of
it anywhere: the batch is cut before that transaction, the first part is published, then the
transaction is tried alone, so that the error names its finish LSN.

An error ends the process. The launcher starts a successor, which closes the Spark sessions of
this one, fences the tables in flight, and asks the publisher for everything after the origin;
what a table already holds it skips by its own LSN.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from catalog.errcodes import (
    ObjectNotInPrerequisiteState,
    Policy,
    ReplicationError,
    error_context,
    policy,
)
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers import failpoints
from workers.batch import runs_by_target
from workers.bgworker import LauncherLink
from workers.exits import WorkerExit
from workers.lake_writer import LakeWriter, Written
from workers.process import WorkerProcess
from workers.publication import fetch_slot
from workers.receive import ReceiveStats
from workers.relation import LogicalRepRelMap, RelName
from workers.same_publisher import check_publisher
from workers.segments import FailedTransaction
from workers.spool import Batch
from workers.stream import (
    Stream,
    connect_publisher,
    fetch_published,
    start_stream,
    starting_on_slot,
)
from workers.syncutils import (
    AnswerCatchup,
    AwaitSyncDone,
    LaunchSync,
    SetReady,
    SyncWorkerState,
    process_syncing_tables_for_apply,
    should_apply_changes_for_rel,
)

log = logging.getLogger(__name__)

NAPTIME_PER_CYCLE: Final = 1.0
"""Seconds an idle turn waits; PostgreSQL's constant. Every event wakes it earlier."""

_RESTART_ON: Final = (
    "subconninfo",
    "subname",
    "subslotname",
    "subbinary",
    "substream",
    "subpasswordrequired",
    "suborigin",
    "subowner",
    "subpublications",
    "passfile",
    "password_env",
    "tables",
)
"""A change of one of these needs another connection or another START_REPLICATION."""


_RESTART_ON_SETTING: Final = ("lake_commit_workers", "local_relation_rows")
"""Settings that the lake's threads and its staging are made with."""


@dataclass(slots=True)
class Applier:
    """What turns batches into lake commits: shared by the apply and the sync worker.

    ``own_relid`` is a sync worker's table, 0 in the apply worker. ``gated`` is the end LSN of the
    last transaction whose gate decisions are taken. ``published`` asks the publisher for the
    fingerprint of every published table, as it is now.
    """

    store: CatalogStore
    sub: Subscription
    writer: LakeWriter
    published: Callable[[], Mapping[RelName, str]]
    own_relid: int = 0
    relmap: LogicalRepRelMap = field(default_factory=LogicalRepRelMap)
    rels: dict[RelName, SubscriptionRel] = field(default_factory=dict)
    gated: LSN = InvalidXLogRecPtr

    def read_rels(self) -> None:
        """Read the tables' states; called at batch boundaries only."""
        rels = self.store.rels(self.sub.oid)
        self.rels = {(rel.nspname, rel.relname): rel for rel in rels}

    def apply_batch(self, batch: Batch) -> None:
        """Apply whole transactions; on an error of the data, all but the one at fault before it."""
        relmap = self.relmap.copy()
        try:
            with batch.giving_pages_back():
                written = self._write(batch)
        except FailedTransaction as failed:
            self.relmap = relmap
            if self.own_relid:
                self._raise_for_transaction(batch.part(failed.txn, failed.txn + 1), failed.error)
            self._apply_around(batch, failed.txn, failed.error)
        except ReplicationError as error:
            self.relmap = relmap
            if self.own_relid or policy(error.code) is not Policy.DATA:
                # A sync worker's branch holds the copy: once a write to it failed there is
                # nothing to go on from, and the table is copied again.
                raise
            if batch.ntxns == 1:
                self._raise_for_transaction(batch, error)
            half = batch.ntxns // 2
            self.apply_batch(batch.part(0, half))
            self.apply_batch(batch.part(half, batch.ntxns))
        else:
            self._publish(written, batch.last_end)

    def _apply_around(self, batch: Batch, txn: int, error: ReplicationError) -> None:
        """Publish what comes before ``txn``, try it alone, and go on if that went well."""
        if batch.ntxns == 1:
            self._raise_for_transaction(batch, error)
        if txn > 0:
            self.apply_batch(batch.part(0, txn))
        self.apply_batch(batch.part(txn, txn + 1))
        if txn + 1 < batch.ntxns:
            self.apply_batch(batch.part(txn + 1, batch.ntxns))

    def _raise_for_transaction(self, batch: Batch, error: ReplicationError) -> None:
        with error_context(
            f'processing remote data for replication origin "{origin_name(self.sub.oid)}" '
            f"in transaction finished at {LSN(int(batch.final_lsn[0]))}"
        ):
            raise error

    def _write(self, batch: Batch) -> list[Written]:
        """Put the batch on the branches of its tables; nothing of it is visible yet."""
        runs = runs_by_target(batch, self.relmap, lambda targets: self._gate(targets, batch))
        self._distrust(self.relmap.take_announced() & runs.keys())
        work = {self.rels[target].srrelid: own for target, own in runs.items()}
        return self.writer.write(work, batch.last_end) if work else []

    def _distrust(self, announced: Collection[RelName]) -> None:
        """Look whether tables are still published as they were when they were copied.

        If not, an inserted key may be in the lake already (its DELETE was not published, an UPDATE
        brought the row into a new filter), so it is looked for first, from now on: what was missed
        while less was published stays missed when more is again. The publisher announces a
        relation anew before its first change after anything of the kind, and the fingerprint holds
        row versions, so that what was changed and changed back is seen too.
        """
        trusted = [self.rels[name] for name in announced if self.rels[name].copied]
        if not trusted:
            return
        published = self.published()
        for rel in trusted:
            now = published.get((rel.nspname, rel.relname))
            if now == rel.fingerprint:
                continue
            log.info(
                'action=republished subid=%d relid=%d table "%s.%s" is not published as when it '
                "was copied; inserted keys are looked for",
                rel.srsubid,
                rel.srrelid,
                rel.nspname,
                rel.relname,
            )
            with self.store.transaction():
                if self.store.rel(rel.srsubid, rel.srrelid) is not None:  # it may have left
                    self.store.update_rel(rel.srsubid, rel.srrelid, copied=False, fingerprint=now)
            self.rels[rel.nspname, rel.relname] = replace(rel, copied=False, fingerprint=now)
            self.writer.distrust(rel.srrelid)

    def _publish(self, written: list[Written], end_lsn: LSN) -> None:
        """Show what was written (a sync worker keeps it on its branch).

        No error from here on may cut the batch: some tables show it by then, and only a successor,
        which fences them and reads their positions, knows which.
        """
        if self.own_relid:
            self.writer.keep(written)
        elif written:
            self.writer.publish(written, end_lsn)
        self.gated = end_lsn

    def _gate(self, targets: Sequence[RelName], batch: Batch) -> dict[RelName, NDArray[np.bool_]]:
        """Which transactions this worker applies to each table: the gate, then the table's LSN."""
        takes: dict[RelName, NDArray[np.bool_]] = {}
        for target in targets:
            gated = should_apply_changes_for_rel(
                self.rels.get(target), batch.final_lsn, own_relid=self.own_relid
            )
            if gated.any():
                takes[target] = gated
        opened = self.writer.open_all([self.rels[target] for target in takes])
        return {
            target: gated & (batch.end_lsn > max(table.lsn, table.floor))
            for (target, gated), table in zip(takes.items(), opened, strict=True)
        }


@dataclass(slots=True)
class _SyncTracker:
    """When sync workers of which table were last asked for; only this process knows."""

    last_start: dict[int, float] = field(default_factory=dict)


def apply_worker_main(process: WorkerProcess) -> None:
    """``ApplyWorkerMain``: attach, settle what a predecessor left, stream, loop."""
    store, link = process.store, process.link
    sub = process.subscription()
    if sub.subslotname is None:
        raise ObjectNotInPrerequisiteState(
            "subscription has no replication slot set",
            hint=f'Disable the subscription with "pgsub disable {sub.subname}".',
        )
    dest = process.open_lake()
    writer = LakeWriter(
        dest,
        store,
        sub,
        generation=process.generation,
        origin=origin_name(sub.oid),
        threads=process.settings.lake_commit_workers,
    )
    writer.settle_in_flight(process.ident_of)
    start = _origin_start(store, sub)
    conn = connect_publisher(sub, sub.subname, process.interrupted)
    try:
        identity = conn.identify_system()
        slot = fetch_slot(conn, sub.subslotname)
        check_publisher(sub, start, store.rels(sub.oid), identity, slot)
        if sub.sysid is None:
            store.update_subscription(sub.oid, sysid=identity.systemid)
        with (
            error_context(f'starting replication on slot "{sub.subslotname}"'),
            starting_on_slot(
                conn, sub, sub.subslotname, process.settings.wal_retrieve_retry_interval
            ),
        ):
            stream = start_stream(
                conn,
                sub,
                sub.subslotname,
                start,
                process.settings,
                process.spool_dir,
                wake_main=link.latch.set,
                report=lambda stats: report_stream(link, stats),
                remember_flush=lambda lsn: _remember_flush(store, sub.oid, lsn),
            )
        try:
            # What a predecessor confirmed it had gated: for a table that was being copied its
            # changes up to there are gone, so no sync worker may be told to stop before.
            gated = LSN(max(start, sub.max_flush_lsn))
            published = partial(fetch_published, sub, process.interrupted)
            applier = Applier(store, sub, writer, published, gated=gated)
            LogicalRepApplyLoop(process, applier, stream)
        finally:
            stream.end()
    finally:
        conn.close()
        writer.close()


def _remember_flush(store: CatalogStore, subid: int, lsn: LSN) -> None:
    store.update_subscription(subid, max_flush_lsn=lsn)


def _origin_start(store: CatalogStore, sub: Subscription) -> LSN:
    """Where to ask the publisher to begin; old is harmless, ahead would lose data."""
    name = origin_name(sub.oid)
    origin = store.origin_by_name(name)
    if origin is None:
        store.origin_create(name)
        return InvalidXLogRecPtr
    return origin.remote_lsn


def report_stream(link: LauncherLink, stats: ReceiveStats) -> None:
    """Tell the launcher what pg_stat_subscription shows."""
    link.report(
        last_lsn=stats.last_lsn,
        last_send_time=stats.last_send_time,
        last_recv_time=stats.last_recv_time,
        reply_lsn=stats.reply_lsn,
        reply_time=stats.reply_time,
    )


def LogicalRepApplyLoop(process: WorkerProcess, applier: Applier, stream: Stream) -> None:  # noqa: N802 (PostgreSQL's name)
    """Turn after turn until told to stop; raises what ends the worker."""
    latch = process.link.latch
    tracker = _SyncTracker()
    seen_version = -1
    while True:
        if process.interrupted():
            return
        stream.receiver.raise_if_failed()
        reload_settings(process, stream)
        # Sync workers first, the catalog second. A worker that is gone stored s before it went,
        # so a catalog read after seeing it gone shows the s; the other way round, a table would
        # be gated by its old d while its sync worker had already stopped at s.
        sync_workers = _sync_workers(process, applier)
        change = process.link.catalog_change()
        version = applier.store.data_version()
        if version != seen_version or change is not None:
            seen_version = version
            maybe_reread_subscription(process, applier)
            applier.read_rels()
            process.link.acknowledge_catalog(change)
            continue
        idle = stream.receiver.idle_position()
        if idle is not None:
            applier.gated = LSN(max(applier.gated, idle))
        if _process_syncing_tables(process, applier, stream, tracker, sync_workers):
            latch.wait(NAPTIME_PER_CYCLE)
            continue
        settings = process.settings
        batch = stream.spool.take(settings.batch_max_bytes, settings.batch_max_rows)
        if batch is None:
            latch.wait(NAPTIME_PER_CYCLE)
            continue
        failpoints.reach("apply.batch_taken")
        applier.apply_batch(batch)
        stream.receiver.mark_durable(batch.last_end)


def reload_settings(process: WorkerProcess, stream: Stream) -> None:
    """Let settings that changed count from here on.

    Raises ``WorkerExit`` in an apply worker for those it cannot change while it runs. A sync worker
    keeps them: starting again would copy its table again.
    """
    changed = process.process_config_file()
    if not changed:
        return
    log.info(
        "action=reload subid=%d relid=%d settings changed: %s",
        process.subid,
        process.relid,
        ", ".join(changed),
    )
    fixed = [name for name in changed if name in _RESTART_ON_SETTING]
    if fixed and not process.relid:
        raise WorkerExit(f"it starts again with another {' and '.join(fixed)}")
    stream.reload(process.settings)


def maybe_reread_subscription(process: WorkerProcess, applier: Applier) -> None:
    """Raises ``WorkerExit`` when the worker must end or start again because of a change."""
    old = applier.sub
    new = process.store.subscription(old.oid)
    if new is None or new.subcreate != SubCreate.READY:
        raise WorkerExit(f'subscription "{old.subname}" was removed')
    if not new.subenabled:
        raise WorkerExit(f'subscription "{old.subname}" was disabled')
    changed = [name for name in _RESTART_ON if getattr(old, name) != getattr(new, name)]
    if changed:
        raise WorkerExit(f'subscription "{old.subname}" has changed: {", ".join(changed)}')
    applier.sub = replace(new)


def _sync_workers(process: WorkerProcess, applier: Applier) -> dict[int, SyncWorkerState]:
    """What the slots of this subscription's sync workers say, if any table needs one."""
    if all(rel.srsubstate == SubRelState.READY for rel in applier.rels.values()):
        return {}
    return {
        worker.relid: SyncWorkerState(
            worker.relid,
            SubRelState(worker.relstate) if worker.relstate else None,
            worker.relstate_lsn,
        )
        for worker in process.link.workers(applier.sub.oid)
        if worker.relid
    }


def _process_syncing_tables(
    process: WorkerProcess,
    applier: Applier,
    stream: Stream,
    tracker: _SyncTracker,
    workers: dict[int, SyncWorkerState],
) -> bool:
    """Carry out what the pure function decides; True while no batch may be closed."""
    unready = [rel for rel in applier.rels.values() if rel.srsubstate != SubRelState.READY]
    if not unready:
        return False
    subid, link = applier.sub.oid, process.link
    actions = process_syncing_tables_for_apply(
        unready,
        workers,
        gated=applier.gated,
        durable=stream.receiver.flush_position(),
        now=time.monotonic(),
        last_start=tracker.last_start,
        max_sync_workers=process.settings.max_sync_workers_per_subscription,
        retry_interval=process.settings.wal_retrieve_retry_interval,
    )
    waiting = False
    for action in actions:
        match action:
            case SetReady(relid, lsn):
                _set_ready(applier, relid, lsn)
            case LaunchSync(relid):
                tracker.last_start[relid] = time.monotonic()
                link.launch_sync(subid, relid)
            case AnswerCatchup(relid, lsn):
                link.set_relstate(subid, relid, SubRelState.CATCHUP, lsn)
                waiting = True
            case AwaitSyncDone():
                waiting = True
    return waiting


def _set_ready(applier: Applier, relid: int, lsn: LSN) -> None:
    """s → r; a row that a refresh removed stays gone."""
    try:
        rel = applier.store.set_rel_state(
            applier.sub.oid, relid, SubRelState.READY, lsn, Setter.APPLY
        )
    except ReplicationError as error:
        if error.code != "42704":
            raise
        applier.read_rels()
        return
    applier.rels[(rel.nspname, rel.relname)] = rel
    log.info(
        'action=table_ready subid=%d relid=%d lsn=%s table "%s.%s" is ready',
        applier.sub.oid,
        relid,
        lsn,
        rel.nspname,
        rel.relname,
    )
