"""What turns batches into lake commits: shared by the apply and the sync worker.

For each table of a batch the gate decides, transaction by transaction, then the table's own
position; what is left goes to the tables' branches, and when all of them are complete it is
published. An error that one transaction is to blame for cuts the batch before it, so that what came
before is published and the error names where that transaction finished. A transaction that is to be
skipped (``workers.apply.skip``) is cut out in the same way.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from catalog.errcodes import (
    ObjectNotInPrerequisiteState,
    Policy,
    ReplicationError,
    error_context,
    policy,
)
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.apply.gate import should_apply_changes_for_rel
from workers.apply.skip import Skip, look_for_skip
from workers.changes.by_table import Run, Targets, runs_by_target
from workers.changes.failed_transaction import FailedChange, FailedTransaction
from workers.changes.relation_map import LogicalRepRelMap, RelName, flags_key, name_of
from workers.columnar.column_reader import UnreadableValue, in_form
from workers.columnar.frame import frame
from workers.lake.sources import delete_rows, source_of
from workers.proto.messages import Relation
from workers.publisher.binary_columns import BinaryForms, RestartAsText, UnknownForm
from workers.publisher.replica_identity import Coverage, Identities, coverage
from workers.stream.batch import Batch
from workers.stream.pages import giving_pages_back
from workers.tables import row_conflicts
from workers.tables.writer import LakeWriter
from workers.tables.written import Written

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Applier:
    """One worker's way from batches to the lake.

    ``own_relid`` is a sync worker's table, 0 in the apply worker; ``shows``: its copy is shown
    already, and so is each batch. ``gated`` is the end LSN of the last transaction whose gate
    decisions are taken. ``published`` asks the publisher for the fingerprint of every published
    table, ``identities`` for the replica identities of some, as they are now; ``covered`` holds
    what Relation messages were found to flag of them. ``skipping`` is the finish LSN of the
    transaction that it was last said to be skipped. ``binary`` knows how columns are read in
    binary form, None where the stream is text.
    """

    store: CatalogStore
    sub: Subscription
    writer: LakeWriter
    published: Callable[[], Mapping[RelName, str]]
    identities: Callable[[Collection[int]], Identities]
    own_relid: int = 0
    shows: bool = False
    relmap: LogicalRepRelMap = field(default_factory=LogicalRepRelMap)
    rels: dict[RelName, SubscriptionRel] = field(default_factory=dict)
    gated: LSN = InvalidXLogRecPtr
    covered: dict[Relation, Coverage] = field(default_factory=dict)
    skipping: LSN = InvalidXLogRecPtr
    binary: BinaryForms | None = None

    @property
    def keeps(self) -> bool:
        """A sync worker's branch, which holds the copy, stays out of sight until the end."""
        return bool(self.own_relid) and not self.shows

    def read_rels(self) -> None:
        """Read the tables' states; called at batch boundaries only."""
        rels = self.store.rels(self.sub.oid)
        self.rels = {(rel.nspname, rel.relname): rel for rel in rels}

    def apply_batch(self, batch: Batch) -> None:
        """Apply whole transactions; on an error of the data, all but the one at fault before it."""
        skip = look_for_skip(self.sub.subskiplsn, batch)
        if skip is not None and skip.txn is not None and batch.ntxns > 1:
            self._apply_parts(batch, skip.txn)
            return
        relmap = self.relmap.copy()
        try:
            with giving_pages_back(batch):
                written = self._write(batch, skip)
        except FailedTransaction as failed:
            self.relmap = relmap
            self._read_trust()
            if self.keeps or batch.ntxns == 1:
                part = batch.part(failed.txn, failed.txn + 1)
                self._raise_for_transaction(part, failed.error, failed.change)
            # What comes before it is published; alone it fails again, or all went well.
            self._apply_parts(batch, failed.txn)
        except ReplicationError as error:
            self.relmap = relmap
            if self.keeps or policy(error.code) is not Policy.DATA:
                # A branch that holds the copy: once a write to it failed there is
                # nothing to go on from, and the table is copied again.
                raise
            self._read_trust()
            if batch.ntxns == 1:
                self._raise_for_transaction(batch, error)
            half = batch.ntxns // 2
            self.apply_batch(batch.part(0, half))
            self.apply_batch(batch.part(half, batch.ntxns))
        else:
            self._publish(written, batch.last_end, skip)

    def _read_trust(self) -> None:
        """What the writer has found out about the tables; their states stay as they are."""
        stored = {rel.srrelid: rel for rel in self.store.rels(self.sub.oid)}
        for name, rel in self.rels.items():
            now = stored.get(rel.srrelid)
            if now is None or not now.copied:
                found = rel.fingerprint if now is None else now.fingerprint
                self.rels[name] = replace(rel, copied=False, fingerprint=found)

    def _apply_parts(self, batch: Batch, txn: int) -> None:
        """What comes before ``txn``, that one alone, and what comes after it."""
        if txn > 0:
            self.apply_batch(batch.part(0, txn))
        self.apply_batch(batch.part(txn, txn + 1))
        if txn + 1 < batch.ntxns:
            self.apply_batch(batch.part(txn + 1, batch.ntxns))

    def _raise_for_transaction(
        self, batch: Batch, error: ReplicationError, change: FailedChange | None = None
    ) -> None:
        """``apply_error_callback``: what is known of where it happened, never a value.

        ``RestartAsText`` instead, where the values may come again as text. By then all transactions
        before this one are published, and no part of this one is.
        """
        unread = isinstance(error, UnknownForm | UnreadableValue)
        if unread and self.binary is not None and not self.binary.binary_required:
            raise RestartAsText(error.primary) from error
        words = [f'processing remote data for replication origin "{origin_name(self.sub.oid)}"']
        if change is not None:
            words.append(f'during message type "{change.message_type}"')
            words.append(f'for replication target relation "{change.nspname}.{change.relname}"')
            if change.column is not None:
                words.append(f'column "{change.column}"')
        give_back = batch.give_pages_back if batch.mapping is not None else None
        xid = int(frame(batch.buf, batch.start, batch.end, give_back).txns.xid[0])
        words.append(f"in transaction {xid}, finished at {LSN(int(batch.final_lsn[0]))}")
        with error_context(" ".join(words)):
            raise error

    def _write(self, batch: Batch, skip: Skip | None) -> list[Written]:
        """Put the batch on the branches of its tables; nothing of it is visible yet."""
        if skip is not None and skip.txn is not None:
            runs = self._skip(batch, skip.lsn)
        else:
            found: dict[RelName, SubscriptionRel] = {}
            runs = runs_by_target(
                batch, self.relmap, lambda targets: self._gate(targets, batch, found)
            )
            self._check_not_renamed(runs, found, batch)
            self._look_at_relids(runs)
        announced = self.relmap.take_announced()
        self._distrust({name_of(relation) for relation in announced} & runs.keys())
        self._look_at_keys(announced, [run for own in runs.values() for run in own])
        work = {
            rel.srrelid: [self._in_form(self._with_coverage(run, rel)) for run in own]
            for rel, own in ((self.rels[target], own) for target, own in runs.items())
        }
        return self.writer.write(work, batch.last_end) if work else []

    def _skip(self, batch: Batch, lsn: LSN) -> dict[RelName, list[Run]]:
        """No change of a batch of one transaction, for any of the tables that would take it.

        From now on these miss something, a DELETE perhaps: a key that is inserted may be there.
        """
        if self.skipping != lsn:
            self.skipping = lsn
            log.info(
                "action=skip_start subid=%d lsn=%s logical replication starts skipping "
                "transaction at LSN %s",
                self.sub.oid,
                lsn,
                lsn,
            )
        passing: set[RelName] = set()  # as they were subscribed

        def gate(targets: Targets) -> dict[RelName, NDArray[np.bool_]]:
            found: dict[RelName, SubscriptionRel] = {}
            takes = self._gate(targets, batch, found)
            rels = [found[target] for target, taken in takes.items() if taken.any()]
            passing.update((rel.nspname, rel.relname) for rel in rels)
            return {}

        runs_by_target(batch, self.relmap, gate)
        for target in passing:
            self.writer.look_up_inserted_keys(self.rels[target])
            self.rels[target] = replace(self.rels[target], copied=False)
        return {target: [] for target in passing}

    def _in_form(self, run: Run) -> Run:
        """A run with what reads its values; one that cannot be read is its transaction's fault."""
        if run.relation is None or run.changes is None:
            return run
        try:
            nodes = None if self.binary is None else self.binary.of(run.relation)
            return replace(run, changes=in_form(run.changes, nodes))
        except (UnknownForm, UnreadableValue) as error:
            change = error.change if isinstance(error, UnreadableValue) else 0
            raise FailedTransaction(int(run.changes.txn[change]), error) from None

    def _distrust(self, announced: Collection[RelName]) -> None:
        """Look whether tables are still published as they were when they were copied.

        If not, an inserted key may be in the lake already (its DELETE was not published, an UPDATE
        brought the row into a new filter), so it is looked for first, from now on: what was missed
        while less was published stays missed when more is again. The publisher announces a
        relation anew before its first change after anything of the kind, and the fingerprint holds
        row versions, so that what was changed and changed back is seen too.
        """
        trusted = [self.rels[name] for name in announced if self.rels[name].copied]
        if not trusted:
            return
        published = self.published()
        for rel in trusted:
            now = published.get((rel.nspname, rel.relname))
            if now == rel.fingerprint:
                continue
            log.info(
                'action=republished subid=%d relid=%d table "%s.%s" is not published as when it '
                "was copied; inserted keys are looked for",
                rel.srsubid,
                rel.srrelid,
                rel.nspname,
                rel.relname,
            )
            self.rels[rel.nspname, rel.relname] = replace(rel, copied=False, fingerprint=now)
            self.writer.look_up_inserted_keys(rel, fingerprint=now)

    def _look_at_keys(self, announced: Collection[Relation], runs: Sequence[Run]) -> None:
        """Ask whether the keys that are announced are whole, before they are taken for keys."""
        for relation in announced:
            self.covered.pop(relation, None)
        keyed = {run.relation for run in runs if run.relation and flags_key(run.relation)}
        if keyed <= self.covered.keys():
            return
        asked = keyed - self.covered.keys()
        identities = self.identities({relation.relid for relation in asked})
        for relation in asked:
            self.covered[relation] = coverage(relation, identities.get(relation.relid))

    def _with_coverage(self, run: Run, rel: SubscriptionRel) -> Run:
        if run.relation is None or run.relation not in self.covered:
            return run
        found = self.covered[run.relation]
        if found is Coverage.WHOLE and rel.key_unsure:
            found = Coverage.UNKNOWN
        return replace(run, coverage=found)

    def _publish(self, written: list[Written], end_lsn: LSN, skip: Skip | None) -> None:
        """Show what was written (a sync worker keeps it on its branch).

        No error from here on may cut the batch: some tables show it by then, and only a successor,
        which fences them and reads their positions, knows which.
        """
        if self.keeps:
            met = row_conflicts.conflicts_of(written)
            self.writer.hold_back(written)
            self._count(met)
        else:
            # What a sync worker skips the apply worker has to skip in the other tables.
            met = self._store_progress(written, end_lsn, None if self.own_relid else skip)
        row_conflicts.report(self.sub.oid, met)
        if skip is not None and skip.txn is not None:
            log.info(
                "action=skip_end subid=%d lsn=%s logical replication completed skipping "
                "transaction at LSN %s",
                self.sub.oid,
                skip.lsn,
                skip.lsn,
            )
        self.gated = end_lsn

    def _store_progress(
        self, written: list[Written], end_lsn: LSN, skip: Skip | None
    ) -> list[row_conflicts.RowConflicts]:
        """Publish; origin, ``subskiplsn`` and counters move in one transaction of the catalog.

        What it met is known then: a batch that had to be written again may find less.
        """
        cleared = False
        met: list[row_conflicts.RowConflicts] = []

        def alongside(published: Sequence[Written] = ()) -> None:
            nonlocal cleared
            met.extend(row_conflicts.conflicts_of(published))
            self._count(met)
            cleared = skip is not None and self.store.clear_skip_lsn(self.sub.oid, skip.lsn)

        if written:
            self.writer.publish(written, end_lsn, alongside)
        elif skip is not None:
            with self.store.transaction():
                self.store.origin_advance(origin_name(self.sub.oid), end_lsn, f"LSN {end_lsn}")
                alongside()
        if skip is None:
            return met
        self.sub = replace(self.sub, subskiplsn=InvalidXLogRecPtr)
        if skip.passed is not None and cleared:
            log.warning(
                'action=skip_cleared subid=%d lsn=%s skip-LSN of subscription "%s" cleared',
                self.sub.oid,
                skip.lsn,
                self.sub.subname,
                extra={
                    "DETAIL": f"Remote transaction's finish WAL location (LSN) {skip.passed} did "
                    f"not match skip-LSN {skip.lsn}."
                },
            )
        return met

    def _count(self, met: list[row_conflicts.RowConflicts]) -> None:
        if met:
            self.store.count_for_stats(self.sub.oid, **row_conflicts.counters(met))

    def _gate(
        self, targets: Targets, batch: Batch, found: dict[RelName, SubscriptionRel]
    ) -> dict[RelName, NDArray[np.bool_]]:
        """Which transactions this worker applies to each table: the gate, then the table's LSN.

        ``found`` gets what the targets are subscribed as.
        """
        takes: dict[RelName, NDArray[np.bool_]] = {}
        for target, relids in targets.items():
            rel = self._subscribed(target, relids)
            gated = should_apply_changes_for_rel(rel, batch.final_lsn, own_relid=self.own_relid)
            if rel is not None and gated.any():
                takes[target] = gated
                found[target] = rel
        rels = {rel.srrelid: rel for rel in found.values()}
        opened = dict(zip(rels, self.writer.open_all(list(rels.values())), strict=True))
        return {
            target: gated & (batch.end_lsn > max(table.lsn, table.floor))
            for target, gated in takes.items()
            for table in (opened[found[target].srrelid],)
        }

    def _subscribed(self, target: RelName, relids: Collection[int]) -> SubscriptionRel | None:
        """The table that has this name, or had another when it was subscribed."""
        if (rel := self.rels.get(target)) is not None:
            return rel
        return next((rel for rel in self.rels.values() if rel.remote_relid in relids), None)

    def _check_not_renamed(
        self,
        runs: Mapping[RelName, Sequence[Run]],
        found: Mapping[RelName, SubscriptionRel],
        batch: Batch,
    ) -> None:
        """Changes of tables that were never subscribed are dropped in silence; of these, not."""
        for target in runs.keys() - self.rels.keys():
            rel = found[target]
            error = ObjectNotInPrerequisiteState(
                f'logical replication target relation "{".".join(target)}" does not exist',
                detail=f'The publisher\'s table was "{rel.nspname}.{rel.relname}" when it was '
                "subscribed.",
                hint=self._after_renaming(rel, target),
            )
            changes = runs[target][0].changes
            if changes is None and self.keeps:
                raise error
            # Which transaction a lone TRUNCATE is in is not known: halves find it.
            txn = batch.ntxns // 2 if changes is None else int(changes.txn[0])
            raise FailedTransaction(txn, error)

    def _after_renaming(self, rel: SubscriptionRel, target: RelName) -> str:
        """What is to be done about a table that has another name now."""
        lake = f'lake table "{rel.lake_schema}.{rel.lake_table}"'
        refresh = f"pgsub refresh {shlex.quote(self.sub.subname)} copies it under its new name"
        if not source_of(self.sub, rel):
            return f"{refresh}; {lake} stays as it is."
        new, name = self.sub.tables.get(qualified_name(*target), TableOptions()), ".".join(target)
        if not new.shared or (new.to or target) != (rel.lake_schema, rel.lake_table):
            refresh = (
                f'Say of table "{name}" in the configuration file what it says of '
                f'"{rel.nspname}.{rel.relname}", which stays there until pgsub up FILE has copied '
                "it under its new name"
            )
        return (
            f"{refresh}. The rows that shared {lake} has under the old name are there twice then, "
            f"until you delete them: {delete_rows(self.sub, rel)}"
        )

    def _look_at_relids(self, runs: Mapping[RelName, Sequence[Run]]) -> None:
        """Whether a table is the one that was subscribed, or another under its name.

        What the lake has is the other's then, and the fingerprint of FOR ALL TABLES, say, is that
        of both: an inserted key may be there.
        """
        for target, own in runs.items():
            rel = self.rels[target]
            relids = [run.relation.relid for run in own if run.relation is not None]
            if rel.remote_relid is None or {rel.remote_relid}.issuperset(relids):
                continue
            log.info(
                'action=other_relation subid=%d relid=%d table "%s.%s" is another one on the '
                "publisher; inserted keys are looked for",
                rel.srsubid,
                rel.srrelid,
                *target,
            )
            self.rels[target] = replace(rel, copied=False, remote_relid=relids[-1])
            self.writer.look_up_inserted_keys(rel, remote_relid=relids[-1])
