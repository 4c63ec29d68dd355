"""The order of tables due for maintenance."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from workers.lake.table import LakeIdent
from workers.tables.open_table import OpenTable


class TurnOrder:
    """Orders due tables: the largest number first, then by a random place in the worker's order.

    With a fixed order the last tables would never have a turn if the worker is killed often.
    """

    def __init__(self, new_place: Callable[[], float] = random.random) -> None:
        self._new_place = new_place
        self._places: dict[int, float] = {}

    def opened(self, relid: int) -> None:
        """Give a table a place in the order."""
        self._places[relid] = self._new_place()

    def first(self, due: Sequence[tuple[int, OpenTable]], most: int) -> list[OpenTable]:
        """At most ``most`` of the due tables, by largest number.

        Of a shared lake table only the first source: two expiries of a lake table at the same time
        would delete manifests that the other one still reads.
        """
        chosen: dict[LakeIdent, OpenTable] = {}
        for _, table in sorted(due, key=lambda each: (-each[0], self._places[each[1].rel.srrelid])):
            chosen.setdefault(table.lake.ident, table)
        return list(chosen.values())[:most]
