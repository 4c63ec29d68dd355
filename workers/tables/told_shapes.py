"""The shapes of tables that triggers of the publisher told, by position.

A shape counts from its message on, up to the next message about the table. In a batch a Relation
message has the shape that was told before it (``changes.by_table``). The last shape of each table
is stored, before any position behind the message is stored: the publisher sends the message again
unless a position behind it is confirmed, so a shape is never lost.

A part that comes again after a crash may be from before the stored shape, and brings its shapes
along. So a stored shape counts from the end of its transaction on, and an earlier row is looked at.

A trace: shape S1 is told at 200 and S2 at 300, each with a row behind it, and the worker dies
behind the storing of S2::

    stored     S2 at 300
    again      M(S1) R I    the row has S1 by the batch
    again      M(S2) R I    the row has S2 by the batch
    later      R I at 400   the row has S2 by the store

New values of rows (``rewritten``) are on record until a row has followed them, over every further
shape. What came up to the stored shape was followed before, so it is not followed once more when it
comes again. A copy has columns and values of the copy's position, so no shape up to there counts.

A command that triggers did not tell, because they were disabled, leaves a Relation message that is
not like the shape. Then the shape is forgotten, and the publisher is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.schema_changes import StoredShape
from catalog.store_sqlite import CatalogStore
from workers.changes.announced_columns import announced_in
from workers.changes.by_table import Run
from workers.changes.captured_shape import CapturedShape
from workers.changes.relation_map import RelName
from workers.changes.remembered_columns import RememberedColumns
from workers.process import failpoints
from workers.proto.messages import Relation
from workers.stream.batch import Batch


@dataclass(slots=True)
class ToldShapes:
    """The shapes of an apply worker's tables.

    ``_stored`` has the catalog's, by relid, with the copy id.
    """

    store: CatalogStore
    _stored: dict[int, tuple[str | None, CapturedShape | None]] = field(default_factory=dict)

    def at(self, rel: SubscriptionRel, run: Run, part: Batch) -> CapturedShape | None:
        """The shape at the position of a run's message, if a trigger told it."""
        if run.changes is None or run.relation is None:
            return None
        stored, told = self._last(rel), run.shape
        if told is None:
            first = int(part.end_lsn[int(run.changes.txn[0])])
            if stored is None or stored.lsn >= first or stored.relid != run.relation.relid:
                return None
            told = stored
        elif stored is not None and stored.lsn > told.lsn:
            told = replace(told, rewritten=0, using=False)
        elif stored is not None and (stored.lsn, stored.text) == (told.lsn, told.text):
            told = stored
        else:
            told = told.after(stored)
        return told if told.lsn > rel.floor else None

    def like(
        self, rel: SubscriptionRel, relation: Relation, told: CapturedShape | None
    ) -> CapturedShape | None:
        """The shape, if a Relation message has its columns; else the table's shape is forgotten."""
        if told is None or announced_in(relation, told.shape(())) is not None:
            return told
        self.store.forget_captured_shape(rel.srsubid, rel.srrelid)
        self._stored.pop(rel.srrelid, None)
        return None

    def followed(self, rel: SubscriptionRel, told: CapturedShape | None) -> None:
        """A row has followed new values: they are not on record any more."""
        if told is None or not told.rewritten:
            return
        stored = self._last(rel)
        if stored is None or stored.lsn <= told.lsn:
            self._put(rel, replace(told, rewritten=0, using=False))

    def keep(
        self,
        sub: Subscription,
        shapes: Sequence[CapturedShape],
        runs: Mapping[RelName, Sequence[Run]],
    ) -> None:
        """Store the last shape of each table. A row has followed the shapes of ``runs``."""
        taken = [run.shape for own in runs.values() for run in own]
        last = {told.relid: told for told in shapes}
        for rel in self._tables(sub, last):
            told = last[rel.remote_relid or 0]
            stored = self._last(rel)
            if any(told is each for each in taken):
                told = replace(told, rewritten=0, using=False)
            elif stored is not None and (stored.lsn, stored.text) == (told.lsn, told.text):
                told = stored
            else:
                told = told.after(stored)
            if stored is None or stored.lsn <= told.lsn:
                self._put(rel, told)
                failpoints.reach(failpoints.SHAPE_STORED)

    def _tables(self, sub: Subscription, relids: Iterable[int]) -> list[SubscriptionRel]:
        found = frozenset(relids)
        return [rel for rel in self.store.rels(sub.oid) if rel.remote_relid in found]

    def _last(self, rel: SubscriptionRel) -> CapturedShape | None:
        epoch, found = self._stored.get(rel.srrelid, (None, None))
        if rel.srrelid not in self._stored or epoch != rel.epoch:
            stored = self.store.captured_shape(rel.srsubid, rel.srrelid)
            found = None
            if stored is not None:
                own = stored.rewritten, stored.using, stored.shape, stored.lsn
                found = CapturedShape(rel.remote_relid or 0, *own)
            self._stored[rel.srrelid] = rel.epoch, found
        return found

    def _put(self, rel: SubscriptionRel, told: CapturedShape) -> None:
        stored = StoredShape(LSN(told.lsn), told.text, told.rewritten, told.using)
        self.store.put_captured_shape(rel.srsubid, rel.srrelid, rel.epoch or "", stored)
        self._stored[rel.srrelid] = rel.epoch, told


def is_same(before: RememberedColumns, relation: Relation, told: CapturedShape | None) -> bool:
    """Are the columns of a message the remembered ones, with the values of before?"""
    if not before.describes(relation):
        return False
    found = None if told is None else announced_in(relation, told.shape(()))
    if told is None or found is None:
        return True
    known = [*before.columns, *(each for each in before.guarded if each.typid)]
    numbers = sorted(each.attnum for each in known)
    return not told.rewritten and [each.attnum for each in found] == numbers
