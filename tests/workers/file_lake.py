"""A lake in memory whose new rows are data files until a commit takes them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from catalog.errcodes import SerializationFailure
from workers.lake.effects import Effect
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.refusals import cannot_look_up
from workers.lake.segment import ChangesAhead, RowsOf, Segment, SourcePart
from workers.lake.staged_rows import LayoutId, NewFile, OwnFiles, Staged
from workers.lake.table import Identity, LakeIdent

LAYOUT = LayoutId("uuid", 0, 0, 2)
FEW = 3


class FileLake(MemoryDestination):
    """``files`` are there: committed, or not yet. Fewer than ``FEW`` rows stay in memory.

    Unless the lake ``is_searchable`` keys are not looked up in files: ``refusals`` are counted.
    """

    def __init__(self, lake: MemoryLake, subid: int) -> None:
        super().__init__(lake, identity=Identity(subid))
        self.files: dict[str, tuple[LakeIdent, pa.Table]] = {}
        self.committed: set[str] = set()
        self.error: Exception | None = None
        self.takes_deletes = True
        self.is_searchable = True
        self.refusals = 0
        self._numbers = itertools.count(1)
        self._files_lock = threading.Lock()

    @property
    def loose(self) -> set[str]:
        """The files that no commit has."""
        return self.files.keys() - self.committed

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        if rows_of is None:
            return super().stage(batches, schema, rows_of, changes_of)
        table = pa.Table.from_batches(list(batches), schema)
        if not table.num_rows and rows_of.in_files:
            own = OwnFiles((), LAYOUT, self._remove, takes_deletes=self.takes_deletes)
            return Staged(0, own=own)
        if table.num_rows < FEW:
            return super().stage(table.to_batches(), schema, rows_of, changes_of)
        if self.error is not None:
            raise self.error
        with self._files_lock:
            path = f"{rows_of.copy_id}/{next(self._numbers)}"
            self.files[path] = rows_of.ident, table
        file = NewFile(path, 1, table.num_rows)
        own = OwnFiles((file,), LAYOUT, self._remove, takes_deletes=self.takes_deletes)
        return Staged(table.num_rows, own=own)

    def _remove(self, paths: Collection[str]) -> None:
        for path in paths:
            del self.files[path]

    def discard(self, staged: Staged) -> None:
        if staged.own is None:
            super().discard(staged)
        elif not staged.own.committed:
            staged.own.remove([file.path for file in staged.own.files])

    def discard_files(self, ident: LakeIdent, file_id: str, kept: Collection[str] = ()) -> None:
        for path in self.loose:
            if self.files[path][0] == ident and path.startswith(f"{file_id}/"):
                self._remove([path])

    def write_sources(
        self, ident: LakeIdent, branch: str, parts: Sequence[SourcePart], *, may_hold: bool = False
    ) -> list[Effect]:
        ahead = any(segment.ahead for part in parts for segment in part.segments)
        if ahead and not self.is_searchable:
            self.refusals += 1
            raise cannot_look_up(ident)
        read = [
            replace(part, segments=[self._read(segment) for segment in part.segments])
            for part in parts
        ]
        try:
            return super().write_sources(ident, branch, read, may_hold=may_hold)
        except SerializationFailure:  # no commit was asked to add the files
            for own in _files_of(parts):
                own.committed = False
                self.committed -= {file.path for file in own.files}
            raise

    def _read(self, segment: Segment) -> Segment:
        """The segment with rows in place of files, also where the lake's answer decides."""
        keys, rows = segment.key_lookup, segment.row_lookup
        if keys is not None:
            decide = keys.decide
            keys = replace(keys, decide=lambda found: self._read(decide(found)))
        if rows is not None:
            choose = rows.decide

            def chosen(found: pa.Table) -> tuple[Staged | None, Staged | None]:
                positions, append = choose(found)
                return positions, self._rows_of(append)

            rows = replace(rows, decide=chosen)
        append = self._rows_of(segment.append)
        ahead = tuple(self._with_rows(each) for each in segment.ahead)
        return replace(segment, append=append, key_lookup=keys, row_lookup=rows, ahead=ahead)

    def _with_rows(self, each: ChangesAhead) -> ChangesAhead:
        rows = self._rows_of(each.rows)
        assert rows is not None
        return replace(each, rows=rows)

    def _rows_of(self, staged: Staged | None) -> Staged | None:
        if staged is None or staged.own is None:
            return staged
        own = staged.own
        paths = [file.path for file in own.files]
        assert self.committed.isdisjoint(paths), "a file is added twice"
        own.committed = True
        self.committed |= set(paths)
        if not paths:
            return Staged(0, table=pa.table({}))
        table = pa.concat_tables([self.files[path][1] for path in paths])
        return Staged(table.num_rows, table=table)


def _files_of(parts: Sequence[SourcePart]) -> list[OwnFiles]:
    segments = [segment for part in parts for segment in part.segments]
    staged = [segment.append for segment in segments]
    staged += [each.rows for segment in segments for each in segment.ahead]
    return [each.own for each in staged if each is not None and each.own is not None]
