"""Apply segments by writing files and committing them by name: no MERGE, no second writing.

New rows become a data file unchanged; the positions of deleted and updated rows become a delete
file; a single commit through Iceberg's Java API adds both files to the table. The positions are
looked up in the table's files (``find_rows``), or by a query if pgsub cannot read the files. A
MERGE does more: every MERGE reads the earlier deletes of a data file and writes the deletes again.
1,000 random updates of 3 M rows after a million earlier updates took 2.2 s as a MERGE, and take
0.2 s as files.

An UPDATE of a missing row adds no row, as in a MERGE. Columns that only the table has, and large
values that the publisher did not send, are fetched together with the positions, so that the new row
is complete. The writer counts matched rows itself and so notices a key of two rows.

Trace: keys 1, 2, 3 are updated, 9 is deleted, 4 is new. 1, 2 and 9 are found in files A and B. A
delete file with these three positions, a data file with the new rows 1, 2 and 4: one commit. 3 is
counted as update_missing. If the worker dies before the commit, the branch is as it was, and the
files are removed as orphans. If the worker dies after the commit, nobody publishes the branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from config.limits import FETCHING_CHANGES, LOOK_UP_AHEAD_CHANGES, LOOK_UP_CHANGES
from workers.freed_memory import give_back
from workers.lake.connect.errors import LakeFailure
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, added
from workers.lake.files.branch_commit import BranchCommits, CommitParts
from workers.lake.files.copy_files import copy_by_tasks
from workers.lake.files.data_files import as_rows, check_values, copy_file
from workers.lake.files.find_rows import RowLookup, is_found_here
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.keys.written_keys import WrittenKeys
from workers.lake.files.position_deletes import RowPositions, positions_by_file
from workers.lake.files.read_rows import RowsInOrder, TooLargeToFetch, Unreadable
from workers.lake.files.rows_ahead import (
    Decided,
    NotAhead,
    dead_rows,
    decide,
    in_groups,
    lines_of,
    own_of,
)
from workers.lake.files.small_batch import drop_keys, gather, write_small
from workers.lake.files.table_layout import TableLayout, lacks_columns
from workers.lake.files.updated_rows import (
    UpdatedRows,
    columns_to_fetch,
    keeps_old_values,
    keys_to_find,
    layout_of_updated_rows,
    one_chunk,
)
from workers.lake.files.write_rows import write_ahead, write_rows
from workers.lake.interfaces.segment_writer import (
    Barrier,
    Commit,
    CopyRun,
    Declined,
    Properties,
    SegmentWriter,
    Step,
    WriterEffect,
)
from workers.lake.refusals import cannot_look_up, changed_meanwhile, duplicate
from workers.lake.segment import Segment, WholeRowLookup, found_rows_schema
from workers.lake.sql.merge import DELETE, UPDATE
from workers.lake.sql.other_writers import NO_OTHER_WRITERS, OtherWriters
from workers.lake.sql.row_queries import RowQueries
from workers.lake.staged_rows import FileList, LiveFile, Staged
from workers.lake.storage.handed_keys import can_hand_over
from workers.lake.storage.staging import staged_batches, staged_columns, staged_schema
from workers.lake.storage.store import remove_all
from workers.lake.table import LakeIdent


@dataclass(frozen=True, slots=True)
class Found:
    """Rows found in the branch's snapshot ``tip``: ``k, f, p, o0…``; ``fetched`` names ``o0…``."""

    rows: pa.Table
    fetched: Sequence[str]
    tip: int


