"""Fold the runs of a table, and stage the rows: the segments that the lake applies.

A run becomes a segment, in one of two ways:

- By key: the changes of a row fold to the last change. If a new key may be in the table already,
  the lake looks the keys up first (``workers.changes.key_lookups``).
- By whole rows (REPLICA IDENTITY FULL): the old rows go to the lake. The lake finds the rows that
  exist, and asks for the changes of the existing rows (``WholeRowLookup.decide``).

Under REPLICA IDENTITY FULL a run of inserts alone is folded like a run by key: no row has to be
found.

No position is decided here. An error that belongs to a single transaction is a
``FailedTransaction``, and the caller cuts the batch at the transaction.

A trace: table t (id, v) was copied whole, so inserted keys are known to be new. The run is
``I(1,a) | U(1,b) | D 7 | I(2,c)``::

    fold     1 is inserted as b, 7 is deleted, 2 is inserted as c
    stage    append: (1,b) (2,c)     merge: delete key 7
    segment  columns (id, v), key (id), merge and append
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import TableOptions
from workers.changes.by_table import Run
from workers.changes.failed_transaction import failed_at, null_key, value_error
from workers.changes.key_lookups import look_up_every_key, look_up_identity
from workers.changes.layout import LaidOutRun, check_updatable, layout_for, other_keys
from workers.changes.table_work import TableWork
from workers.columnar.column_reader import (
    Changes,
    NullKey,
    UnreadableValue,
    UnrepresentableValue,
)
from workers.columnar.fold.after_lookup import gives_keys
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.fold.whole_rows import full_images
from workers.columnar.tuples import DELETE, INSERT
from workers.lake.destination import Destination
from workers.lake.segment import Constants, Segment, WholeRowLookup
from workers.lake.staged_rows import Staged
from workers.lake.table import LakeTable
from workers.proto.messages import Relation
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL, Coverage


def build_segments(
    runs: Sequence[Run],
    table: LakeTable,
    options: TableOptions,
    dest: Destination,
    *,
    look_up_keys: bool,
    source: str = "",
    constants: Constants = (),
    file_id: str = "",
) -> TableWork:
    """Fold and stage the runs of a table, in order; after an error no rows are left staged.

    With ``look_up_keys``, a new key may be in the table already. If the lake table is shared,
    ``source`` names the publisher table of the rows. ``constants``, ``file_id``: see ``TableWork``.
    """
    work = TableWork(table, options, dest, source, constants, file_id)
    try:
        truncate = False
        for run in runs:
            if run.relation is None or run.changes is None:
                truncate = True
            else:
                segment = _segment(
                    work,
                    run.relation,
                    run.changes,
                    run.coverage,
                    truncate=truncate,
                    look_up_keys=look_up_keys,
                )
                work.segments.append(segment)
                truncate = False
        if truncate:
            work.segments.append(Segment(columns=(), truncate=True, source=source))
    except BaseException:
        work.discard()
        raise
    return work


def _segment(
    work: TableWork,
    relation: Relation,
    changes: Changes,
    coverage: Coverage,
    *,
    truncate: bool,
    look_up_keys: bool,
) -> Segment:
    """Fold and stage one run; with ``truncate`` the table is emptied first."""
    run = lay_out(work, relation, changes, coverage)
    full = relation.replident == REPLICA_IDENTITY_FULL
    keys = other_keys_of(work, run)
    try:
        if full and not _inserts_only(changes):
            return _whole_rows(work, run, truncate=truncate)
        if keys and not (changes.kind == DELETE).all():
            return look_up_every_key(work, run, keys, truncate=truncate)
        return _by_key(work, run, truncate=truncate, look_up_keys=look_up_keys and not full)
    except NullKey as error:
        raise null_key(error, run) from None
    except (UnrepresentableValue, UnreadableValue) as error:
        raise value_error(error, run, work.table) from None


def lay_out(
    work: TableWork, relation: Relation, changes: Changes, coverage: Coverage
) -> LaidOutRun:
    """Map the columns, and check that rows can be found if some change needs a row."""
    first = 0
    try:
        layout = layout_for(relation, work.table, work.options, coverage)
        if not _inserts_only(changes):
            first = int(np.flatnonzero(changes.kind != INSERT)[0])
            check_updatable(relation, work.table, coverage)
    except ReplicationError as error:
        raise failed_at(relation, changes, first, error) from None
    return LaidOutRun(relation, changes, coverage, layout)


def other_keys_of(work: TableWork, run: LaidOutRun) -> tuple[tuple[int, ...], ...]:
    """The declared keys besides the replica identity; an error is the first change's fault."""
    try:
        return other_keys(run.relation, work.table, work.options, run.coverage)
    except ReplicationError as error:
        raise failed_at(run.relation, run.changes, 0, error) from None


def _by_key(work: TableWork, run: LaidOutRun, *, truncate: bool, look_up_keys: bool) -> Segment:
    """Fold by key, and look keys up only if necessary.

    The fold may meet a key of two rows: an UPDATE or INSERT gives a key to a second row. If the
    lake table equals the publisher's table, the first row is gone by then. Only the lake knows
    whether the row is gone, so in this case the keys are looked up.
    """
    if not (look_up_keys and run.layout.key and gives_keys(run.changes)):
        folded = fold_keyed(run.changes, run.layout)
        if folded.conflict < 0:
            work.count_misses_of(folded)
            return work.keyed_segment(run, folded, truncate=truncate)
    return look_up_identity(work, run, truncate=truncate)


def _whole_rows(work: TableWork, run: LaidOutRun, *, truncate: bool) -> Segment:
    """Match whole rows, which have no key to look up."""
    full = full_images(run.changes, run.layout)

    def decide(found: pa.Table) -> tuple[Staged | None, Staged | None]:
        full.resolve(found.column("image").to_numpy())
        positions = full.position_batches(found.column("f"), found.column("p"))
        try:
            return (
                work.stage_if_any(positions, full.position_schema, full.position_rows),
                work.stage_if_any(
                    full.append_batches(),
                    full.append_schema,
                    full.append_rows,
                    work.whole_rows(run),
                ),
            )
        except (UnrepresentableValue, UnreadableValue) as error:
            raise value_error(error, run, work.table) from None

    images = work.stage(full.image_batches(), full.image_schema)
    work.count_misses_of(full)
    return Segment(
        columns=run.columns,
        truncate=truncate,
        row_lookup=WholeRowLookup(images, decide),
        defaults=work.options.defaults,
        generated=work.options.generated,
        source=work.source,
        constants=work.constants(run),
    )


def _inserts_only(changes: Changes) -> bool:
    return bool((changes.kind == INSERT).all())
