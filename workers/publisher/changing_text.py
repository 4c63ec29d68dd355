"""Values that change on the publisher without a change of any row.

The lake holds enums and composites as PostgreSQL's text. ``ALTER TYPE ... RENAME VALUE`` changes
the text of every row with the label. ``ALTER TYPE ... ADD ATTRIBUTE`` and ``DROP ATTRIBUTE`` change
the text of every composite. The publisher sends nothing: rows from before keep the old text in the
lake, and a key with the new text finds no row. So a worker compares the publisher's catalog with
the catalog of the copy.

A column that is dropped and added again under its name is another column. The publisher announces
the table with the same message as before, and rows from before have the new column's default, but
the old values in the lake. The column's number tells.

An attached partition brings rows to a table, and a detached partition takes rows away, without an
event, where the table is published via the root. The files of the table tell.

A new label, and a renamed attribute, change no text: a composite's text has no names.

A label may be renamed and renamed back between two looks, and rows from in between have the other
text. The versions of the labels' rows in the catalog tell. If all labels of a type have another
version, none was renamed: the labels were numbered anew, or the server was upgraded. Of an
attribute that was added and dropped the number of attributes tells, the dropped ones included.

A ``regclass`` and its relatives are the name of an object: of a relation, function, type, schema or
role. A renamed object changes the text. Which objects a table names only its rows know, and no
worker reads them: each renaming of an object of the kind is told, with both names. A database with
more than ``MOST_OBJECTS`` of a kind is not compared, and a dropped object is not told: the lake
keeps its last name, where the publisher shows a number. Of the other types with names
(``regoper``, ``aclitem``) CREATE and ``check`` warn (``is_name_of_object``).

Trace: ``stages (s stage)``, and ``stage`` is an enum ``new, done``::

    copied      s: stage 16400; parts of 16400: {16402: new, 16404: done}
    later       s: stage 16400; parts of 16400: {16402: open, 16404: done, 16410: late}
    compared    column "s": label "new" of type stage is "open"
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from workers.publisher.interfaces import QueryConn
from workers.publisher.queries import newest, query, to_number, to_text
from workers.publisher.table_shape import TableShape

ENUM: Final = "e"
COMPOSITE: Final = "c"
NAME: Final = "b"
"""``pg_type.typtype``; the base types here are those of ``_COMPARED_NAMES``."""

MOST_OBJECTS: Final = 10_000

PARTITION: Final = 'partition "'
"""The beginning of a sentence about rows that came or went with a partition."""
FIRST_VIA_ROOT: Final = 13
"""An older publisher publishes the partitions alone."""

_FIRST_NORMAL_OID: Final = 16384

_NAMES_OF_OBJECTS: Final = frozenset(
    {24, 1033, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191, 8326}
    | {1008, 1034, 2207, 2208, 2209, 2210, 2211, 3735, 3770, 4090, 4097, 4192, 8327}
)
"""The oids of regproc, aclitem, regprocedure, regoper, regoperator, regclass, regtype, regconfig,
regdictionary, regnamespace, regrole, regcollation and regdatabase, and of their arrays."""

_COMPARED_NAMES: Final = {
    24: "functions",
    2202: "functions",
    2205: "relations",
    2206: "named_types",
    4089: "schemas",
    4096: "roles",
}
"""The names that are compared (regproc, regprocedure, regclass, regtype, regnamespace, regrole),
with the query for the objects that have such names."""
_COMPARED: Final = _COMPARED_NAMES.keys() | {1008, 2207, 2210, 2211, 4090, 4097}
"""The same with their arrays."""


@dataclass(frozen=True, slots=True)
class TextType:
    """An enum with its labels, a composite with its attributes, or a type of names with the names
    of all objects: each by a lasting number.

    ``versions`` are the row versions of the labels; for each attribute, how many attributes the
    composite has had. Names have no versions, and types stored by an older version have none.
    """

    kind: str
    name: str
    parts: Mapping[str, str]
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextTypes:
    """The enums, composites and names of a table's columns, also below domains, arrays and ranges.

    ``numbers`` are the attnums of all columns: a number is never used again. ``versions`` has for
    all columns type and row version in the catalog, and ``files`` the files of the rows: without
    both, nothing is known of a rewrite.
    """

    columns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    types: Mapping[int, TextType] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    files: str = ""

    def of_columns(self, names: Collection[str]) -> TextTypes:
        """The types and the numbers of some columns."""
        columns = {name: oids for name, oids in self.columns.items() if name in names}
        needed = {oid for oids in columns.values() for oid in oids}
        numbers = {name: number for name, number in self.numbers.items() if name in names}
        versions = {name: each for name, each in self.versions.items() if name in names}
        types = {oid: self.types[oid] for oid in needed}
        return TextTypes(columns, types, numbers, versions, self.files)

    def under_present_names(self, numbers: Mapping[str, int]) -> TextTypes:
        """The same with the present names of renamed columns; ``numbers`` are the present columns.

        A column is renamed if its name is gone and its number has a new name.
        """
        present = {number: name for name, number in numbers.items()}
        renamed = {
            name: present[number]
            for name, number in self.numbers.items()
            if name not in numbers and present.get(number, name) not in (name, *self.numbers)
        }

        def under(of: Mapping[str, Any]) -> dict[str, Any]:
            return {renamed.get(name, name): each for name, each in of.items()}

        return replace(
            self,
            columns=under(self.columns),
            numbers=under(self.numbers),
            versions=under(self.versions),
        )

    def without_names(self) -> TextTypes:
        """The types without those whose values are names of objects.

        Only the rows know which objects they name.
        """
        columns = {
            name: tuple(oid for oid in oids if self.types[oid].kind != NAME)
            for name, oids in self.columns.items()
        }
        return replace(self, columns=columns)

    def as_json(self) -> str:
        """The text that the catalog stores; ``from_json`` is the inverse."""
        types = {
            oid: [each.kind, each.name, each.parts, each.versions]
            for oid, each in self.types.items()
        }
        found = {"columns": self.columns, "types": types, "numbers": self.numbers}
        return json.dumps({**found, "versions": self.versions, "files": self.files})


def from_json(stored: str) -> TextTypes:
    """The types of a stored text."""
    found = json.loads(stored)
    return TextTypes(
        {name: tuple(oids) for name, oids in found["columns"].items()},
        {int(oid): TextType(*each) for oid, each in found["types"].items()},
        found.get("numbers", {}),
        found.get("versions", {}),
        found.get("files", ""),
    )


def is_name_of_object(oid: int) -> bool:
    """Is a value of the type the name of an object, so that a renaming changes the text?"""
    return oid in _NAMES_OF_OBJECTS


def is_compared_name(oid: int) -> bool:
    """Does a worker compare the names of such objects (or of an array of them)?"""
    return oid in _COMPARED


def may_change_text(oids: Collection[int]) -> bool:
    """May one of the types be an enum, a composite or the name of an object?

    No type that is built in is an enum or a composite.
    """
    return any(oid >= _FIRST_NORMAL_OID or oid in _COMPARED for oid in oids)


def fetch_text_types(conn: QueryConn, relids: Collection[int]) -> dict[int, TextTypes]:
    """Ask for the types of the columns of relations, each relation with an entry.

    The queries read catalogs and wait for no lock on a table.
    """
    ranges = newest("ranges", conn.server_version, 14, 10)
    listed = _listed(relids)
    named = _listed(_COMPARED_NAMES)
    statement = query("text_types", relids=listed, ranges=query(ranges), named=named)
    rows = conn.exec(statement) if relids else []
    kinds = {to_number(row[2]): (to_text(row[3]), to_text(row[4])) for row in rows}
    parts = {oid: _fetch_names(conn, oid) for oid, (kind, _) in kinds.items() if kind == NAME}
    others = kinds.keys() - parts.keys()
    parts |= {oid: {} for oid in others}
    of_parts: dict[int, dict[str, str]] = {oid: {} for oid in kinds}
    if others:
        for oid, number, text, version in conn.exec(query("type_parts", types=_listed(others))):
            parts.setdefault(to_number(oid), {})[to_text(number)] = to_text(text)
            of_parts.setdefault(to_number(oid), {})[to_text(number)] = to_text(version)
    columns: dict[int, dict[str, tuple[int, ...]]] = {relid: {} for relid in relids}
    for row in rows:
        own = columns[to_number(row[0])]
        own[to_text(row[1])] = (*own.get(to_text(row[1]), ()), to_number(row[2]))
    types_of = {oid: TextType(*kinds[oid], parts[oid], of_parts[oid]) for oid in kinds}
    numbers: dict[int, dict[str, int]] = {relid: {} for relid in relids}
    versions: dict[int, dict[str, str]] = {relid: {} for relid in relids}
    files = dict.fromkeys(relids, "")
    tree = query("tree", relid="c.oid")
    asked = query("column_numbers", relids=listed, tree=tree)
    for row in conn.exec(asked) if relids else []:
        relid, name = to_number(row[0]), to_text(row[1])
        numbers[relid][name], versions[relid][name] = to_number(row[2]), to_text(row[3])
        files[relid] = row[4] or ""
    found = {
        relid: TextTypes(own, types_of, numbers[relid], versions[relid], files[relid])
        for relid, own in columns.items()
    }
    return {relid: each.of_columns(each.numbers.keys()) for relid, each in found.items()}


def _fetch_names(conn: QueryConn, oid: int) -> dict[str, str]:
    """The names of all objects that a type names, by oid; none where there are too many."""
    objects = query(_COMPARED_NAMES[oid])
    rows = conn.exec(query("object_names", objects=objects, limit=str(MOST_OBJECTS + 1)))
    if len(rows) > MOST_OBJECTS:
        return {}
    return {to_text(number): to_text(name) for number, name in rows}


def fetch_text_mark(conn: QueryConn, types: Mapping[int, TextType]) -> str:
    """One hash over the texts that values of the types may have, in one short query.

    A label, an attribute or an object with another text is another hash. Names of a kind that is
    not compared count for nothing.
    """
    names = sorted(oid for oid, each in types.items() if each.kind == NAME and each.parts)
    others = [oid for oid, each in types.items() if each.kind != NAME]
    parts = [
        query("mark_of_names", type=str(oid), objects=query(_COMPARED_NAMES[oid])) for oid in names
    ]
    if others:
        parts.append(f"({query('type_parts', types=_listed(others))})")
    if not parts:
        return ""
    statement = newest("text_mark", conn.server_version, 11, 10)
    ((mark,),) = conn.exec(query(statement, parts=" UNION ALL ".join(parts)))
    return mark or ""


def _listed(oids: Collection[int]) -> str:
    return ", ".join(str(oid) for oid in sorted(oids))


def text_changes(before: TextTypes, now: TextTypes) -> list[str]:
    """Sentences about the columns whose stored values are no longer the publisher's."""
    again = [
        f'column "{column}" was dropped and added again'
        for column, number in now.numbers.items()
        if before.numbers.get(column, number) != number
    ]
    rewritten = _rewritten(before, now)
    again += [f'values of column "{column}" were computed anew' for column in rewritten]
    return again + [
        f'column "{column}": {sentence}'
        for column, oids in now.columns.items()
        for oid in oids
        if oid in before.columns.get(column, ())
        for sentence in _type_changes(before.types[oid], now.types[oid])
    ]


