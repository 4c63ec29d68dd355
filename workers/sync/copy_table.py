"""Copying a table's rows into a branch: ``copy_table`` of PostgreSQL's ``tablesync.c``.

Everything happens inside the snapshot transaction of the sync worker's connection. The first
thing after the slot is a lock: ACCESS SHARE on the table (on every partition, for a partitioned
table) until the last range is copied. Without the lock a VACUUM FULL or a rewriting ALTER TABLE
between two ranges moves rows to ctids outside every range, or makes row versions that the snapshot
cannot see. The stream never sends the moved rows. Ranges come from the size measured under the
lock. The first range has no lower bound and the last range has no upper bound. Together the ranges
cover every possible ctid. After the copy the table's file must be the file that the snapshot knew.

A first copy is added to the rows of the lake table, as in PostgreSQL; an existing key stops the
copy (``copied_keys``). A copy by ``refresh --recopy`` replaces the rows: the branch is emptied
first, and readers of ``main`` see the old rows until copy and catch-up are complete.

A role that may not lock the table by LOCK TABLE takes the lock by a SELECT without rows, and the
table is one range (``copy_ranges.lock``).

A table of one range goes through the sync worker's connection (``copy_here``), and its rows begin
to arrive while the lake table is made (``rows_ahead``). So does a table with hashed columns: a key
of a mask never travels. A larger table is copied by Spark tasks under the exported snapshot.
If Spark repeats a task, the task imports the snapshot again. So the worker sends the COMMIT, and
ends the snapshot, only after every task has succeeded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from catalog.changed_text import StoredTextTypes
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions, sync_slot_name
from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.column_checks import check_keys
from workers.changes.column_comments import is_clamped
from workers.changes.column_rules import checked_columns
from workers.changes.columns_of_copy import ColumnsOfCopy
from workers.changes.masked_columns import check_lake_types, masks_of
from workers.changes.rules_of_rows import masks_text
from workers.columnar.binary.forms import compile_forms
from workers.columnar.masks import Mask
from workers.lake.copy_plan import CopyPlan
from workers.lake.copy_task import BINARY, CSV, Nodes
from workers.lake.destination import Destination
from workers.lake.segment import Segment
from workers.lake.sources import source_of
from workers.lake.table import LakeColumn, LakeIdent, LakeTable
from workers.lake.writer_choice import FILES
from workers.process import failpoints
from workers.process.worker_process import WorkerProcess
from workers.publisher.binary_columns import FIRST_WITH_BINARY_COPY, copy_forms, known_forms
from workers.publisher.changing_text import (
    TextTypes,
    fetch_text_types,
    files_of,
    may_change_text,
    versions_of,
)
from workers.publisher.connect import full_conninfo, join_conninfo, parse_conninfo
from workers.publisher.connection import WalReceiverConn
from workers.publisher.remote_table import (
    Leaf,
    RemoteTable,
    fetch_leaves,
    fetch_remote_table_info,
)
from workers.publisher.table_shape import TableShape, fetch_shape
from workers.sync.attempt_check import check_same_attempt
from workers.sync.columns_of_copy import is_new, prepare_columns
from workers.sync.copied_keys import check_repeated_keys, settle_copied_keys
from workers.sync.copied_rows import CopiedRows
from workers.sync.copy_here import Copy, copy_here
from workers.sync.copy_passfile import copy_passfile
from workers.sync.copy_ranges import Range, check_not_rewritten, cut_ranges, lock
from workers.sync.remember_columns import columns_to_remember, remember_columns
from workers.sync.rows_ahead import reading_ahead
from workers.tables.lake_writer import choose_lake_writer
from workers.tables.new_table import prepare_lake_table
from workers.tables.position import recopy_command, stamp_at
from workers.tables.table_locks import TableLocks

log = logging.getLogger(__name__)


def copy_table(
    process: WorkerProcess,
    conn: WalReceiverConn,
    sub: Subscription,
    rel: SubscriptionRel,
    dest: Destination,
    branch: str,
    origin_startpos: LSN,
) -> tuple[SubscriptionRel, LakeTable, ColumnsOfCopy, CopiedRows]:
    """Create a missing lake table, copy the rows to ``branch``, end the transaction.

    ``conn`` is in a transaction with a snapshot that ends at ``origin_startpos``. Returns the
    catalog row with the copy position (``floor``), the state of the lake table, the columns that
    change when the copy is published, and the rows.
    """
    options = sub.table_options(rel.nspname, rel.relname)
    published = fetch_remote_table_info(conn, rel.nspname, rel.relname, sub.subpublications)
    remote = checked_columns(published, options)
    shape = fetch_shape(conn, remote.relid, sub.subpublications)
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    check_keys(options, remote.relreplident, [column.name for column in remote.columns], ident)
    leaves = fetch_leaves(conn, remote)
    by_ctid = lock(conn, remote, leaves) and not options.hashed
    nodes = _nodes(conn, sub, remote)
    ranges = _ranges(process, conn, remote, leaves, dest, CSV if nodes is None else BINARY, by_ctid)
    types = _text_types(conn, remote, shape, rel)
    source, statements = source_of(sub, rel), [each.statement for each in ranges]
    with reading_ahead(conn, statements, at_once=not source) as ahead:
        made = _prepare_lake(process, sub, rel, published, remote, shape, dest, branch)
        lake, options, base = made.lake, made.options, made.lake.snapshot_id
        rel = _store_beginning(process, rel, remote, types, base, origin_startpos, made.text)
        # The copy branches off the snapshot stored here, and an undo returns to the snapshot. If
        # another writer has committed since, the copy is not published (40001).
        dest.create_branch(ident, branch, None if source else base)
        failpoints.reach("tablesync.branch_created")
        if rel.recopy or source:
            _empty(rel, lake, dest, branch, origin_startpos, source)
        elif lake.records:
            # Rows of the lake table that share a declared key would cost the whole copy.
            check_repeated_keys(dest, ident, branch, options.keys, source)
        empty = lake.records == 0 or rel.recopy or bool(source)
        key = () if empty else tuple(map(options.lake_column, remote.key))
        columns = _copied_columns(remote, options, lake)
        copy = Copy(process, sub, rel, options, ident, dest, branch, nodes, *columns)
        if ahead is None:
            # With a key, overwrite_existing may commit later: the copy's commit gets no position.
            number = _copy_parallel(copy, conn, ranges, None if key else origin_startpos)
            rows = CopiedRows(dest, rel, branch, number)
        else:
            may_wait = made.writer == FILES and not (key or options.keys)
            rows = copy_here(copy, ahead, origin_startpos, may_wait=may_wait)
    with rows.discarded_on_error():
        check_not_rewritten(conn, remote, leaves)
        conn.command("COMMIT")
        if rows.number:
            _settle_keys(copy, key)
    log.info(
        'action=copied subid=%d relid=%d lsn=%s rows=%d ranges=%d table "%s"',
        *(sub.oid, rel.srrelid, origin_startpos, rows.number, len(ranges), copy.relation),
    )
    held_nothing = rel.recopy or bool(source) or (is_new(lake) and not options.adopt)
    return replace(rel, copied=held_nothing and _arrives(sub, remote)), lake, made.plan, rows


def _ranges(
    process: WorkerProcess,
    conn: WalReceiverConn,
    remote: RemoteTable,
    leaves: Sequence[Leaf],
    dest: Destination,
    form: str,
    by_ctid: bool,
) -> list[Range]:
    """The ranges of the copy; what several tasks need starts while the lake table is made."""
    ranges = cut_ranges(conn, remote, leaves, process.settings, form, by_ctid=by_ctid)
    if len(ranges) > 1:
        dest.expect_copy()
    return ranges


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The lake table before the copy; ``options`` and ``plan`` are those of the copied columns.

    ``text`` is what the catalog remembers of the publisher's columns.
    """

    lake: LakeTable
    plan: ColumnsOfCopy
    options: TableOptions
    writer: str
    text: str | None


