"""Decide what a change of the publisher's columns means for the lake table. Pure.

Three descriptions are compared:

* what is *remembered*: the columns that the lake table was last brought in line with;
* the *message*: the Relation message of the change that is to be applied;
* the *shape*: the publisher's catalog now, which may be ahead of the message.

The message has names and types, and no number of a column. The shape has the numbers. So a column
of the message is found in the shape by name and type, and in memory by number. A number that is
remembered under another name was renamed; a remembered number that is gone was dropped; a number
above all remembered numbers is new.

The answer is never a guess. Nothing is followed, with a reason, where the message does not equal
the beginning of the shape, or where two histories could have led to it:

* The shape may be ahead by added columns only: a rename, a drop or another type behind the message
  leaves a column of the message without its equal.
* A dropped and an added column of one type in one step may be a renaming whose column was dropped
  and added again since.
* Old rows of an added column are known only while no row was rewritten: VACUUM FULL, TRUNCATE and a
  volatile default all give a table a new file.
* Old rows of a column with a default have one value. The publisher stores the value until the table
  is rewritten, and rewrites the table at once for a volatile default.
* Under a column list a column may be there, with values, long before it is published.

A shape that a trigger told (``captured_shape``) is not ahead, without the first two doubts.

A trace. Remembered is ``1 id, 2 name``, and the message is ``id, title, age``::

    the shape                               the answer
    1 id, 2 title, 3 age                    column 2 renamed, column 3 added
    1 id, 2 title, 3 age, 4 since           the same; column 4 comes with a later message
    1 id, 2 label, 3 age                    the shape is ahead: "title" is not there any more
    1 id, 3 title, 4 age                    column 2 dropped, 3 and 4 added: or is 3 column 2?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from catalog.pg_stat_subscription_stats import ColumnChangeKind
from catalog.pg_subscription import TableOptions
from workers.changes.announced_columns import announced_in, highest, known_up_to
from workers.changes.cannot_follow import KEEP, MAKE_ANEW, CannotFollow
from workers.changes.captured_shape import PROMOTED, CapturedShape
from workers.changes.column_comments import is_clamped
from workers.changes.column_rules import guarded_columns, taken_of
from workers.changes.masked_columns import column_type, told_masks
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.changes.rules_of_rows import under_rules
from workers.changes.stored_default import NotStored, stored_default
from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    RenameColumn,
    WidenColumn,
    is_wider,
)
from workers.lake.table import LakeColumn
from workers.proto.messages import Relation
from workers.publisher.table_shape import ShapeColumn, TableShape

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS: Final = frozenset({25, 1043})
"""text and varchar: PostgreSQL changes one to the other without a look at the values."""

_GENERATED: Final = "The configuration of the table has generated columns."


@dataclass(frozen=True, slots=True)
class Decision:
    """What brings a lake table in line with a message.

    ``changes`` are made in one step. ``fills`` has values of added columns for older rows, by the
    names of the columns. ``sentences`` say what happened on the publisher, and ``kinds`` count what
    happened. ``doubts`` say why a user's column may have other values in the older rows. ``ended``
    are the lake columns that are kept of dropped columns.
    """

    changes: tuple[ColumnChange, ...]
    fills: Mapping[str, pa.Scalar[Any]]
    sentences: tuple[str, ...]
    doubts: tuple[str, ...]
    kinds: Mapping[ColumnChangeKind, int]
    ended: tuple[int, ...]
    _before: RememberedColumns
    _shape: TableShape
    _natts: int
    _columns: tuple[tuple[ShapeColumn, str], ...]
    _kept: Mapping[int, int]
    _guarded: tuple[RememberedColumn, ...]

    def remembered(self, lake: Sequence[LakeColumn]) -> RememberedColumns:
        """What is remembered once the lake table has the changed columns ``lake``."""
        ids = {each.name: each.field_id for each in lake}
        columns = tuple(_remember(each, ids[name]) for each, name in self._columns)
        before, shape = self._before, self._shape
        ahead = highest(shape.columns) > self._natts  # a later column has to be compared, too
        sure = before if ahead else shape
        known = replace(before, natts=self._natts, files=sure.files, lists=sure.lists)
        return replace(known, columns=columns, kept=self._kept, guarded=self._guarded)


def first_look(
    shape: TableShape,
    relation: Relation,
    lake: Sequence[LakeColumn],
    options: TableOptions,
    epoch: str,
    kept: Mapping[int, int] | None = None,
) -> RememberedColumns | None:
    """What to remember of a table that is seen for the first time; None if it is not in line.

    ``kept`` are lake columns from before a copy, of columns that the publisher has no more.

    The lake table must have every column of the message already. Every further column of the shape
    counts as known: whether it is a later one, or one that was not published, is not certain.
    """
    ids = {each.name: each.field_id for each in lake}
    found = announced_in(taken_of(relation, options), shape)
    if found is None or any(options.lake_column(each.name) not in ids for each in found):
        return None
    columns = tuple(_remember(each, ids[options.lake_column(each.name)]) for each in found)
    natts = max(highest(shape.columns), *shape.dropped, 0)
    known = (epoch, shape.relid, natts, shape.files, columns, kept or {}, shape.lists)
    rules = guarded_columns(shape, options), told_masks(options), tuple(dict(options.types))
    return RememberedColumns(*known, *rules)


def decide(
    before: RememberedColumns,
    shape: TableShape,
    relation: Relation,
    lake: Sequence[LakeColumn],
    options: TableOptions,
    *,
    drops: bool = False,
    nulls: bool = False,
    told: CapturedShape | None = None,
) -> Decision:
    """Decide how the lake table follows a message; raises ``CannotFollow``.

    ``drops``: a dropped column leaves the lake table (``on_dropped_column: drop``). ``nulls``: rows
    before an added default stay NULL (``on_added_default: null``). ``told``: by a trigger.
    """
    found = announced_in(taken_of(relation, options), shape)
    if found is None:
        raise CannotFollow(
            "The publisher's columns have changed once more since, so what this change did is not "
            "known any more."
        )
    last = max(before.natts, highest(found))
    between = [each for each in shape.columns if before.natts < each.attnum < last]
    if any(e not in found and not e.computed and e.name not in options.left_out for e in between):
        raise CannotFollow("An added column was renamed, or was not published at first.")
    if told is None and any(before.natts < attnum <= last for attnum in shape.dropped):
        raise CannotFollow("A column was added and dropped again meanwhile.")
    before = under_rules(before, found, options)
    change = _Change(before, shape, lake, options, drops, nulls)
    known = {each.attnum: each for each in before.columns}
    new = [each for each in found if each.attnum not in known]
    gone = [each for each in before.columns if each.attnum not in {f.attnum for f in found}]
    change.leave(gone, new, exact=told is not None)
    for each in found:
        if each.attnum in known:
            change.stay(known[each.attnum], each)
    for each in new:
        change.join(each)
    return change.decision(found, known_up_to(shape, last))


def _remember(each: ShapeColumn, field_id: int) -> RememberedColumn:
    return RememberedColumn(
        each.attnum, each.name, each.typid, each.typmod, each.type.oid, field_id
    )


def _with_a_value(column: ShapeColumn) -> CannotFollow:
    return CannotFollow(
        f'Column "{column.name}" was added with a value for the rows that are there.'
    )


class _Change:
    """The changes of one table, collected column by column."""

    def __init__(
        self,
        before: RememberedColumns,
        shape: TableShape,
        lake: Sequence[LakeColumn],
        options: TableOptions,
        drops: bool,
        nulls: bool,
    ) -> None:
        self._before = before
        self._shape = shape
        self._options = options
        self._drops = drops
        self._nulls = nulls
        self._changes: list[ColumnChange] = []
        self._fills: dict[str, pa.Scalar[Any]] = {}
        self._sentences: list[str] = []
        self._doubts: list[str] = []
        self._ended: list[int] = []
        self._kinds: Counter[ColumnChangeKind] = Counter()
        self._kept = dict(before.kept)
        self._types = {each.field_id: each.type for each in lake}
        self._names = {each.field_id: each.name for each in lake}
        self._in_layout = {each.field_id for each in lake if each.in_layout}
        self._partitions = {name: each.field_id for each in lake for name in each.partition_fields}

    def _happened(self, kind: ColumnChangeKind, sentence: str) -> None:
        self._kinds[kind] += 1
        self._sentences.append(sentence)

    def leave(
        self, gone: Sequence[RememberedColumn], new: Sequence[ShapeColumn], *, exact: bool
    ) -> None:
        """Columns that the message lacks: dropped, or not published any more."""
        dropped = [each for each in gone if each.attnum in self._shape.dropped]
        if not exact and {each.typid for each in dropped} & {each.typid for each in new}:
            raise CannotFollow(
                "A column was dropped and a column of the same type was added: that may also be a "
                "renamed column."
            )
        for each in gone:
            if each in dropped and self._drops:
                self._check_unnamed(each.name)
                self._check_not_in_layout(each)
                self._changes.append(DropColumn(each.field_id))
                del self._names[each.field_id]
                self._happened(ColumnChangeKind.LEAVE, f'column "{each.name}" dropped')
            else:
                self._kept[each.attnum] = each.field_id
                self._ended += [each.field_id] if each in dropped else []
                why = "dropped" if each in dropped else "not published any more"
                sentence = f'column "{each.name}" {why}; kept in the lake'
                self._happened(ColumnChangeKind.LEAVE, sentence)

    def stay(self, was: RememberedColumn, now: ShapeColumn) -> None:
        """A column that is still there: a new name, a new type, or neither."""
        if was.name != now.name:
            self._check_unnamed(was.name)
            self._rename(was.field_id, self._options.lake_column(now.name))
            sentence = f'column "{was.name}" renamed to "{now.name}"'
            self._happened(ColumnChangeKind.RENAME, sentence)
        if (was.typid, was.typmod) != (now.typid, now.typmod):
            self._retype(was, now)

    def join(self, column: ShapeColumn) -> None:
        """A column that the message has for the first time.

        A column that a user has added to the lake table before is taken as it is. The rows that
        are there keep the user's values, and the publisher's may be others.
        """
        name = self._options.lake_column(column.name)
        type = column_type(column.name, column.type, self._options)
        taken = next((id for id, each in self._names.items() if each == name), None)
        if taken is not None and taken not in self._kept.values():
            if self._types[taken] != type:
                raise CannotFollow(
                    f'The lake table has a column "{name}" of another type.', copies=False
                )
            self._doubt(column)
            self._happened(ColumnChangeKind.ADD, f'column "{column.name}" added')
            return
        self._check_old_rows(column)
        value = self._stored_default(column, type)
        self._make_room(name)
        self._check_no_partition(name)
        self._changes.append(AddColumn(name, type))
        sentence = f'column "{column.name}" added'
        if value is not None:
            self._fills[name] = value
            sentence += "; its stored default filled in the rows from before"
        self._happened(ColumnChangeKind.ADD, sentence)

    def _doubt(self, column: ShapeColumn) -> None:
        """Note why a user's column may have other values than the publisher's."""
        try:
            self._check_old_rows(column)
            if column.has_missing and not self._nulls:
                raise _with_a_value(column)
        except CannotFollow as reason:
            self._doubts.append(f"{reason}")

    def _stored_default(self, column: ShapeColumn, type: pa.DataType) -> pa.Scalar[Any] | None:
        """The value of a new column in older rows; None for NULL."""
        if not column.has_missing or self._nulls:
            return None
        if column.name in self._options.hashed:  # a copy masks the value
            raise _with_a_value(column)
        files = self._before.files.keys() & self._shape.files.keys()
        as_null = self._options.on_unrepresentable == "null"
        clamp = is_clamped(self._options.lake_column(column.name), type, self._options, ())
        try:
            return stored_default(column, files, type, as_null=as_null, clamp=clamp)
        except NotStored:
            raise _with_a_value(column) from None

    def _check_old_rows(self, column: ShapeColumn) -> None:
        """Has a new column a single value in all older rows, stored or NULL?"""
        listed = "*" in self._shape.lists or self._shape.lists != self._before.lists
        if column.attnum <= self._before.natts or listed:
            raise CannotFollow(
                f'Column "{column.name}" may have been there before it was published: the values '
                "in the rows that are there are not known."
            )
        if not self._before.has_files(self._shape.files):
            raise CannotFollow(
                f'Column "{column.name}" was added, and the table was rewritten: the values in the '
                "rows that are there are not known."
            )
        if column.computed:
            raise _with_a_value(column)

    def decision(self, found: Sequence[ShapeColumn], natts: int) -> Decision:
        """The whole."""
        names = {
            each.attnum: self._names[each.field_id]
            for each in self._before.columns
            if each.field_id in self._names
        }
        columns = tuple(
            (each, names.get(each.attnum) or self._options.lake_column(each.name)) for each in found
        )
        return Decision(
            tuple(self._changes),
            self._fills,
            tuple(self._sentences),
            tuple(self._doubts),
            dict(self._kinds),
            tuple(self._ended),
            self._before,
            self._shape,
            natts,
            columns,
            self._kept,
            guarded_columns(self._shape, self._options, self._before),
        )

    def _check_unnamed(self, name: str) -> None:
        """A column that the configuration names stays as the configuration says."""
        options = self._options
        named = (dict(options.columns), dict(options.types), *options.keys)
        if any(name in each for each in named):
            raise CannotFollow(
                f'The configuration of the table names column "{name}".', copies=False
            )
        if options.generated:
            raise CannotFollow(_GENERATED, copies=False)

    def _check_not_in_layout(self, column: RememberedColumn) -> None:
        """Iceberg drops no such column, as PostgreSQL drops no column of a partition key."""
        if column.field_id in self._in_layout:
            raise CannotFollow(
                f'Column "{column.name}" was dropped, and the partitions or the order of the lake '
                "table are made from it.",
                copies=False,
                remedy=KEEP,
            )

    def _check_no_partition(self, name: str, for_column: int = 0) -> None:
        """Iceberg refuses a column with the name of a different column's partition field."""
        if self._partitions.get(name, for_column) != for_column:
            raise CannotFollow(
                f'The lake table has a partition field "{name}", and no column can have the name '
                "besides.",
                copies=False,
                remedy="Map the column to another name with columns: {COLUMN: {to: NAME}} of the "
                "table in the configuration. Or drop the lake table",
            )

    def _rename(self, field_id: int, name: str) -> None:
        if self._names.get(field_id) == name:
            return
        self._make_room(name, for_column=field_id)
        self._check_no_partition(name, for_column=field_id)
        self._changes.append(RenameColumn(field_id, name))
        self._names[field_id] = name

    def _make_room(self, name: str, for_column: int = 0) -> None:
        """Give a kept column another name if it has the name that a published column gets.

        A published column that has the name now gets another one by the same message.
        """
        taken = next((id for id, each in self._names.items() if each == name), for_column)
        if taken == for_column:
            return
        attnum = next((each for each, id in self._kept.items() if id == taken), None)
        if attnum is not None:
            other = f"{name}_dropped_{abs(attnum)}"
            self._changes.append(RenameColumn(taken, other))
            self._names[taken] = other
        elif taken not in {each.field_id for each in self._before.columns}:
            raise CannotFollow(
                f'The lake table has a column "{name}" that is not the publisher\'s.',
                copies=False,
            )

    def _retype(self, was: RememberedColumn, now: ShapeColumn) -> None:
        found, wanted = self._types[was.field_id], column_type(now.name, now.type, self._options)
        base = now.type.oid
        promoted = (was.base, base) in PROMOTED and str(wanted) != "string"  # as texts they differ
        alike = was.base == base or {was.base, base} <= _TEXTS
        if not promoted and not (alike and self._before.has_files(self._shape.files)):
            replaces = found != wanted and not is_wider(wanted, found)
            stays = replaces and was.field_id in self._in_layout
            computed = self._options.generated or self._options.defaults
            raise CannotFollow(
                f'The type of column "{now.name}" was changed: the values in the rows that are '
                "there are not known."
                + (" The partitions or the order of the lake table are made from it." * stays),
                copies=not (stays or (replaces and computed)),
                remedy=MAKE_ANEW if stays else None,
            )
        if found != wanted:
            if self._options.generated:
                raise CannotFollow(_GENERATED, copies=False)
            if not is_wider(wanted, found):
                stays = was.field_id in self._in_layout
                raise CannotFollow(
                    f'The lake column of column "{now.name}" cannot hold the values of the new '
                    "type." + (" The partitions or the order are made from it." * stays),
                    copies=not stays,
                    remedy=MAKE_ANEW if stays else None,
                )
            self._changes.append(WidenColumn(was.field_id, wanted))
        self._happened(ColumnChangeKind.RETYPE, f'type of column "{now.name}" changed')
