"""The columns of a destination's tables as last read, and the key ranges seen under the columns."""

from __future__ import annotations

import threading
from collections.abc import Callable

from workers.lake.interfaces.table_api import TableApi
from workers.lake.sql.key_bounds import KeyRanges
from workers.lake.table import LakeColumn, LakeIdent


class KnownColumns:
    """Columns by table; any thread may call. New columns begin new key ranges."""

    def __init__(
        self, tables: TableApi, on_changed: Callable[[LakeIdent], None] = lambda _: None
    ) -> None:
        """``on_changed`` is called with a table that was read with other columns than before."""
        self._tables = tables
        self._on_changed = on_changed
        self._lock = threading.Lock()
        self._columns: dict[LakeIdent, tuple[LakeColumn, ...]] = {}
        self._key_ranges: dict[LakeIdent, KeyRanges] = {}

    def of(self, ident: LakeIdent) -> tuple[LakeColumn, ...]:
        """The table's columns, read unless they are known."""
        return self._columns.get(ident) or self.note(ident, self._tables.columns(ident))

    def note(self, ident: LakeIdent, columns: tuple[LakeColumn, ...]) -> tuple[LakeColumn, ...]:
        """Keep columns that were read. Returns the columns."""
        with self._lock:
            before = self._columns.get(ident)
            if before != columns:
                self._key_ranges.pop(ident, None)
            self._columns[ident] = columns
        if before is not None and before != columns:
            self._on_changed(ident)
        return columns

    def key_ranges(self, ident: LakeIdent) -> KeyRanges:
        """The key ranges under the table's present columns."""
        columns = self.of(ident)
        with self._lock:
            return self._key_ranges.setdefault(ident, KeyRanges(ident, columns))

    def forget(self, ident: LakeIdent) -> None:
        """Read the columns again before the next use."""
        with self._lock:
            self._columns.pop(ident, None)
            self._key_ranges.pop(ident, None)
