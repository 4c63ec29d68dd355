"""Plan the lake columns of a copy that replaces all rows, while readers see the old rows. Pure.

The columns of a lake table are the table's, not a branch's. So a copy cannot rename a column, or
give a column another type, without readers of the old rows noticing. The plan has two steps:

* *now*, before the copy: columns are added or widened. Readers see NULL in a new column.
* *at the publication*, in the commit that shows the new rows: columns are renamed or dropped.

In between, the copy writes each published column to a lake column that can hold the values: the
column that is there, under the name of that moment, or a new column. A new column whose name is
taken gets the name with ``NEXT`` at the end.

A column that partitions or the sort order of the lake table are made from has to stay: Iceberg
drops no such column, and gives no column the name of a different column's partition field. A copy
that needs either is refused before the first row, because Iceberg would refuse the last commit.

A column is found in the lake by the publisher's number, if the table is the remembered table, else
by name. A trace. Remembered is ``1 id int, 2 v int, 3 w int``, and the publisher has
``1 id bigint, 2 v text, 3 x int``::

    now                 id: long, v__next: string
    written to          id, v__next, w
    at the publication  the old v goes, v__next is v, w is x
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from catalog.errcodes import FeatureNotSupported
from catalog.pg_subscription import TableOptions
from workers.changes.column_comments import comments_of_copy, is_exact
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    RenameColumn,
    WidenColumn,
    is_wider,
)
from workers.lake.table import LakeColumn

if TYPE_CHECKING:
    import pyarrow as pa

NEXT: Final = "__next"
"""The end of the name of a lake column that takes the place of another one."""


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """A column of the publisher, and the type of a lake column made for the column.

    ``ruled`` says that the configuration demands the type: for hashes, or by ``type``.
    """

    attnum: int
    name: str
    typid: int
    typmod: int
    type: pa.DataType
    ruled: bool = False


@dataclass(frozen=True, slots=True)
class ColumnsOfCopy:
    """The plan. ``written_to`` has published column → lake column during the copy.

    ``renamed`` has the names that columns get at the publication, ``dropped`` the field ids that
    go, ``kept`` the lake columns of columns that the publisher has no more (attnum → field id).
    ``exact`` are the lake columns, under their names during the copy, whose values are all the
    publisher's.
    """

    now: tuple[ColumnChange, ...] = ()
    written_to: Mapping[str, str] | None = None
    renamed: Mapping[str, str] | None = None
    dropped: frozenset[int] = frozenset()
    kept: Mapping[int, int] | None = None
    exact: Collection[str] = ()

    def options(self, options: TableOptions) -> TableOptions:
        """The options of the table during the copy."""
        if not self.renamed:
            return options
        names = {**dict(options.columns), **(self.written_to or {})}
        return replace(options, columns=tuple(names.items()))

    def at_publication(self, lake: Sequence[LakeColumn]) -> tuple[ColumnChange, ...]:
        """The changes of the second step; ``lake`` has the columns after the first step."""
        names = self.renamed or {}
        return (
            *(DropColumn(each) for each in sorted(self.dropped)),
            *(RenameColumn(c.field_id, names[c.name]) for c in lake if c.name in names),
            *comments_of_copy(lake, (self.written_to or {}).values(), self.exact),
        )


def plan_columns(
    published: Sequence[PublishedColumn],
    relid: int,
    lake: Sequence[LakeColumn],
    remembered: RememberedColumns | None,
    options: TableOptions,
    *,
    dropped: Collection[int] = (),
    key: Collection[str] = (),
) -> ColumnsOfCopy:
    """Plan the columns of a copy of relation ``relid`` to a lake table with columns ``lake``.

    ``dropped`` are numbers of dropped columns that leave the lake table, ``key`` the publisher's
    names of columns that find rows. Raises 0A000 if a column must be replaced, and the
    configuration has columns that the lake computes.
    """
    plan = _Plan(lake, remembered, relid, options, key)
    found = [plan.remembered(each) for each in published]
    for each, was in zip(published, found, strict=True):
        plan.place(each, was)
    return plan.whole({was.attnum for was in found if was is not None}, dropped)


class _Plan:
    """The plan, column by column."""

    def __init__(
        self,
        lake: Sequence[LakeColumn],
        remembered: RememberedColumns | None,
        relid: int,
        options: TableOptions,
        key: Collection[str],
    ) -> None:
        self._ids = {column.field_id: column for column in lake if column.field_id}
        self._names = {column.name: column for column in lake}
        self._same = remembered is not None and remembered.relid == relid
        columns = () if remembered is None else remembered.columns
        self._known = [each for each in columns if each.field_id in self._ids]
        kept = {} if remembered is None else remembered.kept
        self._kept = {attnum: id for attnum, id in kept.items() if id in self._ids}
        self._options = options
        self._key = key
        self._going = frozenset(() if remembered is None else remembered.going)
        ruled = () if remembered is None else (*remembered.masked, *remembered.typed)
        self._ruled = frozenset(ruled)
        self._now: list[ColumnChange] = []
        self._written_to: dict[str, str] = {}
        self._renamed: dict[str, str] = {}
        self._dropped: set[int] = set()

    def remembered(self, column: PublishedColumn) -> RememberedColumn | None:
        """The remembered column that a published column was.

        The numbers of another table under the name say nothing.
        """
        for each in self._known:
            if each.attnum == column.attnum if self._same else each.name == column.name:
                return each
        return None

    def place(self, column: PublishedColumn, was: RememberedColumn | None) -> None:
        """Find the lake column that takes the values of a published column."""
        name = self._options.lake_column(column.name)
        place = self._names.get(name) if was is None else self._ids[was.field_id]
        if place is None:
            self._now.append(AddColumn(name, column.type))
            self._written_to[column.name] = name
        elif was is None and self._is_of_other(place):
            self._take_next(column, name)
        elif self._fits(place, column, was):
            self._written_to[column.name] = place.name
            if place.name != name:
                self._renamed[place.name] = name
        else:
            self._leave(place)
            self._take_next(column, name)

    def _is_of_other(self, place: LakeColumn) -> bool:
        """Is a lake column that of another published column, which is renamed away?"""
        return place.field_id in {each.field_id for each in self._known}

    def _fits(
        self, place: LakeColumn, column: PublishedColumn, was: RememberedColumn | None
    ) -> bool:
        """Can the lake column that is there hold the values, perhaps after it is widened?

        A column of another type that the publisher did not change is the user's choice, unless a
        rule comes or goes.
        """
        if column.ruled or (was is not None and was.name in self._ruled):
            return place.type == column.type
        if place.field_id and is_wider(column.type, place.type):
            self._now.append(WidenColumn(place.field_id, column.type))
            return True
        if place.type == column.type or is_wider(place.type, column.type):
            return True
        if was is None:
            return place.field_id not in self._kept.values()
        return (was.typid, was.typmod) == (column.typid, column.typmod)

    def _leave(self, column: LakeColumn) -> None:
        """A lake column goes at the publication."""
        if column.in_layout:
            raise _stays(
                f'lake column "{column.name}" can be neither dropped nor replaced',
                "The partitions or the order of the lake table are made from it.",
            )
        self._dropped.add(column.field_id)

    def _check_partitions(self) -> None:
        """0A000 if a column gets the name of a different column's partition field."""
        fields = {name: id for id, each in self._ids.items() for name in each.partition_fields}
        for written in self._written_to.values():
            name, place = self._renamed.get(written, written), self._names.get(written)
            if name in fields and (place is None or place.field_id != fields[name]):
                raise _stays(
                    f'lake column "{name}" cannot have the name of a partition field',
                    "The field is made from another column.",
                )

    def _take_next(self, column: PublishedColumn, name: str) -> None:
        """Write a column to a new lake column beside the lake column that has the name."""
        if self._options.generated or self._options.defaults:
            raise FeatureNotSupported(
                f'lake column "{name}" cannot be replaced by one of another type',
                detail="The configuration of the table has columns that the lake computes.",
                hint="Drop the lake table; the copy makes it anew.",
            )
        later = name + NEXT
        there = self._names.get(later)
        if there is None or there.type != column.type:
            self._now.append(AddColumn(later, column.type))
        self._written_to[column.name] = later
        self._renamed[later] = name

    def whole(self, found: set[int], dropped: Collection[int]) -> ColumnsOfCopy:
        """The plan, with columns that are gone and columns that an earlier attempt left.

        A kept column without a number gets a number below zero. A column that goes is kept until
        the publication: the next attempt has to know that the column is in the way.
        """
        used = set(self._written_to.values())
        added = {change.name for change in self._now if isinstance(change, AddColumn)}
        left = [
            column
            for column in self._names.values()
            if column.name.endswith(NEXT) and (column.name not in used or column.name in added)
        ]
        named = {self._options.lake_column(each.name) for each in self._known}
        stale = [DropColumn(each.field_id) for each in left if each.name not in named]
        taken = {self._names[name].field_id for name in used if name in self._names}
        gone = {
            each.attnum if self._same else -each.field_id: each.field_id
            for each in self._known
            if each.attnum not in found and each.field_id not in taken
        }
        final = {self._renamed.get(name, name) for name in used}
        excluded = self._excluded() - taken
        gone |= {-id: id for id in excluded if id not in {*self._kept.values(), *gone.values()}}
        for attnum, id in {**self._kept, **gone}.items():
            column = self._ids[id]
            in_the_way = column.name in final and id not in taken
            leaves = attnum in dropped or id in excluded or id in self._going
            if in_the_way and column.in_layout and not leaves:
                self._renamed[column.name] = f"{column.name}_dropped_{abs(attnum)}"
            elif in_the_way or (leaves and id not in taken):
                self._leave(column)
        self._check_partitions()
        kept = {
            attnum: id
            for attnum, id in {**self._kept, **gone}.items()
            if id not in self._dropped | taken
        } | {-id: id for id in self._dropped}
        return ColumnsOfCopy(
            (*stale, *self._now),
            self._written_to,
            self._renamed,
            frozenset(self._dropped),
            kept,
            self._exact(),
        )

    def _exact(self) -> frozenset[str]:
        """The columns, under their names during the copy, with the publisher's values only."""
        options, key = self._options, {self._options.lake_column(each) for each in self._key}
        return frozenset(
            written
            for name, written in self._written_to.items()
            if is_exact(options.lake_column(name), options, key)
        )

    def _excluded(self) -> set[int]:
        """The lake columns of columns that are excluded by now.

        In an adopted table, a column that is not remembered is the owner's.
        """
        options = self._options
        found = {each.field_id for each in self._known if each.name in options.excluded}
        if options.adopt:
            return found
        computed = {name for name, _ in (*options.defaults, *options.generated)}
        named = set(options.excluded) - computed
        return found | {id for id, column in self._ids.items() if column.name in named}


def _stays(primary: str, detail: str) -> FeatureNotSupported:
    """The error for a copy that the layout of the lake table does not allow."""
    return FeatureNotSupported(
        primary,
        detail=detail,
        hint="Drop the lake table, and correct partition_by and sort_by if need be; the copy makes "
        "it anew. A dropped column stays with on_dropped_column: keep for the table.",
    )
