"""A publisher that sends transactions while they run, in the order and the words of pgoutput.

Savepoints nest, ids are given at the first change, a roll-back sends the subtransactions that were
released inside first, and a relation is announced once in each transaction that is sent in parts,
once for all others, and again after a roll-back or a change of the publication.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from catalog.pg_lsn import LSN
from tests.workers.columnar.records import TABLE, insert
from workers.proto import encode
from workers.proto.messages import (
    Begin,
    Commit,
    Message,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
)

Row = tuple[str, str]
"""The version of the table that the row was sent with, and a value."""


@dataclass
class _Level:
    """A transaction or an open savepoint: what it holds by now, and what was released inside."""

    xid: int | None = None
    rows: list[Row] = field(default_factory=list)
    released: list[int] = field(default_factory=list)


@dataclass
class Running:
    """A transaction; without ``sent`` nothing of it was sent."""

    levels: list[_Level] = field(default_factory=lambda: [_Level()])
    waiting: list[tuple[int, Row]] = field(default_factory=list)
    """Changes that were not sent, with the id of the subtransaction."""
    sent: set[int] = field(default_factory=set)

    @property
    def xid(self) -> int | None:
        return self.levels[0].xid


class StreamingPublisher:
    """Collects what it sends in ``sent``, and what a subscriber must see in ``committed``."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.committed: list[tuple[int, list[Row]]] = []
        self._xids = itertools.count(1000)
        self._lsns = itertools.count(1000, 10)
        self._values = itertools.count()
        self._version = 0
        self._announced: set[int] = set()  # 0 stands for ordinary transactions

    # -- what sessions do -----------------------------------------------------------------------

    def insert(self, running: Running) -> None:
        for level in running.levels:
            level.xid = level.xid or next(self._xids)
        value = str(next(self._values))
        innermost = running.levels[-1]
        assert innermost.xid is not None
        innermost.rows.append(("", value))
        running.waiting.append((innermost.xid, ("", value)))

    def savepoint(self, running: Running) -> None:
        running.levels.append(_Level())

    def release(self, running: Running) -> None:
        if len(running.levels) > 1:
            inner, outer = running.levels.pop(), running.levels[-1]
            outer.rows += inner.rows
            outer.released += inner.released + ([inner.xid] if inner.xid else [])

    def roll_back(self, running: Running) -> None:
        """ROLLBACK TO the innermost savepoint."""
        if len(running.levels) > 1:
            level = running.levels.pop()
            if level.xid:
                self._abort(running, [*sorted(level.released), level.xid])

    def _abort(self, running: Running, xids: list[int]) -> None:
        running.waiting = [each for each in running.waiting if each[0] not in xids]
        top = running.xid
        for xid in xids:
            if top is not None and xid in running.sent:
                self._send(StreamAbort(top, xid))
                self._announced.discard(top)

    def alter_publication(self) -> None:
        """Other columns of the table are published."""
        self._version += 1
        self._announced.clear()

    # -- what the walsender does ----------------------------------------------------------------

    def stream(self, running: Running) -> None:
        """Send what is waiting, as a part."""
        if running.xid is None or not running.waiting:
            return
        self._send(StreamStart(running.xid, running.xid not in running.sent))
        running.sent.add(running.xid)
        for xid, row in running.waiting:
            running.sent.add(xid)
            self._announce(running.xid, xid)
            self._send(self._row(running, row), xid)
        running.waiting = []
        self._send(StreamStop())

    def _announce(self, transaction: int, xid: int | None) -> None:
        if transaction not in self._announced:
            self._announced.add(transaction)
            version = RelationColumn(False, f"v{self._version}", 25, -1)
            columns = (version, RelationColumn(True, "value", 25, -1))
            self._send(Relation(TABLE, "public", "t", "d", columns), xid)

    def _row(self, running: Running, row: Row) -> Message:
        """A row knows the version that it is sent with."""
        now = f"v{self._version}", row[1]
        for level in running.levels:
            level.rows = [now if each == row else each for each in level.rows]
        return insert(*now)

    def commit(self, running: Running) -> None:
        while len(running.levels) > 1:
            self.release(running)
        if running.xid is None:
            return
        commit, end = LSN(next(self._lsns)), LSN(next(self._lsns))
        if running.sent:
            self.stream(running)
            self._send(StreamCommit(running.xid, commit, end, 7))
            if running.xid in self._announced:
                self._announced.discard(running.xid)
                self._announced.add(0)
        else:
            self._send(Begin(commit, 7, running.xid))
            for _, row in running.waiting:
                self._announce(0, None)
                self._send(self._row(running, row))
            self._send(Commit(commit, end, 7))
        self.committed.append((int(end), running.levels[0].rows))

    def abort(self, running: Running) -> None:
        """ROLLBACK of the whole transaction."""
        while len(running.levels) > 1:
            self.roll_back(running)
        top = running.levels[0]
        if top.xid:
            self._abort(running, [*sorted(top.released), top.xid])

    def _send(self, message: Message, xid: int | None = None) -> None:
        data = encode.message(message) if xid is None else encode.streamed(message, xid)
        self.sent.append(data)
