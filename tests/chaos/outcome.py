"""What became of a seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos.compare import Compared
from tests.chaos.faults import Fault
from tests.chaos.plan import Plan

_SHOWN: Final = 3
"""Orphan files that are named."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed; ``error`` is what stopped the run, None if it came to its end.

    ``hit`` are the faults that took effect, as they met somebody. ``alterations`` are the changes
    of tables, also those that were undone with their transaction. ``publisher_fault`` is an error
    of the publisher that stopped the run: the seed is neither right nor ours to mend. ``orphans``
    are files in a store that no table knows.
    """

    plan: Plan
    seconds: float
    transactions: int
    compared: Compared | None
    error: str | None
    folder: Path
    hit: tuple[Fault, ...] = ()
    alterations: int = 0
    publisher_fault: str | None = None
    orphans: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether every row is right."""
        return self.error is None and self.compared is not None and not self.compared.wrong

    def __str__(self) -> str:
        head = f"seed {self.plan.seed}: {self.transactions} transactions, {self.seconds:.0f} s"
        if self.publisher_fault:
            fault = f"not told, by a fault of the publisher: {self.publisher_fault}"
            return f"{head}: {fault} (events in {self.folder})"
        if self.compared is None or self.error:
            return f"{head}: FAILED: {self.error} (events in {self.folder})"
        told = f"{head}, {self.compared.rows} rows, {len(self.plan.faults)} faults"
        told += f" ({len(self.hit)} took effect)" * bool(self.plan.faults)
        told += f", {self.alterations} changes of tables" * bool(self.plan.ddl)
        if self.orphans:
            told += f", {len(self.orphans)} orphan files ({', '.join(self.orphans[:_SHOWN])})"
        if self.compared.wrong:
            wrong = "\n  ".join(map(str, self.compared.wrong))
            return f"{told}: WRONG (events in {self.folder}):\n  {wrong}"
        if not self.compared.native:
            return f"{told}: right (no native subscriber beside it)"
        return f"{told}: right" + (" (native subscriber is not)" * bool(self.compared.native_wrong))
