"""The state of a lake in memory: tables with snapshots and refs, and closed sessions."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from catalog.errcodes import DuplicateTable
from workers.lake.effects import Outcome
from workers.lake.memory.rows import Row
from workers.lake.table import MAIN, LakeColumn, LakeIdent, Stamp


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """A snapshot of a table, with all rows."""

    snapshot_id: int
    parent_id: int | None
    rows: tuple[Row, ...]
    stamp: Stamp | None = None
    sources: Mapping[str, Stamp] | None = None
    foreign: bool = False
    committed: float = field(default_factory=time.time)


@dataclass(slots=True)
class MemoryTable:
    """A table: columns, refs (name → snapshot id) and snapshots.

    ``once_on_main`` are the snapshots that ``main`` was at. ``last_id`` is the highest field id of
    a column that is or was there.
    """

    columns: tuple[LakeColumn, ...]
    owner: str | None = None
    publisher_columns: str = ""
    last_id: int = 0
    refs: dict[str, int] = field(default_factory=dict)
    snapshots: dict[int, MemorySnapshot] = field(default_factory=dict)
    once_on_main: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Give the columns field ids, as Iceberg gives them."""
        self.columns = tuple(
            column if column.field_id else replace(column, field_id=n)
            for n, column in enumerate(self.columns, 1)
        )
        self.last_id = max([self.last_id, *(column.field_id for column in self.columns)])


class MemoryLake:
    """Tables, and sessions that were closed for good; a lake outlives a destination.

    ``outcomes`` are the effects of commits by the name of the operation.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tables: dict[LakeIdent, MemoryTable] = {}
        self.closed_sessions: set[tuple[str, str]] = set()
        self.outcomes: dict[str, Outcome] = {}
        self._ids = itertools.count(1)
        self._durable: dict[LakeIdent, MemoryTable] = {}

    def make_durable(self, idents: Iterable[LakeIdent]) -> None:
        """Keep the tables as they are now over a power cut."""
        with self.lock:
            for ident in idents:
                if ident in self.tables:
                    self._durable[ident] = copied(self.tables[ident])

    def rename(self, ident: LakeIdent, new: LakeIdent, table: MemoryTable) -> None:
        """Give a table another name, on the disk too: a catalog moves a name at once."""
        with self.lock:
            if new in self.tables:
                raise DuplicateTable(f'lake table "{new}" already exists')
            self.tables[new] = table
            del self.tables[ident]
            if ident in self._durable:
                self._durable[new] = self._durable.pop(ident)

    def power_cut(self) -> None:
        """Set every table back to the last ``make_durable``; a table without one is lost."""
        with self.lock:
            self.tables = {ident: copied(table) for ident, table in self._durable.items()}

    def commit(
        self,
        table: MemoryTable,
        ref: str,
        rows: Iterable[Row],
        stamp: Stamp | None = None,
        *others: Stamp,
        foreign: bool = False,
    ) -> MemorySnapshot:
        """Add a snapshot at the tip of a ref; ``foreign``: as another writer that adds rows.

        ``others`` are the positions of further sources of a shared table.
        """
        with self.lock:
            sources = None
            if stamp is not None and stamp.source:
                now = {each.source: each for each in (*others, stamp)}
                sources = {**sources_of(table, ref), **now}
            tip = table.refs.get(ref)
            snapshot = MemorySnapshot(next(self._ids), tip, tuple(rows), stamp, sources, foreign)
            table.snapshots[snapshot.snapshot_id] = snapshot
            table.refs[ref] = snapshot.snapshot_id
            if ref == MAIN:
                table.once_on_main.add(snapshot.snapshot_id)
            return snapshot

    def rows(self, ident: LakeIdent, ref: str = MAIN) -> list[Row]:
        """The rows a reader sees."""
        with self.lock:
            table = self.tables[ident]
            tip = table.refs.get(ref)
            return [] if tip is None else [dict(row) for row in table.snapshots[tip].rows]


def copied(table: MemoryTable) -> MemoryTable:
    """A copy of the table; later commits to one of the two leave the other unchanged."""
    return replace(table, refs=dict(table.refs), snapshots=dict(table.snapshots))


def ancestors_of(table: MemoryTable, ref: str) -> Iterator[MemorySnapshot]:
    """From the ref's tip backwards."""
    return line_of(table, table.refs.get(ref))


def line_of(table: MemoryTable, at: int | None) -> Iterator[MemorySnapshot]:
    """From a snapshot backwards."""
    while at is not None:
        snapshot = table.snapshots[at]
        yield snapshot
        at = snapshot.parent_id


def forget_left_behind(table: MemoryTable, copy_id: str | None = None) -> None:
    """Forget the snapshots that no ref leads to and that ``main`` never was at.

    Snapshots of the copy ``copy_id`` are forgotten too, also if ``main`` was at the copy.
    """
    tips = set(table.refs.values())
    for tip in table.once_on_main & table.snapshots.keys():
        stamp = next((each.stamp for each in line_of(table, tip) if each.stamp), None)
        if copy_id is None or stamp is None or stamp.epoch != copy_id or not stamp.lsn:
            tips.add(tip)
    kept = {each.snapshot_id for tip in tips for each in line_of(table, tip)}
    table.snapshots = {key: each for key, each in table.snapshots.items() if key in kept}


def sources_of(table: MemoryTable, ref: str) -> Mapping[str, Stamp]:
    """The newest list of a shared table's sources among the ref's ancestors."""
    return next((s.sources for s in ancestors_of(table, ref) if s.sources is not None), {})
