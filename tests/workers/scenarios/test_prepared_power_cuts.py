"""Prepared transactions and a power cut at each wait for the disk, with and without a death before.

Of a name that was given or taken away since the folder was last on the disk, the disk may have the
old state or the new, whatever it has of other names. Of a file that was not synced it has nothing.
"""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import pytest

from catalog.pg_lsn import LSN
from tests.workers.prepared import keep
from workers.stream.prepared_groups import NEW, PreparedXact
from workers.stream.prepared_xacts import PreparedXacts

A = PreparedXact("a", 7, LSN(99), LSN(100), 5, 1, (b"\0R" * 9,))
B, C, D = (replace(A, gid=name, xid=xid) for name, xid in (("b", 8), ("c", 9), ("d", 10)))
SKIPPED = replace(C, skipped=True)
"""In the place of C. The PREPARE comes again, so it was not confirmed, and C may be lost."""


class Killed(BaseException):
    """The end of a worker."""


def note(xacts: PreparedXacts, xact: PreparedXact, end_lsn: int) -> None:
    """The COMMIT PREPARED."""
    if xacts.get(xact.xid) is not None:
        xacts.commit(xact, LSN(end_lsn))
        xacts.make_durable()


def roll_back(xacts: PreparedXacts, xact: PreparedXact) -> None:
    if (found := xacts.get(xact.xid)) is not None:
        xacts.rollback(found)
    xacts.make_durable()


STEPS: list[tuple[Callable[[PreparedXacts], None], str, set[str]]] = [
    (lambda xacts: keep(xacts, A, B, records=(b"rows",)), "ab", set()),
    (partial(note, xact=A, end_lsn=200), "ab", set()),
    (lambda xacts: xacts.finish([A], LSN(200)), "b", set()),
    (lambda xacts: keep(xacts, C, records=(b"rows",)), "bc", set()),
    (partial(note, xact=C, end_lsn=300), "bc", set()),
    (partial(roll_back, xact=B), "c", set()),
    (lambda xacts: keep(xacts, SKIPPED, records=(b"rows",)), "c", {""}),
    (lambda xacts: xacts.sweep(LSN(0)), "c", set()),
    (lambda xacts: keep(xacts, D, records=(b"rows",)), "cd", set()),
    (partial(roll_back, xact=C), "d", set()),
    (lambda xacts: xacts.forget(), "", set()),
]
"""What is done, what is prepared once it is durable, and what else may be prepared meanwhile."""


@dataclass
class Disk:
    """The folder's names as they are on the disk; ``dies`` is the wait at which a worker dies."""

    data: Path
    dies: int
    may_be: set[str] = field(default_factory=lambda: {""})
    names: dict[str, bytes] = field(default_factory=dict)
    synced: set[tuple[int, int]] = field(default_factory=set)
    waits: int = 0

    @property
    def folder(self) -> Path:
        return self.data / "prepared" / "uuid"

    def fsync(self, handle: int) -> None:
        """The power fails before; a worker dies before; or all is well."""
        self.cut()
        self.waits += 1
        if self.waits == self.dies:
            raise Killed
        found = os.fstat(handle)
        if not stat.S_ISDIR(found.st_mode):
            self.synced.add((found.st_ino, found.st_size))
        elif os.path.samestat(found, os.stat(self.data / "prepared")):
            self.names = self.now() if self.folder.exists() else {}
        elif self.folder.exists() and os.path.samestat(found, os.stat(self.folder)):
            self.names = self.now()

    def now(self) -> dict[str, bytes]:
        files = [each for each in self.folder.glob("*") if not each.name.endswith(NEW)]
        return {
            each.name: each.read_bytes()
            if (each.stat().st_ino, each.stat().st_size) in self.synced
            else b""
            for each in files
        }

    def cut(self) -> None:
        """Whatever the disk has by now, the next worker finds what there may be."""
        now = self.now() if self.folder.exists() else {}
        every = sorted(now.keys() | self.names.keys())
        choices = [{self.names.get(name), now.get(name)} for name in every]
        for found in itertools.product(*choices):
            files = {name: data for name, data in zip(every, found, strict=True) if data}
            assert prepared_by(tuple(files.items())) in self.may_be, (self.may_be, files)


@cache
def prepared_by(files: tuple[tuple[str, bytes], ...]) -> str:
    """What is prepared for a worker that finds these files."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        folder = Path(name, "prepared", "uuid")
        folder.mkdir(parents=True)
        for each, data in files:
            (folder / each).write_bytes(data)
        xacts = PreparedXacts(Path(name), "uuid", 1)
        xacts.sweep(LSN(0))
        return "".join(sorted(xact.gid for _, xact in xacts.all()))


def played(disk: Disk, patch: pytest.MonkeyPatch) -> int:
    """All steps, with the next worker behind a death; how many waits for the disk there were."""
    disk.data.mkdir()
    patch.setattr(os, "fsync", disk.fsync)
    xacts, before = PreparedXacts(disk.data, "uuid", 1), ""
    for step, after, meanwhile in STEPS:
        disk.may_be = {before, after, *meanwhile}
        try:
            step(xacts)
        except Killed:
            xacts = PreparedXacts(disk.data, "uuid", 1)
            xacts.sweep(LSN(0))
            step(xacts)
        disk.may_be = {after}
        disk.cut()
        before = after
    return disk.waits


def test_nothing_is_lost_and_nothing_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = played(Disk(tmp_path / "without a death", 0), monkeypatch)
    assert waits > len(STEPS)
    for dies in range(1, waits + 1):
        played(Disk(tmp_path / str(dies), dies), monkeypatch)
