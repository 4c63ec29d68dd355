"""How far the apply worker has come: origin, feedback, statistics."""

from __future__ import annotations

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from workers.process import failpoints
from workers.process.launcher_link import LauncherLink
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.receiver import ReceiveStats


def _remember_flush(store: CatalogStore, subid: int, lsn: LSN, watch: StandbyWatch) -> None:
    watch.check()
    failpoints.reach("apply.before_feedback")
    with store.transaction():
        sub = store.subscription(subid)
        if sub is not None and lsn > sub.max_flush_lsn:
            store.update_subscription(subid, max_flush_lsn=lsn)
    failpoints.reach("apply.flush_remembered")


def _feedback_sent(link: LauncherLink, stats: ReceiveStats) -> None:
    failpoints.reach("apply.feedback_sent")
    report_stream(link, stats)


def _origin_position(store: CatalogStore, sub: Subscription) -> LSN:
    """How far the subscription's batches are; 0/0 before the first."""
    name = origin_name(sub.oid)
    origin = store.origin_by_name(name)
    if origin is None:
        store.origin_create(name)
        return InvalidXLogRecPtr
    return origin.remote_lsn


def report_stream(link: LauncherLink, stats: ReceiveStats) -> None:
    """Tell the launcher what pg_stat_subscription and spools show."""
    link.report(
        last_lsn=stats.last_lsn,
        last_send_time=stats.last_send_time,
        last_recv_time=stats.last_recv_time,
        reply_lsn=stats.reply_lsn,
        reply_time=stats.reply_time,
        flush_lsn=stats.flush_lsn,
        spool_bytes=stats.spool_bytes,
        paused_since=stats.paused_since,
    )
