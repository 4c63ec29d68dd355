"""How a batch is cut into smaller parts.

``workers.apply.apply_batch`` tells when a batch is cut. A part has whole transactions, and together
the parts have every transaction once, in commit order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workers.changes.by_table import Run
from workers.stream.batch import Batch


class CutBefore(Exception):  # noqa: N818 - no error: the parts are applied one after the other
    """The transactions before ``txn`` (an index into the part) have to be published first."""

    def __init__(self, txn: int) -> None:
        super().__init__(txn)
        self.txn = txn


def around(batch: Batch, txn: int) -> list[Batch]:
    """Cut a batch: the transactions before ``txn``, ``txn`` alone, and the transactions after."""
    edges = [(0, txn), (txn, txn + 1), (txn + 1, batch.ntxns)]
    return [batch.part(first, last) for first, last in edges if first < last]


def halves(batch: Batch) -> list[Batch]:
    """Cut a batch of several transactions into two."""
    return before_and_from(batch, batch.ntxns // 2)


def before_and_from(batch: Batch, txn: int) -> list[Batch]:
    """Cut a batch into the transactions before ``txn``, and the others."""
    return [batch.part(0, txn), batch.part(txn, batch.ntxns)]


def cuts_for_columns(
    runs: Iterable[Run], ntxns: int, has_others: Callable[[Run], bool]
) -> list[int]:
    """Where to cut a part of ``ntxns`` transactions, because a table gets other columns.

    A cut comes before each transaction with other columns. A cut also comes behind the part's first
    transaction if rows of the table are in front of the change: no error of a later transaction may
    bring these rows again, when their columns are remembered no more.

    ``has_others``: has a run other columns than are remembered? Behind the first such run each run
    is compared with the last change, as the remembered columns will be others by then::

        remembered id, v      runs  id, v | id, v, x | id, v      the last brings other columns
    """
    before: Run | None = None
    changed: Run | None = None
    cuts = []
    for run in runs:
        if run.relation is None or run.changes is None:
            continue
        if changed is None:
            is_change = has_others(run)
        else:
            is_change = (run.relation, run.shape) != (changed.relation, changed.shape)
        if is_change:
            changed = run
            first = int(run.changes.txn[0])
            cuts.append(1 if first == 0 and before is not None else first)
        before = run
    return [txn for txn in cuts if 0 < txn < ntxns]
