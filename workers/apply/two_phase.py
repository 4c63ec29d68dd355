"""Two-phase commit: what a prepared transaction means for the lake.

PostgreSQL's subscriber prepares what the publisher prepares. A lake prepares nothing, so PREPARE
keeps the received changes in a durable file (``workers.stream.prepared_xacts``), and COMMIT
PREPARED applies the changes like any transaction, at the positions of the COMMIT PREPARED. No
reader sees a change before. Gate, SKIP, ``on_error`` and the tables' positions therefore mean what
they always mean: a table that is copied between PREPARE and COMMIT PREPARED has the rows in the
copy, or takes the rows from this stream, never both. PostgreSQL has to gate at PREPARE.

A batch with two-phase units becomes *steps*, in two passes:

1. Every unit is read. The prepared transactions of the batch are written to one file, their ends
   to another, and then both are made durable: the batch costs as many waits for the disk as one
   transaction would. Only then may a position of the batch be stored or confirmed.
2. The steps are applied. A step is a batch of ordinary transactions, where a COMMIT PREPARED has
   become the transaction that was prepared. Behind the last step, once the lake holds everything
   durably, the committed transactions are removed. A step's bytes are in memory only while the step
   is applied.

A PREPARE directly before its COMMIT PREPARED needs no file: no position lies between the two.

The changes of a prepared transaction are read with the Relation messages of the PREPARE. If one of
them is another by now, the transaction is a step alone, and the map of relations is set back
behind the step: later changes are of the newer relations. So it is with a transaction whose values
have another form (binary, text) than the stream.

Trace of one batch, with 755 prepared in an earlier one; 757 is prepared and committed here::

    units   1-3   b756 … P756   4   K755   b757 … P757   K757   5   r756
    files   group: + 756;  ended: 755 at the end of K755, 756 gone;  all durable
    steps   [1-3 4 755 757 5]
    then    ended: finished = end of K755, 755 gone;  both groups are removed

Two-phase commit is pending (``p``) until every table is ready. Then the worker ends, and the next
worker starts the stream with ``two_phase`` and stores ``e``: from then on the slot remembers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import cast

import numpy as np

from catalog.errcodes import ReplicationError, UndefinedObject
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import Subscription, TwoPhaseState
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.limits import SEGMENT_SCRATCH_BYTES
from config.monitor_limits import PREPARED_GROUP_BYTES
from workers.apply import progress
from workers.apply.apply_batch import Applier
from workers.changes.received_units import (
    Prepared,
    Unit,
    begin_record,
    commit_record,
    has_two_phase,
    joined,
    record_of,
    transaction,
    units,
    walk,
    walk_prepared,
)
from workers.changes.relation_map import LogicalRepRelMap, name_of
from workers.process import failpoints
from workers.process.worker_exit import WorkerExit
from workers.proto import encode
from workers.proto.decode import message
from workers.proto.messages import CommitPrepared, Relation, RollbackPrepared
from workers.publisher.binary_columns import BinaryForms, RestartAsText, UnknownForm
from workers.stream.batch import Batch
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import FIRST_WITH_TWO_PHASE, PreparedXacts, gid_of

log = logging.getLogger(__name__)


def asks_two_phase(sub: Subscription, rels: Iterable[SubscriptionRel], server_version: int) -> bool:
    """Does the stream start with ``two_phase``? Pending, and ``AllTablesyncsReady``."""
    states = [rel.srsubstate for rel in rels if not rel.holds_messages]
    return (
        sub.subtwophasestate is TwoPhaseState.PENDING
        and server_version >= FIRST_WITH_TWO_PHASE
        and bool(states)
        and all(state is SubRelState.READY for state in states)
    )


def enable_two_phase(store: CatalogStore, sub: Subscription) -> Subscription:
    """``UpdateTwoPhaseState``: the slot has the property, and the catalog says so."""
    failpoints.reach("apply.two_phase_asked")
    with store.transaction():
        store.update_subscription(sub.oid, subtwophasestate=TwoPhaseState.ENABLED)
    failpoints.reach("apply.two_phase_stored")
    log.info("action=two_phase subid=%d two-phase commit is enabled", sub.oid)
    return replace(sub, subtwophasestate=TwoPhaseState.ENABLED)


@dataclass(frozen=True, slots=True)
class _Committed:
    """A prepared transaction at its COMMIT PREPARED, in its file until the step is applied.

    ``begin`` and ``end`` become its first and last record, ``row`` its row of ``Batch.commits``.
    """

    xacts: PreparedXacts
    xact: PreparedXact
    begin: bytes
    end: bytes
    row: list[int]

    def read(self) -> Batch:
        """The transaction as a batch."""
        if (size := self.xacts.size_of(self.xact)) <= PREPARED_GROUP_BYTES:
            changes = self.xacts.changes_of(self.xact, len(self.begin), len(self.end))
            return transaction([self.begin, changes, self.end], self.row)
        mapping, start = self.xacts.rewritten(self.xact, self.begin, self.end)
        whole = np.frombuffer(mapping, np.uint8)
        commits = np.array([[start + size, *self.row]], np.int64)
        return Batch(whole, start, start + size, commits, mapping)


@dataclass(slots=True)
class _Step:
    """Transactions to apply. ``alone``: the prepared transaction that the step is, if it is alone.

    ``skip`` says that no change of it is applied. ``announced`` are Relation messages of a prepared
    transaction behind the step.
    """

    parts: Sequence[Batch | _Committed]
    alone: PreparedXact | None = None
    skip: bool = False
    announced: Sequence[Relation] = ()


class TwoPhase:
    """Applies the batches of an apply worker, prepared transactions included.

    ``forms`` reads values in binary form, also where the stream is text. A step of several
    transactions holds at most ``max_bytes``. ``server_version`` is the publisher's.
    """

    def __init__(
        self,
        applier: Applier,
        xacts: PreparedXacts,
        forms: Callable[[], BinaryForms],
        *,
        server_version: int = FIRST_WITH_TWO_PHASE,
    ) -> None:
        self._applier = applier
        self._xacts = xacts
        self._forms = forms
        self._server_version = server_version

    def restart_when_ready(self) -> None:
        """``WorkerExit`` once every table is ready, so that two-phase commit is enabled."""
        sub, rels = self._applier.sub, self._applier.rels.values()
        if asks_two_phase(sub, rels, self._server_version):
            raise WorkerExit(
                f'logical replication apply worker for subscription "{sub.subname}" will restart '
                "so that two_phase can be enabled"
            )

    def apply_batch(self, batch: Batch, max_bytes: int) -> int:
        """Apply all units of a batch; raise the error of the first unit that fails.

        Returns the number of changes of the COMMIT PREPAREDs, which the batch does not count.
        """
        if not has_two_phase(batch):
            self._applier.apply_batch(batch)
            return 0
        plan = _Plan(self._applier, self._xacts, batch, max_bytes)
        plan.read()
        for step in plan.steps:
            self._take(step)
        if plan.committed:
            finish = partial(self._xacts.finish, plan.committed, plan.committed_to)
            self._applier.writer.when_stored(finish)
        if plan.error is not None:
            raise plan.error
        return sum(xact.changes for xact in plan.committed)

    def _take(self, step: _Step) -> None:
        applier = self._applier
        parts = [each if isinstance(each, Batch) else each.read() for each in step.parts]
        if parts and step.alone is None:
            applier.apply_batch(joined(parts))
        elif step.alone is not None:
            self._take_alone(joined(parts), step.alone, step.skip)
        for relation in step.announced:
            applier.relmap.update(relation)

    def _take_alone(self, batch: Batch, xact: PreparedXact, skip: bool) -> None:
        """Apply a prepared transaction with the relations and the form of its PREPARE."""
        applier = self._applier
        relmap, binary, to_skip = applier.relmap.copy(), applier.binary, applier.sub.subskiplsn
        if not xact.binary:
            applier.binary = None
        elif binary is None:
            applier.binary = self._forms()
        if skip:
            applier.sub = replace(applier.sub, subskiplsn=LSN(int(batch.final_lsn[0])))
        applier.apply_batch(batch)
        applier.relmap, applier.binary = relmap, binary
        if skip:
            applier.sub = replace(applier.sub, subskiplsn=to_skip)
            if to_skip == xact.prepare_lsn:
                forget_skip(applier, to_skip)


class _Plan:
    """Reads a batch into steps, and makes its prepared transactions durable."""

    def __init__(
        self, applier: Applier, xacts: PreparedXacts, batch: Batch, max_bytes: int
    ) -> None:
        self.steps: list[_Step] = []
        self.committed: list[PreparedXact] = []
        self.committed_to = InvalidXLogRecPtr
        self.error: ReplicationError | None = None
        self._applier = applier
        self._xacts = xacts
        self._batch = batch
        self._max_bytes = max_bytes
        self._relmap: LogicalRepRelMap = applier.relmap.copy()
        self._parts: list[Batch | _Committed] = []
        self._held = 0
        self._skipped: list[LSN] = []
        self._encoded: dict[Relation, bytes] = {}
        self._decoded: dict[bytes, Relation] = {}
        self._behind: dict[str, None] = {}  # the failpoints behind the durable files, in order

    def read(self) -> None:
        """Read all units, up to the first that cannot be applied."""
        found: list[Unit | None] = [*units(self._batch), None]
        at_once: CommitPrepared | None = None
        for unit, following in pairwise(found):
            if unit is at_once or self.error is not None:
                continue
            if isinstance(unit, Batch):
                walk(unit, self._relmap, self._applier.work_mem)
                self._add(unit, unit.end - unit.start)
            elif isinstance(unit, Prepared):
                at_once = self._at_once(unit, following)
                if at_once is None:
                    self._prepare(unit)
                else:
                    self._commit_at_once(unit, at_once)
            elif isinstance(unit, CommitPrepared):
                self._commit(unit)
            elif isinstance(unit, RollbackPrepared):
                self._rollback(unit)
        self._cut()
        self._xacts.make_durable()
        for lsn in self._skipped:
            progress.log_skip_start(self._applier.sub, lsn)
            forget_skip(self._applier, lsn)
            progress.log_skip_end(self._applier.sub, lsn)
        for name in self._behind:
            failpoints.reach(name)

    def _at_once(self, unit: Prepared, following: Unit | None) -> CommitPrepared | None:
        """The COMMIT PREPARED that follows directly, if the PREPARE needs no file."""
        if not isinstance(following, CommitPrepared) or following.xid != unit.begin.xid:
            return None
        is_skipped = self._applier.sub.subskiplsn == unit.begin.prepare_lsn
        return None if is_skipped or self._xacts.get(following.xid) else following

    def _commit_at_once(self, unit: Prepared, commit: CommitPrepared) -> None:
        walk_prepared(self._batch, unit, self._relmap, self._applier.work_mem)
        begin, end, row = _ends(commit, unit.changes)
        whole = transaction([begin, unit.buf[unit.start : unit.end], end], row)
        self._add(whole, whole.end - whole.start)

    def _prepare(self, unit: Prepared) -> None:
        """``apply_handle_prepare``: keep the changes, with the relations in force."""
        used = walk_prepared(self._batch, unit, self._relmap, self._applier.work_mem)
        relations = [self._relmap.open(relid) for relid in sorted(used.relids)]
        self._check_forms(relations)
        begin, binary = unit.begin, self._applier.binary is not None
        skipped = self._applier.sub.subskiplsn == begin.prepare_lsn
        failpoints.reach("apply.before_prepare")
        xact = PreparedXact(
            begin.gid,
            begin.xid,
            begin.prepare_lsn,
            begin.end_lsn,
            begin.prepare_time,
            unit.changes,
            tuple(map(self._encode, relations)),
            binary,
            skipped,
        )
        first = begin_record(begin.prepare_lsn, begin.prepare_time, begin.xid)
        last = commit_record(begin.prepare_lsn, begin.end_lsn, begin.prepare_time)
        before = [record_of(self._encode(relation)) for relation in used.before.values()]
        size = sum(map(len, [first, *before, last])) + unit.end - unit.start
        changes = _windows(self._batch, unit.start, unit.end)
        self._xacts.prepare(xact, size, chain([first, *before], changes, [last]))
        if skipped:
            self._skipped.append(begin.prepare_lsn)
        self._behind["apply.prepared"] = None
        if used.announced:
            self._cut(announced=used.announced)

    def _encode(self, relation: Relation) -> bytes:
        if relation not in self._encoded:
            self._encoded[relation] = encode.message(relation)
        return self._encoded[relation]

    def _check_forms(self, relations: Iterable[Relation]) -> None:
        """``RestartAsText`` while the publisher still has the transaction, and can send text."""
        binary = self._applier.binary
        if binary is None or binary.binary_required:
            return
        for relation in relations:
            if name_of(relation) in self._applier.rels:
                try:
                    binary.of(relation)
                except UnknownForm as error:
                    raise RestartAsText(error.primary) from error

    def _commit(self, commit: CommitPrepared) -> None:
        """``apply_handle_commit_prepared``: the prepared transaction, at the commit's positions."""
        sub = self._applier.sub
        xact = self._xacts.get(commit.xid)
        begin, end, row = _ends(commit, 0 if xact is None else xact.changes)
        if xact is None or xact.gid != commit.gid or xact.end_lsn > commit.end_lsn:
            if sub.subskiplsn == commit.commit_lsn:
                self._add(transaction([begin, end], row), len(begin) + len(end))
            elif commit.end_lsn > max(self._xacts.finished, self._origin()):
                self.error = self._missing(commit)
            return
        failpoints.reach("apply.before_commit_prepared")
        self._xacts.commit(xact, commit.end_lsn)
        part = _Committed(self._xacts, xact, begin, end, row)
        self.committed.append(xact)
        self.committed_to = commit.end_lsn
        self._behind["apply.commit_prepared_noted"] = None
        skip = xact.skipped or sub.subskiplsn == xact.prepare_lsn
        same_form = xact.binary == (self._applier.binary is not None)
        if skip or not same_form or not self._knows(xact):
            self._cut()
            self.steps.append(_Step([part], xact, skip))
        else:
            self._add(part, self._xacts.size_of(xact))

    def _knows(self, xact: PreparedXact) -> bool:
        """Are the relations of the PREPARE still in force? Takes up relations not known yet."""
        relations = list(map(self._decode, xact.relations))
        if any(self._relmap.get(each.relid) not in (None, each) for each in relations):
            return False
        for relation in relations:
            self._relmap.update(relation)
        return True

    def _decode(self, raw: bytes) -> Relation:
        if raw not in self._decoded:
            self._decoded[raw] = cast("Relation", message(raw))
        return self._decoded[raw]

    def _origin(self) -> LSN:
        return progress.stored_origin(self._applier.store, self._applier.sub)

    def _missing(self, commit: CommitPrepared) -> ReplicationError:
        name = gid_of(self._applier.sub.oid, commit.xid)
        return UndefinedObject(
            f'prepared transaction with identifier "{name}" does not exist',
            detail=f"Transaction {commit.xid} was committed at {commit.commit_lsn}. The changes of "
            f'the PREPARE were kept in "{self._xacts.folder}".',
            hint="Bring the file back. Or copy the transaction's tables again: ALTER SUBSCRIPTION "
            f"... SKIP (lsn = '{commit.commit_lsn}'), then pgsub refresh --recopy.",
        )

    def _rollback(self, rollback: RollbackPrepared) -> None:
        """``apply_handle_rollback_prepared``: forget the transaction, if it was kept.

        A PREPARE from before two-phase commit was enabled was never sent.
        """
        xact = self._xacts.get(rollback.xid)
        of_prepare = (rollback.gid, rollback.prepare_end_lsn, rollback.prepare_time)
        if xact is None or (xact.gid, xact.end_lsn, xact.prepare_time) != of_prepare:
            return
        failpoints.reach("apply.before_rollback_prepared")
        self._xacts.rollback(xact)
        self._behind["apply.rolled_back_prepared"] = None

    def _add(self, part: Batch | _Committed, size: int) -> None:
        """Put transactions behind those before, in the same step if the step may hold them."""
        if self._parts and self._held + size > self._max_bytes:
            self._cut()
        self._parts.append(part)
        self._held += size

    def _cut(self, announced: Sequence[Relation] = ()) -> None:
        """End the step, and announce relations behind the step."""
        if self._parts or announced:
            self.steps.append(_Step(self._parts, announced=announced))
        self._parts, self._held = [], 0


def forget_skip(applier: Applier, lsn: LSN) -> None:
    """``clear_subscription_skip_lsn``, for the prepared transaction that ``lsn`` names."""
    applier.store.clear_skip_lsn(applier.sub.oid, lsn)
    if applier.sub.subskiplsn == lsn:
        applier.sub = replace(applier.sub, subskiplsn=InvalidXLogRecPtr)


def _ends(commit: CommitPrepared, changes: int) -> tuple[bytes, bytes, list[int]]:
    """First and last record of a prepared transaction at its commit, and the row of the batch."""
    return (
        begin_record(commit.commit_lsn, commit.commit_time, commit.xid),
        commit_record(commit.commit_lsn, commit.end_lsn, commit.commit_time),
        [commit.commit_lsn, commit.end_lsn, commit.commit_time, changes],
    )


def _windows(batch: Batch, start: int, end: int) -> Iterator[memoryview]:
    """The bytes of a prepared transaction of any size; pages that were read are given back."""
    for at in range(start, end, SEGMENT_SCRATCH_BYTES):
        stop = min(at + SEGMENT_SCRATCH_BYTES, end)
        yield batch.buf[at:stop].data
        batch.give_pages_back(at, stop)
