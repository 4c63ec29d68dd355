"""From a run of changes to staged rows: fold, decode, stage. No position is decided here.

A run becomes one ``Segment``. Keyed runs fold to the last change per row; runs of tables matched
by whole rows (REPLICA IDENTITY FULL) hand the lake their old rows and decide when it has answered
which of them exist. An error that one transaction is to blame for says which
(``FailedTransaction``), so that the caller can cut the batch there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from catalog.errcodes import NumericValueOutOfRange, ReplicationError, UniqueViolation
from catalog.pg_subscription import TableOptions
from workers.batch import Run
from workers.columnar.columns import Changes, Layout, UnrepresentableValue
from workers.columnar.fold import fold_keyed
from workers.columnar.full import full_images
from workers.lake.destination import Destination, FullSegment, LakeTable, Segment, Staged
from workers.relation import REPLICA_IDENTITY_FULL, check_updatable, layout_for

_INSERT = ord("I")


class FailedTransaction(Exception):  # noqa: N818 (it says which one failed)
    """``error`` is transaction ``txn``'s fault (an index into the batch)."""

    def __init__(self, txn: int, error: ReplicationError) -> None:
        super().__init__(str(error))
        self.txn = txn
        self.error = error


def build_segments(
    runs: Sequence[Run],
    table: LakeTable,
    options: TableOptions,
    dest: Destination,
    *,
    probe: bool,
) -> list[Segment]:
    """Fold and stage the runs of one table, in order.

    ``probe``: a key that is inserted may be in the table already, so the lake looks first.
    """
    segments: list[Segment] = []
    empties = False
    for run in runs:
        if run.relation is None or run.changes is None:
            empties = True
            continue
        try:
            layout = layout_for(run.relation, table, options)
        except ReplicationError as error:
            raise FailedTransaction(int(run.changes.txn[0]), error) from None
        columns = tuple(column.name for column in layout.columns)
        full = run.relation.replident == REPLICA_IDENTITY_FULL
        inserts_only = bool((run.changes.kind == _INSERT).all())
        if not inserts_only:
            try:
                check_updatable(run.relation, table)
            except ReplicationError as error:
                first = int(np.flatnonzero(run.changes.kind != _INSERT)[0])
                raise FailedTransaction(int(run.changes.txn[first]), error) from None
        build = _full_segment if full and not inserts_only else _keyed_segment
        segments.append(
            build(run.changes, layout, columns, table, options, dest, empties, probe and not full)
        )
        empties = False
    if empties:
        segments.append(Segment(columns=(), truncate=True))
    return segments


def _keyed_segment(
    changes: Changes,
    layout: Layout,
    columns: tuple[str, ...],
    table: LakeTable,
    options: TableOptions,
    dest: Destination,
    truncate: bool,
    probe: bool,
) -> Segment:
    folded = fold_keyed(changes, layout, check_inserts=probe)
    key = tuple(columns[ordinal] for ordinal in layout.key)
    if probe and folded.duplicate_insert >= 0 and options.on_key_conflict != "overwrite":
        names = ", ".join(key)
        raise FailedTransaction(
            int(changes.txn[folded.duplicate_insert]),
            UniqueViolation(
                f'conflict detected on relation "{table.ident}": conflict=insert_exists',
                detail=f"A key ({names}) is inserted that an earlier change inserted already.",
                hint="Remove the row on the publisher, or declare on_key_conflict: overwrite.",
            ),
        )
    try:
        merge = _staged(dest, folded.merge_batches(), folded.merge_schema, folded.merge_rows)
        append = _staged(dest, folded.append_batches(), folded.append_schema, folded.append_rows)
    except UnrepresentableValue as error:
        raise _value_error(error, changes, table) from None
    return Segment(
        columns=columns,
        key=key,
        truncate=truncate,
        merge=merge,
        unchanged=folded.unchanged,
        append=append,
        probe=bool(key) and not truncate and (probe or folded.possible_duplicate >= 0),
        on_key_conflict=options.on_key_conflict or "error",
        defaults=options.defaults,
    )


def _full_segment(
    changes: Changes,
    layout: Layout,
    columns: tuple[str, ...],
    table: LakeTable,
    options: TableOptions,
    dest: Destination,
    truncate: bool,
    probe: bool,
) -> Segment:
    del probe  # whole rows have no key to look for
    full = full_images(changes, layout)

    def resolve(found: pa.Table) -> tuple[Staged | None, Staged | None]:
        full.resolve(found.column("image").to_numpy())
        try:
            positions = _staged(
                dest,
                full.position_batches(found.column("f"), found.column("p")),
                full.position_schema,
                full.position_rows,
            )
            append = _staged(dest, full.append_batches(), full.append_schema, full.append_rows)
        except UnrepresentableValue as error:
            raise _value_error(error, changes, table) from None
        return positions, append

    try:
        images = dest.stage(full.image_batches(), full.image_schema)
    except UnrepresentableValue as error:
        raise _value_error(error, changes, table) from None
    return Segment(
        columns=columns,
        truncate=truncate,
        full=FullSegment(images, resolve),
        defaults=options.defaults,
    )


def _staged(
    dest: Destination, batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int
) -> Staged | None:
    return dest.stage(batches, schema) if rows else None


def _value_error(
    error: UnrepresentableValue, changes: Changes, table: LakeTable
) -> FailedTransaction:
    return FailedTransaction(
        int(changes.txn[error.change]),
        NumericValueOutOfRange(
            f'column "{error.column}" of lake table "{table.ident}" cannot hold a value '
            "the publisher sent",
            detail=f"The column's type in the lake is {error.type}.",
            hint="Declare on_unrepresentable: null for the table, or text before it is copied; "
            "or correct the value on the publisher.",
        ),
    )


def discard(segments: Sequence[Segment], dest: Destination) -> None:
    """Remove what was staged for the segments."""
    for segment in segments:
        images = segment.full.images if segment.full is not None else None
        for staged in (segment.merge, segment.append, images):
            if staged is not None:
                dest.discard(staged)
