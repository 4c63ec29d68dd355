"""Sources of one lake table whose workers die anywhere, also in the middle of another's batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from catalog.errcodes import ConnectionFailure
from tests.workers.sharing import A, B, Make, Sharing, insert
from tests.workers.transactions import batch, row
from workers.apply.apply_batch import Applier
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import LakeIdent, Stamp
from workers.proto.messages import Delete, Message, Relation, Truncate, Update
from workers.stream.batch import Batch


class Dying(MemoryDestination):
    """Its connection breaks at the ``die_at``-th call of its life, before or after its effect."""

    def __init__(self, lake: MemoryLake, rng: random.Random, between: Callable[[], None]) -> None:
        self.left = rng.randrange(40)
        self.after = rng.random() < 0.5
        self.between = between
        super().__init__(lake, failpoint=self.die)

    def die(self, operation: str) -> None:
        self.between()
        self.left -= 1
        if self.left < 0 and not self.after:
            raise ConnectionFailure("gone")

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        done = super().publish(ident, branch, stamp)
        if self.left < 0:
            raise ConnectionFailure("gone")
        return done


class Source:
    """A publisher's tables, their history as batches, and what must come out."""

    def __init__(self, world: Sharing, relations: Sequence[Relation], rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.relations = relations
        self.model: dict[str, dict[int, int]] = {r.relname: {} for r in relations}
        self.worker: Applier | None = None
        self.after = 0
        self.received: Batch | None = None

    def turn(self, lake: MemoryLake, between: Callable[[], None]) -> None:
        """Apply the batch in hand, or a new one; die in between now and then."""
        if self.received is None:
            transactions = [self._transaction() for _ in range(self.rng.randint(1, 3))]
            self.received = batch(*transactions, after=self.after)
            self.after += 1000
        try:
            if self.worker is None:
                self.worker = self.world.worker(Dying(lake, self.rng, between))
            self.worker.apply_batch(self.received)
        except ConnectionFailure:
            self.worker = None
        else:
            self.received = None

    def _transaction(self) -> list[Message]:
        messages: list[Message] = list(self.relations)
        for _ in range(self.rng.randint(1, 4)):
            of = self.rng.choice(self.relations)
            rows = self.model[of.relname]
            key, value = self.rng.randrange(6), self.rng.randrange(100)
            if self.rng.random() < 0.1:
                messages.append(Truncate(False, False, (of.relid,)))
                rows.clear()
            elif key not in rows:
                messages.append(insert(key, value, of.relid))
                rows[key] = value
            elif self.rng.random() < 0.5:
                messages.append(Delete(of.relid, "K", row(str(key), "")))
                del rows[key]
            else:
                messages.append(Update(of.relid, None, None, row(str(key), str(value))))
                rows[key] = value
        return messages

    def check(self) -> None:
        for name, rows in self.model.items():
            assert self.world.rows(name) == sorted(rows.items())


@pytest.mark.parametrize("seed", range(8))
def test_whoever_dies_wherever_each_source_has_its_rows(
    lake: MemoryLake, sharing: Make, seed: int
) -> None:
    """Also while another one is in the middle of a batch, with no lock between them.

    One thread each: who takes turns, and who draws the next number, follows from the seed alone.
    """
    rng = random.Random(seed)
    sources = [
        Source(sharing("1", threads=1), [A], rng),
        Source(sharing("2", threads=1), [A], rng),
        Source(sharing("3", "a", "b", threads=1), [A, B], rng),
    ]
    running: list[Source] = []

    def turn(source: Source) -> None:
        if source in running:
            return
        running.append(source)
        try:
            source.turn(lake, between)
        finally:
            running.remove(source)

    def between() -> None:
        if rng.random() < 0.05:
            turn(rng.choice(sources))

    for _ in range(80):
        turn(rng.choice(sources))
    for source in sources:
        while source.received is not None:
            turn(source)
        source.check()
