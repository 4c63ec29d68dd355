"""Find the first change of a table that a rule for a column forbids.

A message has names alone. The apply worker asks the publisher for numbers, too, and then looks
closer (``workers.apply.follow_schema``). A sync worker compares every message with the columns of
the copy (``workers.sync.copied_columns``).

A trace: ``ssn`` is excluded. The messages are ``id, ssn`` and ``id, social``::

    id, ssn       the values of id are taken
    id, social    error, the fault of the first transaction with a change under the message
"""

from __future__ import annotations

from catalog.errcodes import ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.by_table import Run
from workers.changes.column_rules import GuardedColumn, check_guarded
from workers.changes.failed_transaction import failed_at
from workers.changes.remembered_columns import RememberedColumns
from workers.changes.rules_of_rows import check_same_rules


def check_run(rel: SubscriptionRel, run: Run, options: TableOptions) -> None:
    """``check_guarded`` by name alone, as the fault of the run's first transaction."""
    relation, changes = run.relation, run.changes
    if not options.guarded or relation is None or changes is None:
        return
    name = qualified_name(rel.nspname, rel.relname)
    try:
        check_guarded(name, [each.name for each in relation.columns], options)
    except GuardedColumn as error:
        error.tables = (rel,)
        raise failed_at(relation, changes, 0, error) from None


def check_run_rules(
    rel: SubscriptionRel, run: Run, before: RememberedColumns, options: TableOptions
) -> None:
    """``check_same_rules``, as the fault of the run's first transaction."""
    relation, changes = run.relation, run.changes
    if relation is None or changes is None:
        return
    name, names = qualified_name(rel.nspname, rel.relname), [c.name for c in relation.columns]
    try:
        check_same_rules(name, names, before, options)
    except ReplicationError as error:
        error.tables = (rel,)
        raise failed_at(relation, changes, 0, error) from None
