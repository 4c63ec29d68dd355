"""Move ``main`` of the tables of a batch: table by table, or all tables by one call.

Readers see a table's part of a batch when ``main`` of the table moves. Most catalogs move one table
at a time, and a reader of several tables can meet a mix of two batches. Where the catalog takes a
call for several tables, ``InOneCall`` shows the whole batch at one moment.

Both ways treat a refusal alike. If another writer moved ``main`` of a table, the table's part gets
a new branch at the new ``main``, and the staged segments are applied again. The one call is refused
as a whole, so ``InOneCall`` does so with every table whose part is not visible, then calls again,
``PUBLISH_ATTEMPTS`` times at most (``SHARED_TABLE_ATTEMPTS`` with a shared table)::

    call   a 4 → 5, b 7 → 8     refused: another writer moved main of b to 9
    look   a is at 4, b is at 9, no part is visible
    write  a again behind a fence, b again behind 9
    call   a 6 → 10, b 9 → 11   published

Nothing rests on the refusal of the whole call: each table is looked at. A transaction that was
written slice by slice has no staged segments: the caller applies the transaction again
(``MainMoved``). The same goes for rows that were staged as data files, which a commit had, and for
a table whose columns or partitions somebody changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Protocol

from catalog.errcodes import (
    SERIALIZATION_FAILURE,
    FeatureNotSupported,
    ReplicationError,
    SerializationFailure,
)
from config.limits import PUBLISH_ATTEMPTS, SHARED_TABLE_ATTEMPTS
from workers.lake.destination import Destination
from workers.lake.publication import Publication
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.tables.parallel import InThreads
from workers.tables.shared_tables import error_main_keeps_moving
from workers.tables.write_batch import BatchWriter
from workers.tables.written import Written

log = logging.getLogger(__name__)

Unit = Sequence[Written]
"""One lake table's part of a batch: several sources of a shared table, else one item."""

BeginAgain = Callable[[Unit], tuple[Unit, bool]]
"""Puts a part on a new branch at ``main``; True if ``main`` holds the part already."""


class MainMoved(SerializationFailure):
    """Another writer moved ``main``, and the rows of the transaction are not staged any more."""

    def __init__(self, refusal: ReplicationError) -> None:
        super().__init__(refusal.primary, detail=refusal.detail, hint=refusal.hint)


class PublishTables(Protocol):
    """Makes all parts of a batch visible; returns the parts with the snapshots, once visible."""

    def publish(self, units: Sequence[Unit]) -> list[Written]:
        """Publish the parts. 40001 if another writer keeps moving ``main`` of a table."""


class TableByTable(PublishTables):
    """Publishes every table by a call of its own, all tables in parallel."""

    def __init__(
        self, batches: BatchWriter, dest: Destination, threads: Executor, begin_again: BeginAgain
    ) -> None:
        self._batches = batches
        self._dest = dest
        self._in_parallel = InThreads(threads)
        self._begin_again = begin_again

    def publish(self, units: Sequence[Unit]) -> list[Written]:
        """Publish all parts."""
        parts = self._in_parallel([partial(self.publish_one, unit) for unit in units])
        return [each for part in parts for each in part]

    def publish_one(self, unit: Unit) -> Unit:
        """Publish one lake table's part.

        If another writer moved ``main``, the part is written again on a new branch.
        """
        for _ in range(_attempts([unit])):
            try:
                part = _publication(unit)
                snapshot_id = self._dest.publish(part.ident, part.branch, part.stamp)
            except ReplicationError as error:
                _raise_unless_written_again(error, [unit])
            else:
                failpoints.reach("apply.one_table_published")
                return _published(unit, snapshot_id)
            unit, visible = self._begin_again(unit)
            if visible:
                return unit
            unit = _written_again(self._batches, unit)
        raise _error_main_moves(unit)


class InOneCall(PublishTables):
    """Publishes all tables by one call to the catalog."""

    def __init__(
        self,
        batches: BatchWriter,
        dest: Destination,
        threads: Executor,
        begin_again: BeginAgain,
        otherwise: PublishTables,
    ) -> None:
        """``otherwise`` publishes if the catalog takes no such call after all."""
        self._batches = batches
        self._dest = dest
        self._in_parallel = InThreads(threads)
        self._begin_again = begin_again
        self._otherwise = otherwise

    def publish(self, units: Sequence[Unit]) -> list[Written]:
        """Publish all parts."""
        visible: list[Written] = []
        for _ in range(_attempts(units)):
            parts = [_publication(unit) for unit in units]
            try:
                snapshots = self._dest.publish_together(parts, self._in_parallel)
            except FeatureNotSupported as refusal:
                log.warning("action=publish_together %s: %s", refusal.primary, refusal.detail)
                return [*visible, *self._otherwise.publish(units)]
            except ReplicationError as error:
                _raise_unless_written_again(error, units)
            else:
                done = zip(units, snapshots, strict=True)
                return [*visible, *(each for pair in done for each in _published(*pair))]
            begun = self._in_parallel([partial(self._begin_again, unit) for unit in units])
            visible += [each for unit, is_visible in begun if is_visible for each in unit]
            hidden = [unit for unit, is_visible in begun if not is_visible]
            if not hidden:
                return visible
            again = [partial(_written_again, self._batches, unit) for unit in hidden]
            units = self._in_parallel(again)
        raise _error_main_moves(units[0])


def choose(
    units: Sequence[Unit], dest: Destination, one_call: InOneCall, table_by_table: TableByTable
) -> PublishTables:
    """One call for several tables, where the lake takes such a call.

    The move of a single table is one call in any case.
    """
    return one_call if len(units) > 1 and dest.publishes_together else table_by_table


def _publication(unit: Unit) -> Publication:
    """The branch of a part, which ends with the position of the last source."""
    last = unit[-1]
    return Publication(last.table.lake.ident, last.table.branch or "", last.stamp)


def _published(unit: Unit, snapshot_id: int | None) -> list[Written]:
    return [replace(each, snapshot_id=snapshot_id) for each in unit]


def _attempts(units: Sequence[Unit]) -> int:
    shared = any(unit[0].table.source for unit in units)
    return SHARED_TABLE_ATTEMPTS if shared else PUBLISH_ATTEMPTS


def _raise_unless_written_again(error: ReplicationError, units: Sequence[Unit]) -> None:
    """Raise unless ``main`` was moved and the rows of all parts are staged.

    The data files of a refused commit may be removed together with its branch.
    """
    if error.code != SERIALIZATION_FAILURE:
        raise error
    parts = [each for unit in units for each in unit]
    if any(each.in_slices or each.work.has_committed_files for each in parts):
        raise MainMoved(error) from None


def _written_again(batches: BatchWriter, unit: Unit) -> Unit:
    """Write a part on a new branch; ``MainMoved`` if the table has other columns or partitions."""
    try:
        return batches.write_again(unit)
    except SerializationFailure as error:
        raise MainMoved(error) from None


def _error_main_moves(unit: Unit) -> SerializationFailure:
    """Before every attempt to publish, another writer had moved ``main``."""
    ident: LakeIdent = unit[0].table.lake.ident
    if unit[0].table.source:
        return error_main_keeps_moving(ident)
    return SerializationFailure(
        f'main of lake table "{ident}" is moved by somebody else '
        "faster than a batch can be published",
        hint="Stop the other writer or its maintenance; the table has one owner.",
    )
