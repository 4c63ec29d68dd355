"""The part of a batch that changes one table: the segments, and the rows staged for them.

Rows are staged while segments are built, and also later: while the lake applies a segment, the
lake may ask for the remaining changes (``workers.changes.key_lookups``), and the answer is staged
too. All staged rows are removed together, when the batch is published or given up.

The rows of a *slice* of a large transaction are removed once they are on the branch: ``settle``
keeps the counts, which are needed when the transaction is published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from catalog.pg_stat_subscription_stats import ConflictType
from catalog.pg_subscription import TableOptions
from workers.changes.layout import LaidOutRun
from workers.columnar.fold.after_lookup import Probed
from workers.columnar.fold.by_key import Keyed
from workers.columnar.fold.whole_rows import Full
from workers.lake.destination import Destination
from workers.lake.effects import Counts
from workers.lake.segment import ChangesAhead, Constants, RowsOf, Segment
from workers.lake.staged_rows import Staged, joined_files
from workers.lake.table import LakeIdent, LakeTable


class TableWork:
    """The segments of a table, in order, and the staged rows of the segments.

    If the lake table is shared, ``source`` names the publisher table of the rows. ``constants`` are
    values of lake columns in new rows of runs that lack such a column. ``file_id`` becomes part of
    the names of data files from before a commit.
    """

    def __init__(
        self,
        table: LakeTable,
        options: TableOptions,
        dest: Destination,
        source: str = "",
        constants: Constants = (),
        file_id: str = "",
    ) -> None:
        self.segments: list[Segment] = []
        self.table = table
        self.options = options
        self.source = source
        self._constants = constants
        self._dest = dest
        self._file_id = file_id
        self._staged: list[Staged] = []
        self._folded: list[Keyed | Full | Probed] = []
        self._missed = 0, 0  # updates and deletes of earlier slices that found no row
        self._key: tuple[str, ...] = ()

    @property
    def has_committed_files(self) -> bool:
        """Was a commit asked to add data files of staged rows? They may go with its branch."""
        files = (staged.own for staged in self._staged)
        return any(own is not None and own.committed for own in files)

    def count_misses_of(self, folded: Keyed | Full | Probed) -> None:
        """Let ``conflicts`` count the rows that the fold misses."""
        self._folded.append(folded)

    def conflicts(self, counts: Counts) -> dict[ConflictType, int]:
        """Return how many rows were not found, or had been changed by another writer.

        ``counts`` has the rows that the lake table lacks. The folds count the remaining rows: rows
        with a key that the batch had deleted or moved away, and whole rows.
        """
        missing_updates, missing_deletes = self._missed_rows()
        return {
            ConflictType.UPDATE_MISSING: counts.update_missing + missing_updates,
            ConflictType.DELETE_MISSING: counts.delete_missing + missing_deletes,
            ConflictType.UPDATE_ORIGIN_DIFFERS: counts.update_origin_differs,
            ConflictType.DELETE_ORIGIN_DIFFERS: counts.delete_origin_differs,
        }

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that rows are matched by; empty if rows are matched by all columns."""
        return self._key or next((segment.key for segment in self.segments if segment.key), ())

    def settle(self, earlier: TableWork | None) -> None:
        """Keep only the counts of a slice: the segments are on the branch.

        ``earlier`` is the work of the transaction's earlier slices, whose counts are added.
        """
        self.forget_changes()
        self._key = self.key
        if earlier is not None:
            self._add_misses(earlier)
            self._key = self._key or earlier.key
        self.segments.clear()
        self.discard()

    def forget_changes(self) -> None:
        """Keep only the counts of the folds: a fold keeps all received bytes of its changes."""
        self._missed = self._missed_rows()
        self._folded.clear()

    def _add_misses(self, other: TableWork) -> None:
        updates, deletes = other._missed_rows()
        self._missed = self._missed[0] + updates, self._missed[1] + deletes

    def _missed_rows(self) -> tuple[int, int]:
        """Return the numbers of updates and of deletes whose rows the folds miss."""
        updates, deletes = self._missed
        return (
            updates + sum(folded.missing_updates for folded in self._folded),
            deletes + sum(folded.missing_deletes for folded in self._folded),
        )

    def keyed_segment(self, run: LaidOutRun, folded: Keyed, *, truncate: bool = False) -> Segment:
        """Stage the rows of a fold by key; return the segment that applies the rows."""
        return Segment(
            columns=run.columns,
            key=run.key,
            truncate=truncate,
            merge=self._stage_merge(folded),
            unchanged=folded.unchanged,
            append=self.stage_if_any(
                folded.append_batches(),
                folded.append_schema,
                folded.append_rows,
                self.whole_rows(run),
            ),
            defaults=self.options.defaults,
            generated=self.options.generated,
            source=self.source,
            constants=self.constants(run),
        )

    def add_ahead(self, run: LaidOutRun, keys: Staged, rows: Staged) -> None:
        """Add a segment of changes whose new ``rows`` are in files before the commit."""
        ahead = (ChangesAhead(keys, rows),)
        self.segments.append(Segment(run.columns, run.key, source=self.source, ahead=ahead))

    def constants(self, run: LaidOutRun) -> Constants:
        """The columns that a run lacks, with the value of its new rows."""
        return tuple(each for each in self._constants if each[0] not in run.columns)

    def _stage_merge(self, folded: Keyed) -> Staged | None:
        """Stage changes of existing rows.

        An update that keeps values of the table does not bring the whole row. If many updates do,
        Spark makes the rows, so the updates need not stay in memory.
        """
        if not folded.merge_rows:
            return None
        changes_of = None if folded.unchanged else self.table.ident
        return self.stage(folded.merge_batches(), folded.merge_schema, changes_of=changes_of)

    def whole_rows(self, run: LaidOutRun, *, in_files: bool = False) -> RowsOf | None:
        """Return that new rows are whole rows of the table; None if the lake computes a part."""
        if self.options.defaults or self.options.generated or self.constants(run):
            return None
        return RowsOf(self.table.ident, run.columns, self.source, self._file_id, in_files)

    @property
    def files(self) -> int:
        """The number of data files, if the work is nothing but new rows in data files; else 0."""
        if any(segment.truncate or segment.key_lookup for segment in self.segments):
            return 0
        found = [segment.append for segment in self.segments]
        own = [staged.own for staged in found if staged is not None and staged.own is not None]
        only = len(own) == len(self.segments) == len(self._staged)
        return sum(len(each.files) for each in own) if only else 0

    @property
    def is_in_memory(self) -> bool:
        """Did all staged rows stay in memory, and none go to a file?"""
        return all(staged.table is not None for staged in self._staged)

    @property
    def keys_ahead(self) -> int:
        """The number of keys that are looked up at the commit, for changes with rows in files."""
        return sum(each.keys.rows for segment in self.segments for each in segment.ahead)

    def absorb(self, later: TableWork) -> None:
        """Take over the data files of a later slice of the transaction, in one commit if possible.

        Both works are nothing but ``files``, or changes with new rows in files.
        """
        for segment in later.segments:
            last, staged = self.segments[-1], segment.append
            if segment.ahead and last.ahead and replace(segment, ahead=last.ahead) == last:
                self.segments[-1] = replace(last, ahead=last.ahead + segment.ahead)
                self._take_over(segment)
                continue
            together = None if staged is None else joined_files(last.append, staged)
            if together is not None and replace(segment, append=last.append) == last:
                self.segments[-1] = replace(last, append=together)
                self._staged[-1] = together
            else:
                self.segments.append(segment)
                self._take_over(segment)
        self._add_misses(later)
        later.segments, later._staged, later._folded = [], [], []

    def _take_over(self, segment: Segment) -> None:
        """Remove the staged rows of a segment together with the own rows."""
        self._staged += [] if segment.append is None else [segment.append]
        self._staged += [staged for each in segment.ahead for staged in (each.keys, each.rows)]

    def stage_if_any(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows: int,
        rows_of: RowsOf | None = None,
    ) -> Staged | None:
        """``stage``, or None if there are no rows."""
        return self.stage(batches, schema, rows_of) if rows else None

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        """Stage rows until ``discard``."""
        staged = self._dest.stage(batches, schema, rows_of, changes_of=changes_of)
        self._staged.append(staged)
        return staged

    def discard(self) -> None:
        """Remove all staged rows; the segments cannot be applied again."""
        for staged in self._staged:
            self._dest.discard(staged)
        self._staged.clear()
