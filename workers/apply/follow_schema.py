"""Bring lake tables in line when the publisher's columns change, before the rows that need it.

A Relation message with the columns that are remembered costs a comparison in memory: no question,
no commit. Another message is answered in this order (``workers.changes.schema_change`` decides):

1. The part is cut before the first transaction with the message, so every earlier row is published.
2. The publisher is asked for the table's shape on a second connection.
3. The lake's columns and the remembered columns change in one commit to the lake table.
4. The commit is put onto the disk, and stored in the catalog together with what was changed.
5. The part is written with the new columns.

Where the decision is "cannot be followed", or another table has the name, the transaction is at
fault, and the table is copied again (``workers.apply.copy_again``). A table that may not be copied
without a user's word is an error: the subscription stops, or the table is suspended, as for any
error of the table.

A column that was added with a stored default is there with the default in the rows from before:
the third step fills the column on a branch first (``workers.tables.fill_columns``). A table larger
than ``auto_recopy_max_bytes`` is not filled without a user's word, as it is not copied.

A trace, with a worker that is killed behind each line::

    remembered id, name; message id, title      transactions before it are published
    lake: field 2 renamed, property id, title   killed: the successor reads id, title from the lake
    disk, catalog: id, title                    killed: the same
    rows of the message are published           killed: the position skips them

A table without remembered columns (of an older version, or without a copy) is looked at with its
first message. If the lake table has all columns of the message, they are remembered; no change is
followed without memory.

With ``on_schema_change: stop`` or ``suspend`` a table gets its rows by name, as in PostgreSQL, and
a name may be another column's by now. So the remembered columns are forgotten before the first row
of a message with other columns, and later count as never seen. A message with a column that the
lake table lacks is an error: no row is written, and nothing is forgotten.

Where the publisher's triggers tell of each change (``ddl_capture``), the shape of step 2 is the one
that was told last before the message, and the publisher is not asked. The last shape of a table is
stored before any position behind it, and is forgotten by no restart.

Left alone are shared lake tables, and the table of logical messages. A table with excluded or
masked columns is checked in every mode: no value to hide may come under another name
(``workers.changes.column_rules``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from catalog.errcodes import ColumnsChanged, InvalidName, ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_stat_subscription_stats import ColumnChangeKind
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from workers.apply.copy_again import (
    CopyAgain,
    may_copy,
    not_followed,
    other_table,
    warn_of_old_rows,
)
from workers.apply.cut_batch import CutBefore, cuts_for_columns
from workers.changes.by_table import Run
from workers.changes.cannot_follow import CannotFollow
from workers.changes.captured_shape import CapturedShape, check_rewritten
from workers.changes.column_checks import check_commutes, check_new_names
from workers.changes.column_comments import ended
from workers.changes.column_rules import GuardedColumn, check_guarded, taken_of
from workers.changes.failed_transaction import failed_at
from workers.changes.guarded_runs import check_run
from workers.changes.relation_map import RelName
from workers.changes.remembered_columns import RememberedColumns, forgotten
from workers.changes.schema_change import Decision, decide, first_look
from workers.lake.table import LakeColumn, LakeTable
from workers.process import failpoints
from workers.proto.messages import Relation
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL
from workers.publisher.table_shape import TableShape
from workers.stream.batch import Batch
from workers.tables.known_columns import known_columns
from workers.tables.open_table import OpenTable
from workers.tables.settle_comments import settle_comments
from workers.tables.told_shapes import ToldShapes, is_same
from workers.tables.writer import LakeWriter
from workers.tables.written import store_durable

log = logging.getLogger(__name__)

FOLLOW, SUSPEND = "follow", "suspend"


class ColumnsKeeper(Protocol):
    """What an ``Applier`` asks about the columns of its tables."""

    def begin_part(self) -> None:
        """Begin with a part of a batch, for the first time or once more."""

    def follow(
        self,
        sub: Subscription,
        rels: Mapping[RelName, SubscriptionRel],
        runs: Mapping[RelName, Sequence[Run]],
        part: Batch,
        shapes: Sequence[CapturedShape] = (),
    ) -> None:
        """Bring the lake tables of ``runs`` in line with the messages, or raise.

        ``shapes`` are those that triggers told in the part.
        """

    def takes_out(self, sub: Subscription, error: ReplicationError) -> bool:
        """Are all tables at fault suspended, until a user or the worker has them copied again?"""

    def copy_again(self, sub: Subscription, error: ReplicationError) -> bool:
        """Begin to copy the tables at fault again; False if the worker may not."""

    def follows(self, sub: Subscription, rel: SubscriptionRel) -> bool:
        """Is a table copied again if its rows have changed without an event?"""


@dataclass(slots=True)
class SchemaFollower:
    """The columns of an apply worker's tables.

    ``ask`` asks the publisher for the shape of a relation. ``_settled`` has by relid the message
    that a table is in line with, under a copy id and a mode, and the shape that a trigger told
    last; ``_seen`` the tables that the part in hand has changed so far. ``told`` are the shapes
    that triggers told.
    """

    store: CatalogStore
    writer: LakeWriter
    ask: Callable[[int], TableShape | None]
    settings: Callable[[], Settings]
    copies: CopyAgain
    told: ToldShapes = field(init=False)
    _settled: dict[int, tuple[str | None, str, Relation, str]] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.told = ToldShapes(self.store)

    def begin_part(self) -> None:
        """Begin with a part of a batch, for the first time or once more."""
        self._seen.clear()
        self.writer.begin_part()

    def follow(
        self,
        sub: Subscription,
        rels: Mapping[RelName, SubscriptionRel],
        runs: Mapping[RelName, Sequence[Run]],
        part: Batch,
        shapes: Sequence[CapturedShape] = (),
    ) -> None:
        """Bring the lake tables of ``runs`` in line with the messages of the runs.

        Raises ``CutBefore`` if transactions of the part have to be published first, and 55000, as
        the fault of the transaction, if a change cannot be followed. Only columns to hide are
        looked at if the lake server cannot change columns: a column that the lake table lacks is an
        error then.
        """
        changes_columns = self.writer.changes_columns
        in_slices, looked = frozenset(self._seen), not changes_columns
        for target, own in runs.items():
            rel = rels[target]
            options = sub.table_options(rel.nspname, rel.relname)
            mode = self._mode(options)
            if rel.holds_messages:
                continue
            for run in own:
                if run.relation is None or run.changes is None:
                    continue
                by_name = options.shared or not changes_columns
                told = None if by_name else self.told.at(rel, run, part)
                if not self._is_settled(rel, mode, run.relation, told):
                    if not looked:
                        self._look_ahead(sub, rels, runs, part)
                        looked = True
                    told = self.told.like(rel, run.relation, told)
                    if by_name:
                        check_run(rel, run, options)
                        known_columns(self.store, self.writer.open(rel).lake, rel, run, options)
                    elif mode == FOLLOW:
                        sliced = rel.srrelid in in_slices
                        self._settle(sub, rel, options, run, part, told, sliced=sliced)
                        self.told.followed(rel, told)
                    elif not self._takes_by_name(sub, rel, options, run):
                        continue
                    if not by_name:
                        self._describe(sub, rel, options, run)
                    text = "" if told is None else told.text
                    self._settled[rel.srrelid] = rel.epoch, mode, run.relation, text
                self._seen.add(rel.srrelid)
        if shapes:
            self.told.keep(sub, shapes, runs)

    def _look_ahead(
        self,
        sub: Subscription,
        rels: Mapping[RelName, SubscriptionRel],
        runs: Mapping[RelName, Sequence[Run]],
        part: Batch,
    ) -> None:
        """Raise ``CutBefore`` around transactions with other columns, before a change is made.

        A part that comes again may have rows from before a change that was made, in the change's
        transaction. Nothing tells the rows' columns then: the table would be copied again.
        """
        cuts: list[int] = []
        for target, own in runs.items():
            rel = rels[target]
            options = sub.table_options(rel.nspname, rel.relname)
            if rel.holds_messages or options.shared or self._mode(options) != FOLLOW:
                continue
            others = partial(self._has_others, rel, options, part)
            cuts += cuts_for_columns(own, part.ntxns, others)
        if cuts:
            raise CutBefore(min(cuts))

    def _has_others(self, rel: SubscriptionRel, opts: TableOptions, part: Batch, run: Run) -> bool:
        """Has a run other columns than are remembered?"""
        told = self.told.at(rel, run, part)
        if run.relation is None or self._is_settled(rel, FOLLOW, run.relation, told):
            return False
        before = known_columns(self.store, self.writer.open(rel).lake, rel, run, opts)
        if before is None or before.relid != run.relation.relid:
            return False
        return not is_same(before, run.relation, told)

    def takes_out(self, sub: Subscription, error: ReplicationError) -> bool:
        """Are all tables at fault suspended, until a user or the worker has them copied again?"""
        if not isinstance(error, ColumnsChanged) or not error.tables:
            return False
        modes = {self._mode(sub.table_options(rel.nspname, rel.relname)) for rel in error.tables}
        return modes == {SUSPEND} or self._copies(sub, error)

    def copy_again(self, sub: Subscription, error: ReplicationError) -> bool:
        """Begin to copy the tables at fault again; False if the worker may not."""
        limit = self.settings().auto_recopy_max_bytes
        return self._copies(sub, error) and self.copies.begin(sub, error, limit)

    def follows(self, sub: Subscription, rel: SubscriptionRel) -> bool:
        """Is a table copied again if its rows have changed without an event?"""
        options = sub.table_options(rel.nspname, rel.relname)
        copies = self.writer.changes_columns and may_copy(rel, options)
        return copies and self._mode(options) == FOLLOW

    def _copies(self, sub: Subscription, error: ReplicationError) -> bool:
        if not isinstance(error, ColumnsChanged) or not error.copies:
            return False
        return bool(error.tables) and all(self.follows(sub, rel) for rel in error.tables)

    def _mode(self, options: TableOptions) -> str:
        return options.on_schema_change or self.settings().on_schema_change

    def _is_settled(
        self, rel: SubscriptionRel, mode: str, relation: Relation, told: CapturedShape | None
    ) -> bool:
        epoch, under, known, text = self._settled.get(rel.srrelid, (None, None, None, ""))
        same = epoch == rel.epoch and under == mode and (told is None or told.text == text)
        return same and (known is relation or known == relation)

    def _takes_by_name(
        self, sub: Subscription, rel: SubscriptionRel, options: TableOptions, run: Run
    ) -> bool:
        """Has the lake table all columns by name? Forget remembered columns that are others.

        The numbers of columns to hide cannot be forgotten.
        """
        check_run(rel, run, options)
        relation = run.relation
        lake = self.writer.open(rel).lake
        names = {column.name for column in lake.columns}
        if relation is None or any(
            options.lake_column(each.name) not in names
            for each in taken_of(relation, options).columns
        ):
            return False
        before = known_columns(self.store, lake, rel, run, options)
        if before is not None and not before.is_forgotten and not before.describes(relation):
            if options.guarded and run.changes is not None:
                reason = CannotFollow("The table has columns to hide.", copies=False)
                raise failed_at(relation, run.changes, 0, not_followed(sub, rel, reason))
            text = forgotten(rel.epoch or "").as_text()
            self.writer.change_columns(rel, (), lambda _columns: text)
            self.store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", text)
        return True

    def _settle(
        self,
        sub: Subscription,
        rel: SubscriptionRel,
        options: TableOptions,
        run: Run,
        part: Batch,
        told: CapturedShape | None,
        *,
        sliced: bool,
    ) -> None:
        """Bring a lake table in line with the message of a run.

        ``sliced``: the branch has rows of the transaction already, from a slice before.
        """
        relation, changes = run.relation, run.changes
        if relation is None or changes is None:
            return
        if rel.remote_relid not in (None, relation.relid) and self.follows(sub, rel):
            raise failed_at(relation, changes, 0, other_table(rel))
        table = self.writer.open(rel)
        before = known_columns(self.store, table.lake, rel, run, options)
        if before is None or before.is_forgotten:
            check_run(rel, run, options)
            self._look(sub, rel, options, relation, table.lake, told)
            return
        if before.relid != relation.relid:
            check_run(rel, run, options)
            return
        if is_same(before, relation, told):
            return
        if (first := int(changes.txn[0])) > 0:
            raise CutBefore(first)
        try:
            decision = self._decide(rel, before, relation, table.lake, options, sub, told)
            if rel.srrelid in self._seen:
                check_commutes(decision.changes, fills=bool(decision.fills), sliced=sliced)
            if decision.fills:
                self._check_size(relation.relid, decision)
            name = qualified_name(rel.nspname, rel.relname)
            check_new_names(name, table.lake.columns, decision.changes)
        except CannotFollow as reason:
            raise failed_at(relation, changes, 0, not_followed(sub, rel, reason)) from None
        except (InvalidName, GuardedColumn) as error:
            error.tables = (rel,)
            raise failed_at(relation, changes, 0, error) from None
        self._carry_out(rel, table, decision, LSN(int(part.end_lsn[0])), told)
        if decision.doubts:
            warn_of_old_rows(sub, rel, table.lake.ident, decision.doubts)

    def _describe(
        self, sub: Subscription, rel: SubscriptionRel, options: TableOptions, run: Run
    ) -> None:
        """Bring the comments of a lake table's columns in line with the configuration."""
        if run.relation is None or run.changes is None:
            return
        try:
            settle_comments(self.store, self.writer, rel, options, run.relation)
        except CannotFollow as reason:
            raise failed_at(run.relation, run.changes, 0, not_followed(sub, rel, reason)) from None

    def _look(
        self,
        sub: Subscription,
        rel: SubscriptionRel,
        options: TableOptions,
        relation: Relation,
        lake: LakeTable,
        told: CapturedShape | None,
    ) -> None:
        """Remember the columns of a table that is seen for the first time, if it is in line."""
        shape = self.ask(relation.relid) if told is None else told.shape(sub.subpublications)
        if shape is None:
            return
        found = first_look(shape, relation, lake.columns, options, rel.epoch or "")
        if found is not None:
            text = found.as_text()
            self.writer.change_columns(rel, (), lambda _columns: text)
            self.store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", text)

    def _decide(
        self,
        rel: SubscriptionRel,
        before: RememberedColumns,
        relation: Relation,
        lake: LakeTable,
        options: TableOptions,
        sub: Subscription,
        told: CapturedShape | None,
    ) -> Decision:
        shape = self.ask(relation.relid) if told is None else told.shape(sub.subpublications)
        if shape is None:
            raise CannotFollow("The publisher has dropped the table since.")
        name, names = qualified_name(rel.nspname, rel.relname), [c.name for c in relation.columns]
        check_guarded(name, names, options, before=before, shape=shape)
        drops = (options.on_dropped_column or self.settings().on_dropped_column) == "drop"
        nulls = (options.on_added_default or self.settings().on_added_default) == "null"
        # Under FULL the publisher finds a row by all values, and sends the default with the row.
        nulls = nulls and relation.replident != REPLICA_IDENTITY_FULL
        decision = decide(
            before, shape, relation, lake.columns, options, drops=drops, nulls=nulls, told=told
        )
        check_rewritten(told, retyped=bool(decision.kinds.get(ColumnChangeKind.RETYPE)))
        return decision

    def _check_size(self, relid: int, decision: Decision) -> None:
        """To write all rows again takes about as long as to copy the table."""
        if self.copies.size(relid) > self.settings().auto_recopy_max_bytes:
            listed = ", ".join(f'"{name}"' for name in decision.fills)
            raise CannotFollow(f"Lake column {listed} has to be filled in all rows.")

    def _carry_out(
        self,
        rel: SubscriptionRel,
        table: OpenTable,
        decision: Decision,
        lsn: LSN,
        told: CapturedShape | None,
    ) -> None:
        """Change the lake table, then store what was changed."""
        text = ""

        def remember(columns: Sequence[LakeColumn]) -> str:
            nonlocal text
            text = decision.remembered(columns).as_text()
            return text

        failpoints.reach(failpoints.BEFORE_SCHEMA_CHANGE)
        when = time.strftime("%Y-%m-%d", time.gmtime())
        comments = ended(table.lake.columns, decision.ended, f"{when} at {lsn}")
        changes = (*decision.changes, *comments)
        if decision.fills:
            durable = self.writer.fill_columns(rel, changes, decision.fills, remember)
        else:
            durable = self.writer.change_columns(rel, changes, remember)
        failpoints.reach(failpoints.SCHEMA_CHANGED)
        with self.store.transaction():
            store_durable(self.store, durable)
            self.store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", text)
            self.told.followed(rel, told)
            if not decision.sentences:  # only an excluded column has changed
                return
            now = time.time_ns() // 1000
            self.store.add_schema_change(rel.srsubid, rel.srrelid, now, lsn, decision.sentences)
            kinds = {kind.column: number for kind, number in decision.kinds.items()}
            self.store.count_for_stats(rel.srsubid, schema_change_count=1, **kinds)
        failpoints.reach(failpoints.SCHEMA_STORED)
        log.info(
            'action=schema_changed subid=%d relid=%d lsn=%s lake table "%s" follows table "%s": %s',
            *(rel.srsubid, rel.srrelid, lsn, table.lake.ident),
            *(qualified_name(rel.nspname, rel.relname), "; ".join(decision.sentences)),
        )
