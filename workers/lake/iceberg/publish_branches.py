"""Publish branches: move ``main`` of one table, or of several by one call.

Before a move the branch must end with the position of the batch. A position that this process has
written last is known; others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from workers.lake.iceberg.durability import Durability
from workers.lake.iceberg.failed_publish import move_main, move_mains
from workers.lake.interfaces.table_api import TableApi
from workers.lake.publication import InParallel, Publication
from workers.lake.table import LakeIdent, Stamp


class BranchPublisher:
    """Publishes branches. ``positions`` are the known positions of the branches' last snapshots."""

    def __init__(
        self,
        tables: TableApi,
        durability: Durability,
        fence: Callable[[LakeIdent], object],
        done: Callable[[LakeIdent, str], None],
    ) -> None:
        """``done`` is told of each published branch."""
        self.positions: dict[tuple[LakeIdent, str], Stamp] = {}
        self._tables = tables
        self._durability = durability
        self._fence = fence
        self._done = done

    def publish(
        self,
        ident: LakeIdent,
        branch: str,
        stamp: Stamp,
        move: Callable[[LakeIdent, str], int | None] | None = None,
    ) -> int | None:
        """Move ``main`` of a table, by ``move`` if given; the new snapshot if known."""
        unread = None if self.positions.get((ident, branch)) == stamp else stamp
        fence = partial(self._fence, ident)
        move = move or partial(self._tables.fast_forward, stamp=stamp)
        published = move_main(self._tables, ident, branch, unread, move, fence)
        self._durability.committed(ident, 1)
        self._done(ident, branch)
        return published

    def publish_together(
        self, parts: Sequence[Publication], in_parallel: InParallel
    ) -> list[int | None]:
        """Move ``main`` of all tables by one call; the new snapshots if known."""
        known = self.positions
        unread = [each for each in parts if known.get((each.ident, each.branch)) != each.stamp]
        published = move_mains(self._tables, parts, unread, in_parallel, self._fence)
        for each in parts:
            self._durability.committed(each.ident, 1)
            self._done(each.ident, each.branch)
        return published
