"""Know where the changes of each subtransaction begin, so that a roll-back is a cut.

A transaction in progress arrives in the order of the publisher's WAL. Savepoints nest: while a
subtransaction is open, all changes of the transaction are its own or those of subtransactions
inside. The publisher sends the roll-back as soon as the roll-back is decoded. So everything behind
the first change of a subtransaction that is rolled back is rolled back too, and the transaction
goes on where that change began. PostgreSQL's ``subxact_info_add`` and ``stream_abort_internal``.

A row is 24 bytes: the subtransaction's id, the offset of its first record, and the number of
changes before. PostgreSQL searches all rows for each new id. Ids grow, so an id above all known ids
needs no search here; 1,000,000 subtransactions in turn take a moment instead of an hour.

Trace: changes of 7 (the transaction), 8, 9, 8 and 7 begin at 0, 10, 20, 30, 40. The rows are
``8 → 10`` and ``9 → 20``. ``cut(9)`` answers 20. ``cut(8)`` then answers 10, and no row is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from workers.columnar.kernel import kernel

Rows = npt.NDArray[np.int64]


class Subtransactions:
    """The subtransactions of one transaction, in the order of their first changes."""

    def __init__(self) -> None:
        self._rows: Rows = np.empty((0, 3), np.int64)
        self._state = np.zeros(2, np.int64)  # number of rows, the greatest id

    def __len__(self) -> int:
        return int(self._state[0])

    @property
    def memory(self) -> int:
        """Bytes of the rows."""
        return int(self._rows.nbytes)

    @property
    def last_start(self) -> int | None:
        """The offset at which the changes of the last known subtransaction begin."""
        count = len(self)
        return int(self._rows[count - 1, 1]) if count else None

    def add(self, rows: Rows, distance: int, changes: int) -> None:
        """Take up subtransactions that are not known yet.

        ``distance`` and ``changes`` are added to the offsets and to the numbers of changes.
        """
        known = len(self)
        if known + len(rows) > len(self._rows):
            larger = np.empty((2 * (known + len(rows)), 3), np.int64)
            larger[:known] = self._rows[:known]
            self._rows = larger
        _add(self._rows, self._state, rows, distance, changes)

    def cut(self, subxid: int) -> tuple[int, int] | None:
        """Forget a subtransaction and all that began later: where it began, and the changes before.

        None for a subtransaction without a change, or that was cut off with an outer one.
        """
        row = int(_find(self._rows, len(self), subxid))
        if row < 0:
            return None
        self._state[0] = row
        return int(self._rows[row, 1]), int(self._rows[row, 2])


@kernel
def _find(rows: Any, count: int, subxid: int) -> Any:
    for row in range(count - 1, -1, -1):
        if rows[row, 0] == subxid:
            return row
    return -1


@kernel
def _add(known: Any, state: Any, rows: Any, distance: int, changes: int) -> None:
    for each in range(len(rows)):
        subxid = rows[each, 0]
        ahead = (subxid - state[1]) & 0xFFFFFFFF  # ids wrap around
        is_greatest = state[1] == 0 or 0 < ahead < 0x80000000
        if not is_greatest and _find(known, state[0], subxid) >= 0:
            continue
        if is_greatest:
            state[1] = subxid
        known[state[0], 0] = subxid
        known[state[0], 1] = rows[each, 1] + distance
        known[state[0], 2] = rows[each, 2] + changes
        state[0] += 1
