"""The durable prepared transactions: what PREPARE TRANSACTION promised, until its end.

A lake has no prepared transactions, and a publisher sends a transaction once, at PREPARE. So the
changes are kept here, in ``prepared/UUID`` of the data directory, until COMMIT PREPARED applies
them or ROLLBACK PREPARED removes them. ``UUID`` names the subscription in every catalog, also in
one that was rebuilt. A transaction has PostgreSQL's name for a subscriber's prepared transaction,
``pg_gid_<subid>_<xid>``; the number ``xid`` is the publisher's.

The transactions of a batch are one group (``workers.stream.prepared_groups``), and the steps are
steps of all transactions of a batch. Each is durable before the next step and before the publisher
hears of it::

    PREPARE            the group file is written, then named
    COMMIT PREPARED    ``ended`` says 755: L              L: the end of the COMMIT PREPARED
                       ``ended`` says finished: L, 755: 0 behind the lake's commit
                       a group without a transaction is removed
    ROLLBACK PREPARED  ``ended`` says 757: 0

A worker may die between two steps. A PREPARE that comes again finds itself. A COMMIT PREPARED that
comes again finds its transaction, and applies a transaction that all tables hold already; or
there is none and ``finished`` is not below its end, and nothing is left to do. A transaction
whose L the subscription's origin has reached was applied, and its COMMIT PREPARED never comes
again: ``sweep`` ends the transaction. An L beyond the origin was never confirmed, and ``sweep``
forgets that L: the COMMIT PREPARED comes again, at another position if a standby took over in
between. A COMMIT PREPARED without a transaction, beyond ``finished`` and origin, is an error: rows
were lost.

A user may roll a transaction back that the publisher forgot: an empty file of the transaction's
name with ``.rolled_back`` behind, for the next worker.
"""

from __future__ import annotations

import mmap
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from catalog.errcodes import DISK_FULL, IO_ERROR, IoError
from catalog.pg_lsn import LSN
from config.monitor_limits import PREPARED_GROUP_BYTES
from workers.process import failpoints
from workers.stream.prepared_groups import (
    GONE,
    NEW,
    Ended,
    GroupWriter,
    Kept,
    PreparedXact,
    group_path,
    groups_in,
    read_group,
)

FIRST_WITH_TWO_PHASE: Final = 15
"""An older publisher sends no prepared transaction, and two-phase commit stays pending."""

FOLDER: Final = "prepared"
_ROLLED_BACK: Final = ".rolled_back"


def gid_of(subid: int, xid: int) -> str:
    """``TwoPhaseTransactionGid``: the subscriber's name of a prepared transaction."""
    return f"pg_gid_{subid}_{xid}"


class _Folder:
    """What the folder holds: transactions by xid, by group those not gone, and the ends."""

    def __init__(self, folder: Path) -> None:
        self._relations: dict[bytes, bytes] = {}
        self.ended = Ended.read(folder)
        self.kept: dict[int, Kept] = {}
        self.members: dict[int, set[int]] = {}
        numbers = groups_in(folder)
        self.next_group = 1 + max([*numbers, *self.ended.ends], default=0)
        self.ended.ends = {n: each for n, each in self.ended.ends.items() if n in numbers}
        for number in numbers:
            self.members[number] = set()
            for kept in read_group(folder, number):
                at = self.ended.ends.get(number, {}).get(kept.xact.xid)
                if at != GONE:
                    kept.committed_at = None if at is None else LSN(at)
                    self.add(kept)

    def add(self, kept: Kept) -> None:
        """Take a transaction in; the newest of a number counts."""
        self.drop(kept.xact.xid)
        # A hundred thousand transactions may wait, and the tables are few.
        relations = (self._relations.setdefault(each, each) for each in kept.xact.relations)
        kept.xact = replace(kept.xact, relations=tuple(relations))
        self.kept[kept.xact.xid] = kept
        self.members.setdefault(kept.group, set()).add(kept.xact.xid)

    def note(self, kept: Kept, at: int) -> None:
        """Note the end of a transaction."""
        self.ended.ends.setdefault(kept.group, {})[kept.xact.xid] = at

    def forget_commits_behind(self, lsn: LSN) -> bool:
        """Forget each COMMIT PREPARED that ends behind ``lsn``. True if there was one."""
        behind = [each for each in self.kept.values() if (each.committed_at or 0) > lsn]
        for kept in behind:
            kept.committed_at = None
            del self.ended.ends[kept.group][kept.xact.xid]
        return bool(behind)

    def drop(self, xid: int) -> None:
        """Note that nothing is left to do for the transaction of this number, if there is one."""
        kept = self.kept.pop(xid, None)
        if kept is not None:
            self.members[kept.group].discard(xid)
            self.note(kept, GONE)


