"""Put files that were written before the commit into the slices of the transaction.

At the commit a large transaction is applied in slices: framed, gated, checked. A slice ends where
a written piece ended (``stops``). If the runs of a table equal the runs of the piece, the files
stand in for the runs: no row is decoded, folded or written again. All checks look at the runs
first, so the checks decide about a table that was altered, suspended, skipped or copied meanwhile.
If the files do not fit any more, the runs are written.

A slice whose rows are all in files need not be framed again: a stand-in (``StandIn``), with a
change of each kind of each table, shows all checks what they look at. A stand-in may not be
applied. So if the files of a stand-in do not fit, the transaction is applied once more, without
files.

Files of slices in a row become a single commit. A slice with runs of the table comes behind the
files, because a later change may be of a row in the files. Tables are written at a time only if the
keys of their changes can be looked up at a time: the memory is that of one look-up.

Trace: pieces 1 and 2 of tables a and b are written; the rest, of a alone, is not::

    slice 1   a 300 rows, b 50 rows    files of a and of b: no slice is yielded
    slice 2   a 400 rows, b 10 rows    files of a and of b: no slice is yielded
    slice 3   a: U D                   the files of a are yielded, then slice 3
    the end                            the files of b are yielded
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from catalog.errcodes import SerializationFailure
from catalog.pg_lsn import LSN
from config.limits import LOOK_UP_AHEAD_CHANGES
from workers.changes.by_table import Run
from workers.changes.table_work import TableWork
from workers.columnar.column_reader import Changes
from workers.columnar.frame_slices import StandIn
from workers.columnar.tuples import DELETE, INSERT, UPDATE
from workers.lake.refusals import FilesRefused
from workers.lake.table import LakeIdent
from workers.proto.messages import Relation
from workers.publisher.replica_identity import Coverage
from workers.stream.batch import Batch
from workers.tables.write_batch import Slice
from workers.tables.writer import LakeWriter
from workers.tables.written import Written

Kinds = tuple[int, ...]
"""The numbers of inserts, updates and deletes."""
_OPERATIONS: Final = {"insert": INSERT, "update": UPDATE, "delete": DELETE}


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The data files of a table's part of a piece: changes of one layout, counted by ``kinds``."""

    work: TableWork
    relation: Relation
    kinds: Kinds


