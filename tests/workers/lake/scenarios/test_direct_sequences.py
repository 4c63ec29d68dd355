"""The same batches at random, written directly and by Spark, leave the same rows and counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.workers.lake.contract import COLUMNS, PUBLISHED, Change, Make, Table, merge
from workers.lake.destination import Destination
from workers.lake.segment import RowsOf, Segment
from workers.lake.table import LakeIdent

Row = tuple[int, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a batch, for any lake."""

    truncate: bool
    changes: Sequence[Change]
    unchanged: bool
    rows: Sequence[Row]

    def segment(self, dest: Destination, ident: LakeIdent) -> Segment:
        """As this lake takes it."""
        key, append = ("id",), None
        if self.rows:
            columns: Any = zip(COLUMNS, zip(*self.rows, strict=True), strict=False)
            arrays = [pa.array(values, column.type) for column, values in columns]
            table = pa.table({f"c{n}": array for n, array in enumerate(arrays)})
            rows_of = RowsOf(ident, PUBLISHED)
            append = dest.stage(table.to_batches(max_chunksize=3), table.schema, rows_of)
        made = Segment(PUBLISHED, key, truncate=self.truncate, append=append)
        if not self.changes:
            return made
        more = {"truncate": self.truncate, "append": append}
        return merge(dest, self.changes, unchanged=self.unchanged, **more)


@dataclass(slots=True)
class Writer:
    """Somebody who changes a table; ``live`` are its keys, each of one row."""

    random: random.Random
    live: list[int] = field(default_factory=list)
    last: int = 0

    def batch(self) -> list[Part]:
        """One to three segments."""
        return [self.part() for _ in range(self.random.randint(1, 3))]

    def part(self) -> Part:
        """Some rows are changed, then some are new: also with keys that others had."""
        truncate = self.random.random() < 0.08
        if truncate:
            self.live.clear()
        unchanged = self.random.random() < 0.5
        changes = self.changes(unchanged) if self.random.random() < 0.8 else []
        gone = [change[1] for change in changes if change[1] not in self.live]
        again = self.random.sample(gone, min(len(gone), self.random.randint(0, 2)))
        new = [self.fresh() for _ in range(self.random.choice([0, 1, 3, 12]))]
        rows = [(key, self.text(), self.text()) for key in again + new]
        self.live += again + new
        return Part(truncate, changes, unchanged, rows)

    def changes(self, unchanged: bool) -> list[Change]:
        """Of rows that are there and of some that are not; two may change keys with each other."""
        held = self.random.sample(self.live, min(len(self.live), self.random.choice([1, 4, 14])))
        missing = [self.fresh() for _ in range(self.random.randint(0, 2))]
        found: list[Change] = []
        swapped = held[:2] if len(held) > 3 and self.random.random() < 0.5 else []
        found += [self.update(a, b, unchanged) for a, b in zip(swapped, swapped[::-1], strict=True)]
        for key in held[len(swapped) :] + missing:
            kind = self.random.random()
            if kind < 0.4:
                found.append((1, key, None, None, None, False))
                self.live = [each for each in self.live if each != key]
                continue
            to = key if kind < 0.8 else self.fresh()
            found.append(self.update(key, to, unchanged))
            self.live = [to if each == key else each for each in self.live]
        self.random.shuffle(found)
        return found

    def update(self, key: int, to: int, unchanged: bool) -> Change:
        """``big`` may stay as it is."""
        stays = unchanged and self.random.random() < 0.5
        return (0, key, to, self.text(), None if stays else self.text(), stays)

    def fresh(self) -> int:
        """A key that nobody has had."""
        self.last += 1
        return self.last

    def text(self) -> str | None:
        """Any value."""
        return self.random.choice([None, "", "é 🦆", f"{self.random.random()}", "x" * 5000])


def apply(table: Table, batches: Sequence[Sequence[Part]]) -> list[Any]:
    """What each batch did, and what is there in the end."""
    found: list[Any] = []
    for n, parts in enumerate(batches):
        segments = [part.segment(table.dest, table.ident) for part in parts]
        found.append(table.batch(segments, 20 + n))
        for segment in segments:
            for staged in (segment.append, segment.merge):
                if staged is not None:
                    table.dest.discard(staged)
    return [*found, table.rows(), table.lsn()]


def batches_of(seed: int, count: int) -> list[list[Part]]:
    writer = Writer(random.Random(seed))
    first = [Part(False, [], False, [(writer.fresh(), writer.text(), "big") for _ in range(30)])]
    writer.live = list(range(1, 31))
    return [first, *(writer.batch() for _ in range(count))]


def test_rows_and_counts_are_those_of_merge(
    iceberg: Make, through_spark: Make, lake_ident: LakeIdent
) -> None:
    batches = batches_of(7, 3)
    expected = apply(Table(through_spark(local_relation_rows=10), lake_ident), batches)
    other = LakeIdent(lake_ident.schema, f"{lake_ident.table}_direct")
    assert apply(Table(iceberg(local_relation_rows=10), other), batches) == expected


def test_rows_and_counts_are_those_of_the_twin_in_memory(
    iceberg: Make, memory_lake: Make, lake_ident: LakeIdent
) -> None:
    """Which is so much faster that there can be more of them."""
    batches = batches_of(1, 4)
    expected = apply(Table(memory_lake(), lake_ident), batches)
    assert apply(Table(iceberg(local_relation_rows=10), lake_ident), batches) == expected
