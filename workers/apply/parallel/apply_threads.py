"""Write the new rows of transactions in progress as data files, beside the batches.

PostgreSQL's leader apply worker gives a streamed transaction to a parallel apply worker, for
application before the commit. A lake has no transaction to apply into, but a new row does not
depend on the lake: the row is appended, whatever else was committed meanwhile. So a thread for
every transaction turns new rows into data files while the transaction runs. No snapshot names the
files. At the commit the files are added where the rows would be written
(``workers.apply.parallel.ready_files``), in the order of the commits and behind all checks.

A slice's rows of a table become files if the table is in ``r`` and was copied whole (so that no
inserted key is looked up), if no declared key and no REPLICA IDENTITY FULL asks for more, if the
lake table is in line with the message of the rows, and if the worker writes the table's files.
Updates and deletes need a key of one number, and all values (``workers.changes.changes_ahead``);
the changed rows are looked up at the commit. All remaining changes wait in the spool and are
applied at the commit, as with ``streaming = on``. The spool keeps all records up to the commit, so
files may be given up at any time: after an error of a value, a full disk, a changed table, a
roll-back.

A transaction that alters a table between two of its changes gives up all files. The lake's columns
change at the commit, between the slices: files of the columns before would be refused there, and a
second attempt would come behind the change, and have the table copied again. Rows of a table whose
columns changed in front of the first row wait for the commit, and so no value of an excluded column
is written under another name.

The main thread frames a slice and chooses the runs, because only the main thread may use the tables
and the subscription's state. A thread of the transaction decodes and writes: no more than
``max_parallel_apply_workers_per_subscription`` threads. A transaction without a thread waits for a
thread, or for the commit. Small transactions are sent behind a burst of the large one, and their
batches come first: beside batches a slice waits a second. ``file_notes`` remembers the files for
the case of a crash.

Trace: ``COPY t FROM …`` of 5 M rows. 24 MB of records are received: slice 1 becomes a file while
slice 2 is received. The commit comes when 19 slices are written and a part of the 20th is
received: 19 files are added in one commit, and the rest is written then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from catalog.errcodes import ReplicationError, RequiredProcessGone
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.monitor_limits import (
    PARALLEL_FILE_SECONDS,
    PARALLEL_LEAST_BYTES,
    PARALLEL_LOOK_BYTES,
    PARALLEL_MEMORY_BYTES,
    PARALLEL_MOST_BYTES,
    PARALLEL_STAND_IN_BYTES,
)
from workers.apply.apply_batch import Applier
from workers.apply.parallel.file_notes import FileNotes, Note
from workers.apply.parallel.in_line import is_in_line
from workers.apply.parallel.pieces import Piece, Pieces, may_write
from workers.apply.parallel.ready_files import (
    ReadyFiles,
    TableFiles,
    discard,
    inserts_of,
    only_run,
)
from workers.apply.parallel.refused_tables import RefusedTables
from workers.apply.parallel.write_files import Rows, WrittenFiles, write_files
from workers.apply.table_checks import run_in_form
from workers.changes.by_table import FramedBatch, frame_inside
from workers.changes.failed_transaction import FailedTransaction
from workers.changes.relation_map import LogicalRepRelMap, RelName
from workers.changes.table_work import TableWork
from workers.columnar.frame_slices import StandIn
from workers.lake.destination import Destination
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL
from workers.stream.batch import Batch, Bytes, Received
from workers.stream.spool import Spool
from workers.tables.rename_watch import by_oid

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece to be written: the rows that may become files, by relid, and the piece's size.

    ``records`` are those of a stand-in, if all changes of the piece are such rows.
    """

    rows: Mapping[int, Rows]
    size: int
    records: Bytes | None


@dataclass(frozen=True, slots=True)
class _Made:
    """What is known of a piece: the relations at its end, and the files by relid.

    ``records`` are those of a stand-in, if all rows of the piece are in the files.
    """

    relmap: LogicalRepRelMap
    files: Mapping[int, TableFiles] = field(default_factory=dict)
    records: Bytes | None = None


