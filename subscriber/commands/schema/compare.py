"""Compare the publisher's columns of a table with the lake's, and foretell the next step. Pure.

The pairs come first. A published column and a lake column belong together by number: the lake table
remembers the publisher's ``attnum`` of every column, and Iceberg's field id. Columns without a
memory are found by name.

Then every pair gets a state. A pair as remembered *follows*. For the rest, the decision of a worker
at the next changed row is taken ahead (``workers.changes.schema_change``): *pending* and *copied
again* need no help, *differs* has a remedy. Some facts are about the whole table and count for
every pair: a new table has the name, the table is suspended, or was never copied.

A trace. Remembered is ``1 id, 2 v``, and the publisher has ``1 id, 2 title, 3 w text``::

    1  id     int     follows
    2  title  v       pending        column "v" renamed to "title"
    3  w              pending        column "w" added

If column 3 has a volatile default, the table is copied again: 2 and 3 are *copied again*.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from catalog import remedies
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.schema_changes import SchemaChange
from workers.apply.copy_again import may_copy
from workers.changes.cannot_follow import CannotFollow
from workers.changes.column_rules import GuardedColumn, check_guarded
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.changes.schema_change import decide
from workers.lake.table import SOURCE_COLUMN, LakeColumn, LakeTable
from workers.proto.messages import Relation, RelationColumn
from workers.publisher.declared_columns import DeclaredColumn
from workers.publisher.remote_table import RemoteColumn, RemoteTable
from workers.publisher.table_shape import TableShape
from workers.tables.position import recopy_command


class ColumnState(StrEnum):
    """How a column of the lake stands to the publisher's column."""

    FOLLOWS = "follows"
    PENDING = "pending"
    COPIED_AGAIN = "copied again"
    DIFFERS = "differs"
    BY_NAME = "by name"
    KEPT = "kept"
    UNPUBLISHED = "not published"
    EXCLUDED = "excluded"
    MASKED = "masked"
    GENERATED = "generated"
    LAKE_ONLY = "lake only"
    NOT_COPIED = "not copied"


@dataclass(frozen=True, slots=True)
class Publisher:
    """The publisher's side: ``table`` has the published columns, ``declared`` has all columns."""

    table: RemoteTable
    shape: TableShape
    declared: Sequence[DeclaredColumn]


@dataclass(frozen=True, slots=True)
class Sides:
    """The facts about a table, from publisher, lake and catalog.

    ``remembered`` are the columns of the last time when the lake was in line. ``changes_columns``
    says that the lake server can change columns, ``follows`` that changes are followed at all.
    ``drops`` and ``nulls`` are ``on_dropped_column: drop`` and ``on_added_default: null``.
    ``now_named`` is the present name of the copied table, if the publisher has renamed the
    table; ``follows_name`` says that a worker takes the name over.
    """

    sub: Subscription
    rel: SubscriptionRel
    options: TableOptions
    publisher: Publisher | None
    lake: LakeTable | None
    remembered: RememberedColumns | None = None
    changes: Sequence[SchemaChange] = ()
    changes_columns: bool = True
    follows: bool = True
    drops: bool = False
    nulls: bool = False
    now_named: str | None = None
    follows_name: bool = False

    @property
    def name(self) -> str:
        """The table as the subscription knows it."""
        return qualified_name(self.rel.nspname, self.rel.relname)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The next step for columns out of line; ``whole``: for every published column."""

    state: ColumnState
    detail: str | None = None
    remedy: str | None = None
    whole: bool = False
    sentences: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """A column of the publisher, of the lake, or of both; ``since``: when the publisher's left."""

    declared: DeclaredColumn | None
    lake: LakeColumn | None
    state: ColumnState
    in_key: bool = False
    detail: str | None = None
    remedy: str | None = None
    since: SchemaChange | None = None


def compare(sides: Sides) -> list[ColumnPair]:
    """The publisher's columns by number, then the columns that only the lake has."""
    return list(_Comparison(sides, judge(sides)).pairs())


def judge(sides: Sides) -> Verdict:
    """The next step for the columns of a table out of line."""
    rel, publisher = sides.rel, sides.publisher
    recopy = recopy_command(sides.sub.subname, rel)
    if publisher is None or not publisher.table.versions:
        return _gone(sides)
    if rel.awaits_resume:
        said = f"The table is suspended after error {rel.suspend_sqlstate}: {rel.suspend_error}"
        return _whole(said, remedies.suspended(sides.sub.subname, sides.name))
    if rel.srsubstate not in SYNCED:
        state = ColumnState.NOT_COPIED if sides.lake is None else ColumnState.COPIED_AGAIN
        return Verdict(state, "The table waits for its copy, or is being copied.", whole=True)
    if (reason := _unguarded(sides, publisher)) is not None:
        return _whole(f"{reason.primary[0].upper()}{reason.primary[1:]}.", reason.hint or "")
    if sides.lake is None:
        return _whole("The lake table does not exist.", f"{recopy} makes it anew.")
    if rel.remote_relid not in (None, publisher.table.relid):
        said = "Another table has the name now on the publisher."
        if sides.follows and may_copy(rel, sides.options):
            return Verdict(ColumnState.COPIED_AGAIN, said, whole=True)
        return _whole(said, f"{recopy} copies the table that has the name now.")
    if sides.remembered is None or sides.remembered.is_forgotten or not sides.follows:
        adds = sides.changes_columns and not sides.options.shared
        remedy = f"{recopy} adds it." if adds else "Add it by ALTER TABLE in pgsub sql."
        return Verdict(ColumnState.DIFFERS, "The lake table lacks the column.", remedy)
    return _next_step(sides, publisher, sides.remembered, sides.lake)


