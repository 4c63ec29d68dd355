"""Store and report how far a worker has come: publish, origin, SKIP, statistics, feedback.

After a batch is written, the progress becomes visible in this order::

    publish    in_flight {a, b}; main of a and of b moves to the branch
    the catalog, in one transaction: origin, subskiplsn cleared, conflict counters, in_flight {}
    the log    conflicts, the end of a SKIP
    feedback   the flush position is stored, then sent to the publisher

With ``synchronous_commit = off`` a thread takes the steps from the catalog on, in the same order,
and the worker goes on behind the first step (``workers.tables.background_sync``).

An error from the first step on may not cut the batch: by then the batch may be visible in some of
the tables. Only the worker's successor knows the tables, because the successor fences all tables
and reads the positions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from workers.apply.skip import Skip
from workers.lake.destination import Destination
from workers.lake.table_totals import TOTALS
from workers.process import failpoints
from workers.process.launcher_link import LauncherLink
from workers.process.work_done import DONE, LAKE
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.receiver import ReceiveStats
from workers.tables import row_conflicts
from workers.tables.row_conflicts import RowConflicts
from workers.tables.writer import LakeWriter
from workers.tables.written import Written

log = logging.getLogger(__name__)


def stored_origin(store: CatalogStore, sub: Subscription) -> LSN:
    """Return the position up to which batches are applied; 0/0 before the first batch."""
    name = origin_name(sub.oid)
    origin = store.origin_by_name(name)
    if origin is None:
        store.origin_create(name)
        return InvalidXLogRecPtr
    return origin.remote_lsn


def hold_back(
    store: CatalogStore, sub: Subscription, writer: LakeWriter, written: Sequence[Written]
) -> None:
    """Leave a batch on the branch of a sync worker; count and log the row conflicts."""
    conflicts = row_conflicts.conflicts_of(written)
    writer.hold_back(written)
    _count(store, sub, conflicts)
    row_conflicts.report(sub.oid, conflicts)


def publish(
    store: CatalogStore,
    sub: Subscription,
    writer: LakeWriter,
    written: Sequence[Written],
    end_lsn: LSN,
    skip: Skip | None,
    *,
    waits: bool,
) -> None:
    """Publish a batch; origin, ``subskiplsn`` and counters move in one catalog transaction.

    The worker waits for the transaction if the worker ``waits``, and always for a SKIP: the next
    batch must find ``subskiplsn`` cleared.

    Conflicts are counted from the published batch: a batch that had to be written again may have
    fewer conflicts than at first.
    """
    cleared = False
    conflicts: list[RowConflicts] = []

    def take_conflicts(published: Sequence[Written]) -> Callable[[], None]:
        conflicts.extend(row_conflicts.conflicts_of(published))
        return store_progress

    def store_progress() -> None:
        nonlocal cleared
        _count(store, sub, conflicts)
        cleared = skip is not None and store.clear_skip_lsn(sub.oid, skip.lsn)

    if written:
        with DONE.timed("publish"):
            writer.publish(written, end_lsn, take_conflicts, waits=waits or skip is not None)
    elif skip is not None:
        writer.wait_until_stored()
        with store.transaction():
            store.origin_advance(origin_name(sub.oid), end_lsn, f"LSN {end_lsn}")
            store_progress()

    def log_progress() -> None:
        if skip is not None and cleared:
            _log_cleared(sub, skip)
        row_conflicts.report(sub.oid, conflicts)

    writer.when_stored(log_progress)


def _count(store: CatalogStore, sub: Subscription, conflicts: list[RowConflicts]) -> None:
    if conflicts:
        store.count_for_stats(sub.oid, **row_conflicts.counters(conflicts))


def _log_cleared(sub: Subscription, skip: Skip) -> None:
    """Warn if ``subskiplsn`` was cleared and no transaction ended there."""
    if skip.passed is None:
        return
    log.warning(
        'action=skip_cleared subid=%d lsn=%s skip-LSN of subscription "%s" cleared',
        sub.oid,
        skip.lsn,
        sub.subname,
        extra={
            "DETAIL": f"Remote transaction's finish WAL location (LSN) {skip.passed} did "
            f"not match skip-LSN {skip.lsn}."
        },
    )


def log_skip_start(sub: Subscription, lsn: LSN) -> None:
    """Log that a transaction is about to be skipped."""
    log.info(
        "action=skip_start subid=%d lsn=%s logical replication starts skipping "
        "transaction at LSN %s",
        sub.oid,
        lsn,
        lsn,
    )


def log_skip_end(sub: Subscription, lsn: LSN) -> None:
    """Log that a transaction was skipped."""
    log.info(
        "action=skip_end subid=%d lsn=%s logical replication completed skipping "
        "transaction at LSN %s",
        sub.oid,
        lsn,
        lsn,
    )


def remember_flush(store: CatalogStore, subid: int, lsn: LSN, watch: StandbyWatch) -> None:
    """Store the highest flush position, before it is sent to the publisher."""
    watch.check()
    failpoints.reach("apply.before_feedback")
    with store.transaction():
        sub = store.subscription(subid)
        if sub is not None and lsn > sub.max_flush_lsn:
            store.update_subscription(subid, max_flush_lsn=lsn)
    failpoints.reach("apply.flush_remembered")


def report_feedback(link: LauncherLink, stats: ReceiveStats) -> None:
    """Report the stream to the launcher after feedback was sent to the publisher."""
    failpoints.reach("apply.feedback_sent")
    report_stream(link, stats)


def report_end_of_batch(link: LauncherLink, dest: Destination) -> None:
    """Report that no batch is being applied."""
    link.report(applying_commit_time=0)
    report_atomic_publish(link, dest)


def report_atomic_publish(link: LauncherLink, dest: Destination) -> None:
    """Report whether all tables of a batch become visible at one moment, for pg_subscription.

    A lake that does not answer is asked again behind the next batch.
    """
    with suppress(ReplicationError):
        link.report(atomic_publish=dest.publishes_together)


def report_stream(link: LauncherLink, stats: ReceiveStats) -> None:
    """Report to the launcher what pg_stat_subscription, spools and the metrics show."""
    DONE.received(stats.received_bytes)
    link.report(
        last_lsn=stats.last_lsn,
        last_send_time=stats.last_send_time,
        last_recv_time=stats.last_recv_time,
        reply_lsn=stats.reply_lsn,
        reply_time=stats.reply_time,
        flush_lsn=stats.flush_lsn,
        spool_bytes=stats.spool_bytes,
        paused_since=stats.paused_since,
        work={**DONE.sums(), LAKE: TOTALS.sums()},
    )
