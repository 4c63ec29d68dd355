"""Workers of one data directory take turns at a shared lake table."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from workers.lake.table import LakeIdent

_DIRECTORY: Final = "locks"


class TableLocks:
    """Whose turn it is with the shared tables of a data directory; None: there is nobody else.

    One thread takes and releases. Held tables are taken all at once and in one order, so nobody
    waits for somebody who waits for him.
    """

    def __init__(self, data_dir: Path | None) -> None:
        self._directory = None if data_dir is None else data_dir / _DIRECTORY
        self._held: list[int] = []

    def take(self, idents: Iterable[LakeIdent]) -> None:
        """Wait until all of these tables are ours."""
        wanted = sorted(set(idents))
        if self._directory is None or not wanted:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        try:
            for ident in wanted:
                # By number: a name may be longer than a file's may be, or hold a slash.
                name = hashlib.sha256(repr((ident.schema, ident.table)).encode()).hexdigest()
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._held.append(os.open(self._directory / name[:32], flags, 0o600))
                fcntl.flock(self._held[-1], fcntl.LOCK_EX)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let the others go on; the files stay, for there may be waiters on them."""
        while self._held:
            os.close(self._held.pop())

    @contextmanager
    def held(self, idents: Iterable[LakeIdent]) -> Iterator[None]:
        """As long as the block lasts."""
        self.take(idents)
        try:
            yield
        finally:
            self.release()