@dataclass(slots=True)
class _Transaction:
    """A transaction in progress that has a thread; ``pid`` is the thread's.

    ``waits_since`` is when the next piece was received, if the piece waits.
    ``waiting`` are the tables whose updates and deletes wait for the commit.
    """

    xid: int
    note: Note
    thread: ThreadPoolExecutor
    pid: int
    pieces: Pieces[_Made] = field(
        default_factory=lambda: Pieces(PARALLEL_LEAST_BYTES, PARALLEL_MOST_BYTES)
    )
    waits_since: float | None = None
    job: Future[WrittenFiles] | None = None
    part: _Part | None = None
    waiting: set[int] = field(default_factory=set)
    relmap: LogicalRepRelMap = field(default_factory=LogicalRepRelMap)
    begun: tuple[float, float] = field(default_factory=lambda: (time.time(), time.monotonic()))

    @property
    def age(self) -> float:
        """The seconds since the first file, by the clock that has gone further."""
        return max(time.time() - self.begun[0], time.monotonic() - self.begun[1])


class ParallelApply:
    """The threads of an apply worker. The worker's main thread calls the methods."""

    def __init__(
        self,
        applier: Applier,
        spool: Spool,
        dest: Destination,
        notes: FileNotes,
        *,
        most: Callable[[], int],
        report: Callable[..., None],
        wake: Callable[[], None],
    ) -> None:
        """``most`` is the number of threads at a time; ``report`` tells the launcher of threads.

        ``wake`` wakes the main thread when a slice is written.
        """
        self._applier = applier
        self._spool = spool
        self._dest = dest
        self._notes = notes
        self._most = most
        self._report = report
        self._wake = wake
        self._open: dict[int, _Transaction] = {}
        self._reported: list[dict[str, int]] = []
        self._in_use: tuple[_Transaction, ReadyFiles] | None = None
        self._last_batch = float("-inf")
        self._refused = RefusedTables()
        spool.look_after(PARALLEL_LOOK_BYTES)
        applier.ready_files = self.files_of

    # -- while transactions run ---------------------------------------------------------------

    def turn(self) -> None:
        """Take the written files, and give the threads the next slices. Never waits long."""
        running = {each.number: each for each in self._spool.running()}
        for number in self._open.keys() - running.keys():
            self._drop(self._open.pop(number))
        for number, received in running.items():
            transaction = self._open.get(number)
            if transaction is None:
                waits = received.is_complete or received.is_altered
                if not waits and len(self._open) < self._most():
                    self._begin(received)
                continue
            _cut(transaction, received)
            _take(transaction)
            if not received.is_complete:
                self._go_on(transaction, received)
        self._report_threads()

    def _begin(self, received: Received) -> None:
        pieces: Pieces[_Made] = Pieces(PARALLEL_LEAST_BYTES, PARALLEL_MOST_BYTES)
        if pieces.next_part(received) is None:
            return
        thread = ThreadPoolExecutor(1, thread_name_prefix="parallel")
        pid = thread.submit(threading.get_native_id).result()
        transaction = _Transaction(received.xid, self._notes.new(), thread, pid)
        self._open[received.number] = transaction
        self._go_on(transaction, received)

    def _go_on(self, transaction: _Transaction, received: Received) -> None:
        """Give the next slice to the thread, if a slice is received and no batch comes first."""
        now, part = time.monotonic(), transaction.pieces.next_part(received)
        if part is None:
            transaction.waits_since = None
            return
        if transaction.waits_since is None:
            transaction.waits_since = now
        if not may_write(transaction.waits_since, self._last_batch, now):
            return
        buf = self._spool.read_running(received.number, *part)
        if buf is None:
            return  # rolled back, or committed, at this moment
        try:
            found = self._part(transaction, buf)
            for each in found.rows.values():
                transaction.note.add(each.table.lake.ident, each.table.rel.srrelid)
        except RequiredProcessGone:
            raise
        except (ReplicationError, FailedTransaction) as error:
            _give_up(transaction, error)
            return
        transaction.pieces.begin(found.size)
        transaction.waits_since = None
        if not found.rows:
            transaction.pieces.complete(_Made(transaction.relmap))
            return
        transaction.part = found
        note = transaction.note
        job = transaction.thread.submit(write_files, found.rows, self._dest, note.file_id)
        job.add_done_callback(lambda _job: self._wake())
        transaction.job = job

    def _part(self, transaction: _Transaction, buf: Bytes) -> _Part:
        """The piece that begins with ``buf``."""
        pieces = transaction.pieces.pieces
        transaction.relmap = pieces[-1].made.relmap.copy() if pieces else LogicalRepRelMap()
        most = min(PARALLEL_MEMORY_BYTES, self._applier.work_mem)
        applier = self._applier
        framed = frame_inside(buf, transaction.relmap, most)
        framed = by_oid(applier.renames, applier.sub, applier.rels, framed)
        found = [self._rows_of(framed, target, transaction.waiting) for target in framed.targets]
        rows = {each.table.rel.srrelid: each for each in found if each is not None}
        records = framed.stand_in() if len(rows) == len(found) else None
        if records is not None and len(records) > PARALLEL_STAND_IN_BYTES:
            records = None
        return _Part(rows, framed.end, records)

    def _rows_of(
        self, framed: FramedBatch, target: RelName, waiting: Collection[int]
    ) -> Rows | None:
        """The rows of a table, if the rows can be written now."""
        rel = self._applier.rels.get(target)
        if rel is None or rel.srsubstate is not SubRelState.READY or not rel.copied:
            return None
        run = only_run(framed.runs_of_all(target))
        if run is None or run.relation is None or run.relation.replident == REPLICA_IDENTITY_FULL:
            return None
        is_waiting = rel.srrelid in waiting or rel.srrelid in self._refused
        if is_waiting and inserts_of([run]) is None:
            return None
        writer = self._applier.writer
        if writer.must_look_up_keys(rel):
            return None
        if not is_in_line(self._applier.store, writer, self._applier.sub, rel, run.relation):
            return None
        return Rows(run_in_form(run, self._applier.binary), writer.open(rel), writer.options(rel))

    def _drop(self, transaction: _Transaction) -> None:
        """Remove all files: the transaction was rolled back, prepared, or is small."""
        _take(transaction, waits=True)
        for made in transaction.pieces.cut(-1):
            discard(made.files)
        transaction.thread.shutdown(wait=False)
        transaction.note.forget()

    # -- at the commit ------------------------------------------------------------------------

    def files_of(self, part: Batch) -> ReadyFiles:
        """The files of a transaction that is applied now; once, and none in a second attempt."""
        received = part.streamed
        transaction = None if received is None else self._open.pop(received.number, None)
        if received is None or transaction is None:
            return ReadyFiles()
        _cut(transaction, received)
        _take(transaction, waits=True)
        transaction.thread.shutdown(wait=False)
        first = part.start + _record_size(part)
        found = [each for each in transaction.pieces.pieces if each.made.files]
        stops = sorted({first + at for each in found for at in (each.start, each.end)})
        made = {first + each.end: each.made.files for each in found}
        stand_ins = _stand_ins((each for each in found if self._all_fit(each.made)), first)
        files = ReadyFiles(stops, made, self._fits, stand_ins)
        self._in_use = transaction, files
        if transaction.age > PARALLEL_FILE_SECONDS:
            files.discard()
        return files

    def _all_fit(self, made: _Made) -> bool:
        """Was no table refused since the piece was written?"""
        return all(not self._is_refused(relid, each.work) for relid, each in made.files.items())

    def _is_refused(self, relid: int, work: TableWork) -> bool:
        return bool(work.keys_ahead) and relid in self._refused

    def _fits(self, relid: int, work: TableWork) -> bool:
        rel = None if self._is_refused(relid, work) else self._rel(relid)
        return rel is not None and self._applier.writer.takes_files(rel, work)

    def _rel(self, relid: int) -> SubscriptionRel | None:
        every = self._applier.rels.values()
        return next((rel for rel in every if rel.srrelid == relid), None)

    def end_batch(self) -> None:
        """Remove the files that the batch did not use; the transaction's note goes when stored."""
        self._last_batch = time.monotonic()
        if self._in_use is None:
            return
        (transaction, files), self._in_use = self._in_use, None
        files.discard()
        self._refused.note(self._applier.sub.oid, files.refused)
        log.info(
            "action=parallel_applied subid=%d xid=%d rows=%d were in data files before the commit",
            self._applier.sub.oid,
            transaction.xid,
            files.used,
        )
        self._applier.writer.when_stored(transaction.note.forget)
        self._report_threads()

    def close(self) -> None:
        """End the threads and remove the files; the publisher sends the transactions again.

        Files in the hands of a batch are left to the next worker: the commit may be under way.
        """
        if self._in_use is not None:
            self._in_use[1].discard()
        while self._open:
            with suppress(ReplicationError):
                self._drop(self._open.popitem()[1])

    def _report_threads(self) -> None:
        now = [{"pid": each.pid, "xid": each.xid} for each in self._open.values()]
        if now != self._reported:
            self._reported = now
            self._report(parallel=now)


