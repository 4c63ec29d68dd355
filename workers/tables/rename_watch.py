"""Follow a table that got another name, or another schema, on the publisher.

The publisher's table is known by its oid. Changes belong to the subscribed table with the oid of
the change, whatever name they have, so they are applied without a pause
(``under_subscribed_names``). A name alone decides nothing while a subscribed table has the oid: the
stream may be behind, and the name may belong to another table by now. The names of publisher,
catalog and lake table follow at a batch boundary:

1. A batch had changes of a subscribed table under another name, or a minute is over.
2. The publisher is asked for the present names of the tables by oid.
3. The new names are noted in the catalog, and the worker ends. Its successor renames the lake table
   (``workers.tables.rename_tables``).

Only the publisher's present name counts. A name that a table had for a moment is never seen in the
lake, and changes under any name of the past find the table by the oid.

Nothing is followed if the old name belongs to another table now: a staging table was swapped in,
and the name is the contract (``workers.apply.name_watch``). A table that is not published under the
new name has left its publication: the lake table stays. Left alone too are tables with
``on_rename: suspend``, tables whose columns are not followed, shared lake tables, and an oid that
two tables of the subscription have: the rows went to the table of the name, and the other one lacks
these rows. A change under another name is then an error (``table_checks``).

A table that is to be copied is renamed by its sync worker, before the copy
(``workers.sync.renamed``).

A trace: table a, oid 1, is renamed to b while changes are queued::

    I(1, a) R(1, b) I(1, b)   both rows go to lake table a
    batch boundary            oid 1 is b, and no table is a: noted; the worker ends
    successor                 lake table a is renamed to b; catalog: b
    I(1, a) again             the position skips the change; b is found by oid 1
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from catalog.errcodes import (
    LOCK_NOT_AVAILABLE,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from catalog.table_renames import (
    KEEP,
    SUSPEND,
    TableRename,
    follows_rename,
    is_in_step,
    is_known_by_oid,
    named_twice,
)
from config.guc import Settings
from config.monitor_limits import ALL_TABLES_SECONDS
from workers.changes.by_table import FramedBatch
from workers.changes.relation_map import RelName
from workers.process import failpoints

log = logging.getLogger(__name__)


class TableRenamed(ObjectNotInPrerequisiteState):
    """A subscribed table has another name on the publisher, and the lake does not follow."""


def decide_renames(
    sub: Subscription,
    rels: Collection[SubscriptionRel],
    of: Iterable[SubscriptionRel],
    names: Mapping[int, RelName],
    holders: Mapping[RelName, int],
    published: Collection[RelName] | None,
    settings: Settings,
) -> list[tuple[SubscriptionRel, RelName]]:
    """The tables among ``of`` to rename, with the publisher's new name. Pure.

    ``rels`` are all tables of the subscription. ``names`` are the present names by oid, ``holders``
    the oids that have the subscribed names now, ``published`` the names of published tables, if
    known.
    """
    subscribed = {(rel.nspname, rel.relname) for rel in rels}
    twice = named_twice(rels)
    found = []
    for rel in of:
        was = (rel.nspname, rel.relname)
        now = names.get(rel.remote_relid or 0, was)
        if now == was or was in holders or now in subscribed or rel.remote_relid in twice:
            continue
        if published is not None and now not in published:
            continue
        if is_known_by_oid(sub, rel, settings):
            found.append((rel, now))
    return found


@dataclass(slots=True)
class RenameWatch:
    """The renamed tables of an apply worker, or the one of a sync worker (``copies``).

    ``names`` asks the publisher for names by oid, ``relids`` for oids by name, ``published`` for
    the published tables, or None while a lock hides these. ``seen`` are the oids that a batch had
    under another name since the last question, ``_told`` the oids of the last minute's questions.
    """

    store: CatalogStore
    names: Callable[[Collection[int]], Mapping[int, RelName]]
    relids: Callable[[Collection[RelName]], Mapping[RelName, int]]
    published: Callable[[], Collection[RelName] | None]
    settings: Callable[[], Settings]
    clock: Callable[[], float] = time.monotonic
    copies: bool = False
    seen: set[int] = field(default_factory=set)
    _told: set[int] = field(default_factory=set)
    _due: float = field(init=False)

    def __post_init__(self) -> None:
        self._due = self.clock() + ALL_TABLES_SECONDS

    def under_subscribed_names(
        self, sub: Subscription, rels: Mapping[RelName, SubscriptionRel], framed: FramedBatch
    ) -> FramedBatch:
        """The batch, with changes under another name of a subscribed table found by the oid."""
        strange = {
            relid
            for name, relids in framed.targets.items()
            for relid in relids
            if (own := rels.get(name)) is None or own.remote_relid != relid
        }
        if not strange:
            return framed
        settings, twice = self.settings(), named_twice(rels.values())
        follows = is_known_by_oid if self.copies else follows_rename
        names = {
            relid: name
            for name, rel in rels.items()
            if (relid := rel.remote_relid) in strange - twice and follows(sub, rel, settings)
        }
        self.seen |= names.keys() - self._told
        return framed.under_names(names) if names else framed

    def suspends(self, sub: Subscription, error: ReplicationError) -> bool:
        """Are all tables at fault renamed ones that a new name suspends?"""
        default = self.settings().on_rename
        modes = {
            sub.table_options(rel.nspname, rel.relname).on_rename or default for rel in error.tables
        }
        return isinstance(error, TableRenamed) and modes == {SUSPEND}

    def turn(
        self, sub: Subscription, rels: Iterable[SubscriptionRel]
    ) -> list[tuple[SubscriptionRel, RelName]]:
        """Ask, if a batch had another name or the time has come; the tables to rename."""
        now = self.clock()
        if now < self._due and not self.seen:
            return []
        if now >= self._due:
            self._due = now + ALL_TABLES_SECONDS
            self._told.clear()
        self._told |= self.seen
        self.seen.clear()
        every = list(rels)
        try:
            return self.ask(sub, every, [rel for rel in every if is_in_step(rel)])
        except ReplicationError as error:
            log.info(
                "action=names_not_compared sqlstate=%s the names of the publisher's tables could "
                "not be compared: %s",
                *(error.code, error),
            )
            return []

    def ask(
        self,
        sub: Subscription,
        rels: Collection[SubscriptionRel],
        of: Collection[SubscriptionRel],
    ) -> list[tuple[SubscriptionRel, RelName]]:
        """Ask for the present names of tables ``of`` the subscription's ``rels``; those to rename.

        Raises the publisher's error; 55P03 while a lock hides whether a new name is published. An
        apply worker asks again within a minute, a sync worker at its next attempt.
        """
        settings = self.settings()
        asked = {rel.remote_relid for rel in of if is_known_by_oid(sub, rel, settings)}
        if not asked:
            return []
        names = self.names({relid for relid in asked if relid is not None})
        moved = decide_renames(sub, rels, of, names, {}, None, settings)
        if not moved:
            return []
        holders = self.relids([(rel.nspname, rel.relname) for rel, _ in moved])
        published = self.published()
        if published is None:
            raise _names_unknown(*moved[0])
        return decide_renames(sub, rels, of, names, holders, published, settings)

    def note(
        self, sub: Subscription, renamed: Iterable[tuple[SubscriptionRel, RelName]], lsn: LSN
    ) -> list[str]:
        """Note the new names, unless a command has changed a row meanwhile; sentences for the log.

        The caller has stored all published batches, and ends the worker.
        """
        said = []
        with self.store.transaction():
            for rel, now in renamed:
                stored = self.store.rel(rel.srsubid, rel.srrelid)
                if stored is None or (stored.epoch, stored.nspname, stored.relname) != (
                    *(rel.epoch, rel.nspname, rel.relname),
                ):
                    continue
                lake = self._lake_name(sub, rel, now)
                moment = time.time_ns() // 1000
                rename = TableRename(rel.srsubid, rel.srrelid, *now, *lake, moment, lsn)
                self.store.note_rename(rename, stored)
                was = qualified_name(rel.nspname, rel.relname)
                said.append(f'table "{was}" is "{qualified_name(*now)}" now')
        failpoints.reach(failpoints.RENAME_NOTED)
        return said

    def _lake_name(self, sub: Subscription, rel: SubscriptionRel, now: RelName) -> RelName:
        """The lake table's name from now on: the publisher's, or the present one."""
        options = sub.table_options(rel.nspname, rel.relname)
        mode = options.on_rename or self.settings().on_rename
        keeps = mode == KEEP or options.to is not None
        return (rel.lake_schema, rel.lake_table) if keeps else now


def _names_unknown(rel: SubscriptionRel, now: RelName) -> ReplicationError:
    was = qualified_name(rel.nspname, rel.relname)
    return ReplicationError(
        f'published names are not known: table "{was}" is "{qualified_name(*now)}" now',
        detail="A table of the publications is locked, and the publisher does not tell whether the "
        "new name is published.",
        hint="None: the question is asked again. On the publisher, pg_locks shows the session with "
        "the lock.",
        sqlstate=LOCK_NOT_AVAILABLE,
    )


def by_oid(
    watch: RenameWatch | None,
    sub: Subscription,
    rels: Mapping[RelName, SubscriptionRel],
    framed: FramedBatch,
) -> FramedBatch:
    """``under_subscribed_names``; the same batch for a worker without a watch."""
    return framed if watch is None else watch.under_subscribed_names(sub, rels, framed)
