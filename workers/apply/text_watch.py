"""Notice values that change on the publisher without an event, and tell the caller once.

``workers.publisher.changing_text`` tells which types are meant. The apply worker compares the types
of the tables in ``s`` and ``r`` with the types of the last comparison, every few seconds, and
before the first batch after a start. A table without an enum or a composite is asked about once for
each announcement, and once a minute: a column that is dropped and added again is announced with the
next row change only.

What has changed is stored under the copy id of the table, so a new copy ends the state. Without
stored types (``copy_data = false``, or a copy by an older version) the first comparison stores the
types of that moment.

A failed question is no reason to stop: the stream itself notices a lost publisher. The worker asks
again a minute later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog import remedies
from catalog.changed_text import StoredTextTypes
from catalog.errcodes import ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import (
    ALL_TABLES_SECONDS,
    TEXT_COMPARISON_RETRY_SECONDS,
    TEXT_COMPARISON_SECONDS,
)
from workers.changes.column_rules import taken_of
from workers.changes.relation_map import LogicalRepRelMap
from workers.changes.remembered_columns import from_text as columns_of
from workers.proto.messages import Relation
from workers.publisher.changing_text import TextTypes, from_json, text_changes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChangedText:
    """A table with values that changed without an event, and the row that says which.

    ``copies`` says that a copy is sure to be needed: not after the renaming of an object, which no
    row may name.
    """

    rel: SubscriptionRel
    row: StoredTextTypes
    copies: bool


@dataclass(slots=True)
class TextWatch:
    """The comparisons of a worker.

    ``ask`` asks the publisher for the types of relations. ``_stored`` has the catalog's rows by the
    table's oid, ``_asked`` the Relation message in force at the last question, ``_due`` the time of
    the next comparison, ``_all_due`` the time of the next comparison of all tables.
    """

    store: CatalogStore
    ask: Callable[[Collection[int]], Mapping[int, TextTypes]]
    clock: Callable[[], float] = time.monotonic
    _stored: dict[int, StoredTextTypes] = field(default_factory=dict)
    _asked: dict[int, Relation | None] = field(default_factory=dict)
    _due: float = 0.0
    _all_due: float = field(init=False)

    def __post_init__(self) -> None:
        self._all_due = self.clock() + ALL_TABLES_SECONDS

    def turn(
        self, sub: Subscription, rels: Iterable[SubscriptionRel], relmap: LogicalRepRelMap
    ) -> list[ChangedText]:
        """Compare the tables, if the time has come; store and return what has changed."""
        now = self.clock()
        if now < self._due:
            return []
        self._due = now + TEXT_COMPARISON_SECONDS
        every = now >= self._all_due
        if every:
            self._all_due = now + ALL_TABLES_SECONDS
        tables = {
            relid: rel
            for rel in rels
            if rel.srsubstate in SYNCED
            and rel.other_relid is None  # another table is told of as such
            and (relid := rel.remote_relid) is not None
            and (every or self._is_watched(rel, relmap.get(relid)))
        }
        if not tables:
            return []
        try:
            found = self.ask(tables.keys())
        except ReplicationError as error:
            self._due = now + TEXT_COMPARISON_RETRY_SECONDS
            log.info(
                "action=text_not_compared subid=%d sqlstate=%s the types of the publisher could "
                "not be compared: %s",
                *(sub.oid, error.code, error),
            )
            return []
        changed = []
        for relid, rel in tables.items():
            relation = relmap.get(relid)
            if not found[relid].numbers:
                continue  # dropped, or swapped meanwhile
            options = sub.table_options(rel.nspname, rel.relname)
            compared = self._compare(rel, relation, found[relid], options)
            if compared is not None:
                changed.append(compared)
            self._asked[rel.srrelid] = relation
        return changed

    def _is_watched(self, rel: SubscriptionRel, relation: Relation | None) -> bool:
        """Has the table an enum or a composite, or was it announced since the last question?"""
        stored = self._stored_types(rel)
        if stored is None or from_json(stored.types).columns:
            return True
        return relation is not None and self._asked.get(rel.srrelid) is not relation

    def _stored_types(self, rel: SubscriptionRel) -> StoredTextTypes | None:
        """The row of the table under the present copy id."""
        stored = self._stored.get(rel.srrelid)
        if stored is not None and stored.epoch == (rel.epoch or ""):
            return stored
        self._asked.pop(rel.srrelid, None)
        stored = self.store.text_types(rel.srsubid, rel.srrelid)
        if stored is not None:
            self._stored[rel.srrelid] = stored
        return stored

    def _as_followed(self, rel: SubscriptionRel, before: TextTypes) -> TextTypes:
        """The types before, with the numbers of the columns that the lake table has by now.

        A column that was dropped, and followed, is no longer there: another column of its name that
        is added later is a new one.
        """
        text = self.store.columns(rel.srsubid, rel.srrelid)
        remembered = None if text is None else columns_of(text)
        if remembered is None or remembered.is_forgotten:
            return before
        return replace(before, numbers={c.name: c.attnum for c in remembered.columns})

    def _compare(
        self,
        rel: SubscriptionRel,
        relation: Relation | None,
        found: TextTypes,
        options: TableOptions,
    ) -> ChangedText | None:
        """Store the types of a table, and tell if values have changed since the last comparison."""
        stored = self._stored_types(rel)
        if relation is not None:
            taken = taken_of(relation, options).columns
            found = found.of_columns([column.name for column in taken])
        elif stored is not None:  # a column that is not published changes no text of the lake
            found = found.of_columns(from_json(stored.types).numbers.keys())
        types = found.as_json()
        if stored is None:
            row = StoredTextTypes(rel.srsubid, rel.srrelid, rel.epoch or "", types)
            changes = rewritten = []
        elif stored.types == types:
            return None
        else:
            before = self._as_followed(rel, from_json(stored.types))
            changes = text_changes(before, found)
            rewritten = text_changes(before.without_names(), found.without_names())
            row = stored.changed(types, changes, time.time_ns() // 1000)
        self.store.put_text_types(row)
        self._stored[rel.srrelid] = row
        return ChangedText(rel, row, copies=bool(rewritten)) if changes else None


def warn_of_text(sub: Subscription, rel: SubscriptionRel, row: StoredTextTypes) -> None:
    """Log values that changed on the publisher without a change of a row."""
    name = qualified_name(rel.nspname, rel.relname)
    hint = remedies.text_changed(sub.subname, name)
    log.warning(
        "action=text_changed subid=%d relid=%d %s",
        *(rel.srsubid, rel.srrelid, row.primary(name)),
        extra={"DETAIL": row.detail, "HINT": hint},
    )
