"""What a copy reads, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.lake.segment import Generated
from workers.lake.table import LakeColumn, Stamp


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A parallel copy under an exported snapshot; one ``COPY … TO STDOUT`` per range.

    It is CSV, or binary with ``nodes`` (``workers.columnar.copy.binary_reader``), which read it.

    ``conninfo`` is pinned to the snapshot connection's host and holds no password; ``passfile``
    is a 0600 file on this machine. ``columns`` are the copied columns in the COPY's order.
    ``workers`` is how many ranges, and so connections, there may be at a time; None sets no limit.
    ``stamp`` is what the commit carries, None where another one follows that will.
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