def _prepare_lake(
    process: WorkerProcess,
    sub: Subscription,
    rel: SubscriptionRel,
    published: RemoteTable,
    remote: RemoteTable,
    shape: TableShape | None,
    dest: Destination,
    branch: str,
) -> _Prepared:
    """Make a missing lake table, with ``branch``, or prepare the existing one for the copy.

    ``remote`` are the columns of ``published`` that the options let through.
    """
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    options = sub.table_options(rel.nspname, rel.relname)
    drops = (options.on_dropped_column or process.settings.on_dropped_column) == "drop"
    source = source_of(sub, rel)
    locks = TableLocks(process.data_dir if source else None)  # one source makes a shared table
    with locks.held([ident]):
        plan, found = prepare_columns(sub, rel, remote, shape, dest, dest.table(ident), drops=drops)
        options = plan.options(options)
        remembered = partial(columns_to_remember, shape, rel, published, options, plan, dest=dest)
        of = sub, rel, remote, options, dest, found, process.store.former_owners(), remembered
        lake = prepare_lake_table(*of, branch="" if source else branch)
    writer = choose_lake_writer(dest, process.store, rel, options)
    text = remember_columns(remembered(lake.columns), lake, dest) or masks_text(options, rel.epoch)
    return _Prepared(lake, plan, options, writer, text)


