"""A table's part of a batch that is to be published, and how calls for several tables run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from workers.lake.table import LakeIdent, Stamp

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Publication:
    """A complete branch: ``main`` of the table is to move there.

    The branch's last snapshot must carry exactly ``stamp``.
    """

    ident: LakeIdent
    branch: str
    stamp: Stamp


class InParallel(Protocol):
    """Runs calls at the same time, and returns when all have ended; raises the first error."""

    def __call__(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """The results, in the order of the calls."""
