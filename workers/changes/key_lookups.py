"""Segments with keys that may be in the lake table already: the lake looks the keys up first.

An inserted key may exist already, and so may the new key of an UPDATE. PostgreSQL checks each row
in the index. Here a segment goes to the lake with all keys. The lake looks the keys up on the
table's branch and calls ``KeyLookup.decide`` with the existing rows. ``decide`` folds the changes
with this knowledge, stages the rows, and returns the segment that the lake applies instead. Only
``decide``, here and for whole rows in ``workers.changes.segments``, is called from the lake up
into this room: the fold needs the lake's answer.

Two kinds of segments are looked up. ``look_up_identity`` looks up the replica identity alone.
``look_up_every_key`` also looks up declared keys besides the identity (``keys`` of the table in
the configuration), so that every declared key stays unique.

A trace: the table has key 1; the segment is ``I 1 | I 2``, of two transactions::

    look_up_identity   keys staged: 1, 2
    the lake           finds 1, calls decide(1)
    decide             I 1 meets a row: insert_exists, the fault of the first transaction
                       with on_key_conflict: overwrite: update of row 1, append of row 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.errcodes import FeatureNotSupported, ReplicationError
from catalog.pg_stat_subscription_stats import ConflictType
from workers.changes.failed_transaction import failed_at, value_error
from workers.changes.key_conflict import KeyConflict
from workers.changes.layout import LaidOutRun
from workers.changes.table_work import TableWork
from workers.columnar.column_reader import UnreadableValue, UnrepresentableValue
from workers.columnar.fold.after_lookup import Probed
from workers.columnar.fold.by_key import Keyed, fold_keyed
from workers.columnar.fold.unique_keys import UniqueKeys, UnsentKey
from workers.columnar.tuples import INSERT
from workers.lake.refusals import key_not_unique
from workers.lake.segment import KeyLookup, OtherKey, Segment, no_keys_found
from workers.publisher.replica_identity import Coverage


def look_up_identity(work: TableWork, run: LaidOutRun, *, truncate: bool) -> Segment:
    """A segment whose replica identity is looked up.

    ``on_key_conflict: overwrite`` overwrites a row only if the key is the whole identity. A key
    that may be a part of the identity may be the key of several rows.
    """
    probed = Probed(run.changes, run.layout)

    def decide(found: pa.Table) -> Segment:
        numbers = found.column("k").to_numpy()
        found_keys, rows = np.unique(numbers, return_counts=True)
        if (rows > 1).any():
            change = min(map(probed.first_change, found_keys[rows > 1].tolist()))
            raise failed_at(run.relation, run.changes, change, _not_unique(work, run.key))
        declared = work.options.on_key_conflict == "overwrite"
        overwrite = declared and run.coverage is Coverage.WHOLE
        folded = probed.resolve(numbers, overwrite=overwrite)
        if folded.conflict >= 0:
            conflict = _conflict(work, run, folded.conflict, [run.key])
            raise failed_at(run.relation, run.changes, folded.conflict, conflict)
        return _decided(work, run, folded)

    work.count_misses_of(probed)
    if truncate:
        return replace(decide(no_keys_found(0)), truncate=True)
    keys = work.stage(probed.key_batches(), probed.key_schema)
    return _looked_up(work, run, KeyLookup(keys, decide))


def look_up_every_key(
    work: TableWork, run: LaidOutRun, keys: tuple[tuple[int, ...], ...], *, truncate: bool
) -> Segment:
    """A segment whose replica identity and declared keys are looked up.

    ``keys`` are the declared keys. The changes are applied to the existing rows in commit order,
    and no key may have two rows at any moment.
    """
    probed = Probed(run.changes, run.layout) if run.layout.key else None
    names = [run.key, *(run.names(key) for key in keys)]
    try:
        unique = UniqueKeys(run.changes, run.layout, keys, probed.key_of if probed else None)
    except UnsentKey as error:
        cause = _unsent(work, names[1 + error.key], error.column)
        column = run.published_name(error.column)
        raise failed_at(run.relation, run.changes, error.change, cause, column) from None

    def decide(found: pa.Table) -> Segment:
        numbers: list[Any] = list(found.columns)
        held = np.stack([each.fill_null(-1).to_numpy() for each in numbers], axis=1)
        _check_found_once(work, run, unique, held, names)
        broken = unique.first_broken(held)
        if broken is not None:
            change, which = broken
            conflict = _conflict(work, run, change, [names[at] for at in which])
            raise failed_at(run.relation, run.changes, change, conflict)
        if probed is None:
            return _decided(work, run, fold_keyed(run.changes, run.layout))
        known = held[held[:, 0] >= 0, 0]
        return _decided(work, run, probed.resolve(known, overwrite=False))

    if probed is not None:
        work.count_misses_of(probed)
    if truncate:
        return replace(decide(no_keys_found(len(keys))), truncate=True)
    identity = work.stage(probed.key_batches(), probed.key_schema) if probed else None
    others = tuple(
        OtherKey(columns, work.stage(values.to_batches(), values.schema))
        for columns, values in zip(names[1:], unique.key_batches, strict=True)
    )
    return _looked_up(work, run, KeyLookup(identity, decide, others))


def _looked_up(work: TableWork, run: LaidOutRun, lookup: KeyLookup) -> Segment:
    """A segment without rows; the rows come from ``decide``."""
    return Segment(
        columns=run.columns,
        key=run.key,
        key_lookup=lookup,
        generated=work.options.generated,
        source=work.source,
    )


def _decided(work: TableWork, run: LaidOutRun, folded: Keyed) -> Segment:
    """The segment that is applied once the lake has answered."""
    try:
        return work.keyed_segment(run, folded)
    except (UnrepresentableValue, UnreadableValue) as error:
        raise value_error(error, run, work.table) from None


def _check_found_once(
    work: TableWork,
    run: LaidOutRun,
    unique: UniqueKeys,
    held: Any,
    names: Sequence[tuple[str, ...]],
) -> None:
    """Raise 23505 if two rows of the lake table have the same value of a key.

    ``held`` has a line for each existing row, with the number of each key in the segment. The
    number is -1 if the segment does not have the key.
    """
    for at, key in enumerate(names):
        values, rows = np.unique(held[held[:, at] >= 0, at], return_counts=True)
        if (rows > 1).any():
            change = min(unique.first_change(at, k) for k in values[rows > 1].tolist())
            raise failed_at(run.relation, run.changes, change, _not_unique(work, key))


def _conflict(
    work: TableWork, run: LaidOutRun, change: int, keys: Sequence[tuple[str, ...]]
) -> KeyConflict:
    """The error of a change that gives a row one or several keys of an existing row."""
    insert = run.changes.kind[change] == INSERT
    return KeyConflict(
        ConflictType.INSERT_EXISTS if insert else ConflictType.UPDATE_EXISTS,
        work.table.ident,
        *keys,
        overwritable=not work.options.keys,
        certain=run.coverage is not Coverage.UNKNOWN or run.key not in keys,
    )


def _unsent(work: TableWork, key: tuple[str, ...], column: str) -> FeatureNotSupported:
    return FeatureNotSupported(
        f'key ({", ".join(key)}) of lake table "{work.table.ident}" cannot be checked: the '
        "publisher sent a part of it",
        detail=f'An UPDATE did not change the large value of column "{column}", which is not '
        "sent then; other columns of the key are.",
        hint="Leave that key out of keys of the table in the configuration.",
    )


def _not_unique(work: TableWork, key: tuple[str, ...]) -> ReplicationError:
    detail = "More than one row has a key that the transaction names."
    return key_not_unique(work.table.ident, key, detail)
