"""A lake in memory that shows several tables at one moment, as some REST catalogs do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake, ancestors_of
from workers.lake.publication import InParallel, Publication
from workers.lake.refusals import main_was_moved
from workers.lake.table import MAIN, Identity

Hook = Callable[[int], None]
"""Called with the number of the call, from 0."""


class OneCallLake(MemoryDestination):
    """All tables of a call move, or none. ``before`` and ``behind`` the effect a test may act."""

    publishes_together = True

    def __init__(
        self,
        lake: MemoryLake,
        *,
        before: Hook = lambda _: None,
        behind: Hook = lambda _: None,
    ) -> None:
        super().__init__(lake, identity=Identity(1))
        self.before = before
        self.behind = behind
        self.calls: list[list[str]] = []

    def publish_together(
        self, parts: Sequence[Publication], in_parallel: InParallel
    ) -> list[int | None]:
        del in_parallel
        number = len(self.calls)
        self.calls.append(sorted(each.ident.table for each in parts))
        self.before(number)
        shown = self.move(parts)
        self.behind(number)
        return shown

    def move(self, parts: Sequence[Publication]) -> list[int | None]:
        """The effect of a call."""
        with self.lake.lock:
            for each in parts:
                table = self.lake.tables[each.ident]
                if table.refs[MAIN] not in (
                    s.snapshot_id for s in ancestors_of(table, each.branch)
                ):
                    raise main_was_moved(each.ident, "Another commit is on main.")
            return [self.publish(each.ident, each.branch, each.stamp) for each in parts]