@dataclass(slots=True)
class ReadyFiles:
    """The files of a transaction, by the offset at which the slice ends, then by relid.

    ``stops`` are the offsets in the batch's bytes at which slices have to end. ``fits`` asks
    whether the table would still be written in the way of the files. ``stand_ins`` are the slices
    that are not framed again, by the offset at which the slice begins. ``used`` are the changes in
    the files that were put in, ``unseen`` those of them that no run had, by kind. ``refused`` are
    tables in whose files no keys can be looked up.
    """

    stops: Sequence[int] = ()
    made: dict[int, Mapping[int, TableFiles]] = field(default_factory=dict)
    fits: Callable[[int, TableWork], bool] = lambda _relid, _work: False
    stand_ins: dict[int, StandIn] = field(default_factory=dict)
    used: int = 0
    unseen: Kinds = (0, 0, 0)
    refused: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.stops)

    @property
    def work_unseen(self) -> dict[str, object]:
        """The row changes of stand-ins beyond those that the runs had, as in ``work_of``."""
        counts = zip(_OPERATIONS, self.unseen, strict=True)
        rows = {operation: number for operation, number in counts if number}
        return {"rows": rows} if rows else {}

    def write_slices(
        self,
        writer: LakeWriter,
        slices: Iterable[tuple[int, Slice]],
        end_lsn: LSN,
        shared: Collection[LakeIdent],
    ) -> list[Written]:
        """``LakeWriter.write_slices`` of the slices with files; see ``refused``."""
        try:
            return writer.write_slices(self.put_in(slices), end_lsn, shared)
        except FilesRefused as error:
            self.refused |= {rel.srrelid for rel in error.tables}
            raise

    def put_in(self, slices: Iterable[tuple[int, Slice]]) -> Iterator[Slice]:
        """The slices, given with their ends, with files in place of runs where files fit."""
        waiting: dict[int, TableWork] = {}
        try:
            for end, each in slices:
                rest = self._use(end, each, waiting)
                yield from _taken(waiting, waiting.keys() & rest.work.keys())
                if rest.work:
                    yield rest
                del each, rest  # the slice must not stay in memory beside the next slice
            yield from _taken(waiting, waiting.keys())
        finally:
            for work in waiting.values():
                work.discard()

    def _use(self, end: int, each: Slice, waiting: dict[int, TableWork]) -> Slice:
        """Move the files of a slice to ``waiting``; the slice without the tables of the files."""
        made = self.made.get(end, {})
        stands_in = any(known.end == end for known in self.stand_ins.values())
        rest = dict(each.work)
        for relid, files in made.items():
            kinds = tuple(min(1, each) for each in files.kinds) if stands_in else files.kinds
            fits = relid not in each.unsure and _same_changes(rest.get(relid, ()), files, kinds)
            if not (fits and self.fits(relid, files.work)):
                files.work.discard()
                continue
            del rest[relid]
            self.used += sum(files.kinds)
            unseen = (n - seen for n, seen in zip(files.kinds, kinds, strict=True))
            self.unseen = tuple(map(sum, zip(self.unseen, unseen, strict=True)))
            if relid in waiting:
                waiting[relid].absorb(files.work)
            else:
                waiting[relid] = files.work
        self.made.pop(end, None)
        if stands_in and rest:
            raise SerializationFailure(
                "the files of a transaction do not fit its tables any more",
                detail="The files were written before the commit.",
                hint="Nothing is to be done: the transaction is applied without the files.",
            )
        return replace(each, work=rest)

    def discard(self) -> None:
        """Remove the files left by the slices."""
        for made in self.made.values():
            discard(made)
        self.made.clear()
        self.stand_ins.clear()


def _taken(waiting: dict[int, TableWork], relids: Collection[int]) -> Iterator[Slice]:
    """Take tables out of ``waiting``: those of a slice have ``LOOK_UP_AHEAD_CHANGES`` keys at most.

    A table with more keys is alone: the lake looks the keys up in several turns.
    """
    together: list[int] = []
    keys = 0
    for relid in sorted(relids, key=lambda relid: waiting[relid].keys_ahead):
        more = waiting[relid].keys_ahead
        if together and keys + more > LOOK_UP_AHEAD_CHANGES:
            yield Slice({}, ready={each: waiting.pop(each) for each in together})
            together, keys = [], 0
        together.append(relid)
        keys += more
    if together:
        yield Slice({}, ready={each: waiting.pop(each) for each in together})


def discard(made: Mapping[int, TableFiles]) -> None:
    """Remove the files of a piece."""
    for files in made.values():
        files.work.discard()


def no_files(_part: Batch) -> ReadyFiles:
    """No file is written before the commit."""
    return ReadyFiles()


def inserts_of(runs: Sequence[Run]) -> Run | None:
    """The only run, if all changes of the run are inserts."""
    run = only_run(runs)
    if run is None or run.changes is None or not (run.changes.kind == INSERT).all():
        return None
    return run


def only_run(runs: Sequence[Run]) -> Run | None:
    """The only run, if the table is not emptied."""
    if len(runs) != 1 or runs[0].truncate or runs[0].relation is None:
        return None
    return runs[0]


def kinds_of(changes: Changes) -> Kinds:
    """Count the changes by kind."""
    return tuple(int(np.count_nonzero(changes.kind == kind)) for kind in _OPERATIONS.values())


def _same_changes(runs: Sequence[Run], files: TableFiles, kinds: Kinds) -> bool:
    """Are the runs changes of the layout of the files, as many of each kind?"""
    run = only_run(runs)
    if run is None or run.changes is None or run.coverage is Coverage.PART:
        return False
    return run.relation == files.relation and kinds_of(run.changes) == kinds
