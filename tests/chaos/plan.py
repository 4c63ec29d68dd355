"""What a seed does, but for its statements.

Faults, how partitions are published, whether columns and tables come and go, whether rows have a
lineage, rows are sent in binary form, sync slots are permanent, Spark writes from the start or from
the middle on, transactions are sent while they run, and some are prepared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.chaos.faults import Fault, plan_faults

TRANSACTIONS: Final = 150
STREAMED: Final = ("when large", "immediately")
"""When a transaction is sent while it runs; else none is so large."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed does, but for its statements."""

    seed: int
    transactions: int
    faults: tuple[Fault, ...]
    via_root: bool
    late_after: int | None
    column_after: int | None
    column_dropped_after: int | None
    lineage: bool
    binary: bool
    permanent: bool
    spark_after: int | None
    streamed: str | None
    two_phase: bool

    def __str__(self) -> str:
        told = [str(fault) for fault in self.faults] or ["no faults"]
        told += ["track_commit_timestamp = on"] * self.lineage
        told += ["binary = true"] * self.binary
        told += ["sync_slot: permanent"] * self.permanent
        told += [f"lake.writer: spark after {self.spark_after}"] * (self.spark_after is not None)
        told += [f"streamed: {self.streamed}"] if self.streamed else []
        told += ["two_phase = true"] * self.two_phase
        return "; ".join(told)


def make_plan(seed: int, transactions: int = TRANSACTIONS, *, faults: bool = True) -> Plan:
    """From the seed alone. A new draw comes last, so that a seed stays what it was otherwise."""
    chance = random.Random(f"plan {seed}")
    late = chance.randrange(transactions) if chance.random() < 0.5 else None
    column = chance.randrange(transactions) if chance.random() < 0.4 else None
    dropped = (
        chance.randrange(column, transactions)
        if column is not None and chance.random() < 0.6
        else None
    )
    via_root = chance.random() < 0.5
    planned = tuple(plan_faults(chance, transactions)) if faults else ()
    lineage = chance.random() < 0.25
    binary = chance.random() < 0.25
    permanent = chance.random() < 0.25
    drawn, middle = chance.random(), chance.randrange(transactions)
    spark = 0 if drawn < 0.125 else middle if drawn < 0.25 else None
    streamed = chance.choice((None, None, *STREAMED))
    two_phase = chance.random() < 0.25
    if two_phase:
        late = None  # ALTER SUBSCRIPTION ... REFRESH PUBLICATION may not copy then
    options = lineage, binary, permanent, spark, streamed, two_phase
    return Plan(seed, transactions, planned, via_root, late, column, dropped, *options)
