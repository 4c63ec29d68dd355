"""Published tables that workers rename: a refresh leaves their names to the workers.

A refresh reads the subscription's rows, asks the publisher, and stores by name. A worker may finish
a rename in between. A trace, without ``check_not_renamed``::

    the refresh    reads row a with oid 1, and is told that oid 1 is b: b is a
    a worker       finishes the rename: the row is b
    the refresh    no published table is b: the row would go, and the table with it

So the rows are read before the publisher is asked, and compared again in the transaction that
stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from catalog.errcodes import ObjectInUse
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.table_renames import TableRename, is_followed, is_in_step, named_twice
from subscriber.commands.context import CommandContext
from subscriber.commands.table_mapping import MappedTable, lake_ident
from subscriber.messages import notice
from workers.publisher.fingerprint import TableName


class RenamedMeanwhile(ObjectInUse):
    """A worker has renamed a table since the rows were read; nothing was stored."""


def under_subscribed_names(
    sub: Subscription,
    mapped: Sequence[MappedTable],
    rels: Sequence[SubscriptionRel],
    context: CommandContext,
) -> list[MappedTable]:
    """The published tables; a renamed table that a worker follows has the subscribed name here.

    Only workers rename: the table neither leaves nor joins. A table may wait long for the copy that
    finds the new name, and would leave at each refresh before. Of two tables with the same oid
    neither is followed.
    """
    published = {(table.remote.nspname, table.remote.relname) for table in mapped}
    known, twice = {(rel.nspname, rel.relname) for rel in rels}, named_twice(rels)
    renamed = {
        rel.remote_relid: rel
        for rel in rels
        if (rel.nspname, rel.relname) not in published
        and rel.remote_relid not in twice
        and is_followed(sub, rel, context.settings)
    }
    found = []
    for table in mapped:
        rel = renamed.get(table.remote.relid)
        if rel is None or (table.remote.nspname, table.remote.relname) in known:
            found.append(table)
            continue
        name = qualified_name(rel.nspname, rel.relname)
        context.notify(
            notice(
                f'table "{name}" is "{table.name}" on the publisher now',
                detail=_by_whom(rel),
            )
        )
        remote = replace(table.whole, nspname=rel.nspname, relname=rel.relname)
        ident, options = lake_ident(rel.nspname, rel.relname, sub.tables)
        found.append(MappedTable(remote, ident, options))
    return found


def _by_whom(rel: SubscriptionRel) -> str:
    """Say which worker takes the name over, and when."""
    if is_in_step(rel):
        return "The apply worker takes the name over within a minute, without a copy."
    if rel.srsubstate is SubRelState.INIT:
        return "The table synchronisation worker takes the name over before the copy."
    # A copy that runs keeps its name, and the copy may fail.
    return "A worker takes the name over, after the running copy or before the next one."


def check_not_renamed(
    before: Iterable[SubscriptionRel],
    now: Iterable[SubscriptionRel],
    noted: Iterable[TableRename],
    joining: Iterable[SubscriptionRel],
) -> None:
    """Raise ``RenamedMeanwhile`` if a worker has renamed a table since ``before``.

    Also if the worker gives a table the name of a new table. The caller is in the transaction that
    stores the refresh.
    """
    names = {rel.srrelid: (rel.nspname, rel.relname) for rel in before}
    new = {(rel.nspname, rel.relname) for rel in joining}
    moved = [(rel.srrelid, (rel.nspname, rel.relname)) for rel in now]
    moved += [(each.relid, name) for each in noted if (name := (each.nspname, each.relname)) in new]
    for relid, name in moved:
        if names.get(relid, name) != name:
            raise _renamed(names[relid], name)


def _renamed(was: TableName, now: TableName) -> RenamedMeanwhile:
    return RenamedMeanwhile(
        f'table "{qualified_name(*was)}" was renamed to "{qualified_name(*now)}" meanwhile',
        detail="A worker took the name over from the publisher.",
        hint="Run the command again.",
    )