def _cut(transaction: _Transaction, received: Received) -> None:
    """Drop the files of what was rolled back, or all files if a table was altered."""
    size = -1 if received.is_altered else received.cut
    if size is not None:
        for made in transaction.pieces.cut(size):
            discard(made.files)
    if received.is_altered:
        transaction.pieces.give_up()


def _take(transaction: _Transaction, *, waits: bool = False) -> None:
    """Take over the files that the thread has written."""
    job = transaction.job
    if job is None or not (waits or job.done()):
        return
    part, transaction.job, transaction.part = transaction.part, None, None
    made: Mapping[int, TableFiles] = {}
    try:
        written = job.result()
        made, rows = written.files, {} if part is None else part.rows
        changed = {relid for relid, each in rows.items() if not each.is_new}
        transaction.waiting |= written.waiting & changed
        if not (made or changed) and written.waiting == rows.keys():
            transaction.pieces.give_up()  # Spark writes the tables
    except (ReplicationError, FailedTransaction) as error:
        _give_up(transaction, error)
    is_whole = part is not None and made.keys() == part.rows.keys()
    records = part.records if part is not None and is_whole else None
    undone = transaction.pieces.complete(_Made(transaction.relmap, made, records))
    if undone is not None:
        discard(undone.files)


def _give_up(transaction: _Transaction, error: Exception) -> None:
    """Leave the rest of the transaction to the commit, where a lasting error is raised."""
    transaction.pieces.give_up()
    cause = error.error if isinstance(error, FailedTransaction) else error
    code = cause.code if isinstance(cause, ReplicationError) else ""
    log.info(
        "action=parallel_given_up xid=%d sqlstate=%s the transaction is applied at its commit",
        transaction.xid,
        code,
    )


def _stand_ins(pieces: Iterable[Piece[_Made]], first: int) -> dict[int, StandIn]:
    """The stand-ins by the offset in the batch's bytes; ``first`` is that of the pieces."""
    return {
        first + each.start: StandIn(first + each.end, each.made.records)
        for each in pieces
        if each.made.records is not None
    }


def _record_size(part: Batch) -> int:
    """The size of the transaction's first record."""
    return 4 + int.from_bytes(part.buf[part.start : part.start + 4].tobytes(), "little")
