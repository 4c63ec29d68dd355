"""Notice values that change on the publisher without an event, and tell the caller once.

``workers.publisher.changing_text`` tells which types are meant. The apply worker compares the types
of the tables in ``s`` and ``r`` with the types of the last comparison:

- before each batch, where a table has an enum, a composite or names of objects: one short query on
  a session that stays open asks for a mark of all texts. The tables are compared if the mark is
  another one. The worker asks after the batch was received, so the answer shows each renaming that
  was committed before a row of the batch.
- every few seconds, the same without a batch, and at the start.
- a table that was announced since: within seconds; behind the batch that announced the table, if a
  column is of a type that is not built in.
- a table whose shape the follower of columns has asked for: versions and files of that moment. A
  renaming and a new file that are seen together look like values that were computed anew.
- all tables once a minute: a column that is dropped and added again is announced with the next row
  change only.

Trace: ``stages`` has the row ``(new, 1)``, and the lake too::

    ALTER TYPE stage RENAME VALUE 'new' TO 'open'       no event
    UPDATE stages SET n = 2 WHERE s = 'open'            a batch, received
    mark of the last comparison 3f…, mark now 81…       the types of stages are compared
    label "new" of type stage is "open"                 the table is copied again, or the log warns
    the batch is applied                                the gate drops the change of stages

What has changed is stored under the copy id of the table, so a new copy ends the state. The caller
stores what has changed (``keep``) when the table is taken out, or the log has warned: a worker that
is killed before, or cannot ask for the table's size, leaves the change for the successor to find.
Without stored types (``copy_data = false``, or a copy by an older version) the first comparison
stores the types of that moment.

A failed question is no reason to stop: the stream itself notices a lost publisher. The worker asks
again a minute later, and what changed meanwhile is found then: the copy has the rows as they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

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
from workers.publisher.changing_text import (
    TextType,
    TextTypes,
    from_json,
    may_change_text,
    moved_relids,
    seen_in,
    text_changes,
)
from workers.publisher.table_shape import TableShape

log = logging.getLogger(__name__)

TELL: Final = "tell"
COPY: Final = "copy"
"""``on_attach``."""


@dataclass(frozen=True, slots=True)
class ChangedText:
    """A table with values that changed without an event, and the row that says which.

    ``copies`` says that a copy is sure to be needed: not after the renaming of an object, which no
    row may name. ``types`` are those of the row.
    """

    rel: SubscriptionRel
    row: StoredTextTypes
    types: TextTypes
    copies: bool


class TextQuestions(Protocol):
    """What the watch asks the publisher, on a second connection."""

    def text_types(self, relids: Collection[int]) -> Mapping[int, TextTypes]:
        """The types of the columns of relations."""

    def text_mark(self, types: Mapping[int, TextType]) -> str:
        """A hash of all texts that values of the types, by oid, may have."""

    def moved_partitions(self, came: Collection[int], went: Collection[int]) -> list[str]:
        """Sentences about partitions that were attached with rows, or detached."""


_Mark = tuple[frozenset[tuple[int, str | None]], str]
"""The tables with such types, each with its copy id, and the publisher's mark of all texts."""


@dataclass(slots=True)
class _Known:
    """The catalog's row of a table, and the types in the row."""

    row: StoredTextTypes
    types: TextTypes


