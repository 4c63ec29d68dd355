"""Sort a batch's changes by table, in three steps. Pure.

1. ``frame_batch`` finds the changes in the bytes, and the tables (*targets*) of the changes.
2. For each target and each transaction the caller decides whether the changes are taken (the gate).
3. ``FramedBatch.runs`` drops the changes of transactions that are not taken. Then it cuts the
   remaining changes into *runs*: at every TRUNCATE, and at every Relation message that differs
   from the message in force.

Each run is folded later (``workers.changes.segments``). The order is a rule of
``docs/reliability.md``: first drop, then cut, then fold. A fold before the first step would let a
replayed DELETE take part. A fold before the cut would mix rows of two layouts.

A large transaction is framed in *slices* (``frame_in_slices``). The three steps are taken for each
slice, and the slices follow each other in commit order.

Trace: one batch holds ``R I I | R' U | T I`` of one table. The runs are ``I I`` (layout R),
``U`` (layout R'), and ``T I``. A TRUNCATE discards all earlier changes, so only ``T I`` is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from catalog.errcodes import InternalError
from catalog.pg_lsn import LSN
from workers.changes.captured_shape import CapturedShape
from workers.changes.relation_map import LogicalRepRelMap, RelName, in_force, name_of
from workers.columnar.column_reader import Changes
from workers.columnar.frame import Frame, frame
from workers.columnar.frame_slices import StandIn, frame_slices, stand_in_records
from workers.columnar.tuples import DELETE, INSERT, UPDATE
from workers.proto.decode import message
from workers.proto.message_rows import DDL_PREFIX
from workers.proto.messages import LogicalMessage, Relation, Truncate
from workers.publisher.replica_identity import Coverage
from workers.stream.batch import Batch, Bytes

_INSIDE: Final = np.array([1, 0, 0, 0, 0, 0, 0], np.int64)
"""The entry of a transaction without positions (``OpenTransaction``)."""
_OPERATIONS: Final = {"insert": INSERT, "update": UPDATE, "delete": DELETE}

Bools = NDArray[np.bool_]
Positions = NDArray[np.int32]
"""Indices of changes in a frame."""

Targets = Mapping[RelName, Collection[int]]
"""The tables that a batch changes: table name → the ids of the relations that had the name."""

Takes = Mapping[RelName, Bools]
"""Target → an array with True for each transaction whose changes the target takes.

A target that takes no transaction is absent."""


@dataclass(frozen=True, slots=True)
class Run:
    """Changes of a target under one layout, in commit order.

    ``truncate`` says whether the target is emptied before the changes. ``truncate_xid`` is the
    publisher's transaction that did so last.

    ``shape`` is what a trigger told of the table before the relation was announced.
    ``relation`` is None only for a bare TRUNCATE, which needs no layout. ``coverage`` says whether
    the key columns of the relation are the whole replica identity.
    """

    relation: Relation | None
    changes: Changes | None
    truncate: bool = False
    coverage: Coverage = Coverage.UNKNOWN
    truncate_xid: int = 0
    shape: CapturedShape | None = None


def work_of(targets: Iterable[Iterable[Run]]) -> dict[str, object]:
    """Count the row changes of several targets, as the sums of ``work_done``.

    TRUNCATEs count as rows. An unchanged large value counts for each change that leaves it out.
    """
    rows = {"insert": 0, "update": 0, "delete": 0, "truncate": 0}
    unsent = 0
    for run in chain.from_iterable(targets):
        rows["truncate"] += run.truncate
        if run.changes is not None:
            unsent += int(run.changes.unsent.sum())
            for operation, code in _OPERATIONS.items():
                rows[operation] += int(np.count_nonzero(run.changes.kind == code))
    found = {operation: number for operation, number in rows.items() if number}
    return {"rows": found, "unchanged_toast_values": unsent}


@dataclass(frozen=True, slots=True)
class _Piece:
    """The changes of a relation between two cuts."""

    relation: Relation
    positions: Positions
    shape: CapturedShape | None = None


@dataclass(frozen=True, slots=True)
class _Truncate:
    """A TRUNCATE of relation ``relid``, before change ``position`` in transaction ``txn``."""

    position: int
    txn: int
    relid: int


_Cuts = dict[int, list[tuple[int, Relation, CapturedShape | None]]]


@dataclass(frozen=True, slots=True)
class FramedBatch:
    """A batch after step 1: the changes are found and cut, and not yet filtered."""

    _frame: Frame
    _pieces: list[_Piece]
    _truncates: dict[RelName, list[_Truncate]]
    shapes: tuple[CapturedShape, ...] = ()
    _names: Mapping[int, RelName] = field(default_factory=dict)
    """Relation id → the target of the relation's changes, whatever their name is."""

    def under_names(self, names: Mapping[int, RelName]) -> FramedBatch:
        """The batch, with a target by relation id."""
        return replace(self, _names=names)

    def _target(self, name: RelName, relid: int) -> RelName:
        return self._names.get(relid, name)

    @property
    def targets(self) -> Targets:
        """The tables that the batch changes, ordered by name."""
        found: dict[RelName, set[int]] = {}
        for name, events in self._truncates.items():
            for event in events:
                found.setdefault(self._target(name, event.relid), set()).add(event.relid)
        for piece in self._pieces:
            relid = piece.relation.relid
            found.setdefault(self._target(name_of(piece.relation), relid), set()).add(relid)
        return dict(sorted(found.items()))

    @property
    def end(self) -> int:
        """The offset in the batch's bytes at which the next slice begins."""
        return self._frame.end

    def stand_in(self) -> Bytes | None:
        """The records of a stand-in for the slice; None if an update has an old row."""
        return stand_in_records(self._frame)

    def runs_of_all(self, target: RelName) -> list[Run]:
        """The runs of a target, in all transactions."""
        taken = np.ones(len(self._frame.txns), np.bool_)
        return self.runs({target: taken}).get(target, [])

    def runs(self, takes: Takes) -> dict[RelName, list[Run]]:
        """Return the runs by target; a target without any remaining change is absent."""
        found: dict[RelName, list[Run]] = {}
        for target, taken in takes.items():
            pieces = [
                piece
                for piece in self._pieces
                if self._target(name_of(piece.relation), piece.relation.relid) == target
            ]
            truncates = [event for event in self._truncates_of(target) if taken[event.txn]]
            if runs := _runs(self._frame, pieces, truncates, taken):
                found[target] = runs
        return found

    def _truncates_of(self, target: RelName) -> list[_Truncate]:
        """The TRUNCATEs of a target, in commit order."""
        if not self._names:
            return self._truncates.get(target, [])
        found = [
            event
            for name, events in self._truncates.items()
            for event in events
            if self._target(name, event.relid) == target
        ]
        return sorted(found, key=lambda event: event.position)


