"""Lock and measure a table, and cut the table into ctid ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.errcodes import TableRewritten
from catalog.namespace import quote_qualified_identifier
from config.guc import Settings
from workers.lake.copy_task import CSV
from workers.publisher.connection import WalReceiverConn
from workers.publisher.copy_statement import copy_statement, lock_statement
from workers.publisher.remote_table import (
    PLAIN_TABLE,
    Leaf,
    RemoteTable,
    can_lock,
    is_renamed,
    is_rewritten,
)


def lock(conn: WalReceiverConn, remote: RemoteTable, leaves: Sequence[Leaf]) -> bool:
    """Take an ACCESS SHARE lock on every relation that stores rows of the table.

    A READ ONLY transaction may take the lock. ONLY leaves out inheritance children, because
    children are published, and copied, as separate tables.

    COPY takes SELECT on the published columns of the table that the COPY names; LOCK TABLE, a ctid
    and the name of a partition take more. A role with column grants, or with a grant on a
    partitioned table and none on its partitions, gets the lock by a SELECT without rows. Returns
    whether the role may read every relation by ctid: else a single COPY must read the table.

    Raises 55000 if a column got another name between the snapshot and the lock. The COPY takes
    columns by the names of now, so two columns with swapped names would be copied the wrong way
    round, and an excluded one under the name of the other.
    """
    by_ctid = _lock(conn, remote, leaves)
    if is_renamed(conn, remote):
        name = f"{remote.nspname}.{remote.relname}"
        raise TableRewritten(
            f'columns of table "{name}" were renamed while it was copied',
            detail="An ALTER TABLE came between the snapshot and the lock.",
            hint="Nothing is to be done: the copy starts again by itself.",
        )
    return by_ctid


def _lock(conn: WalReceiverConn, remote: RemoteTable, leaves: Sequence[Leaf]) -> bool:
    if not can_lock(conn, leaves):
        conn.exec(lock_statement(remote))
        return False
    for leaf in leaves:
        if leaf.relkind == PLAIN_TABLE:
            name = quote_qualified_identifier(leaf.nspname, leaf.relname)
            conn.command(f"LOCK TABLE ONLY {name} IN ACCESS SHARE MODE")
    return True


def check_not_rewritten(conn: WalReceiverConn, remote: RemoteTable, leaves: Sequence[Leaf]) -> None:
    """Raise 55000 if a table's file is not the file that the snapshot knew."""
    if is_rewritten(conn, leaves):
        raise TableRewritten(
            f'table "{remote.nspname}.{remote.relname}" was rewritten while it was copied',
            detail="A rewriting ALTER TABLE, VACUUM FULL or CLUSTER came between the snapshot and "
            "the lock.",
            hint="Nothing is to be done: the copy starts again by itself.",
        )


@dataclass(frozen=True, slots=True)
class Range:
    """A part of the table: the COPY statement, and the size in bytes on the publisher's disk."""

    statement: str
    size: int


def cut_ranges(
    conn: WalReceiverConn,
    remote: RemoteTable,
    leaves: Sequence[Leaf],
    settings: Settings,
    options: str = CSV,
    *,
    by_ctid: bool = True,
) -> list[Range]:
    """Make one range for the whole table, or a range for every few blocks of each leaf.

    The ranges of a leaf are equally long. If a leaf has more ranges than ``copy_workers``, the
    number of ranges is a multiple of ``copy_workers``, so no last range keeps the copy waiting. The
    rounding may make a range up to twice as long as ``copy_range_bytes``. A foreign table has no
    ctids, and is copied as a single range. Without ``by_ctid`` the whole table is one range.
    """
    block_size = int(conn.exec("SELECT pg_catalog.current_setting('block_size')")[0][0] or 8192)
    blocks = {leaf.relid: _blocks(conn, leaf, block_size) for leaf in leaves}
    step, workers = max(1, settings.copy_range_bytes // block_size), settings.copy_workers
    whole = sum(blocks.values())
    if whole <= step or not by_ctid:
        return [Range(copy_statement(remote, options=options), whole * block_size)]
    ranges = []
    for leaf in leaves:
        last = blocks[leaf.relid]
        parts = max(1, -(-last // step))
        if parts > workers:
            parts -= parts % workers
        edges = [last * n // parts for n in range(1, parts)]
        ranges += [
            Range(
                copy_statement(remote, leaf=leaf, ctid_from=low, ctid_to=high, options=options),
                ((last if high is None else high) - (low or 0)) * block_size,
            )
            for low, high in zip([None, *edges], [*edges, None], strict=True)
        ]
    return ranges


def _blocks(conn: WalReceiverConn, leaf: Leaf, block_size: int) -> int:
    if leaf.relkind != PLAIN_TABLE:
        return 0
    size = conn.exec(f"SELECT pg_catalog.pg_relation_size({leaf.relid})")[0][0]
    return int(size or 0) // block_size
