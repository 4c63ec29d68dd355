"""Ask, once a minute, which tables have the names of the subscribed tables.

A table that is swapped in is announced with its next row change (``workers.apply.other_table``). A
nightly job may change no row until the next night. So the worker asks for the oids of all tables in
``s`` and ``r`` by their names: one query on a second connection. Another oid is stored and told as
at a row change, and inserted keys are looked up from then on.

The answer describes the present, and changes of the old table may still come. They are applied as
before. A name that no table has now is left alone: the table may be on its way back.

A trace: table a, copied with oid 1. ``ALTER TABLE a_new RENAME TO a``, and no row change follows::

    asked      a has oid 3
    stored     other_relid = 3, copied = false; the log and pgsub status tell
    later      asked about a no more, until a copy or a refresh sets other_relid to NULL
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog.errcodes import ReplicationError
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import ALL_TABLES_SECONDS
from workers.apply.table_checks import ChangedTable
from workers.changes.relation_map import RelName

log = logging.getLogger(__name__)


@dataclass(slots=True)
class NameWatch:
    """The questions of a worker: ``ask`` asks the publisher for the oids of tables by name.

    The first question is due a minute after the start.
    """

    store: CatalogStore
    ask: Callable[[Collection[RelName]], Mapping[RelName, int]]
    clock: Callable[[], float] = time.monotonic
    _due: float = field(init=False)

    def __post_init__(self) -> None:
        self._due = self.clock() + ALL_TABLES_SECONDS

    def turn(self, rels: Iterable[SubscriptionRel]) -> list[ChangedTable]:
        """Ask, if the time has come, and return the tables whose name another table has."""
        now = self.clock()
        if now < self._due:
            return []
        self._due = now + ALL_TABLES_SECONDS
        tables = {(rel.nspname, rel.relname): rel for rel in rels if _is_watched(rel)}
        if not tables:
            return []
        try:
            found = self.ask(tables.keys())
        except ReplicationError as error:
            log.info(
                "action=names_not_compared sqlstate=%s the names of the publisher's tables could "
                "not be compared: %s",
                *(error.code, error),
            )
            return []
        changed = []
        for name, rel in tables.items():
            relid = found.get(name, rel.remote_relid)
            if relid == rel.remote_relid or not self._is_as_read(rel):
                continue
            other = replace(rel, copied=False, other_relid=relid)
            changed.append(ChangedTable(other, {"other_relid": relid}))
        return changed

    def _is_as_read(self, rel: SubscriptionRel) -> bool:
        """False if a command has the table copied again, or has taken over the other table."""
        now = self.store.rel(rel.srsubid, rel.srrelid)
        if now is None or not _is_watched(now):
            return False
        return (now.epoch, now.remote_relid) == (rel.epoch, rel.remote_relid)


def _is_watched(rel: SubscriptionRel) -> bool:
    """A suspended table, and a table that was told of, are told of already."""
    known = rel.remote_relid is not None and rel.other_relid is None
    return known and rel.srsubstate in SYNCED and not rel.suspended
