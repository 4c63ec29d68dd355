"""The rows of the lake in memory: dictionaries, by the table's column names."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from catalog.errcodes import FeatureNotSupported
from workers.lake.generated_columns import read_generated
from workers.lake.segment import Generated, KeyLookup, Segment, no_keys_found
from workers.lake.staged_rows import Staged
from workers.lake.table import SOURCE_COLUMN, LakeColumn

Row = dict[str, Any]


def as_dicts(staged: Staged | None) -> list[Row]:
    """The staged rows, by the staged columns' names."""
    return [] if staged is None or staged.table is None else staged.table.to_pylist()


def new_values(segment: Segment, change: Row) -> Row:
    """The values that a staged row sets, by the table's column names."""
    return {
        name: change[f"c{n}"]
        for n, name in enumerate(segment.columns)
        if not (name in segment.unchanged and change.get(f"m{n}"))
    }


def complete(
    columns: Sequence[LakeColumn], row: Row, defaults: Mapping[str, Any], source: str
) -> Row:
    """Fill lake-only columns with a constant, the text of the default's expression, or NULL."""
    whole = {column.name: row.get(column.name, defaults.get(column.name)) for column in columns}
    return whole | {SOURCE_COLUMN: source} if source else whole


def generate(row: Row, generated: Generated) -> Row:
    """The row with the generated columns."""
    for each in read_generated(generated):
        tree = sqlglot.parse_one(each.text, dialect="spark")
        row = row | {each.column: _value(tree, row)}
    return row


_OPERATORS: Final[Mapping[type[exp.Expr], Callable[..., Any]]] = {
    exp.Mul: operator.mul,
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Concat: lambda *parts: "".join(parts),
    exp.Upper: str.upper,
    exp.Length: len,
}
"""The SQL functions that tests use; a NULL argument makes the result NULL."""


def _value(node: exp.Expr, row: Row) -> Any:
    """An expression's value for a row; 0A000 for an expression outside the twin's SQL."""
    match node:
        case exp.Column():
            return row[node.name]
        case exp.Literal():
            return node.this if node.is_string else int(node.this)
        case exp.Paren():
            return _value(node.this, row)
        case exp.Coalesce():
            parts = (_value(part, row) for part in (node.this, *node.expressions))
            return next((part for part in parts if part is not None), None)
    run = _OPERATORS.get(type(node))
    if run is None:
        raise FeatureNotSupported(f"the lake in memory cannot compute {node.key}")
    values = [_value(part, row) for part in node.iter_expressions()]
    return None if None in values else run(*values)


def came_from(row: Row, source: str) -> bool:
    """Does a segment of the source concern the row?"""
    return not source or row[SOURCE_COLUMN] == source


def same(left: Any, right: Any) -> bool:
    """IS NOT DISTINCT FROM; NaN equals NaN, as in PostgreSQL and in Spark."""
    return bool(left == right) or (left != left and right != right)


def found_table(found: list[tuple[int, str, int]]) -> pa.Table:
    """The argument of ``WholeRowLookup.decide``."""
    images, files, positions = zip(*found, strict=True) if found else ((), (), ())
    return pa.table(
        {
            "image": pa.array(images, pa.int64()),
            "f": pa.array(files, pa.string()),
            "p": pa.array(positions, pa.int64()),
        }
    )


def pairs(
    existing: Sequence[Row], copied: Sequence[Row], key: Sequence[str]
) -> list[tuple[int, int]]:
    """Positions of existing and copied rows with equal keys; a key with a NULL equals no key."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for at, row in enumerate(existing):
        places.setdefault(tuple(row[name] for name in key), []).append(at)
    found = ((tuple(row[name] for name in key), at) for at, row in enumerate(copied))
    return [
        (there, at)
        for values, at in found
        if None not in values
        for there in places.get(values, ())
    ]


def overwrite_rows(
    existing: Sequence[Row],
    copied: Sequence[Row],
    columns: Sequence[str],
    key: Sequence[str],
    generated: Generated,
) -> list[Row]:
    """Existing rows take the values of the copied row with an equal key; the copied row goes."""
    rows = list(existing)
    overwritten = set()
    for there, at in pairs(existing, copied, key):
        changed = rows[there] | {name: copied[at][name] for name in columns}
        rows[there] = generate(changed, generated)
        overwritten.add(at)
    return rows + [row for at, row in enumerate(copied) if at not in overwritten]


def find_keys(rows: Sequence[Row], segment: Segment, lookup: KeyLookup) -> pa.Table:
    """The argument of ``KeyLookup.decide``: a line for every row with at least one of the keys."""
    sought = [(segment.key, _numbers(lookup.keys))]
    sought += [(other.columns, _numbers(other.keys)) for other in lookup.others]
    lines = [
        [numbers.get(tuple(row[name] for name in key)) for key, numbers in sought]
        for row in rows
        if came_from(row, segment.source)
    ]
    found = [line for line in lines if any(number is not None for number in line)]
    columns = zip(*found, strict=True) if found else [()] * len(sought)
    schema = no_keys_found(len(lookup.others)).schema
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)


def _numbers(staged: Staged | None) -> dict[tuple[Any, ...], int]:
    width = 0 if staged is None or staged.table is None else staged.table.num_columns - 1
    return {tuple(row[f"b{n}"] for n in range(width)): row["k"] for row in as_dicts(staged)}


def repeated(rows: Sequence[Row], key: Sequence[str], source: str) -> int:
    """Count the values of a key, without a NULL, that more than one row has."""
    values = (tuple(row[name] for name in key) for row in rows if came_from(row, source))
    return sum(count > 1 for value, count in Counter(values).items() if None not in value)
