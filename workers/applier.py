"""What turns batches into lake commits: shared by the apply and the sync worker.

For each table of a batch the gate decides, transaction by transaction, then the table's own
position; what is left goes to the tables' branches, and when all of them are complete it is
published. An error that one transaction is to blame for cuts the batch before it, so that what came
before is published and the error names where that transaction finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from catalog.errcodes import Policy, ReplicationError, error_context, policy
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.batch import runs_by_target
from workers.lake_writer import LakeWriter
from workers.relation import LogicalRepRelMap, RelName
from workers.segments import FailedTransaction
from workers.spool import Batch
from workers.syncutils import should_apply_changes_for_rel
from workers.written import Written

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Applier:
    """One worker's way from batches to the lake.

    ``own_relid`` is a sync worker's table, 0 in the apply worker. ``gated`` is the end LSN of the
    last transaction whose gate decisions are taken. ``published`` asks the publisher for the
    fingerprint of every published table, as it is now.
    """

    store: CatalogStore
    sub: Subscription
    writer: LakeWriter
    published: Callable[[], Mapping[RelName, str]]
    own_relid: int = 0
    relmap: LogicalRepRelMap = field(default_factory=LogicalRepRelMap)
    rels: dict[RelName, SubscriptionRel] = field(default_factory=dict)
    gated: LSN = InvalidXLogRecPtr
    renamed: set[RelName] = field(default_factory=set)

    def read_rels(self) -> None:
        """Read the tables' states; called at batch boundaries only."""
        rels = self.store.rels(self.sub.oid)
        self.rels = {(rel.nspname, rel.relname): rel for rel in rels}

    def apply_batch(self, batch: Batch) -> None:
        """Apply whole transactions; on an error of the data, all but the one at fault before it."""
        relmap = self.relmap.copy()
        try:
            with batch.giving_pages_back():
                written = self._write(batch)
        except FailedTransaction as failed:
            self.relmap = relmap
            self._read_trust()
            if self.own_relid:
                self._raise_for_transaction(batch.part(failed.txn, failed.txn + 1), failed.error)
            self._apply_around(batch, failed.txn, failed.error)
        except ReplicationError as error:
            self.relmap = relmap
            if self.own_relid or policy(error.code) is not Policy.DATA:
                # A sync worker's branch holds the copy: once a write to it failed there is
                # nothing to go on from, and the table is copied again.
                raise
            if batch.ntxns == 1:
                self._raise_for_transaction(batch, error)
            half = batch.ntxns // 2
            self.apply_batch(batch.part(0, half))
            self.apply_batch(batch.part(half, batch.ntxns))
        else:
            self._publish(written, batch.last_end)

    def _read_trust(self) -> None:
        """What the writer has found out about the tables; their states stay as they are."""
        copied = {rel.srrelid: rel.copied for rel in self.store.rels(self.sub.oid)}
        self.rels = {
            name: replace(rel, copied=rel.copied and copied.get(rel.srrelid, False))
            for name, rel in self.rels.items()
        }

    def _apply_around(self, batch: Batch, txn: int, error: ReplicationError) -> None:
        """Publish what comes before ``txn``, try it alone, and go on if that went well."""
        if batch.ntxns == 1:
            self._raise_for_transaction(batch, error)
        if txn > 0:
            self.apply_batch(batch.part(0, txn))
        self.apply_batch(batch.part(txn, txn + 1))
        if txn + 1 < batch.ntxns:
            self.apply_batch(batch.part(txn + 1, batch.ntxns))

    def _raise_for_transaction(self, batch: Batch, error: ReplicationError) -> None:
        with error_context(
            f'processing remote data for replication origin "{origin_name(self.sub.oid)}" '
            f"in transaction finished at {LSN(int(batch.final_lsn[0]))}"
        ):
            raise error

    def _write(self, batch: Batch) -> list[Written]:
        """Put the batch on the branches of its tables; nothing of it is visible yet."""
        runs = runs_by_target(batch, self.relmap, lambda targets: self._gate(targets, batch))
        self._distrust(self.relmap.take_announced() & runs.keys())
        work = {self.rels[target].srrelid: own for target, own in runs.items()}
        return self.writer.write(work, batch.last_end) if work else []

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
            self.writer.distrust(rel, fingerprint=now)

    def _publish(self, written: list[Written], end_lsn: LSN) -> None:
        """Show what was written (a sync worker keeps it on its branch).

        No error from here on may cut the batch: some tables show it by then, and only a successor,
        which fences them and reads their positions, knows which.
        """
        if self.own_relid:
            self.writer.keep(written)
        elif written:
            self.writer.publish(written, end_lsn)
        self.gated = end_lsn

    def _gate(self, targets: Sequence[RelName], batch: Batch) -> dict[RelName, NDArray[np.bool_]]:
        """Which transactions this worker applies to each table: the gate, then the table's LSN."""
        takes: dict[RelName, NDArray[np.bool_]] = {}
        for target in targets:
            gated = should_apply_changes_for_rel(
                self.rels.get(target), batch.final_lsn, own_relid=self.own_relid
            )
            if gated.any():
                takes[target] = gated
            elif target not in self.rels:
                self._warn_if_renamed(target)
        opened = self.writer.open_all([self.rels[target] for target in takes])
        return {
            target: gated & (batch.end_lsn > max(table.lsn, table.floor))
            for (target, gated), table in zip(takes.items(), opened, strict=True)
        }

    def _warn_if_renamed(self, target: RelName) -> None:
        """Changes of tables that were never subscribed are dropped in silence; of these, not."""
        relids = self.relmap.relids_of(target)
        before = [rel for rel in self.rels.values() if rel.remote_relid in relids]
        if not before or target in self.renamed:
            return
        self.renamed.add(target)
        log.warning(
            'action=renamed subid=%d relid=%d table "%s.%s" is now "%s.%s" on the publisher; its '
            "changes are not applied: pgsub up FILE copies it under its new name",
            self.sub.oid,
            before[0].srrelid,
            before[0].nspname,
            before[0].relname,
            *target,
        )
