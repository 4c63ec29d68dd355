"""Hold a copy to the columns that the copy began with, until the apply worker has the table.

Only an apply worker follows changed columns. A sync worker that found a column by name alone could
write the rows of a new column to the lake column of an old one: ``DROP COLUMN v, ADD COLUMN v
bigint`` and two swapped names leave every name in place. The apply worker later compares the
publisher's columns with the copy's, and would leave those rows with the old column.

So a Relation message that is not the copy's is an error, before a row of the transaction is
written. The error copies the table again (``workers.sync.suspend``), and the new copy begins with
the present columns.

A trace. The copy begins with ``1 id, 2 v int``::

    message id, v int       rows are written
    message id, v bigint    error; the table is copied again with 1 id, 3 v bigint

A copy without remembered columns (a shared lake table, or a lake server that changes no columns) is
not followed later, so names alone count there. An excluded column must be there by name in each
case (``workers.changes.column_rules``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from catalog.errcodes import ColumnsChanged, ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.by_table import Run
from workers.changes.captured_shape import CapturedShape
from workers.changes.failed_transaction import failed_at
from workers.changes.guarded_runs import check_run, check_run_rules
from workers.changes.relation_map import RelName
from workers.changes.remembered_columns import remembered_in
from workers.proto.messages import Relation
from workers.stream.batch import Batch
from workers.tables.writer import LakeWriter


class CopyOutdated(ColumnsChanged):
    """The publisher's columns are no longer those that a copy in progress began with."""


@dataclass(slots=True)
class CopiedColumns:
    """The columns of a sync worker's table; ``_same`` is the last message found to have them."""

    store: CatalogStore
    writer: LakeWriter
    _same: Relation | None = None

    def begin_part(self) -> None:
        """Nothing is remembered of a part."""

    def follow(
        self,
        sub: Subscription,
        rels: Mapping[RelName, SubscriptionRel],
        runs: Mapping[RelName, Sequence[Run]],
        part: Batch,
        shapes: Sequence[CapturedShape] = (),
    ) -> None:
        """Raise 55000, as the fault of the transaction, if a message is not the copy's."""
        for target, own in runs.items():
            for run in own:
                if run.relation is None or run.changes is None or run.relation is self._same:
                    continue
                rel = rels[target]
                options = sub.table_options(rel.nspname, rel.relname)
                check_run(rel, run, options)
                if rel.remote_relid not in (None, run.relation.relid):
                    raise failed_at(run.relation, run.changes, 0, _outdated(rel))
                stored = self.store.columns(rel.srsubid, rel.srrelid)
                known = remembered_in(self.writer.open(rel).lake, stored, rel.epoch or "")
                if known is not None and not (known.is_forgotten or known.describes(run.relation)):
                    raise failed_at(run.relation, run.changes, 0, _outdated(rel))
                if known is not None:
                    check_run_rules(rel, run, known, options)
                self._same = run.relation

    def takes_out(self, sub: Subscription, error: ReplicationError) -> bool:
        """The sync worker itself suspends, or copies again."""
        return False

    def copy_again(self, sub: Subscription, error: ReplicationError) -> bool:
        """The sync worker itself suspends, or copies again."""
        return False

    def follows(self, sub: Subscription, rel: SubscriptionRel) -> bool:
        """The apply worker looks for such changes once it has the table."""
        return False


def _outdated(rel: SubscriptionRel) -> CopyOutdated:
    name = qualified_name(rel.nspname, rel.relname)
    error = CopyOutdated(
        f'columns of table "{name}" have changed since its copy began',
        detail="The rows of the copy have the columns of before.",
        hint="The table is copied again with its present columns.",
    )
    error.tables = (rel,)
    return error