def frame_batch(batch: Batch, relmap: LogicalRepRelMap) -> FramedBatch:
    """Find the batch's changes, and cut the changes of a relation where the relation differs.

    ``relmap`` takes up all Relation messages of the batch, also of tables that the gate drops
    later. Raises 08P01 if the bytes break the protocol.
    """
    return _cut(batch, frame(batch.buf, batch.start, batch.end, _give_back(batch)), relmap)


def frame_in_slices(
    batch: Batch,
    relmap: LogicalRepRelMap,
    most_bytes: int,
    stops: Sequence[int] = (),
    stand_ins: Mapping[int, StandIn] | None = None,
) -> Iterator[FramedBatch]:
    """``frame_batch`` slice by slice, for a batch of a single large transaction.

    A slice takes at most ``most_bytes`` of memory. ``relmap`` is at the end of the slice. A slice
    ends at each of ``stops``. A slice that begins at a key of ``stand_ins`` is not read.
    """
    give_back = _give_back(batch)
    start, end = batch.start, batch.end
    framing = frame_slices(
        batch.buf, start, end, most_bytes, give_back, stops=stops, stand_ins=stand_ins
    )
    for framed in framing:
        yield _cut(batch, framed, relmap)
        del framed


def frame_inside(buf: Bytes, relmap: LogicalRepRelMap, most_bytes: int) -> FramedBatch:
    """Frame the first slice of records from the inside of a running transaction.

    The last record may be received in part, and is left out. ``relmap`` is at the end of the slice.
    """
    framed = next(frame_slices(buf, 0, len(buf), most_bytes, None, _INSIDE))
    commits = np.array([[framed.end, _INSIDE[0], _INSIDE[0], 0, len(framed)]], np.int64)
    return _cut(Batch(buf, 0, framed.end, commits), framed, relmap)


def _give_back(batch: Batch) -> Callable[[int, int], None] | None:
    return batch.give_pages_back if batch.mapping is not None else None


def _cut(batch: Batch, framed: Frame, relmap: LogicalRepRelMap) -> FramedBatch:
    """Move ``relmap`` forward, and cut where it changes."""
    if not np.array_equal(framed.txns.final_lsn, batch.final_lsn):
        raise InternalError("the transactions of a batch are not those that were received")
    before = relmap.copy()
    cuts, truncates, shapes = _control(batch, framed, relmap)
    return FramedBatch(framed, _pieces(framed, before, cuts), truncates, tuple(shapes))