def _unguarded(sides: Sides, publisher: Publisher) -> GuardedColumn | None:
    """Why a worker would take no row: a column to hide may have another name."""
    names = [each.name for each in publisher.table.columns]
    before = sides.remembered
    try:
        check_guarded(sides.name, names, sides.options, before=before, shape=publisher.shape)
    except GuardedColumn as reason:
        return reason
    return None


def _gone(sides: Sides) -> Verdict:
    refresh = f"pgsub refresh {shlex.quote(sides.sub.subname)}"
    if sides.now_named is not None:
        said = f'The publisher\'s table is "{sides.now_named}" now.'
        if sides.follows_name:
            return Verdict(ColumnState.PENDING, said, whole=True)
        remedy = f"{refresh} copies it under its new name; the lake table stays."
        return _whole(said, remedy)
    if sides.publisher is None:
        said = "The publisher has no table of the name."
    else:
        said = "No publication of the subscription has the table."
    return _whole(said, f"{refresh} takes the table out of the subscription; the lake table stays.")


def _whole(detail: str, remedy: str) -> Verdict:
    return Verdict(ColumnState.DIFFERS, detail, remedy, whole=True)


def _next_step(
    sides: Sides, publisher: Publisher, remembered: RememberedColumns, lake: LakeTable
) -> Verdict:
    """The decision of a worker at the next changed row."""
    relation = message_of(publisher.table)
    if remembered.describes(relation):
        return Verdict(ColumnState.FOLLOWS)
    try:
        decision = decide(
            *(remembered, publisher.shape, relation, lake.columns, sides.options),
            drops=sides.drops,
            nulls=sides.nulls,
        )
    except CannotFollow as reason:
        if reason.copies and may_copy(sides.rel, sides.options):
            return Verdict(ColumnState.COPIED_AGAIN, str(reason))
        recopy = recopy_command(sides.sub.subname, sides.rel)
        return Verdict(ColumnState.DIFFERS, str(reason), reason.hint(recopy))
    return Verdict(ColumnState.PENDING, sentences=decision.sentences)


def message_of(remote: RemoteTable) -> Relation:
    """The Relation message that the publisher would send now."""
    columns = tuple(
        RelationColumn(each.in_key, each.name, each.atttypid, each.atttypmod)
        for each in remote.columns
    )
    return Relation(remote.relid, remote.nspname, remote.relname, remote.relreplident, columns)