def moved_relids(before: TextTypes, now: TextTypes) -> tuple[set[int], set[int]]:
    """The relations with files that came into the tree of a table, and the relations that left."""
    was, present = (_files(of).keys() for of in (before, now))
    return (present - was, was - present) if was and present else (set(), set())


def fetch_moved_partitions(
    conn: QueryConn, came: Collection[int], went: Collection[int]
) -> list[str]:
    """Sentences about partitions, attached with rows or detached.

    A new partition is empty at first, and a dropped partition is no relation any more. Publishers
    before 13 publish no table via the root.
    """
    if conn.server_version < FIRST_VIA_ROOT:
        return []
    asked = query("moved_partitions", came=_listed(came or {0}), went=_listed(went or {0}))
    told = {"t": "attached, with rows", "f": "detached, and its rows are gone"}
    return [f'{PARTITION}{name}" was {told[to_text(came)]}' for came, name in conn.exec(asked)]


def versions_of(shape: TableShape) -> dict[str, str]:
    """The ``versions`` of a table whose shape is known."""
    return {each.name: f"{each.typid}/{each.typmod}/{each.version}" for each in shape.columns}


def files_of(shape: TableShape) -> str:
    """The ``files`` of a table whose shape is known."""
    return _listed_files(shape.files)


def seen_in(before: TextTypes, shape: TableShape) -> TextTypes | None:
    """The types with the versions and files of a shape; None if values were computed anew since.

    None, too, if a column has another's name by now: nothing is known of the column's version then.
    A renaming, and a file that another column's type gave the table, explain themselves where each
    is seen alone. Types, columns that were added and partitions that came stay as before.
    """
    present = {each.name: each.attnum for each in shape.columns}
    before = before.under_present_names(present)
    numbers, files = before.numbers, _files(before)
    seen = {name: each for name, each in versions_of(shape).items() if name in before.versions}
    if any(numbers.get(name) != present[name] for name in seen):
        return None
    files |= {relid: file for relid, file in shape.files.items() if relid in files}
    versions = {**before.versions, **seen}
    now = replace(before, versions=versions, files=_listed_files(files))
    return None if _rewritten(before, now) else now