@dataclass(slots=True)
class TextWatch:
    """The comparisons of a worker.

    ``_known`` has the last comparison by the table's oid, ``_asked`` the copy id and the Relation
    message in force at the last question, ``_mark`` the texts of the last comparison. A table that
    the publisher has dropped is asked about, and not known. ``_due`` is the time of the
    next comparison without a batch, ``_all_due`` that of all tables, ``_silent_until`` the end of
    the pause after a failure. ``told`` says that triggers of the publisher tell of columns that are
    dropped and added again, ``on_attach`` what is done about partitions that come and go. The
    follower of columns adds to ``shapes``.
    """

    store: CatalogStore
    publisher: TextQuestions
    clock: Callable[[], float] = time.monotonic
    told: bool = False
    on_attach: Callable[[], str] = lambda: TELL
    shapes: list[TableShape] = field(default_factory=list)
    _known: dict[int, _Known] = field(default_factory=dict)
    _asked: dict[int, tuple[str | None, Relation | None]] = field(default_factory=dict)
    _mark: _Mark | None = None
    _due: float = 0.0
    _all_due: float = field(init=False)
    _silent_until: float = 0.0
    _is_behind_batch: bool = False

    def __post_init__(self) -> None:
        self._all_due = self.clock() + ALL_TABLES_SECONDS

    def turn(
        self, sub: Subscription, rels: Iterable[SubscriptionRel], relmap: LogicalRepRelMap
    ) -> list[ChangedText]:
        """Compare the tables, if the time has come; return what has changed."""
        now = self.clock()
        self._note_shapes(rels)
        if now < self._silent_until:
            return []
        if self._is_behind_batch:  # the types of its new columns, before another ALTER TYPE
            self._is_behind_batch = False
            tables = _comparable(rels)
            fresh = self._fresh_with_text(tables, relmap)
            if fresh:
                return self._look(sub, tables, fresh, relmap)
        if now < self._due:
            return []
        self._due = now + TEXT_COMPARISON_SECONDS
        every = now >= self._all_due
        if every:
            self._all_due = now + ALL_TABLES_SECONDS
        tables = _comparable(rels)
        fresh = {} if every else self._fresh(tables, relmap)
        return self._look(sub, tables, tables if every else fresh, relmap)

    def before_batch(
        self, sub: Subscription, rels: Iterable[SubscriptionRel], relmap: LogicalRepRelMap
    ) -> list[ChangedText]:
        """Compare the tables with text that has changed; call this with a batch in hand."""
        self._note_shapes(rels)
        if self.clock() < self._silent_until:
            return []
        self._is_behind_batch = True
        tables = _comparable(rels)
        return self._look(sub, tables, self._fresh_with_text(tables, relmap), relmap)

    def keep(self, text: ChangedText) -> None:
        """Store a change that the caller has acted on: it is told once."""
        self.store.put_text_types(text.row)
        self._known[text.rel.srrelid] = _Known(text.row, text.types)

    def _look(
        self,
        sub: Subscription,
        tables: Mapping[int, SubscriptionRel],
        compared: Mapping[int, SubscriptionRel],
        relmap: LogicalRepRelMap,
    ) -> list[ChangedText]:
        """Compare some tables in any case, and those with other texts than before."""
        try:
            # The mark comes first: what changes behind the mark is found at the next look.
            texts = self._with_texts(tables)
            mark = self._texts(texts)
            if texts and mark != self._mark:
                compared = {**compared, **texts}
            found = self.publisher.text_types(compared.keys()) if compared else {}
        except ReplicationError as error:
            self._silent_until = self.clock() + TEXT_COMPARISON_RETRY_SECONDS
            log.info(
                "action=text_not_compared subid=%d sqlstate=%s the types of the publisher could "
                "not be compared: %s",
                *(sub.oid, error.code, error),
            )
            return []
        changed = []
        for relid, rel in compared.items():
            relation = relmap.get(relid)
            self._asked[rel.srrelid] = rel.epoch, relation
            if not found[relid].numbers:
                continue  # dropped, or swapped meanwhile
            options = sub.table_options(rel.nspname, rel.relname)
            said = self._compare(rel, relation, found[relid], options)
            if said is not None:
                changed.append(said)
        self._mark = mark
        return changed

    def _note_shapes(self, rels: Iterable[SubscriptionRel]) -> None:
        """Store what the shapes show, unless values were computed anew: the next look tells."""
        tables = _comparable(rels) if self.shapes else {}
        while self.shapes:
            shape = self.shapes.pop(0)  # another thread may add one
            rel = tables.get(shape.relid)
            known = None if rel is None else self._known_types(rel)
            found = None if known is None else seen_in(known.types, shape)
            if rel is not None and known is not None and found is not None:
                self.keep(ChangedText(rel, replace(known.row, types=found.as_json()), found, False))

    def _texts(self, tables: Mapping[int, SubscriptionRel]) -> _Mark:
        """Ask for the mark of the types of the tables, if there are any."""
        types: dict[int, TextType] = {}
        for rel in tables.values():
            types.update(self._known[rel.srrelid].types.types)
        copies = frozenset((rel.srrelid, rel.epoch) for rel in tables.values())
        return copies, self.publisher.text_mark(types) if types else ""

    def _with_texts(self, tables: Mapping[int, SubscriptionRel]) -> dict[int, SubscriptionRel]:
        """The tables with an enum, a composite or names of objects."""
        return {
            relid: rel
            for relid, rel in tables.items()
            if (known := self._known_types(rel)) is not None and known.types.columns
        }

    def _fresh(
        self, tables: Mapping[int, SubscriptionRel], relmap: LogicalRepRelMap
    ) -> dict[int, SubscriptionRel]:
        """The tables that were never compared, or were announced since."""
        return {
            relid: rel for relid, rel in tables.items() if self._is_fresh(rel, relmap.get(relid))
        }

    def _is_fresh(self, rel: SubscriptionRel, relation: Relation | None) -> bool:
        epoch, asked = self._asked.get(rel.srrelid, ("", None))
        if epoch != rel.epoch:
            return relation is not None or self._known_types(rel) is None
        return relation is not None and asked is not relation

    def _fresh_with_text(
        self, tables: Mapping[int, SubscriptionRel], relmap: LogicalRepRelMap
    ) -> dict[int, SubscriptionRel]:
        """Those of ``_fresh`` that may have a type that is not built in."""
        return {
            relid: rel
            for relid, rel in self._fresh(tables, relmap).items()
            if (relation := relmap.get(relid)) is None
            or may_change_text([column.typid for column in relation.columns])
        }

    def _known_types(self, rel: SubscriptionRel) -> _Known | None:
        """The last comparison of the table under the present copy id."""
        known = self._known.get(rel.srrelid)
        if known is not None and known.row.epoch == (rel.epoch or ""):
            return known
        row = self.store.text_types(rel.srsubid, rel.srrelid)
        if row is None:
            return None
        self._known[rel.srrelid] = known = _Known(row, from_json(row.types))
        return known

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
        """Store the types of a table, or return what has changed since the last comparison.

        A column that is not published changes no text of the lake. The announcement may be older
        than a renaming: a column that was compared before is compared under its present name.
        """
        known = self._known_types(rel)
        last = None if known is None else known.types.under_present_names(found.numbers)
        names = set[str]() if last is None else set(last.numbers)
        if relation is not None:
            names |= {column.name for column in taken_of(relation, options).columns}
        if relation is not None or last is not None:
            found = found.of_columns(names)
        types = found.as_json()
        if known is None or last is None:
            row = StoredTextTypes(rel.srsubid, rel.srrelid, rel.epoch or "", types)
            changes = rewritten = []
        elif known.row.types == types:
            return None
        else:
            before = self._as_followed(rel, last)
            before = replace(before, numbers={**before.numbers, **_renamed(last, before, known)})
            if self.told:
                before = replace(before, numbers=found.numbers)
            moved = self._moved(rel, before, found)
            if moved is None:
                return None
            changes = [*text_changes(before, found), *moved]
            rewritten = text_changes(before.without_names(), found.without_names())
            if (options.on_attach or self.on_attach()) == COPY:
                rewritten += moved
            row = known.row.changed(types, changes, time.time_ns() // 1000)
        compared = ChangedText(rel, row, found, copies=bool(rewritten))
        if changes:
            return compared
        self.keep(compared)
        return None

    def _moved(self, rel: SubscriptionRel, before: TextTypes, found: TextTypes) -> list[str] | None:
        """Sentences about partitions that came or went; None if the publisher gave no answer.

        Without an answer nothing is stored, and the next comparison asks again.
        """
        came, went = moved_relids(before, found)
        if not came and not went:
            return []
        try:
            return self.publisher.moved_partitions(came, went)
        except ReplicationError as error:
            log.info(
                "action=text_not_compared subid=%d relid=%d sqlstate=%s the partitions of a table "
                "could not be compared: %s",
                *(rel.srsubid, rel.srrelid, error.code, error),
            )
            return None


def _comparable(rels: Iterable[SubscriptionRel]) -> dict[int, SubscriptionRel]:
    """The tables whose types may be compared, by the publisher's oid."""
    return {
        relid: rel
        for rel in rels
        if rel.srsubstate in SYNCED
        and not rel.suspended  # its end is a new copy
        and rel.other_relid is None  # another table is told of as such
        and (relid := rel.remote_relid) is not None
    }


def _renamed(last: TextTypes, followed: TextTypes, known: _Known) -> dict[str, int]:
    """The numbers of columns under names that the follower does not know yet.

    A name is new since the last comparison, or is a renamed column's that was compared before.
    """
    names = followed.numbers
    return {
        name: number
        for name, number in last.numbers.items()
        if name not in known.types.numbers or (name not in names and number in names.values())
    }


def warn_of_text(sub: Subscription, rel: SubscriptionRel, row: StoredTextTypes) -> None:
    """Log values that changed on the publisher without a change of a row."""
    name = qualified_name(rel.nspname, rel.relname)
    hint = remedies.text_changed(sub.subname, name)
    log.warning(
        "action=text_changed subid=%d relid=%d %s",
        *(rel.srsubid, rel.srrelid, row.primary(name)),
        extra={"DETAIL": row.detail, "HINT": hint},
    )
