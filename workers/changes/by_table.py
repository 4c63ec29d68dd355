"""From received bytes to runs of changes per table: filter, then cut, then fold. No I/O.

The order is the rule (``docs/reliability.md``): per batch and per *target*, in commit order, first
drop whole transactions that the gate or the table's own position excludes, then cut at every
TRUNCATE and at every Relation message that differs from the one in force, and only then fold each
run. Folding first would let a replayed DELETE take part in a fold, or fold rows of two layouts.

Trace: one batch holds ``R I I | R' U | T I`` of one table. The runs are ``I I`` (layout R),
``U`` (layout R'), and, because a TRUNCATE discards everything before it, only ``T I`` is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from catalog.errcodes import InternalError
from workers.changes.relation_map import LogicalRepRelMap, RelName, in_force, name_of
from workers.columnar.column_reader import Changes
from workers.columnar.frame import Frame, frame
from workers.proto.decode import message
from workers.proto.messages import Relation, Truncate
from workers.publisher.replica_identity import Coverage
from workers.stream.batch import Batch

Bools = NDArray[np.bool_]
Positions = NDArray[np.int32]
"""Which of a frame's changes."""

Targets = Mapping[RelName, Collection[int]]
"""What a batch changes, by name, and the ids of the relations that had the name just then."""

Gate = Callable[[Targets], Mapping[RelName, Bools]]
"""For each target that takes something, which of the batch's transactions."""


@dataclass(frozen=True, slots=True)
class Run:
    """Changes of one target under one layout, in commit order; ``truncate`` empties it first.

    ``relation`` is None only for a bare TRUNCATE, which needs no layout. ``coverage``: what its
    key flags are of the identity.
    """

    relation: Relation | None
    changes: Changes | None
    truncate: bool = False
    coverage: Coverage = Coverage.UNKNOWN


@dataclass(frozen=True, slots=True)
class _Piece:
    """Positions (indices into the frame's changes) of one relation between two cuts."""

    relation: Relation
    positions: Positions


@dataclass(frozen=True, slots=True)
class _Emptied:
    """A TRUNCATE of relation ``relid``, before change ``position`` in transaction ``txn``."""

    position: int
    txn: int
    relid: int


def runs_by_target(batch: Batch, relmap: LogicalRepRelMap, gate: Gate) -> dict[RelName, list[Run]]:
    """What the batch does to each target that takes something of it.

    ``relmap`` moves forward by the batch's Relation messages, also those of tables whose changes
    are dropped. Raises 08P01 for anything that is not the protocol.
    """
    give_back = batch.give_pages_back if batch.mapping is not None else None
    framed = frame(batch.buf, batch.start, batch.end, give_back)
    if not np.array_equal(framed.txns.final_lsn, batch.final_lsn):
        raise InternalError("the transactions of a batch are not those that were received")
    before = relmap.copy()
    cuts, emptied = _control(batch, framed, relmap)
    pieces = _pieces(framed, before, cuts)
    targets = {name: {event.relid for event in events} for name, events in emptied.items()}
    for piece in pieces:
        targets.setdefault(name_of(piece.relation), set()).add(piece.relation.relid)
    runs: dict[RelName, list[Run]] = {}
    for target, takes in gate(dict(sorted(targets.items()))).items():
        own = [piece for piece in pieces if name_of(piece.relation) == target]
        truncates = [event for event in emptied.get(target, []) if takes[event.txn]]
        kept = _runs(framed, own, truncates, takes)
        if kept:
            runs[target] = kept
    return runs


def _control(
    batch: Batch, framed: Frame, relmap: LogicalRepRelMap
) -> tuple[dict[int, list[tuple[int, Relation]]], dict[RelName, list[_Emptied]]]:
    """Decode R and T (Y, M and O mean nothing to apply); move the relation map forward."""
    cuts: dict[int, list[tuple[int, Relation]]] = {}
    emptied: dict[RelName, list[_Emptied]] = {}
    for control in framed.control:
        raw = batch.buf[control.offset : control.offset + control.length].tobytes()
        decoded = message(raw)
        if isinstance(decoded, Relation):
            if relmap.update(decoded):
                cuts.setdefault(decoded.relid, []).append((control.before_change, decoded))
        elif isinstance(decoded, Truncate):
            for relid in decoded.relids:
                target = name_of(relmap.open(relid))
                event = _Emptied(control.before_change, control.txn, relid)
                emptied.setdefault(target, []).append(event)
    return cuts, emptied


def _pieces(
    framed: Frame, before: LogicalRepRelMap, cuts: dict[int, list[tuple[int, Relation]]]
) -> list[_Piece]:
    """Group the changes by relation and split each group where its Relation changed."""
    if not len(framed.relid):
        return []
    pieces: list[_Piece] = []
    for relid, positions in _by_relation(framed.relid):
        relation = before.get(relid)
        start = 0
        for cut_at, changed in cuts.get(relid, []):
            end = int(np.searchsorted(positions, np.int32(cut_at), side="left"))
            if end > start:
                pieces.append(_Piece(in_force(relation, relid), positions[start:end]))
            start, relation = end, changed
        if start < len(positions):
            pieces.append(_Piece(in_force(relation, relid), positions[start:]))
    return pieces


def _by_relation(relid: NDArray[np.uint32]) -> list[tuple[int, Positions]]:
    """Each relation's changes, in commit order.

    Of one large transaction everything here counts: ten million changes are mostly of one table.
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
    truncates: list[_Emptied],
    takes: Bools,
) -> list[Run]:
    """Filter, cut at the last TRUNCATE, and put the pieces of one target in commit order."""
    last_truncate = max((event.position for event in truncates), default=-1)
    kept: list[_Piece] = []
    for piece in pieces:
        positions = piece.positions
        if not takes.all():
            positions = positions[takes[framed.txn[positions]]]
        if last_truncate >= 0:
            positions = positions[positions >= last_truncate]
        if len(positions):
            kept.append(_Piece(piece.relation, positions))
    runs = [
        Run(piece.relation, framed.changes(_pick(framed, piece.positions)))
        for piece in _in_commit_order(kept)
    ]
    if truncates:
        runs.insert(0, Run(None, None, truncate=True))
    return runs


def _in_commit_order(pieces: list[_Piece]) -> Iterable[_Piece]:
    """Pieces of several relations (partitions, a renamed table) that interleave are split up."""
    pieces = sorted(pieces, key=lambda piece: int(piece.positions[0]))
    if all(a.positions[-1] < b.positions[0] for a, b in pairwise(pieces)):
        return pieces
    which = np.concatenate([np.full(len(p.positions), n) for n, p in enumerate(pieces)])
    positions = np.concatenate([p.positions for p in pieces])
    order = np.argsort(positions, kind="stable")
    which, positions = which[order], positions[order]
    edges = np.flatnonzero(np.diff(which)) + 1
    return [
        _Piece(pieces[int(w[0])].relation, p)
        for w, p in zip(np.split(which, edges), np.split(positions, edges), strict=True)
    ]


def _pick(framed: Frame, positions: Positions) -> Positions | slice:
    """All changes as a slice, which copies nothing."""
    return slice(None) if len(positions) == len(framed) else positions