def _files(of: TextTypes) -> dict[int, int]:
    """The file of each relation; ``_listed_files`` is the inverse."""
    pairs = (each.split(":") for each in of.files.split())
    return {int(relid): int(file) for relid, file in pairs}


def _listed_files(files: Mapping[int, int]) -> str:
    return " ".join(f"{relid}:{file}" for relid, file in sorted(files.items()))


def _rewritten(before: TextTypes, now: TextTypes) -> list[str]:
    """The columns whose values an ALTER TABLE has computed anew, under their type.

    ALTER COLUMN TYPE with USING, and SET EXPRESSION, write a new file and a new version of the
    column in the catalog. VACUUM FULL and TRUNCATE write a file alone, SET DEFAULT a version alone.
    A file that came or went is a partition's.
    """
    files = [_files(of) for of in (before, now)]
    if all(files[1].get(relid, file) == file for relid, file in files[0].items()):
        return []
    return [
        column
        for column, version in now.versions.items()
        if (known := before.versions.get(column, version)) != version
        and known.rpartition("/")[0] == version.rpartition("/")[0]
        and before.numbers.get(column) == now.numbers.get(column)
    ]


def _type_changes(before: TextType, now: TextType) -> Iterator[str]:
    for number, text in before.parts.items():
        new = now.parts.get(number)
        if now.kind == NAME:
            if new not in (None, text):
                yield f'"{text}" of type {now.name} has the name "{new}"'
        elif new is None:
            yield f'type {now.name} has lost attribute "{text}"'
        elif new != text and now.kind == ENUM:
            yield f'label "{text}" of type {now.name} is "{new}"'
    if now.kind == COMPOSITE:
        for number, text in now.parts.items():
            if number not in before.parts:
                yield f'type {now.name} has a new attribute "{text}"'
    yield from _undone_changes(before, now)


def _undone_changes(before: TextType, now: TextType) -> Iterator[str]:
    """What was changed and changed back meanwhile."""
    others = [
        number
        for number, version in before.versions.items()
        if now.versions.get(number, version) != version
    ]
    if now.kind == COMPOSITE and others and before.parts.keys() == now.parts.keys():
        yield f"type {now.name} had another attribute for a while"
    elif now.kind == ENUM and len(others) < len(before.versions):
        for number in others:
            if (label := now.parts[number]) == before.parts[number]:
                yield f'label "{label}" of type {now.name} had another name for a while'
