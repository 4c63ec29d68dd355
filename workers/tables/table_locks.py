"""Workers of a data directory take turns at a shared lake table."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from catalog.errcodes import LOCK_NOT_AVAILABLE, InternalError, ReplicationError
from config.limits import TABLE_LOCK_POLL_SECONDS, TABLE_LOCK_SECONDS
from workers.lake.table import LakeIdent

_DIRECTORY: Final = "locks"


class TableLocks:
    """Locks on the shared tables of a data directory; without a directory no locks are taken.

    A single thread takes and releases. All tables of a batch are taken together, in the order of
    the names: two workers never wait in a circle.
    """

    def __init__(self, data_dir: Path | None) -> None:
        self._directory = None if data_dir is None else data_dir / _DIRECTORY
        self._held: list[int] = []

    def take(self, idents: Iterable[LakeIdent]) -> None:
        """Wait until the worker holds the locks of all the tables."""
        wanted = sorted(set(idents))
        if self._directory is None or not wanted:
            return
        if self._held:
            raise InternalError("a worker waits for a lock that it holds")
        self._directory.mkdir(mode=0o700, exist_ok=True)
        try:
            for ident in wanted:
                # A hash: a table name may be too long for a file name, or hold a slash.
                name = hashlib.sha256(repr((ident.schema, ident.table)).encode()).hexdigest()
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._held.append(os.open(self._directory / name[:32], flags, 0o600))
                self._lock(self._held[-1], ident)
        except BaseException:
            self.release()
            raise

    def _lock(self, descriptor: int, ident: LakeIdent) -> None:
        """Wait for the lock; 55P03 after ``TABLE_LOCK_SECONDS``: the holder stands still."""
        until = time.monotonic() + TABLE_LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise _holder_stands_still(ident) from None
                time.sleep(TABLE_LOCK_POLL_SECONDS)

    def release(self) -> None:
        """Release all locks. The files stay for waiting workers."""
        while self._held:
            os.close(self._held.pop())

    @contextmanager
    def held(self, idents: Iterable[LakeIdent]) -> Iterator[None]:
        """Hold the locks of the tables inside the block."""
        self.take(idents)
        try:
            yield
        finally:
            self.release()


def _holder_stands_still(ident: LakeIdent) -> ReplicationError:
    return ReplicationError(
        f'no turn at shared lake table "{ident}" in {TABLE_LOCK_SECONDS:.0f} s',
        detail="Another worker of the data directory holds the turn and does not end the batch.",
        hint="pgsub status pg_stat_subscription shows the workers. End a worker that stands still; "
        "the launcher starts it again.",
        sqlstate=LOCK_NOT_AVAILABLE,
    )
