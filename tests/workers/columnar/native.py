"""Row changes as PostgreSQL's apply worker takes them: one message, one row, at once."""

from __future__ import annotations

from collections.abc import Iterable

from tests.workers.columnar.records import Row
from workers.proto.messages import ColumnStatus, Delete, Insert, Message, TupleData, Update

Stored = tuple[str | None, ...]


class ConflictError(Exception):
    """insert_exists or update_exists: PostgreSQL's worker stops."""


def _stored(new: TupleData, local: Stored) -> Stored:
    """``slot_modify_data``: what was not sent stays."""
    return tuple(
        kept
        if column.status is ColumnStatus.UNCHANGED
        else None
        if column.value is None
        else column.value.decode()
        for column, kept in zip(new, local, strict=True)
    )


class NativeTable:
    """A heap of rows, found by ``key`` or, with an empty one, by all columns (NULL is NULL)."""

    def __init__(self, rows: Iterable[Stored], key: tuple[int, ...]) -> None:
        self.rows = list(rows)
        self.key = key
        self.missing_updates = 0
        self.missing_deletes = 0

    def _find(self, row: Stored) -> int | None:
        for at, local in enumerate(self.rows):
            if not self.key and local == row:
                return at
            if self.key and all(local[ordinal] == row[ordinal] for ordinal in self.key):
                return at
        return None

    def _check(self, row: Stored, but: int | None = None) -> None:
        if self.key:
            others = [local for at, local in enumerate(self.rows) if at != but]
            if any(all(local[at] == row[at] for at in self.key) for local in others):
                raise ConflictError

    def apply(self, messages: Iterable[Message]) -> None:
        """In order; raises ``ConflictError`` where PostgreSQL raises 23505."""
        nothing: Stored
        for message in messages:
            match message:
                case Insert(_, new):
                    nothing = tuple(None for _ in new)
                    row = _stored(new, nothing)
                    self._check(row)
                    self.rows.append(row)
                case Update(_, _, old, new):
                    nothing = tuple(None for _ in new)
                    at = self._find(_stored(old or new, nothing))
                    if at is None:
                        self.missing_updates += 1
                        continue
                    row = _stored(new, self.rows[at])
                    self._check(row, at)
                    self.rows[at] = row
                case Delete(_, _, old):
                    at = self._find(_stored(old, tuple(None for _ in old)))
                    if at is None:
                        self.missing_deletes += 1
                        continue
                    del self.rows[at]


def stored(row: Row) -> Stored:
    """A row without unchanged values, as a table holds it."""
    return tuple(value if isinstance(value, str) else None for value in row)
