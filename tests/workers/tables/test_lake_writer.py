"""The writer that a worker chooses when it opens a table, as ``status lake_tables`` shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import FeatureNotSupported
from catalog.lake_maintenance import LakeWriter
from catalog.pg_subscription import TableOptions
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.lake.writer_choice import BY_WISH, FILES, POSSIBLE, WriterChoice, choose
from workers.proto.messages import Insert
from workers.tables.lake_writer import choose_lake_writer


class Noting(MemoryDestination):
    """Notes what is asked for; ``refusal`` is why files cannot be had."""

    refusal: str | None = None

    def choose_writer(self, ident: LakeIdent, asked: str | None) -> WriterChoice:
        return choose(asked or "auto", self.refusal, ident)


def chosen(world: Subscribed, name: str) -> LakeWriter:
    relid = world.rel(name).srrelid
    return next(each for each in world.store.lake_writers(world.sub.oid) if each.relid == relid)


def noted(world: Subscribed, asked: str, writer: str, reason: str) -> LakeWriter:
    return LakeWriter(world.sub.oid, world.rel("a").srrelid, asked, writer, reason)


def test_a_table_that_is_opened_has_a_writer(world: Subscribed) -> None:
    worker = world.worker(Noting(world.lake))
    assert world.store.lake_writers(world.sub.oid) == []
    worker.apply_batch(batch([relation(1, "a", "id", "v"), Insert(1, row("1", "1"))]))
    assert chosen(world, "a") == noted(world, "auto", "files", POSSIBLE)


def test_a_worker_stops_where_the_writer_cannot_be_had(world: Subscribed) -> None:
    options = {"public.a": TableOptions(writer="files")}
    world.store.update_subscription(world.sub.oid, tables=options)
    world.sub = replace(world.sub, tables=options)
    dest = Noting(world.lake)
    dest.refusal = "It is elsewhere."
    with pytest.raises(FeatureNotSupported, match='cannot have the writer "files"') as error:
        world.worker(dest).apply_batch(
            batch([relation(1, "a", "id", "v"), Insert(1, row("1", "1"))])
        )
    assert error.value.detail == "It is elsewhere."
    assert world.rows("a") == []
    dest.refusal = None
    world.worker(dest).apply_batch(batch([relation(1, "a", "id", "v"), Insert(1, row("1", "1"))]))
    assert chosen(world, "a") == noted(world, "files", "files", BY_WISH)


def test_columns_that_the_lake_computes_are_spark_s(world: Subscribed) -> None:
    dest, rel = Noting(world.lake), world.rel("a")
    computed = TableOptions(generated=(("double", "2 * id"),))
    choose_lake_writer(dest, world.store, rel, computed)
    reason = 'Spark computes column "double" (generated).'
    assert chosen(world, "a") == noted(world, "auto", "spark", reason)
    with pytest.raises(FeatureNotSupported) as error:
        choose_lake_writer(dest, world.store, rel, replace(computed, writer=FILES))
    assert error.value.detail == reason
    choose_lake_writer(dest, world.store, rel, replace(computed, writer="spark"))
    assert chosen(world, "a") == noted(world, "spark", "spark", BY_WISH)