@dataclass(slots=True)
class FileSegmentWriter(SegmentWriter):
    """Writes files for the segments of a batch, and commits the files by name."""

    target: BranchCommits
    queries: RowQueries
    keys: KeyCache
    other_writers: OtherWriters = NO_OTHER_WRITERS
    copies: bool = True
    _counts: dict[str, Counts] = field(default_factory=dict)
    _written: WrittenKeys = field(init=False)

    @property
    def ident(self) -> LakeIdent:
        """The table."""
        return self.target.ident

    @property
    def files(self) -> TableLayout:
        """How the table's files are written."""
        return self.target.files

    def accepts(self, segment: Segment) -> bool:
        """Can files hold all changes of the segment?"""
        if segment.ahead:
            return True  # nobody else can: the transaction is applied without the files, if at all
        merged = 0 if segment.merge is None else segment.merge.rows
        appended = 0 if segment.append is None else segment.append.rows
        if not (merged or appended or segment.row_lookup is not None):
            return False
        if (merged or segment.row_lookup is not None) and self.other_writers:
            return False
        if segment.generated or segment.from_branch is not None or segment.key_lookup is not None:
            return False
        if appended and (segment.defaults or segment.constants):
            return False
        if merged > FETCHING_CHANGES and keeps_old_values(self.files, segment):
            return False
        changes = merged
        if segment.row_lookup is not None:
            # Old values, or vectors, would have to be looked up by position.
            if segment.unsent(self.files.names) or self.files.has_vectors:
                return False
            changes += max(1, segment.row_lookup.images.rows)
        if changes and self.files.has_vectors and not is_found_here(self.files, segment.key):
            return False
        return not changes or (self.files.writes_deletes and changes <= LOOK_UP_CHANGES)

    def steps(self, segment: Segment) -> Iterator[Step]:
        """A single commit. If only a look-up can tell, the look-up comes first."""
        if segment.ahead:
            for group in in_groups(segment.ahead, LOOK_UP_AHEAD_CHANGES):
                yield self._commit(((replace(segment, ahead=group), None),))
            return
        found = None
        if self._looks_up_first(segment):
            yield Barrier(segment.source)
            try:
                found = self._look_up(segment)
            except LakeFailure:
                # The values may be too large for Spark to send. A MERGE does not send values.
                raise Declined from None
            if found is None:
                raise Declined
        yield self._commit(((segment, found),))

    def _commit(self, work: tuple[tuple[Segment, Found | None], ...]) -> Commit:
        """A commit of segments of different sources; rows may be found already."""
        sources = frozenset(segment.source for segment, _ in work)
        return Commit(partial(self._write, work), True, sources, work, self._commit)

    def commit_empty(self, properties: Properties) -> None:
        """Commit no files."""
        self.target.commit(CommitParts(), properties)

    def effect(self, source: str = "") -> WriterEffect:
        """The counts of all commits."""
        return WriterEffect(self._counts.get(source, Counts()))

    def forget_files(self) -> None:
        """Read the table and the branch's files again: Spark commits to the branch now."""
        self.target.known.forget()
        self.target.commits.forget(self.ident)

    # -- copy -------------------------------------------------------------------------------------

    def accepts_copy(self, plan: CopyPlan) -> bool:
        """No if the lake has to compute columns, for lent keys, and on a user's server.

        The tasks write to this machine's disk, or with keys that are in a file of this machine.
        """
        return self.copies and not plan.computes and can_hand_over(self.files.store, plan.folder)

    def copy(self, plan: CopyPlan, run: CopyRun, properties: Properties) -> int:
        """Add the files that the copy's tasks write; a copy that fails leaves none behind."""
        files = copy_by_tasks(self.queries.session, self.ident, self.files, plan, run)
        self.target.commit(CommitParts(files), properties)
        return sum(file.rows for file in files)

    # -- looking rows up --------------------------------------------------------------------------

    def _looks_up_first(self, segment: Segment) -> bool:
        """Does only a look-up tell whether files can hold the changes?

        The values to fetch may be too large, only known vectors can be replaced, and a delete file
        has the place of its data files.
        """
        changes = segment.merge is not None and segment.merge.rows
        if self.files.has_places and (changes or segment.row_lookup is not None):
            return True
        return keeps_old_values(self.files, segment) or bool(changes and self.files.has_vectors)

    def _look_up(self, segment: Segment) -> Found | None:
        """The existing rows that a segment changes, or None if Spark has to change the rows.

        All earlier commits are on the branch.
        """
        if self.files.has_places and self._list_files().files is None:
            return None
        if segment.merge is None:
            return Found(found_rows_schema().empty_table(), (), self._tip())
        op = staged_columns(segment.merge, ["op"])["op"].to_numpy()
        columns = columns_to_fetch(self.files, segment) if (op == UPDATE).any() else []
        keys = keys_to_find(segment, segment.merge)
        if not is_found_here(self.files, segment.key):
            tip = self._tip()
            rows = self.queries.rows_with_keys(segment, segment.merge, keys, columns)
            return Found(rows, columns, tip)
        live = self._list_files()
        if live.files is not None:
            try:
                layout = layout_of_updated_rows(self.files)
                lookup = RowLookup(layout, segment.key, keys, segment.source, self.keys)
                return Found(lookup.find(live.files, self.target.dead, columns), columns, live.tip)
            except TooLargeToFetch:
                return None
            except Unreadable:
                pass
        if self.files.has_vectors:
            return None
        rows = self.queries.rows_with_keys(segment, segment.merge, keys, columns)
        return Found(rows, columns, live.tip)

    def _list_files(self) -> FileList:
        return self.target.list_files(f'looking for rows in lake table "{self.ident}"')

    def _tip(self) -> int:
        what = f'looking for rows in lake table "{self.ident}"'
        return self.target.commits.tip(self.ident, self.target.branch, what)

    # -- writing ----------------------------------------------------------------------------------

    def _write(self, work: Sequence[tuple[Segment, Found | None]], properties: Properties) -> None:
        """Apply segments of different sources in a single commit; rows may be looked up already."""
        parts, tips, counts = CommitParts(), set[int](), dict[str, Counts]()
        self._written = WrittenKeys(self.keys)
        try:
            for segment, known in work:
                found = self._apply(segment, known, parts)
                tips |= set() if found is None else {found.tip}
                counts[segment.source], parts.counts = parts.counts, Counts()
            if len(tips) > 1:
                raise changed_meanwhile(self.ident)
            tip, found = next(iter(tips), None), None  # the found rows take memory
            gather(self.target, parts, tip)
            if tip is not None:
                give_back()  # the look-up used most of the pool
            deletes = self.target.write_deletes_beside(partial(self._write_rows, parts), parts, tip)
        except BaseException:
            kept = {file.path for own in parts.staged for file in own.files}
            paths = [file.path for file in parts.files if file.path not in kept]
            remove_all(self.files.store, paths)
            raise
        size = self.target.commit(parts, properties, tip, deletes)
        drop_keys(self.files, parts, self.keys)
        for source, own in counts.items():
            of_table = replace(own, rows=size.rows, deleted=size.deleted)
            self._counts[source] = added(self._counts.get(source, Counts()), of_table)

    def _write_rows(self, parts: CommitParts) -> None:
        if parts.batches:
            rows, ready = chain.from_iterable(parts.batches), len(parts.files)
            write_ahead(self.files, rows, parts.files.append)
            self._written.store(parts.files[ready:])
        if parts.placed:
            write_small(self.files, parts, self.keys)

    def _apply(self, segment: Segment, found: Found | None, parts: CommitParts) -> Found | None:
        """Collect the parts of a segment; return the rows that were looked up, if any."""
        if lacks_columns(self.files, segment.columns):
            raise changed_meanwhile(self.ident)
        if segment.ahead:
            return self._change_ahead(segment, parts)
        if found is None and (segment.merge is not None or segment.row_lookup is not None):
            found = self._look_up(segment)
            if found is None:
                raise changed_meanwhile(self.ident)
        if segment.merge is not None and segment.merge.rows and found is not None:
            self._change_rows(segment, segment.merge, found, parts)
        if segment.row_lookup is not None:
            self._change_whole_rows(segment, segment.row_lookup, parts)
        if segment.append is not None and segment.append.rows:
            self._append(segment, segment.append, parts)
        return found

    def _append(self, segment: Segment, staged: Staged, parts: CommitParts) -> None:
        parts.counts = replace(parts.counts, appended=parts.counts.appended + staged.rows)
        if staged.own is None:
            self._add_rows(staged_batches(staged), segment, parts)
            return
        if staged.own.layout_id != self.files.layout_id:
            raise changed_meanwhile(self.ident)
        if staged.own.committed:  # an expiry may remove the file with that commit's branch
            parts.files += [copy_file(self.files, file) for file in staged.own.files]
        else:
            parts.files += staged.own.files
            parts.staged.append(staged.own)

    def _add_rows(
        self, batches: Iterable[pa.RecordBatch], segment: Segment, parts: CommitParts
    ) -> None:
        rows = (as_rows(self.files, batch, segment.columns, segment.source) for batch in batches)
        self._add(self.files, segment, rows, parts)

    def _add(
        self,
        files: TableLayout,
        segment: Segment,
        batches: Iterable[pa.RecordBatch],
        parts: CommitParts,
    ) -> None:
        """Add rows in the table's columns to a commit.

        All rows of a commit go to a single file, because a reader opens every file. But numbered
        and unnumbered rows go to separate files.
        """
        checked = (check_values(self.ident, batch) for batch in batches)
        if not segment.source:  # a look-up of one source among others remembers no keys
            parts.keys.add(segment.key)
        if files is self.files:
            parts.batches.append(self._written.watched(files, segment.key, checked))
        else:
            alone, ready = WrittenKeys(self.keys), len(parts.files)
            rows = alone.watched(files, segment.key, checked)
            write_rows(files, rows, parts.files.append)
            alone.store(parts.files[ready:])

    # -- changes of existing rows -----------------------------------------------------------------

    def _change_rows(
        self, segment: Segment, staged: Staged, found: Found, parts: CommitParts
    ) -> None:
        op = staged_columns(staged, ["op"])["op"].to_numpy()
        at = found.rows["k"].to_numpy()
        # For every change the index of the found row, -1 for a missing row.
        row_of = np.full(staged.rows, -1, np.int64)
        row_of[at] = np.arange(len(at))
        if np.count_nonzero(row_of >= 0) < len(at):
            detail = f"{staged.rows} keys matched {len(at)} rows."
            raise duplicate(self.ident, segment.key, detail)
        parts.deleted.append(self._positions(segment, found.rows))
        updates = np.flatnonzero((op == UPDATE) & (row_of >= 0))
        update_missing = int((op == UPDATE).sum()) - len(updates)
        parts.counts = replace(
            parts.counts,
            merged=len(at),
            update_missing=update_missing,
            delete_missing=staged.rows - len(at) - update_missing,
        )
        old = found.rows.select([f"o{n}" for n in range(len(found.fetched))])
        rows = UpdatedRows(self.files, segment, found.fetched)
        batches = rows.batches(staged, updates, RowsInOrder(old, row_of[updates]))
        self._add(layout_of_updated_rows(self.files), segment, batches, parts)

    def _change_ahead(self, segment: Segment, parts: CommitParts) -> Found:
        """Add files that were written before the commit, and delete what they replace.

        Raises 40001 if deletes do not suffice: the transaction is applied without the files then.
        ``FilesRefused`` if no later transaction would fare better.
        """
        own = [own_of(each) for each in segment.ahead]
        live = self._list_files()
        if live.files is None:
            raise cannot_look_up(self.ident)
        fits = {(each.layout_id, each.committed) for each in own} == {(self.files.layout_id, False)}
        if not fits or self.other_writers or not self.files.keeps_positions:
            raise changed_meanwhile(self.ident)
        if segment.unsent(self.files.names):  # of which only the old rows have the values
            raise changed_meanwhile(self.ident)
        rows, decided = self._decide_ahead(segment, live.files)
        parts.deleted += [
            self._positions(segment, rows),
            dead_rows(segment.ahead, decided.dead),
        ]
        parts.counts = added(parts.counts, decided.counts)
        for each in own:
            parts.files += each.files
            parts.staged.append(each)
        return Found(rows, (), live.tip)

    def _decide_ahead(
        self, segment: Segment, files: Sequence[LiveFile]
    ) -> tuple[pa.Table, Decided]:
        """Look up the keys of the lines. What the keys take is free again at the end."""
        lines = lines_of(segment.ahead)
        try:
            lookup = RowLookup(
                self.files, segment.key, lines.to_look_up(), segment.source, self.keys
            )
            rows = lookup.find(files, self.target.dead)
            return rows, decide(lines, rows["k"].to_numpy())
        except Unreadable:
            raise cannot_look_up(self.ident) from None
        except NotAhead:
            raise changed_meanwhile(self.ident) from None

    def _change_whole_rows(
        self, segment: Segment, lookup: WholeRowLookup, parts: CommitParts
    ) -> None:
        positions, append = lookup.decide(self.queries.whole_rows(segment, lookup.images))
        if positions is not None and positions.rows:
            self._change_at_positions(segment, positions, parts)
        if append is not None and append.rows:
            self._append(segment, append, parts)

    def _change_at_positions(self, segment: Segment, positions: Staged, parts: CommitParts) -> None:
        rows = staged_columns(positions, staged_schema(positions).names)
        parts.deleted.append(self._positions(segment, rows))
        parts.counts = replace(parts.counts, merged=parts.counts.merged + positions.rows)
        updated = rows.filter(pc.not_equal(rows["op"], pa.scalar(DELETE, pa.int8())))
        self._add_rows(updated.to_batches(), segment, parts)

    def _positions(self, segment: Segment, found: pa.Table) -> RowPositions:
        """The positions in ``f`` and ``p``; 23505 if two changes have the same."""
        paths, positions = found["f"], found["p"]
        if pa.types.is_dictionary(paths.type):
            paths = paths.unify_dictionaries()
        places = positions_by_file(one_chunk(paths), one_chunk(positions))
        if sum(map(len, places.values())) < found.num_rows:
            detail = "Two changes of one batch match one row."
            raise duplicate(self.ident, segment.key, detail)
        return places
