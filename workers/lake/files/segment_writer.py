"""Changes of a table as files of its own and one commit, with no MERGE and no second writing.

New rows become a file as they are; the place of each row that went, or has another form now, is a
delete; one commit through the gateway makes both the table's. Where the rows are is looked up in
the files (``row_lookup``), or by a query where that cannot be. What a MERGE does besides is left
out: it reads the deletes that a file has had before and writes them again with each batch. 1,000
random updates of 3 M rows after a million others took 2.2 s as a MERGE, and take 0.2 s.

An UPDATE whose row is not there adds none, as a MERGE's does not. Columns that only the table has,
and large values that the publisher did not send, come back with the places, so that the new row is
whole. What was found is counted here, one by one: a key that two rows have is known as such.

Trace: keys 1, 2, 3 are updated, 9 is deleted, 4 is new. Found are 1, 2 and 9 in files A and B. A
file with these three deletes, one with the new rows 1, 2 and 4: one commit. 3 is counted as
update_missing. The worker dies before it: the branch is as it was, the files belong to nobody and
go as orphans. It dies behind it: nobody publishes the branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from config.limits import FETCHING_CHANGES, LOOK_UP_CHANGES, ROW_GROUP_BYTES
from workers.lake.connect.session import LakeSession
from workers.lake.effects import Counts
from workers.lake.files.branch_files import BranchFiles, Deletes, after_commit
from workers.lake.files.data_files import as_rows, check_values, linked, write_ahead, write_rows
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.deletion_vectors import write_vectors
from workers.lake.files.find_rows import RowLookup, is_found_here
from workers.lake.files.key_cache import KeyCache
from workers.lake.files.merge_delete_files import read_all
from workers.lake.files.position_deletes import RowPositions, by_file, together, write_deletes
from workers.lake.files.read_rows import RowsInOrder, TooLargeToFetch, Unreadable
from workers.lake.files.table_layout import ROW_NUMBER, TableLayout, lacks
from workers.lake.interfaces.table_api import FileChange, FileCommits
from workers.lake.refusals import changed_meanwhile, duplicate
from workers.lake.segment import FOUND_ROWS, Segment, WholeRowLookup
from workers.lake.sql.find_rows import find_keys, find_positions
from workers.lake.sql.key_bounds import KeyRanges, choose_bounds
from workers.lake.sql.merge import DELETE, UPDATE
from workers.lake.sql.staged_frame import frame
from workers.lake.staged_rows import FileList, NewFile, OwnFiles, Staged
from workers.lake.storage.staging import Staging, staged_batches, staged_columns, staged_schema
from workers.lake.table import SOURCE_COLUMN, LakeIdent

_NONE: Final = Deletes()


@dataclass(slots=True)
class _Commit:
    """What one commit is to bring; ``batches`` are rows that are still to be written."""

    rows: list[NewFile] = field(default_factory=list)
    batches: list[Iterator[pa.RecordBatch]] = field(default_factory=list)
    staged: list[OwnFiles] = field(default_factory=list)
    deleted: list[RowPositions] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class Found:
    """Rows that were looked up: ``k, f, p`` and what they have in the columns ``own``, ``o0…``, at
    the branch's snapshot ``tip``."""

    rows: pa.Table
    own: Sequence[str]
    tip: int


