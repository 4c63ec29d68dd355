"""A watch over the text of two tables, with a publisher and a clock of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from config.monitor_limits import (
    TEXT_COMPARISON_SECONDS,
)
from tests.workers.subscribed import Subscribed
from tests.workers.text_questions import TextPublisher
from tests.workers.transactions import relation
from workers.apply.text_watch import ChangedText, TextWatch, warn_of_text
from workers.changes.relation_map import LogicalRepRelMap
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.publisher.changing_text import TextType, TextTypes

STAGE = 16400


def stages(label: str, version: str = "700") -> TextTypes:
    stage = TextType(
        "e", "stage", {"16402": label, "16404": "done"}, {"16402": version, "16404": "700"}
    )
    return TextTypes({"v": (STAGE,)}, {STAGE: stage}, {"id": 1, "v": 2})


PLAIN = TextTypes(numbers={"id": 1, "v": 2})


@dataclass(slots=True)
class FailingPublisher(TextPublisher):
    """Answers no question while ``fails`` is set."""

    fails: bool = False
    locked: bool = False

    def moved_partitions(self, came: Collection[int], went: Collection[int]) -> list[str]:
        """The answer, or the error of a lock that lasts."""
        if self.locked:
            raise ReplicationError("canceling statement due to lock timeout", sqlstate="55P03")
        return TextPublisher.moved_partitions(self, came, went)

    def text_types(self, relids: Collection[int]) -> Mapping[int, TextTypes]:
        """The types, or the error of a lost publisher."""
        found = TextPublisher.text_types(self, relids)
        if self.fails:
            raise ConnectionFailure("could not connect to the publisher")
        return found

    def text_mark(self, types: Mapping[int, TextType]) -> str:
        """The mark, or the error of a lost publisher."""
        found = TextPublisher.text_mark(self, types)
        if self.fails:
            raise ConnectionFailure("could not connect to the publisher")
        return found


@dataclass(slots=True)
class Watched:
    """A watch over tables a (relid 1) and b (relid 2), with a publisher and a clock."""

    world: Subscribed
    types: dict[int, TextTypes] = field(default_factory=lambda: {1: stages("new"), 2: PLAIN})
    publisher: FailingPublisher = field(init=False)
    relmap: LogicalRepRelMap = field(default_factory=LogicalRepRelMap)
    now: float = 0.0
    watch: TextWatch = field(init=False)
    found: list[ChangedText] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.publisher = FailingPublisher(self.types)
        for name, relid in (("a", 1), ("b", 2)):
            self.update(name, remote_relid=relid)
        self.start()

    def start(self) -> None:
        """The next worker."""
        self.watch = TextWatch(self.world.store, self.publisher, lambda: self.now)

    def update(self, name: str, **columns: object) -> None:
        self.world.store.update_rel(self.world.sub.oid, self.world.rel(name).srrelid, **columns)

    def turn(self, later: float = TEXT_COMPARISON_SECONDS) -> None:
        """A turn of the loop after a time."""
        self.now += later
        rels = self.world.store.rels(self.world.sub.oid)
        self.found = self.watch.turn(self.world.sub, rels, self.relmap)
        for each in self.found:
            warn_of_text(self.world.sub, each.rel, each.row)
            self.watch.keep(each)

    def batch(self) -> None:
        """A batch is in hand, at the same moment."""
        rels = self.world.store.rels(self.world.sub.oid)
        self.found = self.watch.before_batch(self.world.sub, rels, self.relmap)
        for each in self.found:
            warn_of_text(self.world.sub, each.rel, each.row)
            self.watch.keep(each)

    def announce_stage(self) -> None:
        """Table a with a column of an enum."""
        announced = relation(1, "a", "id", "v")
        columns = (announced.columns[0], replace(announced.columns[1], typid=STAGE))
        self.relmap.update(replace(announced, columns=columns))

    def follow(self, table: str = "b", /, **numbers: int) -> None:
        """The lake table has these columns, of int4, by now."""
        rel = self.world.rel(table)
        columns = tuple(RememberedColumn(n, name, 23, -1, 23, n) for name, n in numbers.items())
        text = RememberedColumns(rel.epoch or "", 2, 3, {2: 5}, columns, {}).as_text()
        self.world.store.put_columns(rel.srsubid, rel.srrelid, rel.epoch or "", text)

    def changes(self) -> list[tuple[str, ...]]:
        return [row.changes for row in self.world.store.changed_text()]


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == logging.WARNING]
