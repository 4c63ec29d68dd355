"""From a run of changes to staged rows: fold, decode, stage. No position is decided here.

A run becomes one ``Segment``. Keyed runs fold to the last change per row; runs of tables matched
by whole rows (REPLICA IDENTITY FULL) hand the lake their old rows and decide when it has answered
which of them exist; runs that give rows keys which may be taken do the same with their keys. An
error that one transaction is to blame for says which (``FailedTransaction``), so that the caller
can cut the batch there.

What is staged belongs to the ``TableWork``, also what is staged while the lake applies it, and
goes with it: when the batch is published, or given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.errcodes import FeatureNotSupported, ReplicationError
from catalog.pg_stat_subscription_stats import ConflictType
from catalog.pg_subscription import TableOptions
from workers.changes.by_table import Run
from workers.changes.failed_transaction import _failed, _value_error
from workers.changes.key_conflict import KeyConflict
from workers.changes.layout import check_updatable, layout_for, other_keys
from workers.changes.relation_map import REPLICA_IDENTITY_FULL
from workers.columnar.column_reader import Changes, Layout, UnreadableValue, UnrepresentableValue
from workers.columnar.fold.after_lookup import Probed, gives_keys
from workers.columnar.fold.by_key import Keyed, fold_keyed
from workers.columnar.fold.unique_keys import UniqueKeys, UnsentKey
from workers.columnar.fold.whole_rows import Full, full_images
from workers.columnar.tuples import DELETE, INSERT
from workers.lake.destination import Destination
from workers.lake.effects import Counts
from workers.lake.refusals import key_not_unique
from workers.lake.segment import (
    NO_KEY_FOUND,
    KeyLookup,
    OtherKey,
    RowsOf,
    Segment,
    WholeRowLookup,
    no_keys_found,
)
from workers.lake.staged_rows import Staged
from workers.lake.table import LakeIdent, LakeTable
from workers.proto.messages import Relation
from workers.publisher.replica_identity import Coverage


class TableWork:
    """One table's part of a batch: segments in order, and everything that was staged for them."""

    def __init__(
        self, table: LakeTable, options: TableOptions, dest: Destination, source: str = ""
    ) -> None:
        self.segments: list[Segment] = []
        self._table = table
        self._options = options
        self._dest = dest
        self._source = source
        self._staged: list[Staged] = []
        self._folded: list[Keyed | Full | Probed] = []

    def discard(self) -> None:
        """Remove what was staged; the segments cannot be applied again."""
        for staged in self._staged:
            self._dest.discard(staged)
        self._staged.clear()

    def conflicts(self, counts: Counts) -> dict[ConflictType, int]:
        """How many rows that were to be changed were not found, or are somebody else's.

        The lake knows of rows that its table does not have; of keys that the batch itself had
        deleted or moved away, and of whole rows, the fold does.
        """
        updates = sum(folded.missing_updates for folded in self._folded)
        deletes = sum(folded.missing_deletes for folded in self._folded)
        return {
            ConflictType.UPDATE_MISSING: counts.update_missing + updates,
            ConflictType.DELETE_MISSING: counts.delete_missing + deletes,
            ConflictType.UPDATE_ORIGIN_DIFFERS: counts.update_origin_differs,
            ConflictType.DELETE_ORIGIN_DIFFERS: counts.delete_origin_differs,
        }

    def add(
        self,
        relation: Relation,
        changes: Changes,
        coverage: Coverage,
        *,
        truncate: bool,
        probe: bool,
    ) -> None:
        """Fold and stage one run; ``truncate``: the table is emptied before it."""
        layout = self._layout(relation, changes, coverage)
        full = relation.replident == REPLICA_IDENTITY_FULL
        keys = self._other_keys(relation, changes, coverage)
        try:
            if full and not _inserts_only(changes):
                segment = self._full(relation, changes, layout, truncate)
            else:
                probe = probe and not full
                if keys and not (changes.kind == DELETE).all():
                    segment = self._unique(relation, changes, layout, truncate, keys, coverage)
                else:
                    segment = self._keyed(relation, changes, layout, truncate, probe, coverage)
        except (UnrepresentableValue, UnreadableValue) as error:
            raise _value_error(error, relation, changes, self._table) from None
        self.segments.append(segment)

    def _layout(self, relation: Relation, changes: Changes, coverage: Coverage) -> Layout:
        first = 0
        try:
            layout = layout_for(relation, self._table, self._options, coverage)
            if not _inserts_only(changes):
                first = int(np.flatnonzero(changes.kind != INSERT)[0])
                check_updatable(relation, self._table, coverage)
        except ReplicationError as error:
            raise _failed(relation, changes, first, error) from None
        return layout

    def _other_keys(
        self, relation: Relation, changes: Changes, coverage: Coverage
    ) -> tuple[tuple[int, ...], ...]:
        try:
            return other_keys(relation, self._table, self._options, coverage)
        except ReplicationError as error:
            raise _failed(relation, changes, 0, error) from None

    def _keyed(
        self,
        relation: Relation,
        changes: Changes,
        layout: Layout,
        truncate: bool,
        probe: bool,
        coverage: Coverage,
    ) -> Segment:
        if not (probe and layout.key and gives_keys(changes)):
            folded = fold_keyed(changes, layout)
            # A key given to a second row: where the table is what the publisher's was, the first
            # one cannot live. Whether it does, the table says, which costs nothing until then.
            if folded.conflict < 0:
                self._folded.append(folded)
                return self._segment(folded, truncate)
        return self._probed(relation, changes, layout, truncate, coverage)

    def _segment(self, folded: Keyed, truncate: bool = False) -> Segment:
        layout, rows_of = folded.layout, self._rows(folded.layout)
        return Segment(
            columns=tuple(column.name for column in layout.columns),
            key=_key_names(layout),
            truncate=truncate,
            merge=self._merge(folded),
            unchanged=folded.unchanged,
            append=self._stage(
                folded.append_batches(), folded.append_schema, folded.append_rows, rows_of
            ),
            defaults=self._options.defaults,
            generated=self._options.generated,
            source=self._source,
        )

    def _probed(
        self,
        relation: Relation,
        changes: Changes,
        layout: Layout,
        truncate: bool,
        coverage: Coverage,
    ) -> Segment:
        """What becomes of the rows is known when the lake has said which keys are there.

        Nothing is overwritten by a key that may be a part of one.
        """
        probed = Probed(changes, layout)
        key = _key_names(layout)

        def resolve(found: pa.Table) -> Segment:
            numbers = found.column("k").to_numpy()
            found_keys, rows = np.unique(numbers, return_counts=True)
            if (rows > 1).any():
                change = min(map(probed.first_change, found_keys[rows > 1].tolist()))
                raise _failed(relation, changes, change, self._not_unique(key))
            declared = self._options.on_key_conflict == "overwrite"
            overwrite = declared and coverage is Coverage.WHOLE
            folded = probed.resolve(numbers, overwrite=overwrite)
            if folded.conflict >= 0:
                conflict = self._conflict(changes, folded.conflict, [key], key, coverage)
                raise _failed(relation, changes, folded.conflict, conflict)
            return self._resolved(relation, changes, folded)

        self._folded.append(probed)
        if truncate:
            return replace(resolve(NO_KEY_FOUND), truncate=True)
        keys = self._staged_now(probed.key_batches(), probed.key_schema)
        return Segment(
            columns=tuple(column.name for column in layout.columns),
            key=key,
            key_lookup=KeyLookup(keys, resolve),
            generated=self._options.generated,
            source=self._source,
        )

    def _unique(
        self,
        relation: Relation,
        changes: Changes,
        layout: Layout,
        truncate: bool,
        keys: tuple[tuple[int, ...], ...],
        coverage: Coverage,
    ) -> Segment:
        """The same where other keys than the identity are to stay unique, too."""
        probed = Probed(changes, layout) if layout.key else None
        names = [_key_names(layout), *(_names(layout, key) for key in keys)]
        try:
            unique = UniqueKeys(changes, layout, keys, probed.key_of if probed else None)
        except UnsentKey as error:
            cause = self._unsent(names[1 + error.key], error.column)
            raise _failed(relation, changes, error.change, cause, error.column) from None

        def resolve(found: pa.Table) -> Segment:
            numbers: list[Any] = list(found.columns)
            held = np.stack([each.fill_null(-1).to_numpy() for each in numbers], axis=1)
            for at, key in enumerate(names):
                values, rows = np.unique(held[held[:, at] >= 0, at], return_counts=True)
                if (rows > 1).any():
                    change = min(unique.first_change(at, k) for k in values[rows > 1].tolist())
                    raise _failed(relation, changes, change, self._not_unique(key))
            broken = unique.first_broken(held)
            if broken is not None:
                change, which = broken
                violated = [names[at] for at in which]
                conflict = self._conflict(changes, change, violated, names[0], coverage)
                raise _failed(relation, changes, change, conflict)
            if probed is None:
                return self._resolved(relation, changes, fold_keyed(changes, layout))
            known = held[held[:, 0] >= 0, 0]
            return self._resolved(relation, changes, probed.resolve(known, overwrite=False))

        if probed is not None:
            self._folded.append(probed)
        if truncate:
            return replace(resolve(no_keys_found(len(keys))), truncate=True)
        others = zip(names[1:], unique.key_batches, strict=True)
        return Segment(
            columns=tuple(column.name for column in layout.columns),
            key=names[0],
            key_lookup=KeyLookup(
                self._staged_now(probed.key_batches(), probed.key_schema) if probed else None,
                resolve,
                tuple(
                    OtherKey(columns, self._staged_now(values.to_batches(), values.schema))
                    for columns, values in others
                ),
            ),
            generated=self._options.generated,
            source=self._source,
        )

    def _conflict(
        self,
        changes: Changes,
        change: int,
        keys: Sequence[tuple[str, ...]],
        identity: tuple[str, ...],
        coverage: Coverage,
    ) -> KeyConflict:
        insert = changes.kind[change] == INSERT
        return KeyConflict(
            ConflictType.INSERT_EXISTS if insert else ConflictType.UPDATE_EXISTS,
            self._table.ident,
            *keys,
            overwritable=not self._options.keys,
            certain=coverage is not Coverage.UNKNOWN or identity not in keys,
        )

    def _unsent(self, key: tuple[str, ...], column: str) -> FeatureNotSupported:
        return FeatureNotSupported(
            f'key ({", ".join(key)}) of lake table "{self._table.ident}" cannot be checked: the '
            "publisher sent a part of it",
            detail=f'An UPDATE did not change the large value of column "{column}", which is not '
            "sent then; other columns of the key are.",
            hint="Leave that key out of keys of the table in the configuration.",
        )

    def _resolved(self, relation: Relation, changes: Changes, folded: Keyed) -> Segment:
        try:
            return self._segment(folded)
        except (UnrepresentableValue, UnreadableValue) as error:
            raise _value_error(error, relation, changes, self._table) from None

    def _not_unique(self, key: tuple[str, ...]) -> ReplicationError:
        detail = "More than one row has a key that the transaction names."
        return key_not_unique(self._table.ident, key, detail)

    def _full(
        self, relation: Relation, changes: Changes, layout: Layout, truncate: bool
    ) -> Segment:
        """Whole rows; they have no key to look for."""
        full = full_images(changes, layout)

        def resolve(found: pa.Table) -> tuple[Staged | None, Staged | None]:
            full.resolve(found.column("image").to_numpy())
            moved = full.position_batches(found.column("f"), found.column("p"))
            try:
                return (
                    self._stage(moved, full.position_schema, full.position_rows),
                    self._stage(
                        full.append_batches(),
                        full.append_schema,
                        full.append_rows,
                        self._rows(layout),
                    ),
                )
            except (UnrepresentableValue, UnreadableValue) as error:
                raise _value_error(error, relation, changes, self._table) from None

        images = self._staged_now(full.image_batches(), full.image_schema)
        self._folded.append(full)
        return Segment(
            columns=tuple(column.name for column in layout.columns),
            truncate=truncate,
            row_lookup=WholeRowLookup(images, resolve),
            defaults=self._options.defaults,
            generated=self._options.generated,
            source=self._source,
        )

    def _rows(self, layout: Layout) -> RowsOf | None:
        """What new rows are, where the lake computes nothing of them."""
        if self._options.defaults or self._options.generated:
            return None
        names = tuple(column.name for column in layout.columns)
        return RowsOf(self._table.ident, names, self._source)

    def _merge(self, folded: Keyed) -> Staged | None:
        """Changes of rows; many of them that keep values of the table's are made by Spark."""
        if not folded.merge_rows:
            return None
        whole = None if folded.unchanged else self._table.ident
        return self._staged_now(folded.merge_batches(), folded.merge_schema, changes_of=whole)

    def _stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows: int,
        rows_of: RowsOf | None = None,
    ) -> Staged | None:
        return self._staged_now(batches, schema, rows_of) if rows else None

    def _staged_now(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        staged = self._dest.stage(batches, schema, rows_of, changes_of=changes_of)
        self._staged.append(staged)
        return staged


def build_segments(
    runs: Sequence[Run],
    table: LakeTable,
    options: TableOptions,
    dest: Destination,
    *,
    probe: bool,
    source: str = "",
) -> TableWork:
    """Fold and stage the runs of one table, in order; after an error nothing is left staged.

    ``probe``: a key that a row is given may be in the table already, so the lake looks first.
    ``source``: whose rows of a shared lake table they are.
    """
    work = TableWork(table, options, dest, source)
    try:
        empties = False
        for run in runs:
            if run.relation is None or run.changes is None:
                empties = True
            else:
                work.add(run.relation, run.changes, run.coverage, truncate=empties, probe=probe)
                empties = False
        if empties:
            work.segments.append(Segment(columns=(), truncate=True, source=source))
    except BaseException:
        work.discard()
        raise
    return work


def _key_names(layout: Layout) -> tuple[str, ...]:
    return _names(layout, layout.key)


def _names(layout: Layout, ordinals: Sequence[int]) -> tuple[str, ...]:
    names = {column.ordinal: column.name for column in layout.columns}
    return tuple(names[ordinal] for ordinal in ordinals)


def _inserts_only(changes: Changes) -> bool:
    return bool((changes.kind == INSERT).all())
