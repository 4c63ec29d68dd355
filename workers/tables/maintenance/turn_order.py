"""Which of the tables that are due for maintenance come first."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from workers.lake.table import LakeIdent
from workers.tables.open_table import OpenTable


class TurnOrder:
    """Orders due tables: the largest number first, then by a place that is random in each worker.

    Without the random place the last tables would never have a turn in a subscription whose worker
    is killed every so often.
    """

    def __init__(self, new_place: Callable[[], float] = random.random) -> None:
        self._new_place = new_place
        self._places: dict[int, float] = {}

    def opened(self, relid: int) -> None:
        """Give a table its place."""
        self._places[relid] = self._new_place()

    def first(self, due: Sequence[tuple[int, OpenTable]], most: int) -> list[OpenTable]:
        """At most ``most`` of the due tables, those with the largest numbers.

        Of a shared lake table one source at a time: two expiries of a lake table that run at the
        same time would delete what the other one reads.
        """
        chosen: dict[LakeIdent, OpenTable] = {}
        for _, table in sorted(due, key=lambda each: (-each[0], self._places[each[1].rel.srrelid])):
            chosen.setdefault(table.lake.ident, table)
        return list(chosen.values())[:most]