@dataclass(slots=True)
class DirectWriter:
    """Writes one table's part of a batch through the gateway; made for one batch."""

    commits: FileCommits
    session: LakeSession
    staging: Staging
    ident: LakeIdent
    branch: str
    files: TableLayout
    key_ranges: KeyRanges
    known: BranchFiles
    dead: DeletedRowsCache
    keys: KeyCache

    def takes(self, segment: Segment) -> bool:
        """Whether all that the segment does can be done here."""
        if segment.generated or segment.from_branch is not None or segment.key_lookup is not None:
            return False
        if segment.append is not None and segment.append.rows and segment.defaults:
            return False
        changes = 0 if segment.merge is None else segment.merge.rows
        if changes > FETCHING_CHANGES and self.keeps(segment):
            return False
        if segment.row_lookup is not None:
            if self._kept(segment) or self.files.has_vectors:  # to be looked up by place
                return False
            changes += max(1, segment.row_lookup.images.rows)
        if changes and self.files.has_vectors and not is_found_here(self.files, segment.key):
            return False
        return not changes or (self.files.deletes and changes <= LOOK_UP_CHANGES)

    def keeps(self, segment: Segment) -> bool:
        """Whether values of the table's come here, to be written again in an update's new row."""
        if segment.merge is None or not segment.merge.rows or not self._kept(segment):
            return False
        op = staged_columns(segment.merge, ["op"])["op"].to_numpy()
        return bool((op == UPDATE).any())

    def looks_first(self, segment: Segment) -> bool:
        """Whether only ``look_up`` says if it can be done here: what it brings may be too much, and
        vectors cannot be replaced that are not known."""
        changes = segment.merge is not None and segment.merge.rows
        return self.keeps(segment) or bool(changes and self.files.has_vectors)

    def look_up(self, segment: Segment) -> Found | None:
        """Where the rows are that a segment changes; all before it is on the branch.

        None where Spark has to change them.
        """
        what = f"looking for rows in {self._what()}"
        if segment.merge is None:
            return Found(
                FOUND_ROWS.empty_table(), (), self.commits.tip(self.ident, self.branch, what)
            )
        op = staged_columns(segment.merge, ["op"])["op"].to_numpy()
        own = self._own(segment) if (op == UPDATE).any() else []
        keys = _keys(segment, segment.merge)
        if not is_found_here(self.files, segment.key):
            tip = self.commits.tip(self.ident, self.branch, what)
            return Found(self._find(segment, segment.merge, keys, own), own, tip)
        live = self.known.live or self.commits.list_files(self.ident, self.branch, what)
        self.known.live = live
        if live.files is not None:
            try:
                table, known = self._with_own(), self.keys
                lookup = RowLookup(table, segment.key, keys, segment.source, known)
                return Found(lookup.find(live.files, self.dead, own), own, live.tip)
            except TooLargeToFetch:
                return None
            except Unreadable:
                pass
        if self.files.has_vectors:
            return None
        return Found(self._find(segment, segment.merge, keys, own), own, live.tip)

    def write(
        self, segment: Segment, properties: dict[str, str], found: Found | None = None
    ) -> Counts:
        """Apply a segment that ``takes`` says yes to: one commit, with these properties.

        ``found``: what was looked up already.
        """
        if lacks(self.files, segment.columns):
            raise changed_meanwhile(self.ident)
        commit = _Commit()
        try:
            if found is None and (segment.merge is not None or segment.row_lookup is not None):
                found = self.look_up(segment)
                if found is None:
                    raise changed_meanwhile(self.ident)
            if segment.merge is not None and segment.merge.rows and found is not None:
                self._merge(segment, segment.merge, found, commit)
            if segment.row_lookup is not None:
                self._full(segment, segment.row_lookup, commit)
            if segment.append is not None and segment.append.rows:
                self._append(segment, segment.append, commit)
            if commit.batches:
                rows = chain.from_iterable(commit.batches)
                write_ahead(self.files, rows, commit.rows.append)
            tip = None if found is None else found.tip
            deletes = self._deletes(commit, tip)
        except BaseException:
            for file in commit.rows:
                if not any(file in own.files for own in commit.staged):
                    self.files.store.remove(file.path)
            raise
        return self._commit(commit, properties, tip, deletes)

    def add(self, files: Sequence[NewFile], properties: dict[str, str]) -> None:
        """Files of rows that somebody has written: one commit."""
        self._commit(_Commit(list(files)), properties)

    def stamp(self, properties: dict[str, str]) -> None:
        """A commit without rows, for what it says."""
        self._commit(_Commit(), properties)

    # -- rows -------------------------------------------------------------------------------------

    def _append(self, segment: Segment, staged: Staged, commit: _Commit) -> None:
        commit.counts = replace(commit.counts, appended=commit.counts.appended + staged.rows)
        if staged.own is not None:
            if staged.own.shape != self.files.shape:
                raise changed_meanwhile(self.ident)
            if staged.own.committed:  # with the branch it was given to it may be expired any moment
                commit.rows += [linked(self.files, file) for file in staged.own.files]
            else:
                commit.rows += staged.own.files
                commit.staged.append(staged.own)
        else:
            self._write(staged_batches(staged), segment.columns, segment.source, commit)

    def _write(
        self,
        batches: Iterable[pa.RecordBatch],
        columns: Sequence[str],
        source: str,
        commit: _Commit,
    ) -> None:
        rows = (as_rows(self.files, batch, columns, source) for batch in batches)
        self._add(self.files, rows, commit)

    def _add(self, files: TableLayout, batches: Iterable[pa.RecordBatch], commit: _Commit) -> None:
        """Rows as the table has them. All of a commit are in one file, for each is opened by
        whoever reads; but rows that bear numbers are not among those that have none."""
        checked = (check_values(self.ident, batch) for batch in batches)
        if files is self.files:
            commit.batches.append(checked)
        else:
            write_rows(files, checked, commit.rows.append)

    # -- changes of rows that are there -----------------------------------------------------------

    def _merge(self, segment: Segment, staged: Staged, found: Found, commit: _Commit) -> None:
        op = staged_columns(staged, ["op"])["op"].to_numpy()
        at = found.rows["k"].to_numpy()
        # Which of what was found each change is about, -1 where nothing was.
        of = np.full(staged.rows, -1, np.int64)
        of[at] = np.arange(len(at))
        if np.count_nonzero(of >= 0) < len(at):
            detail = f"{staged.rows} keys matched {len(at)} rows."
            raise duplicate(self.ident, segment.key, detail)
        commit.deleted.append(self._places(segment, found.rows))
        changes = np.flatnonzero((op == UPDATE) & (of >= 0))
        updates, matched = len(changes), len(at)
        missing = int((op == UPDATE).sum()) - updates
        commit.counts = replace(
            commit.counts,
            merged=matched,
            update_missing=missing,
            delete_missing=staged.rows - matched - missing,
        )
        own = found.rows.select([f"o{n}" for n in range(len(found.own))])
        rows = self._new_rows(segment, staged, changes, RowsInOrder(own, of[changes]), found.own)
        self._add(self._with_own(), rows, commit)

    def _kept(self, segment: Segment) -> list[str]:
        """Columns some of whose values an update leaves as the table has them."""
        sent = set(segment.columns) - set(segment.unchanged)
        if segment.source:
            sent.add(SOURCE_COLUMN)
        return [name for name in self.files.names if name not in sent]

    def _own(self, segment: Segment) -> list[str]:
        """What an update's new row has of the old one."""
        numbers = [ROW_NUMBER.name] if self.files.has_vectors else []
        return [*self._kept(segment), *numbers]

    def _with_own(self) -> TableLayout:
        """The table as rows are written that were there before."""
        return self.files.numbered() if self.files.has_vectors else self.files

    def _find(
        self, segment: Segment, staged: Staged, keys: pa.Table, own: Sequence[str]
    ) -> pa.Table:
        """The same as ``RowLookup.find``, by a query."""
        bounds = choose_bounds(self.session, self.key_ranges, segment.key, staged)
        with self.staging.for_spark(Staged(keys.num_rows, table=keys)) as sent:
            return self.session.query(
                find_keys(
                    self.ident, self.branch, segment.key, bounds, segment.source, columns=own
                ),
                f"looking for rows in {self._what()}",
                s=frame(self.session, sent),
            )

    def _places(self, segment: Segment, found: pa.Table) -> RowPositions:
        """Those in ``f`` and ``p``, which no two changes have."""
        paths, positions = found["f"], found["p"]
        if pa.types.is_dictionary(paths.type):
            paths = paths.unify_dictionaries()
        places = by_file(_one_chunk(paths), _one_chunk(positions))
        if sum(map(len, places.values())) < found.num_rows:
            detail = "Two changes of one batch match one row."
            raise duplicate(self.ident, segment.key, detail)
        return places

    def _new_rows(
        self, segment: Segment, staged: Staged, at: Any, found: RowsInOrder, own: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The rows that updates leave, some at a time: what was sent, and what the table had.

        ``at`` are their numbers among the staged ones, in ascending order; ``found`` goes with it.
        """
        most = max(1, ROW_GROUP_BYTES * found.rows.num_rows // max(1, found.rows.nbytes))
        start = 0
        for batch in staged_batches(staged):
            low, high = np.searchsorted(at, [start, start + batch.num_rows])
            for first in range(low, high, most):
                some = slice(first, min(first + most, high))
                all_of_it = some.stop - first == batch.num_rows
                sent = batch if all_of_it else batch.take(pa.array(at[some] - start))
                yield self._new(segment, sent, found.some(some), own)
            start += batch.num_rows

    def _new(
        self, segment: Segment, sent: pa.RecordBatch, found: pa.Table, own: Sequence[str]
    ) -> pa.RecordBatch:
        masks = {name: f"m{segment.columns.index(name)}" for name in segment.unchanged}
        rows = as_rows(self._with_own(), sent, segment.columns, segment.source)
        columns = list(rows.columns)
        for n, name in enumerate(own):
            place = rows.schema.get_field_index(name)
            held = _one_chunk(found[f"o{n}"]).cast(rows.schema.field(place).type)
            if name in masks:
                held = pc.if_else(sent.column(masks[name]), held, columns[place])
            columns[place] = held
        whole: pa.RecordBatch = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        return whole

    # -- whole rows -------------------------------------------------------------------------------

    def _full(self, segment: Segment, full: WholeRowLookup, commit: _Commit) -> None:
        found = FOUND_ROWS.empty_table()
        if full.images.rows:
            found = self.session.query(
                find_positions(self.ident, self.branch, segment.columns, segment.source),
                f"looking for rows in {self._what()}",
                s=frame(self.session, full.images),
            ).cast(FOUND_ROWS)
        moved, append = full.decide(found)
        if moved is not None and moved.rows:
            self._at_places(segment, moved, commit)
        if append is not None and append.rows:
            self._append(segment, append, commit)

    def _at_places(self, segment: Segment, moved: Staged, commit: _Commit) -> None:
        rows = staged_columns(moved, staged_schema(moved).names)
        commit.deleted.append(self._places(segment, rows))
        commit.counts = replace(commit.counts, merged=commit.counts.merged + moved.rows)
        updated = rows.filter(pc.not_equal(rows["op"], pa.scalar(DELETE, pa.int8())))
        self._write(_batches(updated), segment.columns, segment.source, commit)

    # -- the commit -------------------------------------------------------------------------------

    def _commit(
        self,
        commit: _Commit,
        properties: dict[str, str],
        tip: int | None = None,
        deletes: Deletes = _NONE,
    ) -> Counts:
        for staged in commit.staged:
            staged.committed = True
        change = FileChange(
            self.files.shape,
            added=commit.rows,
            added_deletes=[file for file, _ in deletes.files],
            removed_deletes=deletes.replaced,
            summary=properties,
            expected_tip=tip,
        )
        what = f"writing to {self._what()}"
        totals = self.commits.commit_files(self.ident, self.branch, change, what)
        live = after_commit(self.known.live, totals, commit.rows, deletes, self.dead)
        self.known.live = None if self.files.has_vectors and _is_numbering(live) else live
        for file, _ in deletes.files:
            if not file.vector:
                self.known.deletes.add(file, deletes.replaced)
        if not deletes.files:
            return commit.counts
        return replace(commit.counts, rows=totals.rows, dead=totals.deleted)

    def _deletes(self, commit: _Commit, tip: int | None) -> Deletes:
        places = together(commit.deleted)
        if not places:
            return Deletes()
        if not self.files.has_vectors:
            replaced = self.known.deletes.full()
            all_places = together(
                [places, self._of_living_files(read_all(self.files.store, replaced), tip)]
            )
            file = write_deletes(self.files, all_places)
            return Deletes(places, [(file, all_places.keys())], replaced)
        live = self.known.live
        if live is None or live.files is None or live.tip != tip:
            raise changed_meanwhile(self.ident)
        before = {file.path: file.deletes for file in live.files if file.path in places}
        try:
            vectors = write_vectors(self.files, places, before)
        except Unreadable:  # which the next look-up finds, and leaves to Spark
            self.dead.forget(places)
            raise changed_meanwhile(self.ident) from None
        replaced = [each for path, known in before.items() for each in known if each.of == path]
        return Deletes(places, [(file, [str(file.of)]) for file in vectors], replaced)

    def _of_living_files(self, places: RowPositions, tip: int | None) -> RowPositions:
        """Without those of data files that the branch has no more, if it is known which."""
        live = self.known.live
        if live is None or live.files is None or live.tip != tip:
            return places
        paths = {file.path for file in live.files}
        return {path: each for path, each in places.items() if path in paths}

    def _what(self) -> str:
        return f'lake table "{self.ident}"'


def _is_numbering(live: FileList | None) -> bool:
    """Whether a commit has given rows numbers that it did not tell: to all that had none."""
    files = () if live is None or live.files is None else live.files
    return any(file.first_row_id is None for file in files)


def _keys(segment: Segment, staged: Staged) -> pa.Table:
    """The keys of a segment's changes: ``k, b0…``."""
    names = [f"b{n}" for n in range(len(segment.key))]
    keys = staged_columns(staged, names)
    numbers = pa.chunked_array([pa.array(np.arange(staged.rows))])
    return pa.Table.from_arrays([numbers, *keys.columns], names=["k", *names])


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = table.to_batches()
    return batches


def _one_chunk(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
