"""What the contract tests share: a table on a destination, and staged changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from catalog.pg_lsn import LSN
from workers.lake.destination import Destination
from workers.lake.effects import Counts
from workers.lake.segment import KeyLookup, OtherKey, Segment, WholeRowLookup
from workers.lake.staged_rows import Staged
from workers.lake.table import LakeColumn, LakeIdent, Stamp

Make = Callable[..., Destination]

COLUMNS = (
    LakeColumn("id", pa.int64()),
    LakeColumn("v", pa.string()),
    LakeColumn("big", pa.string()),
    LakeColumn("local note", pa.string()),
)
PUBLISHED = ("id", "v", "big")
BRANCH = "pgsub_1_1_1"


def stamp(lsn: int, epoch: str = "epoch") -> Stamp:
    return Stamp("pg_1", LSN(lsn), epoch, LSN(5))


def stage(dest: Destination, **columns: Any) -> Staged:
    table = pa.table(columns)
    return dest.stage(table.to_batches(), table.schema)


def rows_to_append(dest: Destination, rows: Sequence[tuple[int, str | None, str | None]]) -> Staged:
    ids, vs, bigs = zip(*rows, strict=True)
    return stage(
        dest,
        c0=pa.array(ids, pa.int64()),
        c1=pa.array(vs, pa.string()),
        c2=pa.array(bigs, pa.string()),
    )


def append(dest: Destination, rows: Any, **more: Any) -> Segment:
    return Segment(PUBLISHED, ("id",), append=rows_to_append(dest, rows), **more)


Change = tuple[int, int, int | None, str | None, str | None, bool]
"""(op, base key, id, v, big, big unchanged)."""


def merge(
    dest: Destination,
    changes: Sequence[Change],
    *,
    unchanged: bool = False,
    **more: Any,
) -> Segment:
    """A segment of changes of rows that are found by their key."""
    ops, keys, ids, vs, bigs, masks = zip(*changes, strict=True)
    columns = {
        "op": pa.array(ops, pa.int8()),
        "b0": pa.array(keys, pa.int64()),
        "c0": pa.array(ids, pa.int64()),
        "c1": pa.array(vs, pa.string()),
        "c2": pa.array(bigs, pa.string()),
    }
    if unchanged:
        columns["m2"] = pa.array(masks, pa.bool_())
    staged = stage(dest, **columns)
    return Segment(
        PUBLISHED, ("id",), merge=staged, unchanged=("big",) if unchanged else (), **more
    )


def probe(
    dest: Destination, keys: Sequence[int], resolve: Callable[[list[int]], Segment], **more: Any
) -> Segment:
    """``resolve`` gets those of the keys that are there, once per row."""
    staged = stage(dest, k=pa.array(range(len(keys)), pa.int64()), b0=pa.array(keys, pa.int64()))

    def answer(found: pa.Table) -> Segment:
        return resolve(sorted(keys[k] for k in found.column("k").to_numpy()))

    return Segment(PUBLISHED, ("id",), key_lookup=KeyLookup(staged, answer), **more)


def probe_any(
    dest: Destination,
    ids: Sequence[int] | None,
    others: Mapping[str, Sequence[str]],
    resolve: Callable[[list[tuple[int | None, ...]]], Segment],
) -> Segment:
    """``resolve`` gets the numbers of what was found, a line for each row that has any of them."""

    def numbered(values: Sequence[Any], kind: pa.DataType) -> Staged:
        numbers = pa.array(range(len(values)), pa.int64())
        return stage(dest, k=numbers, b0=pa.array(values, kind))

    def answer(found: pa.Table) -> Segment:
        return resolve([tuple(row.values()) for row in found.to_pylist()])

    keys = [OtherKey((name,), numbered(own, pa.string())) for name, own in others.items()]
    own = None if ids is None else numbered(ids, pa.int64())
    key = () if ids is None else ("id",)
    return Segment(PUBLISHED, key, key_lookup=KeyLookup(own, answer, tuple(keys)))


class Table:
    """One table on one destination, with its rows as readers of main see them."""

    def __init__(self, dest: Destination, ident: LakeIdent) -> None:
        self.dest = dest
        self.ident = ident
        self.attempt = 0
        dest.create_table(ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))

    def branch(self) -> str:
        self.attempt += 1
        name = f"pgsub_1_1_{self.attempt}"
        self.dest.create_branch(self.ident, name)
        return name

    def batch(self, segments: Sequence[Segment], lsn: int) -> Counts:
        branch = self.branch()
        counts = self.dest.write(self.ident, branch, segments, stamp(lsn))
        self.dest.publish(self.ident, branch, stamp(lsn))
        return counts

    def rows(self) -> list[tuple[Any, ...]]:
        return read_rows(self.dest, self.ident)

    def lsn(self) -> int:
        found = self.dest.table(self.ident)
        assert found is not None
        assert found.stamp is not None
        return int(found.stamp.lsn)


def read_rows(dest: Any, ident: LakeIdent) -> list[tuple[Any, ...]]:
    """(id, v, big, local note), in order."""
    if hasattr(dest, "lake"):
        found = [tuple(row.values()) for row in dest.lake.rows(ident)]
    else:
        from workers.lake.sql.statements import sql_text, table_path

        result = dest._sessions.get().query(sql_text("SELECT * FROM", table_path(ident)), "reading")
        found = [tuple(row.values()) for row in result.to_pylist()]
    return sorted(found, key=lambda row: tuple((v is not None, v) for v in row))


def full(
    dest: Destination, images: Sequence[tuple[int, str | None, int]], resolve: Any, **more: Any
) -> Segment:
    """Images are (id, v, n) with big NULL; ``resolve`` gets [(image, f, p), …]."""
    ids, vs, ns = zip(*images, strict=True)
    staged = stage(
        dest,
        image=pa.array(range(len(images)), pa.int64()),
        n=pa.array(ns, pa.int32()),
        c0=pa.array(ids, pa.int64()),
        c1=pa.array(vs, pa.string()),
        c2=pa.nulls(len(images), pa.string()),
    )

    def answer(found: pa.Table) -> tuple[Staged | None, Staged | None]:
        hits = [tuple(row.values()) for row in found.to_pylist()]
        positions, appended = resolve(hits)
        return (
            positions
            and stage(
                dest,
                f=pa.array([p[0] for p in positions], pa.string()),
                p=pa.array([p[1] for p in positions], pa.int64()),
                op=pa.array([p[2] for p in positions], pa.int8()),
                c0=pa.array([p[3] for p in positions], pa.int64()),
                c1=pa.array([p[4] for p in positions], pa.string()),
                c2=pa.nulls(len(positions), pa.string()),
            ),
            rows_to_append(dest, appended) if appended else None,
        )

    return Segment(PUBLISHED, row_lookup=WholeRowLookup(staged, answer), **more)
