"""Which snapshots of a table nobody needs any more after branches of pgsub are dropped. Pure.

A failed attempt leaves commits on a branch, and the files of the commits. Iceberg keeps a snapshot
without a ref until an expiry by age, and orphan removal spares the files of every snapshot. So an
attempt that fails again and again would fill the disk.

Three kinds of snapshots stay, whatever is dropped:

- Snapshots that a ref leads to: ``main``, a branch, or a tag of a user.
- Snapshots that ``main`` was once at, and their ancestors. A user may have set ``main`` back, and
  may set ``main`` forward again. The copy that a sync worker takes back is the exception.
- Snapshots of other writers that no branch of pgsub led to.

Trace: ``main`` is at 3, branch b at 5, by way of 4. The user has set ``main`` back from 7 to 3.
Branch b is dropped: 4 and 5 go, 7 stays. A worker that is killed between the drop of the branch and
the expiry leaves 4 and 5 without a ref. The next drop of a branch finds 4 and 5 by their marks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from catalog.pg_lsn import InvalidXLogRecPtr
from workers.lake.metadata.snapshots import History, Snapshot
from workers.lake.table import Stamp


def left_behind(
    history: History,
    dropped: Collection[str],
    once_on_main: Iterable[int],
    copy_id: str | None = None,
) -> list[int]:
    """The snapshots that nobody needs without the ``dropped`` branches.

    ``history`` was read before the drop. ``copy_id`` names a copy that was taken back.
    """
    needed = history.led_to(history.refs.keys() - dropped)
    for tip in once_on_main:
        line = list(history.line(tip))
        if copy_id is None or not _is_of_copy(line, copy_id):
            needed |= {each.snapshot_id for each in line}
    of_dropped = history.led_to(dropped)
    return [
        each.snapshot_id
        for each in history.snapshots.values()
        if each.snapshot_id not in needed and (each.ours or each.snapshot_id in of_dropped)
    ]


def _is_of_copy(line: Iterable[Snapshot], copy_id: str) -> bool:
    """Is the newest position of the line a position of the copy?"""
    return _names(next((each.stamp for each in line if each.stamp is not None), None), copy_id)


def _names(stamp: Stamp | None, copy_id: str) -> bool:
    """Is it a position of the copy? The table's creation has the copy id too, and position 0/0."""
    return stamp is not None and stamp.epoch == copy_id and stamp.lsn != InvalidXLogRecPtr


def names_copy(history: History, copy_id: str) -> bool:
    """Has a snapshot the position of the copy, as the table's own or as a source's?"""
    stamps = (
        stamp
        for each in history.snapshots.values()
        for stamp in (each.stamp, *(each.sources or {}).values())
    )
    return any(_names(stamp, copy_id) for stamp in stamps)