@dataclass(slots=True)
class _Comparison:
    """The comparison of one table, column by column."""

    sides: Sides
    verdict: Verdict
    _by_id: dict[int, LakeColumn] = field(default_factory=dict)
    _ids: dict[int, int] = field(default_factory=dict)
    """attnum → field id, of remembered and of kept columns"""
    _kept: Mapping[int, int] = field(default_factory=dict)
    _shown: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        lake, remembered = self.sides.lake, self.sides.remembered
        if lake is None:
            return
        self._by_id = {each.field_id: each for each in lake.columns if each.field_id}
        if remembered is not None and not remembered.is_forgotten:
            self._kept = remembered.kept
            columns = {each.attnum: each.field_id for each in remembered.columns}
            self._ids = {**remembered.kept, **columns}

    def pairs(self) -> Iterator[ColumnPair]:
        """Every pair; a lake column is in one pair only."""
        if (publisher := self.sides.publisher) is not None:
            keys = _keys(publisher.table)
            published = {each.attnum: each for each in publisher.table.columns}
            for each in publisher.declared:
                lake = self._lake_column(each)
                if lake is not None:
                    self._shown.add(lake.name)
                now = published.get(each.attnum)
                yield self._published(each, now, lake, each.name in keys)
        for column in self.sides.lake.columns if self.sides.lake is not None else ():
            if column.name not in self._shown:
                yield self._of_the_lake(column)

    def _lake_column(self, declared: DeclaredColumn) -> LakeColumn | None:
        if (found := self._by_id.get(self._ids.get(declared.attnum, 0))) is not None:
            return found
        name, taken = self.sides.options.lake_column(declared.name), set(self._ids.values())
        columns = self.sides.lake.columns if self.sides.lake is not None else ()
        return next(
            (each for each in columns if each.name == name and each.field_id not in taken), None
        )

    def _published(
        self,
        declared: DeclaredColumn,
        now: RemoteColumn | None,
        lake: LakeColumn | None,
        in_key: bool,
    ) -> ColumnPair:
        """A column of the publisher; ``now`` is None if the column is not published."""
        if declared.name in self.sides.options.excluded and now is not None:
            said = "The configuration excludes the column."
            return ColumnPair(declared, lake, ColumnState.EXCLUDED, in_key, said)
        if declared.name in self.sides.options.left_out and now is not None:
            said = "The configuration masks the values: NULL."
            return ColumnPair(declared, lake, ColumnState.MASKED, in_key, said)
        if declared.attnum in self._kept:
            return self._left(declared, lake)
        was = self._remembered(declared.attnum)
        if now is None and was is None:
            said = "A column list leaves the column out, or the publisher never sends it."
            return ColumnPair(declared, None, ColumnState.UNPUBLISHED, in_key, said)
        if self.verdict.whole:
            return self._judged(declared, lake, in_key)
        if now is not None and was is not None:
            before, today = (was.name, was.typid, was.typmod), (now.name, now.atttypid)
            if before == (*today, now.atttypmod):
                kinds = {name: kind for name, kind, _ in self.sides.options.masks}
                if declared.name not in kinds:
                    return ColumnPair(declared, lake, ColumnState.FOLLOWS, in_key)
                said = f"The configuration masks the values: {kinds[declared.name]}."
                return ColumnPair(declared, lake, ColumnState.MASKED, in_key, said)
        by_name = lake is not None and lake.name == self.sides.options.lake_column(declared.name)
        if now is not None and by_name and not self._decides:
            return ColumnPair(declared, lake, ColumnState.BY_NAME, in_key)
        return self._judged(declared, lake, in_key)

    def _remembered(self, attnum: int) -> RememberedColumn | None:
        remembered = self.sides.remembered
        columns = () if remembered is None else remembered.columns
        return next((each for each in columns if each.attnum == attnum), None)

    @property
    def _decides(self) -> bool:
        """Does a worker compare with remembered columns?"""
        remembered = self.sides.remembered
        return self.sides.follows and remembered is not None and not remembered.is_forgotten

    def _judged(
        self, declared: DeclaredColumn | None, lake: LakeColumn | None, in_key: bool = False
    ) -> ColumnPair:
        verdict = self.verdict
        names = [each.name for each in (declared, lake) if each is not None]
        said = verdict.detail or _about(names, verdict.sentences)
        return ColumnPair(declared, lake, verdict.state, in_key, said, verdict.remedy)

    def _of_the_lake(self, column: LakeColumn) -> ColumnPair:
        """A lake column without a column of the publisher."""
        options = self.sides.options
        if column.field_id and column.field_id in self._kept.values():
            return self._left(None, column)
        if column.field_id and column.field_id in self._ids.values():
            return self._judged(None, column)
        if column.name in dict(options.generated):
            return ColumnPair(None, column, ColumnState.GENERATED)
        if options.shared and column.name == SOURCE_COLUMN:
            said = "The source of each row of a shared lake table."
            return ColumnPair(None, column, ColumnState.LAKE_ONLY, detail=said)
        return ColumnPair(None, column, ColumnState.LAKE_ONLY)

    def _left(self, declared: DeclaredColumn | None, lake: LakeColumn | None) -> ColumnPair:
        """A column dropped or unpublished on the publisher; the lake keeps the values."""
        number = next((n for n, each in self._kept.items() if lake and each == lake.field_id), 0)
        names = [] if declared is None else [declared.name]
        if lake is not None:
            lake_name = lake.name.removesuffix(f"_dropped_{abs(number)}")
            names += [own for own, to in self.sides.options.columns if to == lake_name]
            names.append(lake_name)
        since, said = _left_since(names, self.sides.changes)
        return ColumnPair(declared, lake, ColumnState.KEPT, detail=said, since=since)


def _keys(table: RemoteTable) -> frozenset[str]:
    """The columns by which a changed row is found."""
    return frozenset(each.name for each in table.columns if each.in_key) | table.key_under_full


def _about(names: Iterable[str], sentences: Sequence[str]) -> str | None:
    """The sentences about the columns; all sentences if no sentence names a column."""
    quoted = [f'"{name}"' for name in names]
    about = [each for each in sentences if any(name in each for name in quoted)]
    return "; ".join(about or sentences) or None


_KEPT_WORDS: Final = ("dropped; kept in the lake", "not published any more; kept in the lake")


def _left_since(
    names: Sequence[str], changes: Sequence[SchemaChange]
) -> tuple[SchemaChange | None, str | None]:
    """The last change with a sentence about a column that left, by the column's names."""
    wanted = {f'column "{name}" {words}' for name in names for words in _KEPT_WORDS}
    for change in reversed(changes):
        for sentence in change.changes:
            if sentence in wanted:
                return change, sentence
    return None, None