class PreparedXacts:
    """The prepared transactions of a subscription, read from the folder once.

    The apply worker alone changes them. ``finish`` may run in a thread beside the other methods.
    """

    def __init__(self, data_dir: Path, subuuid: str, subid: int) -> None:
        self.folder = data_dir / FOLDER / subuuid
        self._subid = subid
        self._found: _Folder | None = None
        self._changing = threading.RLock()
        self._writer: GroupWriter | None = None
        self._mapped: tuple[int, mmap.mmap] | None = None
        # A predecessor may have changed names that it did not bring onto the disk.
        self._changed = True
        self._noted = False
        self._unsynced: tuple[Path, ...] = (self.folder, self.folder.parent, data_dir)

    # -- reading ------------------------------------------------------------------------------

    def all(self) -> list[tuple[str, PreparedXact]]:
        """Every prepared transaction with the subscriber's name, the oldest first."""
        found = sorted(self._here.kept.values(), key=lambda each: each.xact.prepare_lsn)
        return [(each.name, each.xact) for each in found]

    def get(self, xid: int) -> PreparedXact | None:
        """The prepared transaction with the publisher's number; None without one."""
        found = self._here.kept.get(xid)
        return None if found is None else found.xact

    @property
    def finished(self) -> LSN:
        """The end of the last COMMIT PREPARED whose transaction is gone."""
        return self._here.ended.finished

    @property
    def _here(self) -> _Folder:
        if self._found is None:
            self._found = _Folder(self.folder)
        return self._found

    # -- the three ends -----------------------------------------------------------------------

    def prepare(self, xact: PreparedXact, size: int, records: Iterable[bytes | memoryview]) -> None:
        """Keep a transaction with ``size`` bytes of records, if it is not kept yet.

        Durable after ``make_durable``. A transaction of the same number and another PREPARE is what
        an earlier server left, and goes. So does the transaction that a SKIP names by now: the
        PREPARE was not confirmed, and came again.
        """
        known = self.get(xact.xid)
        if known is not None and known.is_same(xact) and (known.skipped or not xact.skipped):
            return
        name = gid_of(self._subid, xact.xid)
        with self._changing, self._disk_errors(name):
            self._here.drop(xact.xid)
            self._here.add(self._writer_for(xact, size).add(name, xact, size, records))
        self._changed = True
        self._noted |= known is not None

    def _writer_for(self, xact: PreparedXact, size: int) -> GroupWriter:
        """The group that takes the transaction; a group has an end for each number."""
        writer, here = self._writer, self._here
        if writer is not None:
            is_taken = xact.xid in here.ended.ends.get(writer.number, {})
            if is_taken or writer.size + size > PREPARED_GROUP_BYTES:
                self._end_group(writer)
                writer = None
        if writer is None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            writer = self._writer = GroupWriter(self.folder, here.next_group)
            here.next_group += 1
        return writer

    def _end_group(self, writer: GroupWriter) -> None:
        writer.end()
        self._writer = None

    def commit(self, xact: PreparedXact, end_lsn: LSN) -> None:
        """Note a COMMIT PREPARED. Durable after ``make_durable``."""
        with self._changing:
            kept = self._here.kept[xact.xid]
            kept.committed_at = end_lsn
            self._here.note(kept, int(end_lsn))
            self._changed = self._noted = True

    def size_of(self, xact: PreparedXact) -> int:
        """The bytes of the transaction's records."""
        return self._here.kept[xact.xid].size

    def changes_of(self, xact: PreparedXact, before: int, behind: int) -> memoryview:
        """The records without so many bytes at both ends, of a transaction that shares a group."""
        kept, mapped = self._here.kept[xact.xid], self._mapped
        if mapped is None or mapped[0] != kept.group:
            with self._disk_errors(kept.name), group_path(self.folder, kept.group).open("rb") as it:
                mapped = kept.group, mmap.mmap(it.fileno(), 0, prot=mmap.PROT_READ)
            self._mapped = mapped
        return memoryview(mapped[1])[kept.start + before : kept.start + kept.size - behind]

    def rewritten(self, xact: PreparedXact, begin: bytes, commit: bytes) -> tuple[mmap.mmap, int]:
        """The mapped file of a transaction of any size, and where its records begin.

        ``begin`` and ``commit`` become the first and the last record.
        """
        kept = self._here.kept[xact.xid]
        path = group_path(self.folder, kept.group)
        with self._disk_errors(kept.name), path.open("r+b", buffering=0) as opened:
            end = kept.start + kept.size
            os.pwrite(opened.fileno(), begin, kept.start)
            os.pwrite(opened.fileno(), commit, end - len(commit))
            return mmap.mmap(opened.fileno(), end, prot=mmap.PROT_READ), kept.start

    def finish(self, xacts: Iterable[PreparedXact], end_lsn: LSN) -> None:
        """End committed transactions. The lake has all of them, up to ``end_lsn``."""
        failpoints.reach("apply.prepared_committed")
        with self._changing, self._disk_errors(FOLDER):
            here = self._here
            here.ended.finished = LSN(max(end_lsn, here.ended.finished))
            for xact in xacts:
                if self.get(xact.xid) == xact:
                    here.drop(xact.xid)
            here.ended.write(self.folder)
            _sync_folder(self.folder)
            failpoints.reach("apply.finished_stored")
            self._remove_groups()
        failpoints.reach("apply.prepared_removed")

    def rollback(self, xact: PreparedXact) -> None:
        """End a transaction that was rolled back. Durable after ``make_durable``."""
        with self._changing:
            self._here.drop(xact.xid)
            self._changed = self._noted = True

    def make_durable(self) -> None:
        """Put everything onto the disk; the first time also the folder's own name."""
        if not self._changed or not self.folder.is_dir():
            return
        with self._changing, self._disk_errors(FOLDER):
            if self._writer is not None:
                self._end_group(self._writer)
                failpoints.reach("apply.group_named")
            if self._noted:
                self._here.ended.write(self.folder)
            for folder in self._unsynced:
                _sync_folder(folder)
            self._unsynced = (self.folder,)
            self._changed = self._noted = False
            self._remove_groups()

    # -- what a dead worker, or another server, left ------------------------------------------

    def sweep(self, origin: LSN) -> None:
        """Remove what a dead worker left: halves of files, and transactions that the lake has.

        Rolls back what a user wants rolled back. A COMMIT PREPARED that the lake does not have is
        forgotten: no position behind was confirmed, so the publisher sends one again. If a standby
        took over that did not have the COMMIT PREPARED, the new one may be far behind, and the
        origin reaches the position of the old one before.
        """
        self._settle()
        for path in self.folder.glob(f"*{NEW}"):
            path.unlink(missing_ok=True)
        marks = list(self.folder.glob(f"*{_ROLLED_BACK}"))
        for name, xact in self.all() if marks else []:
            if self.folder / f"{name}{_ROLLED_BACK}" in marks:
                self.rollback(xact)
        reached = max(origin, self.finished)
        kept = list(self._here.kept.values())
        done = [(at, each.xact) for each in kept if (at := each.committed_at) and at <= reached]
        if done:
            self.finish([xact for _, xact in done], max(at for at, _ in done))
        with self._changing:
            if self._here.forget_commits_behind(reached):
                self._changed = self._noted = True
        self.make_durable()
        for path in marks:
            path.unlink(missing_ok=True)

    def forget_behind(self, lsn: LSN, lake_lsn: LSN) -> None:
        """Forget what a server that is lost prepared and committed behind ``lsn``.

        A transaction that was prepared before, and committed behind, is prepared again. But if the
        lake, which has changes up to ``lake_lsn``, may have the transaction, nothing is kept: a
        second COMMIT PREPARED is then an error, and doubles no row.
        """
        self._settle()
        if not self.folder.is_dir():
            return
        with self._changing, self._disk_errors(FOLDER):
            here = self._here
            for kept in list(here.kept.values()):
                is_in_lake = lsn < (kept.committed_at or 0) <= lake_lsn
                if kept.xact.end_lsn > lsn or is_in_lake:
                    here.drop(kept.xact.xid)
            here.forget_commits_behind(lsn)
            here.ended.finished = LSN(min(here.ended.finished, lsn))
            here.ended.write(self.folder)
            _sync_folder(self.folder)
            self._remove_groups()

    def forget(self) -> None:
        """Forget all: the subscription is dropped, or its slot is made anew.

        A new slot begins after the end of every transaction that was prepared before. The removal
        is on the disk before the caller goes on. After a power cut the files of a dropped
        subscription would stay for ever; and behind a new slot, perhaps another server's, the old
        transactions would be prepared, and an old ``finished`` would pass a lost COMMIT PREPARED.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        with self._disk_errors(FOLDER), suppress(FileNotFoundError):
            _sync_folder(self.folder.parent)
        self._found = None
        self._unsynced = (self.folder, self.folder.parent, self.folder.parent.parent)

    # -- the disk -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Put the names of the folder onto the disk as a dead worker left them.

        The ends of a group without a file are not read. So the group's removal has to be on the
        disk before a file of ends without them is: a power cut would bring the group back.
        """
        if self.folder.is_dir():
            with self._disk_errors(FOLDER):
                _sync_folder(self.folder)

    def _remove_groups(self) -> None:
        """Remove the groups that hold nothing more; the ends that say so are on the disk.

        The ends are forgotten once the removal is on the disk. A group that is being written has no
        name yet, and stays: its file would come behind the ends.
        """
        here = self._here
        written = None if self._writer is None else self._writer.number
        empty = [n for n, xids in here.members.items() if not xids and n != written]
        for number in empty:
            group_path(self.folder, number).unlink(missing_ok=True)
        if empty:
            self._mapped = None
            _sync_folder(self.folder)
        for number in empty:
            del here.members[number]
            here.ended.ends.pop(number, None)

    @contextmanager
    def _disk_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise IoError(
                f'could not write prepared transaction "{name}" in "{self.folder}"',
                detail=f"{error.strerror}.",
                hint="Free disk space there, or make the directory writable; nothing is lost "
                "meanwhile.",
                sqlstate=DISK_FULL if error.errno == 28 else IO_ERROR,
            ) from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
