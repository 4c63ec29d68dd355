"""A table that is swapped in without a row change: noticed by the clock, told and stored once."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_subscription_rel import SubRelState
from config.monitor_limits import ALL_TABLES_SECONDS
from tests.workers.subscribed import Subscribed
from tests.workers.text_questions import TextPublisher
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.name_watch import NameWatch
from workers.apply.text_watch import TextWatch
from workers.changes.relation_map import RelName
from workers.proto.messages import Insert

A, B = ("public", "a"), ("public", "b")


@dataclass(slots=True)
class Named:
    """A worker over tables a (oid 1) and b (oid 2), and a publisher that swaps tables."""

    world: Subscribed
    oids: dict[RelName, int] = field(default_factory=lambda: {A: 1, B: 2})
    asked: list[set[RelName]] = field(default_factory=list)
    now: float = 0.0
    fails: bool = False
    applier: Applier = field(init=False)
    watch: CatalogWatch = field(init=False)

    def __post_init__(self) -> None:
        for (_, name), relid in self.oids.items():
            rel = self.world.rel(name)
            self.world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=relid)
        self.applier = self.world.worker()
        names = NameWatch(self.world.store, self.ask, lambda: self.now)
        types = TextWatch(self.world.store, TextPublisher(), lambda: 0.0)
        types._due = 1.0
        self.watch = CatalogWatch(names, types)

    def ask(self, names: Collection[RelName]) -> dict[RelName, int]:
        self.asked.append(set(names))
        if self.fails:
            raise ConnectionFailure("could not connect to the publisher")
        return {name: oid for name, oid in self.oids.items() if name in names}

    def turn(self, later: float = ALL_TABLES_SECONDS) -> None:
        self.now += later
        self.watch.turn(self.applier)


@pytest.fixture
def named(world: Subscribed) -> Named:
    return Named(world)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("opened", [True, False], ids=["changed before", "never changed"])
def test_a_table_that_is_swapped_in_is_told_without_a_row_change(
    named: Named, caplog: pytest.LogCaptureFixture, opened: bool
) -> None:
    world = named.world
    if opened:
        named.applier.apply_batch(batch([relation(1, "a", "id", "v"), Insert(1, row("1", "0"))]))
    else:
        world.put("a", (1, 0), ours=True)
    named.turn()
    assert (named.asked, warnings(caplog)) == ([{A, B}], [])
    named.oids[A] = 3
    named.turn(ALL_TABLES_SECONDS / 2)
    assert len(named.asked) == 1
    named.turn()
    (said,) = warnings(caplog)
    assert said.startswith("action=other_relation")
    assert 'table "public.a" is another one' in said
    assert (world.rel("a").other_relid, world.rel("a").copied) == (3, False)
    assert (world.rel("b").other_relid, world.rel("b").copied) == (None, True)
    named.turn()
    assert (named.asked[-1], len(warnings(caplog))) == ({B}, 1)
    with pytest.raises(ReplicationError) as caught:
        named.applier.apply_batch(
            batch([relation(3, "a", "id", "v"), Insert(3, row("1", "5"))], after=100)
        )
    assert (caught.value.code, world.rows("a")) == ("23505", [(1, 0)])


def test_what_a_command_changed_meanwhile_is_left_alone(named: Named) -> None:
    """A refresh has taken over the other table, or has the table copied again."""
    rel = named.world.rel("a")
    named.oids[A] = 3
    named.world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=3)
    named.turn()
    assert named.world.rel("a").other_relid is None


def test_a_name_that_no_table_has_is_left_alone(named: Named) -> None:
    del named.oids[A]
    named.turn()
    assert (named.asked, named.world.rel("a").other_relid) == ([{A, B}], None)


def test_tables_that_are_not_followed_are_not_asked_about(named: Named) -> None:
    (a, b) = (named.applier.rels[name] for name in (A, B))
    named.applier.rels[A] = replace(a, srsubstate=SubRelState.DATASYNC, srsublsn=None)
    for other in (replace(b, remote_relid=None), replace(b, suspend_time=1)):
        named.applier.rels[B] = other
        named.turn()
    assert named.asked == []


def test_a_publisher_that_does_not_answer_stops_nothing(
    named: Named, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    named.fails = True
    named.turn()
    assert "action=names_not_compared" in caplog.text
    named.fails = False
    named.oids[A] = 3
    named.turn()
    assert named.world.rel("a").other_relid == 3
