"""The columns of a Relation message in the publisher's catalog, by name and type. Pure.

The catalog may be ahead of the message: every column of the message has to be found with its type,
in the order of the numbers, or the catalog is not the message's any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers.proto.messages import Relation
from workers.publisher.table_shape import ShapeColumn, TableShape


def announced_in(relation: Relation, shape: TableShape) -> list[ShapeColumn] | None:
    """The columns of a message in the shape, by name and type; None if they are not all there."""
    if relation.relid != shape.relid:
        return None
    named = {each.name: each for each in shape.columns}
    columns = [named[each.name] for each in relation.columns if each.name in named]
    sent = [(each.typid, each.typmod) for each in relation.columns]
    is_sent = [(each.typid, each.typmod) for each in columns] == sent
    return columns if is_sent and columns == sorted(columns, key=lambda c: c.attnum) else None


def highest(columns: Sequence[ShapeColumn]) -> int:
    """The highest number of a column; 0 without columns."""
    return max((each.attnum for each in columns), default=0)


def known_up_to(shape: TableShape, last: int) -> int:
    """The highest number that no new column has later; dropped ones below the next column count."""
    later = [each.attnum for each in shape.columns if each.attnum > last]
    return min(later) - 1 if later else max(last, *shape.dropped, 0)
