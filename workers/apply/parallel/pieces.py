"""Choose the part of a transaction in progress to be written next. Pure.

A transaction is cut into *pieces*, in a row from the first record on. While a piece is written,
the piece is *under way*. A roll-back cuts the transaction: all pieces that reach behind the cut are
dropped, and the records in front of the cut are written anew. A piece under way that reaches behind
the cut is dropped when the writing ends.

Most roll-backs undo the last subtransaction. So a piece ends where the last subtransaction begins
(``Received.calm``), unless a single subtransaction is twice as large as a piece has to be. A
transaction whose pieces are dropped again and again gives up: the dropped bytes may be no more than
the kept bytes and a piece. The remaining records are applied at the commit.

Trace, with pieces of 100 to 200 bytes::

    size 130               [0, 130) is written
    size 290, cut at 110   [0, 130) is dropped: 130 bytes wasted
    size 290               [0, 200) is written
    commit                 [0, 200) is used; [200, 290) is applied as any other slice
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from config.monitor_limits import PARALLEL_QUIET_SECONDS, PARALLEL_WAIT_SECONDS
from workers.stream.batch import Received

T = TypeVar("T")


def may_write(waits_since: float, last_batch: float, now: float) -> bool:
    """Is it the turn of a piece that waits since ``waits_since``? Times are seconds.

    A publisher sends nothing else in the middle of a burst of a large transaction. So small
    transactions wait behind the burst, and the piece comes behind their batches.
    ``last_batch`` is the end of the last batch.
    """
    is_quiet = now - last_batch >= PARALLEL_QUIET_SECONDS
    return is_quiet or now - waits_since >= PARALLEL_WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """The records from ``start`` to ``end``, and the files of the records."""

    start: int
    end: int
    made: T


class Pieces(Generic[T]):
    """The pieces of one transaction, of ``least`` to ``most`` bytes."""

    def __init__(self, least: int, most: int) -> None:
        self.pieces: list[Piece[T]] = []
        self._least = least
        self._most = most
        self._under_way: tuple[int, int] | None = None
        self._is_void = False
        self._wasted = 0
        self._given_up = False

    @property
    def end(self) -> int:
        """The end of the last piece."""
        return self.pieces[-1].end if self.pieces else 0

    @property
    def is_under_way(self) -> bool:
        """Is a piece being written?"""
        return self._under_way is not None

    @property
    def has_given_up(self) -> bool:
        """Is no further piece written?"""
        return self._given_up or self._wasted > self.end + self._most

    def give_up(self) -> None:
        """Write no further piece."""
        self._given_up = True

    def next_part(self, received: Received) -> tuple[int, int] | None:
        """The start and the most bytes of the next piece; None if nothing is to be written now."""
        if self.is_under_way or self.has_given_up:
            return None
        start = self.end
        if received.calm - start >= self._least:
            return start, min(received.calm - start, self._most)
        is_calm = received.calm >= received.size
        if received.size - start >= (1 if is_calm else 2) * self._least:
            return start, min(received.size - start, self._most)
        return None

    def begin(self, size: int) -> None:
        """Note that the next piece, of ``size`` bytes, is being written."""
        self._under_way, self._is_void = (self.end, self.end + size), False

    def complete(self, made: T) -> T | None:
        """Note the piece under way; returns ``made`` if a roll-back has undone the piece."""
        if self._under_way is None:
            return made
        (start, end), self._under_way = self._under_way, None
        if self._is_void:
            self._wasted += end - start
            return made
        self.pieces.append(Piece(start, end, made))
        return None

    def cut(self, size: int) -> list[T]:
        """Drop all pieces that reach behind the first ``size`` bytes; returns the files."""
        dropped = [each for each in self.pieces if each.end > size]
        self._wasted += sum(each.end - each.start for each in dropped)
        self.pieces = self.pieces[: len(self.pieces) - len(dropped)]
        if self._under_way is not None and self._under_way[1] > size:
            self._is_void = True
        return [each.made for each in dropped]