def _control(
    batch: Batch, framed: Frame, relmap: LogicalRepRelMap
) -> tuple[_Cuts, dict[RelName, list[_Truncate]], list[CapturedShape]]:
    """Decode Relation and Truncate messages, and move the relation map forward.

    Of other messages those of pgsub's event triggers have a meaning, and no others.
    """
    cuts: _Cuts = {}
    shapes: list[CapturedShape] = []
    truncates: dict[RelName, list[_Truncate]] = {}
    for control in framed.control:
        raw = framed.buf[control.offset : control.offset + control.length].tobytes()
        decoded = message(raw)
        if isinstance(decoded, Relation):
            changed = relmap.update(decoded)
            shape = relmap.told.announce(decoded.relid, changed=changed)
            if changed or shape is not None:
                cut = (control.before_change, decoded, shape)
                cuts.setdefault(decoded.relid, []).append(cut)
        elif isinstance(decoded, Truncate):
            for relid in decoded.relids:
                target = name_of(relmap.open(relid))
                event = _Truncate(control.before_change, control.txn, relid)
                truncates.setdefault(target, []).append(event)
        elif isinstance(decoded, LogicalMessage) and decoded.prefix == DDL_PREFIX:
            if control.txn < 0:  # triggers emit messages of a transaction alone
                continue
            xid, end = int(framed.txns.xid[control.txn]), LSN(int(batch.end_lsn[control.txn]))
            if (told := relmap.told.hear(decoded.content, xid, end)) is not None:
                shapes.append(told)
    return cuts, truncates, shapes


def _pieces(framed: Frame, before: LogicalRepRelMap, cuts: _Cuts) -> list[_Piece]:
    """Group the changes by relation, and split each group where a new Relation message came."""
    if not len(framed.relid):
        return []
    pieces: list[_Piece] = []
    for relid, positions in _by_relation(framed.relid):
        relation, shape = before.get(relid), before.told.in_force.get(relid)
        start = 0
        for cut_at, changed, told in cuts.get(relid, []):
            end = int(np.searchsorted(positions, np.int32(cut_at), side="left"))
            if end > start:
                pieces.append(_Piece(in_force(relation, relid), positions[start:end], shape))
            start, relation, shape = end, changed, told
        if start < len(positions):
            pieces.append(_Piece(in_force(relation, relid), positions[start:], shape))
    return pieces


def _by_relation(relid: NDArray[np.uint32]) -> list[tuple[int, Positions]]:
    """Group the changes by relation, in commit order.

    The first line is for speed: the ten million changes of a large transaction are mostly changes
    of a single table.
    """
    if (relid == relid[0]).all():
        return [(int(relid[0]), np.arange(len(relid), dtype=np.int32))]
    order = np.argsort(relid, kind="stable").astype(np.int32)
    ordered = relid[order]
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    groups = np.split(order, edges)
    return [(int(relid[positions[0]]), positions) for positions in groups]


def _runs(
    framed: Frame,
    pieces: list[_Piece],
    truncates: list[_Truncate],
    takes: Bools,
) -> list[Run]:
    """Make the runs of a target: filter, cut at the last TRUNCATE, restore commit order."""
    last_truncate = max((event.position for event in truncates), default=-1)
    kept: list[_Piece] = []
    for piece in pieces:
        positions = piece.positions
        if not takes.all():
            positions = positions[takes[framed.txn[positions]]]
        if last_truncate >= 0:
            positions = positions[positions >= last_truncate]
        if len(positions):
            kept.append(_Piece(piece.relation, positions, piece.shape))
    runs = [
        Run(piece.relation, framed.changes(_pick(framed, piece.positions)), shape=piece.shape)
        for piece in _in_commit_order(kept)
    ]
    if truncates:
        xid = int(framed.txns.xid[truncates[-1].txn])
        runs.insert(0, Run(None, None, truncate=True, truncate_xid=xid))
    return runs


def _in_commit_order(pieces: list[_Piece]) -> Iterable[_Piece]:
    """Put the pieces of a target in commit order.

    A target may have several relations: partitions, or a renamed table. Where the changes of two
    relations alternate, the pieces are split.
    """
    pieces = sorted(pieces, key=lambda piece: int(piece.positions[0]))
    if all(a.positions[-1] < b.positions[0] for a, b in pairwise(pieces)):
        return pieces
    which = np.concatenate([np.full(len(p.positions), n) for n, p in enumerate(pieces)])
    positions = np.concatenate([p.positions for p in pieces])
    order = np.argsort(positions, kind="stable")
    which, positions = which[order], positions[order]
    edges = np.flatnonzero(np.diff(which)) + 1
    return [
        _Piece(pieces[int(w[0])].relation, p, pieces[int(w[0])].shape)
        for w, p in zip(np.split(which, edges), np.split(positions, edges), strict=True)
    ]


def _pick(framed: Frame, positions: Positions) -> Positions | slice:
    """Return a slice if all changes are picked, because a slice is no copy."""
    return slice(None) if len(positions) == len(framed) else positions
