"""Expiry of snapshots: when it is due, and how long one takes."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from catalog.errcodes import ReplicationError
from workers.tables.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class _Expiry:
    """One that was asked for: of which table, and how it ends."""

    table: OpenTable
    answer: Future[int | ReplicationError]