def _store_beginning(
    process: WorkerProcess,
    rel: SubscriptionRel,
    remote: RemoteTable,
    types: StoredTextTypes,
    base_snapshot: int | None,
    floor: LSN,
    columns: str | None,
) -> SubscriptionRel:
    """Store what the copy begins with: base, position, and the publisher's table."""
    with process.store.transaction():
        check_same_attempt(process.store, rel)
        process.store.put_text_types(types)
        if columns is not None:
            process.store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", columns)
        return process.store.update_rel(
            rel.srsubid,
            rel.srrelid,
            base_snapshot=base_snapshot,
            floor=floor,
            fingerprint=remote.fingerprint_at_copy,
            remote_relid=remote.relid,
            other_relid=None,
        )


def _text_types(
    conn: WalReceiverConn, remote: RemoteTable, shape: TableShape | None, rel: SubscriptionRel
) -> StoredTextTypes:
    """The types whose text the rows of this copy have, as of the copy's snapshot."""
    numbers = {column.name: column.attnum for column in remote.columns}
    found = TextTypes(numbers=numbers)
    if shape is not None:
        found = replace(found, versions=versions_of(shape), files=files_of(shape))
        found = found.of_columns(numbers)
    if may_change_text([column.atttypid for column in remote.columns]):
        found = fetch_text_types(conn, [remote.relid])[remote.relid].of_columns(numbers)
    return StoredTextTypes(rel.srsubid, rel.srrelid, rel.epoch or "", found.as_json())


def _arrives(sub: Subscription, remote: RemoteTable) -> bool:
    """True if every change of the table arrives.

    Only then, and if the table was empty before, inserted keys are known to be new. With origin =
    none the DELETE of a row from another origin does not arrive.
    """
    return remote.publishes_everything and sub.suborigin == "any"


def _nodes(conn: WalReceiverConn, sub: Subscription, remote: RemoteTable) -> Nodes | None:
    """Return how a binary COPY is read, None if the table is copied as text.

    Text and binary bring the same values, and binary costs publisher and worker half as much. So
    binary is used with and without the option ``binary``. With the option, binary is required, as
    in PostgreSQL: a column of unknown binary format is 0A000, before the lake table is made.
    """
    if conn.server_version < FIRST_WITH_BINARY_COPY:
        return None
    forms = copy_forms(conn, remote) if sub.subbinary else known_forms(conn, remote)
    if forms is None:
        return None
    nodes = compile_forms(forms)
    return nodes.table.tolist(), nodes.roots.tolist()


def _empty(
    rel: SubscriptionRel, lake: LakeTable, dest: Destination, branch: str, at: LSN, source: str
) -> None:
    """Empty the branch for a copy that replaces an earlier copy; main stays.

    In a shared table a copy replaces the rows of its source, and no rows of other sources.
    """
    columns = tuple(column.name for column in lake.columns)
    nothing = Segment(columns=columns, truncate=True, source=source)
    dest.write(lake.ident, branch, [nothing], stamp_at(rel, at, source))
    failpoints.reach("tablesync.emptied")


