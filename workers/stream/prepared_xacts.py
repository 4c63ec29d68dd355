"""The durable files of prepared transactions: what PREPARE TRANSACTION promised, until its end.

A lake has no prepared transactions, and a publisher sends a transaction once, at PREPARE. So the
changes are kept here, in ``prepared/UUID`` of the data directory, until COMMIT PREPARED applies
them or ROLLBACK PREPARED removes them. ``UUID`` names the subscription in every catalog, also in
one that was rebuilt. A file has PostgreSQL's name for a subscriber's prepared transaction,
``pg_gid_<subid>_<xid>``; the number ``xid`` is the publisher's. A file holds a line of JSON and the
records of an ordinary transaction: Begin, the Relation messages that were in force, the changes,
Commit.

The steps of a transaction on the disk, each durable before the next step and before the publisher
hears of it::

    PREPARE            pg_gid_16384_755                 written, then renamed to this name
    COMMIT PREPARED    pg_gid_16384_755.committed_at_L  L: the end of the COMMIT PREPARED
                       finished = L                     behind the lake's commit
                       the file is removed
    ROLLBACK PREPARED  the file is removed

A worker may die between two steps. A PREPARE that comes again finds its file. A COMMIT PREPARED
that comes again finds the renamed file, and applies a transaction that all tables hold already; or
there is no file and ``finished`` is not below its end, and nothing is left to do. A renamed file
whose L the subscription's origin has reached was applied, and its COMMIT PREPARED never comes
again: ``sweep`` removes the file. A COMMIT PREPARED without a file, beyond ``finished`` and origin,
is an error: rows were lost.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import DISK_FULL, IO_ERROR, IoError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from workers.process import failpoints
from workers.proto.messages import PG_EPOCH_US

FIRST_WITH_TWO_PHASE: Final = 15
"""An older publisher sends no prepared transaction, and two-phase commit stays pending."""

FOLDER: Final = "prepared"
_NAME: Final = re.compile(r"(pg_gid_[0-9]+_[0-9]+)(?:\.committed_at_([0-9A-F]{16}))?")
_FINISHED: Final = "finished"
_NEW: Final = ".new"


def gid_of(subid: int, xid: int) -> str:
    """``TwoPhaseTransactionGid``: the subscriber's name of a prepared transaction."""
    return f"pg_gid_{subid}_{xid}"


