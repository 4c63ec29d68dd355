"""Workers of a data directory take turns at a shared lake table."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from catalog.errcodes import InternalError
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
                fcntl.flock(self._held[-1], fcntl.LOCK_EX)
        except BaseException:
            self.release()
            raise

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
