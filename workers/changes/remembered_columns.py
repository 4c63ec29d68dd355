"""The publisher's columns that a lake table was last brought in line with, as a text. Pure.

The text is a property of the lake table, and changes in the same commit as the lake's columns. So
the text is never ahead of the lake's columns or behind them, and a lost data directory loses no
text. The catalog has a copy, from the table's copy on.

Each column is remembered by the publisher's ``attnum`` and by Iceberg's field id. Both stay for
ever, under every name. ``natts`` is the highest ``attnum`` that was known, so a higher number is a
new column. ``files`` says which files the rows had: the same files later prove that no row was
rewritten meanwhile. ``kept`` are lake columns whose publisher column was dropped, or is not
published any more. ``guarded`` are columns that the configuration excludes: they have no lake
column, and their numbers must not come back under another name (``workers.changes.column_rules``).
``masked`` tells of hashed columns how the rows in the lake were hashed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.lake.table import LakeColumn, LakeTable
from workers.proto.messages import Relation


@dataclass(frozen=True, slots=True)
class RememberedColumn:
    """A published column, and the lake column with its values.

    ``typid`` and ``typmod`` are the declared type, ``base`` is the type below all domains.
    """

    attnum: int
    name: str
    typid: int
    typmod: int
    base: int
    field_id: int


@dataclass(frozen=True, slots=True)
class RememberedColumns:
    """The columns of a table under a copy id (``epoch``)."""

    epoch: str
    relid: int
    natts: int
    files: Mapping[int, int]
    columns: tuple[RememberedColumn, ...]
    kept: Mapping[int, int] = field(default_factory=dict)
    """attnum → field id"""
    lists: str = ""
    guarded: tuple[RememberedColumn, ...] = ()
    """The columns that are left out; the type of one that was dropped is 0."""
    masked: Mapping[str, str] = field(default_factory=dict)
    """The publisher's name of a hashed column → the kind of hash, and what tells the key."""
    typed: tuple[str, ...] = ()
    """The publisher's names of columns with a declared type."""
    going: tuple[int, ...] = ()
    """The field ids of lake columns that go when the copy in progress is published."""

    def as_text(self) -> str:
        """The text; ``from_text`` is the inverse."""
        found: dict[str, object] = {
            "epoch": self.epoch,
            "relid": self.relid,
            "natts": self.natts,
            "files": self.files,
            "columns": [_as_list(each) for each in self.columns],
            "kept": self.kept,
            "lists": self.lists,
        }
        if self.guarded:
            found["guarded"] = [_as_list(each) for each in self.guarded]
        if self.masked:
            found["masked"] = dict(self.masked)
        if self.typed:
            found["typed"] = list(self.typed)
        if self.going:
            found["going"] = list(self.going)
        return json.dumps(found, separators=(",", ":"))

    @property
    def is_forgotten(self) -> bool:
        """Do numbers say nothing: were rows written by name, or is the name alone known?"""
        return not self.relid

    def describes(self, relation: Relation) -> bool:
        """Does a Relation message announce exactly these columns, and the excluded ones?"""
        present = [*self.columns, *(each for each in self.guarded if each.typid)]
        present.sort(key=lambda each: each.attnum)
        return self.relid == relation.relid and [
            (each.name, each.typid, each.typmod) for each in present
        ] == [(each.name, each.typid, each.typmod) for each in relation.columns]

    def has_files(self, now: Mapping[int, int]) -> bool:
        """Was no row rewritten since? Partitions come and go.

        If none of the known partitions is there any more, the present ones must have their first
        file: the number of such a file is the number of the relation.
        """
        known = self.files.keys() & now.keys()
        first = all(file == relid for relid, file in now.items())
        return (first or bool(known)) and all(now[each] == self.files[each] for each in known)

    def are_in(self, lake: Sequence[LakeColumn]) -> bool:
        """Does the lake table still have every remembered column?"""
        present = {each.field_id for each in lake}
        return all(each.field_id in present for each in self.columns)


def _as_list(column: RememberedColumn) -> list[int | str]:
    return [
        *(column.attnum, column.name, column.typid),
        *(column.typmod, column.base, column.field_id),
    ]


def forgotten(epoch: str, masked: Mapping[str, str] | None = None) -> RememberedColumns:
    """What stands in the place of columns that are not known by number (``is_forgotten``)."""
    return RememberedColumns(epoch, 0, 0, {}, (), masked=masked or {})


def from_text(text: str) -> RememberedColumns:
    """The columns of a text."""
    found = json.loads(text)
    return RememberedColumns(
        found["epoch"],
        found["relid"],
        found["natts"],
        {int(oid): file for oid, file in found["files"].items()},
        tuple(RememberedColumn(*each) for each in found["columns"]),
        {int(attnum): field_id for attnum, field_id in found["kept"].items()},
        found["lists"],
        tuple(RememberedColumn(*each) for each in found.get("guarded", ())),
        found.get("masked", {}),
        tuple(found.get("typed", ())),
        tuple(found.get("going", ())),
    )


def remembered_in(lake: LakeTable, stored: str | None, epoch: str) -> RememberedColumns | None:
    """The columns that a lake table was brought in line with; None if nothing says so.

    The lake table's text counts before ``stored``, the text in the catalog: a power cut sets both
    the lake's columns and the lake table's text back. A text of another copy says nothing.
    """
    for text in (lake.publisher_columns, stored):
        if text:
            found = from_text(text)
            if found.epoch == epoch and found.are_in(lake.columns):
                return found
    return None
