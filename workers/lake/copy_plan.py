"""The plan of a table's copy: ranges, columns, connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.lake.segment import Generated
from workers.lake.table import LakeColumn, Stamp


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A parallel copy under an exported snapshot; one ``COPY … TO STDOUT`` per range.

    The format is CSV, or binary if there are ``nodes``, which say how to read the binary form
    (``workers.columnar.copy.binary_reader``).

    ``conninfo`` is pinned to the snapshot connection's host and holds no password; ``passfile``
    is a 0600 file on this machine. ``columns`` are the copied columns in the COPY's order.
    ``workers`` limits the ranges, and so the connections, at a time; None sets no limit.
    ``stamp`` is the stamp of the commit, or None if a later commit carries the position.
    ``copy_id`` becomes part of the names of the files. ``clamped`` names the columns in which a
    date or timestamp outside of the type is the type's first or last value. ``folder`` is for
    files that the tasks read, on this machine; the folder need not exist yet.
    """

    conninfo: str
    passfile: str | None
    snapshot: str
    statements: tuple[str, ...]
    columns: tuple[LakeColumn, ...]
    on_unrepresentable: str = "error"
    relation: str = ""  # schema.table, for messages
    defaults: tuple[tuple[str, str], ...] = ()
    generated: Generated = ()
    workers: int | None = None
    source: str = ""
    nodes: tuple[Sequence[Sequence[int]], Sequence[int]] | None = None
    stamp: Stamp | None = None
    copy_id: str = ""
    clamped: frozenset[str] = frozenset()
    folder: str = ""

    @property
    def computes(self) -> bool:
        """Does the lake compute columns of the copied rows?"""
        return bool(self.defaults or self.generated)
