"""What a seed does, but for its statements.

Faults, how partitions are published, whether columns and tables come and go, whether rows have a
lineage, rows are sent in binary form, sync slots are permanent, Spark writes from the start or from
the middle on, transactions are sent while they run, and some are prepared. Half of the seeds change
tables, which pgsub learns by looking or from triggers (``tests.chaos.ddl``).

A user says where the lake is, and which writer begins. On S3 behind a REST catalog store and
catalog have faults as well (``tests.chaos.lake_faults``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.chaos.faults import Fault, plan_faults, plan_faults_of_changes
from tests.chaos.lake_faults import plan_lake_faults

TRANSACTIONS: Final = 150
STREAMED: Final = ("when large", "immediately")
"""When a transaction is sent while it runs; else none is so large."""
LOCAL: Final = "local"
S3: Final = "s3"
LAKES: Final = (LOCAL, S3)
WORDS: Final = ("files", "spark", "auto")
DRAWN: Final = "drawn"
WRITERS: Final = (*WORDS, DRAWN)


@dataclass(frozen=True, slots=True)
class Ddl:
    """Tables change. ``captured``: triggers tell; ``drops``: a dropped column leaves the lake;
    ``refreshes``: tables join and leave by themselves."""

    captured: bool
    drops: bool
    refreshes: bool

    def __str__(self) -> str:
        told = "DDL, told by triggers" if self.captured else "DDL, looked for"
        told += "; on_dropped_column: drop" * self.drops
        return told + "; refresh: auto" * self.refreshes


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user chooses for all seeds of a run.

    ``ddl``: whether tables change, None where a seed draws that. ``writer`` is the word for
    ``lake.writer``; "drawn" is one of ``WORDS`` for each seed.
    """

    faults: bool = True
    ddl: bool | None = None
    lake: str = LOCAL
    writer: str = "auto"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed does, but for its statements.

    ``writer`` is the word for ``lake.writer`` until ``spark_after`` transactions.
    """

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
    ddl: Ddl | None = None
    lake: str = LOCAL
    writer: str = "auto"

    def __str__(self) -> str:
        told = [str(fault) for fault in self.faults] or ["no faults"]
        told += ["on S3 behind a REST catalog"] * (self.lake == S3)
        told += [f"lake.writer: {self.writer}"] * (self.writer != "auto")
        told += ["track_commit_timestamp = on"] * self.lineage
        told += ["binary = true"] * self.binary
        told += ["sync_slot: permanent"] * self.permanent
        told += [f"lake.writer: spark after {self.spark_after}"] * (self.spark_after is not None)
        told += [f"streamed: {self.streamed}"] if self.streamed else []
        told += ["two_phase = true"] * self.two_phase
        told += [str(self.ddl)] if self.ddl else []
        return "; ".join(told)


def make_plan(
    seed: int, transactions: int = TRANSACTIONS, *, faults: bool = True, ddl: bool | None = None
) -> Plan:
    """``plan_of`` for a lake on the local disk."""
    return plan_of(seed, Choices(faults=faults, ddl=ddl), transactions)


def plan_of(seed: int, choices: Choices, transactions: int = TRANSACTIONS) -> Plan:
    """From the seed and the choices. A new draw comes last, so that a seed stays what it was."""
    faults = choices.faults
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
    changes, more = _changes(seed, transactions, two_phase=two_phase, ddl=choices.ddl)
    more = more if changes else []
    if choices.lake == S3:
        more += plan_lake_faults(random.Random(f"lake {seed}"), transactions)
    if faults:
        planned = tuple(sorted((*planned, *more), key=lambda fault: fault.after))
    writer = choices.writer
    if writer == DRAWN:
        writer = random.Random(f"writer {seed}").choice(WORDS)
    if choices.writer != "auto" and spark == 0:
        spark = None
    options = lineage, binary, permanent, spark, streamed, two_phase
    where = changes, choices.lake, writer
    return Plan(seed, transactions, planned, via_root, late, column, dropped, *options, *where)


def _changes(
    seed: int, transactions: int, *, two_phase: bool, ddl: bool | None
) -> tuple[Ddl | None, list[Fault]]:
    """Whether tables change, and faults around what the worker does about that."""
    chance = random.Random(f"changes {seed}")
    drawn = chance.random() < 0.5
    captured, drops, refreshes = (chance.random() < share for share in (0.5, 0.3, 0.3))
    if not (drawn if ddl is None else ddl):
        return None, []
    # refresh = auto and two_phase are mutually exclusive options
    made = Ddl(captured, drops, refreshes and not two_phase)
    return made, plan_faults_of_changes(chance, transactions)
