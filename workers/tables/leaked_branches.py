"""Drop the branches that stayed on lake tables when the tables left their subscriptions.

A branch keeps the files of its moment for a million days: later deletes of the owner free nothing,
and erased rows can still be read by way of the branch. A command that lets a table go lists the
table first, in the catalog; then the branches go, and then the row. So a lake that does not answer,
or a killed command, leaves a row. Every later command of the kind and every start of an apply
worker tries again. A trace::

    DROP SUBSCRIPTION       public.a is listed; the lake does not answer: a WARNING
    pgsub status            leaked_branches: public.a, since, and the reason
    an apply worker starts  main of public.a is fenced, the branches go, the row goes

``main`` of a table that belonged to the subscription alone gets an empty snapshot first (the
fence): no late call of a dead worker publishes a branch. In a shared table only the branches of the
subscription go, without a fence. A table that a subscription writes again is left to its worker,
which drops all earlier branches itself. A command may subscribe a listed table again meanwhile, and
the fence or the drop would hit the new worker's batch: so the catalog is read again before each
call that writes. A table that somebody else owns by now is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from catalog.errcodes import ReplicationError
from catalog.leaked_branch import LeakedBranch
from catalog.pg_subscription import SubCreate
from catalog.store_sqlite import CatalogStore
from config.limits import FENCE_AT_ONCE_TABLES
from workers.lake.destination import Destination
from workers.lake.sources import branches_of_uuid, owner_of
from workers.lake.table import BRANCH_PREFIX, SHARED, LakeIdent, LakeTable


def drop_leaked_branches(
    store: CatalogStore,
    look_up: Callable[[Sequence[LakeIdent]], Sequence[LakeTable | None]],
    lake: Callable[[], Destination],
) -> list[LeakedBranch]:
    """Try all listed tables; the tables that stay on the list, with the reasons of today.

    ``look_up`` reads the tables as of ``main``, None for a missing table. ``lake`` opens the lake,
    and is called only for a table that is there. An error of the lake is a reason, and is not
    raised.
    """
    leaks = _not_written_again(store)
    if not leaks:
        return []
    try:
        found = look_up([_ident(leak) for leak in leaks])
        tables = {leak: table for leak, table in zip(leaks, found, strict=True) if table}
        mine = [leak for leak in tables if tables[leak].owner in (leak.subuuid, SHARED)]
        opened = lake() if mine else None
    except ReplicationError as error:
        refused = dict.fromkeys(leaks, error.primary)
    else:
        refused = (
            {} if opened is None else _drop(store, opened, [(each, tables[each]) for each in mine])
        )
    for leak in leaks:
        if leak in refused:
            store.put_leaked_branch(replace(leak, reason=refused[leak]))
        else:
            store.forget_leaked_branch(leak)
    return [replace(leak, reason=reason) for leak, reason in refused.items()]


def _not_written_again(store: CatalogStore) -> list[LeakedBranch]:
    """The listed tables; a table that a worker writes again is taken off the list."""
    leaks = store.leaked_branches()
    writers = _writers(store) if leaks else {}
    left = []
    for leak in leaks:
        if _is_written_again(leak, writers):
            store.forget_leaked_branch(leak)
        else:
            left.append(leak)
    return left


def _writers(store: CatalogStore) -> dict[LakeIdent, set[str]]:
    """The subscriptions and the owner of each lake table that is written, as of now."""
    writers: dict[LakeIdent, set[str]] = {}
    for sub in store.subscriptions():
        if sub.subcreate is not SubCreate.DROPPING:
            for rel in store.rels(sub.oid):
                ident = LakeIdent(rel.lake_schema, rel.lake_table)
                writers.setdefault(ident, set()).update((sub.subuuid, owner_of(sub, rel)))
    return writers


def _is_written_again(leak: LeakedBranch, writers: Mapping[LakeIdent, set[str]]) -> bool:
    """Does a worker drop the branches?

    The worker of a table's only subscription drops all branches of pgsub, the worker of a source
    those of the source.
    """
    names = writers.get(_ident(leak), set())
    return leak.subuuid in names or (bool(names) and SHARED not in names)


def _drop(
    store: CatalogStore, lake: Destination, tables: Sequence[tuple[LeakedBranch, LakeTable]]
) -> dict[LeakedBranch, str]:
    """Drop the branches; the reasons of the tables on which they stay."""

    def drop(leak: LeakedBranch, table: LakeTable) -> str | None:
        shared = table.owner == SHARED
        try:
            if not shared and not _is_written_again(leak, _writers(store)):
                lake.fence(table.ident)
            if not _is_written_again(leak, _writers(store)):
                prefix = branches_of_uuid(leak.subuuid) if shared else BRANCH_PREFIX
                lake.drop_branches(table.ident, prefix=prefix)
        except ReplicationError as error:
            return error.primary
        return None

    with ThreadPoolExecutor(FENCE_AT_ONCE_TABLES, thread_name_prefix="lake") as pool:
        reasons = list(pool.map(lambda each: drop(*each), tables))
    return {
        leak: reason
        for (leak, _), reason in zip(tables, reasons, strict=True)
        if reason is not None
    }


def _ident(leak: LeakedBranch) -> LakeIdent:
    return LakeIdent(leak.lake_schema, leak.lake_table)
