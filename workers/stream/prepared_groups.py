"""The group files of prepared transactions, and the file of their ends.

A disk takes as long for a thousand bytes as for a million, and longer for a name than for either.
So the transactions that are prepared in one batch share a file, ``group_N``: for each transaction a
line of JSON, then the records of an ordinary transaction (Begin, the Relation messages that were in
force, the changes, Commit). A group has at most ``PREPARED_GROUP_BYTES``, or is one transaction.
The name comes last, so a file with this name is whole.

The file ``ended`` is replaced as a whole. It holds ``finished``, and by group and transaction how
the transaction ended: the end of the COMMIT PREPARED, or ``GONE``. An end stays in the file until
the group's removal is on the disk: without the ends a group would be prepared once more. ::

    group_7   {"xid": 755, …} B R I I C   {"xid": 757, …} B I C
    ended     {"finished": 900, "ended": {"7": {"755": 1000, "757": 0}}}

A group is removed when all of its transactions are gone. A transaction that stays prepared for
weeks keeps its group, so a group is small.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import IoError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from workers.proto.messages import PG_EPOCH_US

GONE: Final = 0
"""In place of a position: nothing is left to do for the transaction."""
NEW: Final = ".new"
"""The end of the name of a file that is not whole."""
_ENDED: Final = "ended"
_GROUP: Final = re.compile(r"group_([0-9]+)")
_LOUD: Final = (
    "The COMMIT PREPARED of a transaction that was kept there then stops the subscription, and its "
    "HINT says how to copy the transaction's tables again."
)
"""What comes of the removal: no row is lost without an error, and none is doubled."""

Ends = dict[int, dict[int, int]]
"""By group and xid: the end of the COMMIT PREPARED, or ``GONE``."""


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


@dataclass(slots=True)
class Kept:
    """A prepared transaction in a group: ``size`` bytes of records at ``start``.

    ``name`` is the subscriber's. ``committed_at`` is the end of the COMMIT PREPARED, if one came.
    """

    name: str
    xact: PreparedXact
    group: int
    start: int
    size: int
    committed_at: LSN | None = None


def group_path(folder: Path, number: int) -> Path:
    """The file of a group."""
    return folder / f"group_{number}"


def groups_in(folder: Path) -> list[int]:
    """The groups of a folder, the oldest first; none without the folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := _GROUP.fullmatch(name)))


class GroupWriter:
    """Writes a group under a name for the time being."""

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.size = 0
        self._path = group_path(folder, number)
        self._new = new_name(self._path)
        self._file = open(self._new, "wb", opener=_for_the_owner)  # noqa: SIM115 (``end`` closes)

    def add(
        self, name: str, xact: PreparedXact, size: int, records: Iterable[bytes | memoryview]
    ) -> Kept:
        """Add a transaction with ``size`` bytes of records."""
        line = _line(name, xact, size)
        self._file.write(line)
        for part in records:
            self._file.write(part)
        start = self.size + len(line)
        self.size = start + size
        return Kept(name, xact, self.number, start, size)

    def end(self) -> None:
        """Put the records onto the disk and give the file its name, which is durable with the
        folder."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._new.rename(self._path)


def read_group(folder: Path, number: int) -> Iterator[Kept]:
    """The transactions of a group; none if the group was removed meanwhile."""
    path = group_path(folder, number)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        while line := file.readline():
            kept = _kept(path, number, line, file.tell())
            if kept.start + kept.size > size:
                raise _damaged_group(path)
            file.seek(kept.size, os.SEEK_CUR)
            yield kept


def _line(name: str, xact: PreparedXact, size: int) -> bytes:
    values = {
        "name": name,
        "size": size,
        "gid": xact.gid,
        "xid": xact.xid,
        "prepare_lsn": int(xact.prepare_lsn),
        "end_lsn": int(xact.end_lsn),
        "prepare_time": xact.prepare_time,
        "changes": xact.changes,
        "relations": [each.hex() for each in xact.relations],
        "binary": xact.binary,
        "skipped": xact.skipped,
    }
    return json.dumps(values).encode() + b"\n"


def _kept(path: Path, number: int, line: bytes, start: int) -> Kept:
    try:
        values: dict[str, Any] = json.loads(line)
        name, size = values.pop("name"), int(values.pop("size"))
        values["relations"] = tuple(bytes.fromhex(each) for each in values["relations"])
        for lsn in ("prepare_lsn", "end_lsn"):
            values[lsn] = LSN(values[lsn])
        return Kept(name, PreparedXact(**values), number, start, size)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _damaged_group(path) from None


def _damaged_group(path: Path) -> IoError:
    return _damaged(path, f"Or remove the file. {_LOUD}")


def _damaged_ends(path: Path) -> IoError:
    """The ends may not go alone: the groups would bring back what has ended."""
    return _damaged(path, f'Or remove the whole directory "{path.parent}". {_LOUD}')


def _damaged(path: Path, remedy: str) -> IoError:
    return IoError(
        f'could not read prepared transactions in "{path}"',
        detail="The file is damaged.",
        hint=f"Restore the file. {remedy}",
    )


@dataclass(slots=True)
class Ended:
    """``finished`` is the end of the last COMMIT PREPARED that the lake has for good."""

    finished: LSN = InvalidXLogRecPtr
    ends: Ends = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Ended:
        """What the folder says; nothing has ended without the file."""
        path = folder / _ENDED
        try:
            values: Mapping[str, Any] = json.loads(path.read_bytes())
            found = {int(n): _by_xid(each) for n, each in values["ended"].items()}
            return cls(LSN(values["finished"]), found)
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _damaged_ends(path) from None

    def write(self, folder: Path) -> None:
        """Replace the file; durable with the folder."""
        path = folder / _ENDED
        values = {"finished": int(self.finished), "ended": self.ends}
        with open(new_name(path), "wb", opener=_for_the_owner) as file:
            file.write(json.dumps(values).encode())
            file.flush()
            os.fsync(file.fileno())
        new_name(path).rename(path)


def _by_xid(ends: Mapping[str, int]) -> dict[int, int]:
    return {int(xid): int(at) for xid, at in ends.items()}


def new_name(path: Path) -> Path:
    """The name of a file until the file is whole."""
    return path.with_name(f"{path.name}{NEW}")


def _for_the_owner(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
