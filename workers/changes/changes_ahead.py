"""Stage the changes of a transaction in progress: new rows as data files, keys beside them.

Which rows a change finds is known at the commit alone. But the new row of an UPDATE that sends
every value does not depend on the row that is found. So the fold of a part is staged while the
transaction runs: the last row of each key goes to a data file, and the keys are staged for the
look-up at the commit (``Segment.ahead``).

The changes wait for the commit (``NoFiles.WAIT``) if more than the keys is needed there:

- a value was not sent, or the lake table has a column besides: the old row has the value;
- a key changed, or an INSERT gives a key to a second row: the order of the rows matters;
- the key has several columns, or no number for a value (``is_own_number``);
- the table has further declared keys, or the lake computes columns;
- the files are sorted, partitioned, or of format 3: ``OwnFiles.takes_deletes``.

``NoFiles.FEW`` says nothing of the next part: there are few new rows, or few deletes and no new
row. Many deletes without a new row have their keys staged, and no data file.

Trace: ``U(1,a) | D 7 | I(2,c) | U(1,b)``::

    rows    (1,b) (2,c)
    keys    update 1, delete 7, insert 2
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalog.pg_subscription import TableOptions
from config.limits import DELETES_AHEAD_ROWS
from workers.changes.by_table import Run
from workers.changes.failed_transaction import null_key, value_error
from workers.changes.layout import LaidOutRun
from workers.changes.segments import lay_out, other_keys_of
from workers.changes.table_work import TableWork
from workers.columnar.column_reader import NullKey, UnreadableValue, UnrepresentableValue
from workers.columnar.fold.by_key import Keyed, fold_keyed
from workers.columnar.key_search import is_own_number
from workers.columnar.tuples import DELETE, UPDATE
from workers.lake.destination import Destination
from workers.lake.segment import INSERT_LINE, UPDATE_LINE
from workers.lake.table import SOURCE_COLUMN, LakeTable
from workers.process import failpoints


class NoFiles(Enum):
    """Why changes of a transaction in progress have no files."""

    FEW = "few changes: a later part may have files"
    WAIT = "more than the new rows is needed: all later parts wait, too"


def build_ahead(
    run: Run,
    table: LakeTable,
    options: TableOptions,
    dest: Destination,
    *,
    source: str = "",
    file_id: str = "",
) -> TableWork | NoFiles:
    """Fold and stage a run, if the changes can have files."""
    if run.relation is None or run.changes is None or run.changes.unsent.any():
        return NoFiles.WAIT
    if run.changes.old_kind[run.changes.kind == UPDATE].any():
        return NoFiles.WAIT
    deletes_alone = bool((run.changes.kind == DELETE).all())
    if deletes_alone and len(run.changes.kind) < DELETES_AHEAD_ROWS:
        return NoFiles.FEW
    work = TableWork(table, options, dest, source, file_id=file_id)
    laid_out = lay_out(work, run.relation, run.changes, run.coverage)
    if other_keys_of(work, laid_out) or not _is_whole(work, laid_out):
        return NoFiles.WAIT
    try:
        folded = fold_keyed(laid_out.changes, laid_out.layout)
        if folded.conflict >= 0 or folded.unchanged:
            return NoFiles.WAIT
        return _stage(work, laid_out, folded, deletes_alone=deletes_alone)
    except NullKey as error:
        raise null_key(error, laid_out) from None
    except (UnrepresentableValue, UnreadableValue) as error:
        raise value_error(error, laid_out, work.table) from None


def _is_whole(work: TableWork, run: LaidOutRun) -> bool:
    """Do the changes bring all columns of the lake table, and a key that is a number?"""
    if work.whole_rows(run) is None or len(run.key) != 1:
        return False
    names = {column.name for column in work.table.columns}
    if work.source:
        names.discard(SOURCE_COLUMN)
    types = {column.name: column.type for column in run.layout.columns}
    return names <= set(run.columns) and is_own_number([types[run.key[0]]])


def _stage(
    work: TableWork, run: LaidOutRun, folded: Keyed, *, deletes_alone: bool
) -> TableWork | NoFiles:
    """Stage rows and keys, if the rows become files that take deletes."""
    lines: list[pa.RecordBatch] = []
    try:
        rows_of = work.whole_rows(run, in_files=deletes_alone)
        rows = work.stage(_rows(run, folded, lines), folded.append_schema, rows_of)
        if rows.own is None or not rows.own.takes_deletes:
            why = without_files(work)
            return NoFiles.WAIT if deletes_alone else why
        failpoints.reach("apply.keys_to_stage")
        work.add_ahead(run, work.stage(lines, _line_schema(folded)), rows)
    except BaseException:
        work.discard()
        raise
    work.count_misses_of(folded)
    return work


def without_files(work: TableWork) -> NoFiles:
    """Discard staged rows that became no files; few rows stay in memory."""
    why = NoFiles.FEW if work.is_in_memory else NoFiles.WAIT
    work.discard()
    return why


def _rows(run: LaidOutRun, folded: Keyed, lines: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The new rows: of updates first, then inserted rows. ``lines`` takes up the keys."""
    schema, keys = folded.append_schema, _line_schema(folded)
    place = run.columns.index(run.key[0])
    for batch in folded.merge_batches():
        op = batch.column("op")
        lines.append(pa.RecordBatch.from_arrays([op, batch.column("b0")], schema=keys))
        values = pa.RecordBatch.from_arrays(
            [batch.column(name) for name in schema.names], schema=schema
        )
        updates: Any = pc.equal(op, pa.scalar(UPDATE_LINE, pa.int8()))
        yield values.filter(updates)
    for batch in folded.append_batches():
        op = pa.repeat(pa.scalar(INSERT_LINE, pa.int8()), batch.num_rows)
        lines.append(pa.RecordBatch.from_arrays([op, batch.column(place)], schema=keys))
        yield batch


def _line_schema(folded: Keyed) -> pa.Schema:
    """``op`` and ``b0``, as in ``ChangesAhead.keys``."""
    op: pa.Field[Any] = pa.field("op", pa.int8())
    key: pa.Field[Any] = folded.merge_schema.field("b0")
    return pa.schema([op, key])
