"""Expire snapshots, and remember what was dropped."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from sqlglot import exp

from workers.lake.connect.session import LakeSession
from workers.lake.sql.statements import call
from workers.lake.sql.table_metadata import read_history
from workers.lake.table import MAIN, LakeIdent

Drop = Callable[[LakeIdent, float, int, str], None]


def expire_snapshots(
    session: LakeSession,
    ident: LakeIdent,
    *,
    retain: int,
    age: float = 0.0,
    clock: Callable[[], float] = time.time,
    drop: Drop | None = None,
) -> int:
    """Drop all but the last ``retain`` snapshots of main and of each branch.

    Whatever is younger than ``age`` seconds stays: by our clock, where the commits bear the lake's.
    So do the newest stamped ancestor and all that has come since, by the lake's clock, because the
    last are counted from what main is when the lake gets to it: a fence or somebody's compaction
    that came meanwhile would be the last, and the position gone. A branch of ours, made from main
    later, keeps all its commits by that. ``drop`` does it in place of Spark, which has a job for
    it. Returns the number of snapshots that are gone.
    """
    before = read_history(session, ident)
    to_carrier = 0
    for to_carrier, carrier in enumerate(before.ancestors(MAIN), 1):  # noqa: B007 - both count
        if carrier.stamp is not None:
            break
    else:
        return 0  # no position anywhere: leave everything for whoever looks into it
    older_than = carrier.committed / 1000
    if age:
        older_than = min(older_than, clock() - age)
    keep, what = max(retain, to_carrier, 1), f'expiring snapshots of lake table "{ident}"'
    if drop is not None:
        drop(ident, older_than, keep, what)
    else:
        session.set_properties({})
        session.command(
            call(
                "expire_snapshots",
                ident,
                older_than=exp.Var(this=_moment(older_than)),
                retain_last=exp.Literal.number(keep),
                max_concurrent_deletes=exp.Literal.number(2),
            ),
            what,
        )
    # Batches go on meanwhile, and theirs are not among those that went.
    return len(before.snapshots.keys() - read_history(session, ident).snapshots.keys())


def _moment(unix_time: float) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(unix_time, UTC).isoformat(' ', 'microseconds')}'"