def _copied_columns(
    remote: RemoteTable, options: TableOptions, lake: LakeTable
) -> tuple[tuple[LakeColumn, ...], tuple[Mask | None, ...], frozenset[str]]:
    """The lake's columns in the order of the COPY, their masks, and the clamped columns."""
    by_name = {column.name: column for column in lake.columns}
    names = options.lake_columns([column.name for column in remote.columns], lake.ident)
    columns = tuple(by_name[name] for name in names.values())
    masks = _masks(options, remote, columns, lake.ident)
    return columns, masks, _clamped(remote, options, columns)


def _clamped(
    remote: RemoteTable, options: TableOptions, columns: Sequence[LakeColumn]
) -> frozenset[str]:
    """The lake's names of the columns with the first or last value for what is outside."""
    pairs = list(zip(remote.columns, columns, strict=True))
    key = [lake.name for column, lake in pairs if column.in_key]
    return frozenset(
        lake.name for _, lake in pairs if is_clamped(lake.name, lake.type, options, key)
    )


def _masks(
    options: TableOptions, remote: RemoteTable, columns: Sequence[LakeColumn], ident: LakeIdent
) -> tuple[Mask | None, ...]:
    """The masks of the copied columns, in the order of the COPY."""
    types = {each.name: column.type for each, column in zip(remote.columns, columns, strict=True)}
    check_lake_types(options, types, ident)
    masks = masks_of(options)
    return tuple(masks.get(each.name) for each in remote.columns)


def _copy_parallel(
    copy: Copy, conn: WalReceiverConn, ranges: Sequence[Range], stamped: LSN | None
) -> int:
    """Copy by Spark tasks under the exported snapshot; ``stamped`` is the position of the copy.

    Progress counts ranges. So bytes are bytes of the publisher's file, not of the COPY.
    """
    snapshot = conn.exec("SELECT pg_catalog.pg_export_snapshot()")[0][0]
    pinned = parse_conninfo(copy.sub.subconninfo) | conn.host()
    appname = sync_slot_name(copy.sub.oid, copy.rel.srrelid, "copy")
    size = sum(each.size for each in ranges)

    def tell(done: int, total: int, rows: int | None = None) -> None:
        copy.report(
            bytes_processed=size * done // total,
            bytes_total=size,
            tuples_processed=rows,
            done=done,
            ranges=total,
        )
        if done:
            failpoints.reach("tablesync.range_copied")

    process = copy.process
    own = f"{copy.sub.oid}_{process.relid}_{process.generation}"
    folder = process.data_dir / "staging" / own
    with copy_passfile(copy.sub, folder, process.interrupted) as passfile:
        plan = CopyPlan(
            conninfo=full_conninfo(
                join_conninfo(pinned), appname, passfile=passfile, replication=False
            ),
            passfile=passfile,
            snapshot=snapshot or "",
            statements=tuple(each.statement for each in ranges),
            columns=copy.columns,
            on_unrepresentable=copy.options.on_unrepresentable,
            relation=copy.relation,
            defaults=copy.options.defaults,
            generated=copy.options.generated,
            workers=copy.process.settings.copy_workers,
            source=copy.source,
            nodes=copy.nodes,
            stamp=None if stamped is None else stamp_at(copy.rel, stamped, copy.source),
            copy_id=copy.copy_id,
            clamped=copy.clamped,
            folder=str(folder),
        )
        rows = copy.dest.copy(copy.ident, copy.branch, plan, tell)
    tell(len(ranges), len(ranges), rows)
    return rows


def _settle_keys(copy: Copy, key: Sequence[str]) -> None:
    """Check ``key`` in copied and existing rows, and check every declared key."""
    if key:
        settle_copied_keys(
            copy.dest,
            copy.rel,
            copy.branch,
            columns=[column.name for column in copy.columns],
            key=key,
            overwrite=copy.options.on_key_conflict == "overwrite",
            copy_again=recopy_command(copy.sub.subname, copy.rel),
            generated=copy.options.generated,
        )
    keys = [tuple(map(copy.options.lake_column, each)) for each in copy.options.keys]
    check_repeated_keys(copy.dest, copy.ident, copy.branch, keys, copy.source)