@dataclass(frozen=True, slots=True)
class PreparedXact:
    """A prepared transaction. LSNs, time (µs since 2000), ``xid`` and ``gid`` are the publisher's.

    ``relations`` are the encoded Relation messages in force at the PREPARE, of the relations that
    the transaction changes. ``binary`` says whether values have the binary form. ``skipped``: ALTER
    SUBSCRIPTION … SKIP named the PREPARE, and no change is applied.
    """

    gid: str
    xid: int
    prepare_lsn: LSN
    end_lsn: LSN
    prepare_time: int
    changes: int = 0
    relations: tuple[bytes, ...] = ()
    binary: bool = False
    skipped: bool = False

    @property
    def prepared_at(self) -> int:
        """The time of the PREPARE, in microseconds since 1970."""
        return self.prepare_time + PG_EPOCH_US

    def is_same(self, other: PreparedXact) -> bool:
        """``LookupGXact``: is it the same PREPARE, and not one with a re-used number or name?"""
        mine, theirs = (
            (each.gid, each.xid, each.prepare_lsn, each.end_lsn, each.prepare_time)
            for each in (self, other)
        )
        return mine == theirs

    def to_line(self) -> bytes:
        """The first line of the file."""
        return (
            json.dumps(
                {
                    "gid": self.gid,
                    "xid": self.xid,
                    "prepare_lsn": int(self.prepare_lsn),
                    "end_lsn": int(self.end_lsn),
                    "prepare_time": self.prepare_time,
                    "changes": self.changes,
                    "relations": [each.hex() for each in self.relations],
                    "binary": self.binary,
                    "skipped": self.skipped,
                }
            ).encode()
            + b"\n"
        )

    @classmethod
    def from_line(cls, line: bytes) -> PreparedXact:
        """Read the first line of a file."""
        values: dict[str, Any] = json.loads(line)
        values["relations"] = tuple(bytes.fromhex(each) for each in values["relations"])
        for name in ("prepare_lsn", "end_lsn"):
            values[name] = LSN(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class _File:
    """A file: its path, the subscriber's name, and the end of the COMMIT PREPARED, if one came."""

    path: Path
    name: str
    xact: PreparedXact
    committed_at: LSN | None = None


class PreparedXacts:
    """The prepared transactions of a subscription, read from the folder once.

    The apply worker alone changes them. ``finish`` may run in a thread beside the other methods.
    """

    def __init__(self, data_dir: Path, subuuid: str, subid: int) -> None:
        self.folder = data_dir / FOLDER / subuuid
        self._subid = subid
        self._found: dict[int, _File] | None = None
        # A predecessor may have changed names that it did not bring onto the disk.
        self._changed = True
        self._unsynced: tuple[Path, ...] = (self.folder, self.folder.parent, data_dir)

    # -- reading ------------------------------------------------------------------------------

    def all(self) -> list[tuple[str, PreparedXact]]:
        """Every prepared transaction with the subscriber's name, the oldest first."""
        files = sorted(self._files.values(), key=lambda each: each.xact.prepare_lsn)
        return [(each.name, each.xact) for each in files]

    def get(self, xid: int) -> PreparedXact | None:
        """The prepared transaction with the publisher's number; None without one."""
        found = self._files.get(xid)
        return None if found is None else found.xact

    @property
    def finished(self) -> LSN:
        """The end of the last COMMIT PREPARED whose file was removed."""
        try:
            return LSN(int((self.folder / _FINISHED).read_text()))
        except FileNotFoundError:
            return InvalidXLogRecPtr

    @property
    def _files(self) -> dict[int, _File]:
        if self._found is None:
            self._found = {each.xact.xid: each for each in self._read_folder()}
        return self._found

    def _read_folder(self) -> Iterator[_File]:
        """Read the first lines; a file that its transaction's end removes meanwhile is left out."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            try:
                xact = _read(self.folder / name)
            except FileNotFoundError:
                continue
            committed_at = None if match[2] is None else LSN(int(match[2], 16))
            yield _File(self.folder / name, match[1], xact, committed_at)

    # -- the three ends -----------------------------------------------------------------------

    def prepare(self, xact: PreparedXact, records: Iterable[bytes | memoryview]) -> None:
        """Keep a transaction, if it is not kept yet. Durable after ``make_durable``.

        A file of the same number and another PREPARE is what an earlier server left, and goes.
        """
        known = self.get(xact.xid)
        if known is not None and known.is_same(xact):
            return
        name = gid_of(self._subid, xact.xid)
        path = self.folder / name
        with self._disk_errors(name):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._unlink(xact.xid)
            _write(path, chain([xact.to_line()], records))
        self._changed = True
        self._files[xact.xid] = _File(path, name, xact)

    def commit(
        self, xact: PreparedXact, end_lsn: LSN, begin: bytes, commit: bytes
    ) -> tuple[mmap.mmap, int]:
        """Note a COMMIT PREPARED; the mapped file, and where its records begin.

        ``begin`` and ``commit`` become the first and the last record. The note is durable after
        ``make_durable``.
        """
        file = self._files[xact.xid]
        at = self.folder / f"{file.name}.committed_at_{int(end_lsn):016X}"
        with self._disk_errors(file.name):
            if at != file.path:
                file.path.rename(at)
                self._changed = True
                self._files[xact.xid] = replace(file, path=at, committed_at=end_lsn)
            with at.open("r+b", buffering=0) as opened:
                start, end = len(opened.readline()), os.fstat(opened.fileno()).st_size
                os.pwrite(opened.fileno(), begin, start)
                os.pwrite(opened.fileno(), commit, end - len(commit))
                return mmap.mmap(opened.fileno(), end, prot=mmap.PROT_READ), start

    def finish(self, xacts: Iterable[PreparedXact], end_lsn: LSN) -> None:
        """Remove committed transactions. The lake has all of them, up to ``end_lsn``."""
        failpoints.reach("apply.prepared_committed")
        self._store_finished(LSN(max(end_lsn, self.finished)))
        failpoints.reach("apply.finished_stored")
        for xact in xacts:
            self._unlink(xact.xid)
        with self._disk_errors(FOLDER):
            _sync_folder(self.folder)
        failpoints.reach("apply.prepared_removed")

    def rollback(self, xact: PreparedXact) -> None:
        """Remove a transaction that was rolled back. Durable after ``make_durable``."""
        self._unlink(xact.xid)
        self._changed = True

    def make_durable(self) -> None:
        """Put the names in the folder onto the disk; the first time also the folder's own name."""
        if self._changed and self.folder.is_dir():
            with self._disk_errors(FOLDER):
                for folder in self._unsynced:
                    _sync_folder(folder)
            self._unsynced = (self.folder,)
        self._changed = False

    # -- what a dead worker, or another server, left ------------------------------------------

    def sweep(self, origin: LSN) -> None:
        """Remove what a dead worker left: halves of files, and transactions that the lake has."""
        for path in self.folder.glob(f"*{_NEW}"):
            path.unlink(missing_ok=True)
        reached = max(origin, self.finished)
        files = list(self._files.values())
        done = [(at, each.xact) for each in files if (at := each.committed_at) and at <= reached]
        if done:
            self.finish([xact for _, xact in done], max(at for at, _ in done))

    def forget_behind(self, lsn: LSN) -> None:
        """Forget what a server that is lost prepared and committed behind ``lsn``."""
        if not self.folder.is_dir():
            return
        for file in list(self._files.values()):
            if file.xact.end_lsn > lsn:
                self._unlink(file.xact.xid)
        self._store_finished(LSN(min(self.finished, lsn)))

    def forget(self) -> None:
        """Forget all: the subscription is dropped, or its slot is made anew.

        A new slot begins after the end of every transaction that was prepared before.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self._found = None
        self._unsynced = (self.folder, self.folder.parent, self.folder.parent.parent)

    # -- the disk -----------------------------------------------------------------------------

    def _unlink(self, xid: int) -> None:
        file = self._files.pop(xid, None)
        if file is not None:
            file.path.unlink(missing_ok=True)

    def _store_finished(self, lsn: LSN) -> None:
        with self._disk_errors(_FINISHED):
            _write(self.folder / _FINISHED, [str(int(lsn)).encode()])
            _sync_folder(self.folder)

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


def _read(path: Path) -> PreparedXact:
    with path.open("rb") as file:
        line = file.readline()
    try:
        return PreparedXact.from_line(line)
    except (ValueError, TypeError, KeyError):
        raise IoError(
            f'could not read prepared transaction "{path.name}"',
            detail=f'The first line of "{path}" is damaged.',
            hint="Restore the file, or remove the file and copy the tables again.",
        ) from None


def _write(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file whole or not at all; its name is durable with the folder."""
    new = path.with_name(f"{path.name}{_NEW}")
    with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
