"""A lake table is made, found, or adopted; and which columns a new one has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from tests.workers.subscribed import COLUMNS, EPOCH, Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.sources import source_of
from workers.lake.table import SHARED, SOURCE_COLUMN, LakeIdent, LakeTable, Stamp
from workers.publisher.fingerprint import PublishedActions
from workers.publisher.remote_table import ColumnType, RemoteColumn, RemoteTable
from workers.tables.new_table import lake_columns, new_columns, prepare_lake_table

INTEGER = ColumnType(23, -1, "pg_catalog", "int4", "b")
NUMERIC = ColumnType(1700, -1, "pg_catalog", "numeric", "b")
TEXT = ColumnType(25, -1, "pg_catalog", "text", "b")
NEW = LakeIdent("public", "new")


def remote(*columns: tuple[str, ColumnType]) -> RemoteTable:
    listed = tuple(
        RemoteColumn(number, name, False, False, kind)
        for number, (name, kind) in enumerate(columns, 1)
    )
    return RemoteTable(
        "public", "t", 1, "r", "d", listed, (), PublishedActions(True, True, True, True, False)
    )


T = remote(("id", INTEGER), ("v", INTEGER))


def subscribed(world: Subscribed, lake_table: str = "new") -> SubscriptionRel:
    """The row of a table that begins to be copied."""
    rel = world.rel("a")
    return replace(rel, lake_table=lake_table, floor=LSN(70), lake_lsn=InvalidXLogRecPtr)


def prepare(
    world: Subscribed,
    rel: SubscriptionRel,
    remote: RemoteTable,
    options: TableOptions,
    former_owners: Sequence[str] = (),
) -> LakeTable:
    """What a copy does: it reads the lake table first."""
    dest = MemoryDestination(world.lake)
    found = dest.table(LakeIdent(rel.lake_schema, rel.lake_table))
    return prepare_lake_table(world.sub, rel, remote, options, dest, found, former_owners)


def test_a_table_that_is_not_there_is_made_with_the_present_copy_at_no_position(
    world: Subscribed,
) -> None:
    rel = subscribed(world)
    made = prepare(world, rel, T, TableOptions())
    assert made.owner == "u"
    assert made.columns == lake_columns(T, TableOptions(), NEW)
    assert made.stamp == Stamp(origin_name(rel.srsubid), LSN(0), EPOCH, LSN(0))
    again = prepare(world, rel, T, TableOptions())
    assert again.snapshot_id == made.snapshot_id, "it is found"


def test_a_table_of_another_owner_is_refused_or_adopted(world: Subscribed) -> None:
    rel = subscribed(world)
    stamp = Stamp("pg_9", LSN(5), "other", LSN(0))
    MemoryDestination(world.lake).create_table(NEW, COLUMNS, owner="x", relid=9, stamp=stamp)
    with pytest.raises(ReplicationError, match="already exists") as caught:
        prepare(world, rel, T, TableOptions())
    assert caught.value.code == "42P07"
    adopting = TableOptions(adopt=True)
    adopted = prepare(world, rel, T, adopting, former_owners=("x",))
    assert adopted.owner == "u"
    assert adopted.stamp == Stamp(origin_name(rel.srsubid), LSN(0), EPOCH, LSN(0))


def test_a_table_that_lacks_a_published_column_is_refused(world: Subscribed) -> None:
    rel = subscribed(world, "a")
    wide = remote(("id", INTEGER), ("v", INTEGER), ("w", INTEGER))
    with pytest.raises(ReplicationError, match='missing replicated column: "w"'):
        prepare(world, rel, wide, TableOptions())


@pytest.mark.parametrize("added", ["tags.element", "_file"])
def test_a_column_that_joined_since_has_a_name_that_a_new_table_cannot_have(
    world: Subscribed, added: str
) -> None:
    """A copy into a lake table that was dropped: Iceberg would fail with XX000, in a loop."""
    texts = ColumnType(1009, -1, "pg_catalog", "_text", "b", TEXT)
    rel = subscribed(world)
    since = remote(("id", INTEGER), ("tags", texts), (added, TEXT))
    with pytest.raises(ReplicationError, match=f'"{added}" of table "public.a"') as caught:
        prepare(world, rel, since, TableOptions())
    assert caught.value.code == "42939"
    assert f'Map column "{added}" to another name' in (caught.value.hint or "")
    assert NEW not in world.lake.tables
    renamed = TableOptions(columns=((added, "other"),))
    prepare(world, rel, since, renamed)
    as_text = TableOptions(on_unrepresentable="text")
    scalar = remote(("id", INTEGER), ("tags", TEXT), ("tags.element", TEXT))
    other = subscribed(world, "other")
    prepare(world, other, scalar, as_text)


def test_a_list_is_refused_for_arrays_without_commas(world: Subscribed) -> None:
    """They cannot be told from arrays with commas: {1,2:3,4} would be a list of three."""
    shape = ColumnType(20000, -1, "public", "shape", "b", delimiter=":")
    shapes = ColumnType(20001, -1, "public", "_shape", "b", shape)
    texts = ColumnType(1009, -1, "pg_catalog", "_text", "b", INTEGER)
    rel = subscribed(world)
    with_list, with_shapes = remote(("v", texts)), remote(("v", shapes))
    prepare(world, rel, with_list, TableOptions())
    with pytest.raises(ReplicationError, match='column "v" of lake table') as caught:
        prepare(world, rel, with_shapes, TableOptions())
    assert caught.value.code == "0A000"
    assert '":"' in (caught.value.detail or "")
    other = subscribed(world, "other")
    made = prepare(world, other, with_shapes, TableOptions())
    assert made.columns[0].type == pa.string()
    prepare(world, other, with_shapes, TableOptions())


def test_a_shared_table_has_the_source_column_and_no_owner_of_its_own(world: Subscribed) -> None:
    world.declare("a", shared=True)
    rel = subscribed(world)
    options = world.sub.tables["public.a"]
    made = prepare(world, rel, T, options)
    assert made.owner == SHARED
    assert [column.name for column in made.columns] == ["id", "v", SOURCE_COLUMN]
    assert made.position(source_of(world.sub, rel)) is None, "a copy or a join gives it one"
    taken = remote(("id", INTEGER), (SOURCE_COLUMN, INTEGER))
    with pytest.raises(ReplicationError, match="is in the way"):
        prepare(world, rel, taken, options)


def test_types_without_exact_values_in_the_lake_may_be_text() -> None:
    numbers = remote(("id", INTEGER), ("n", NUMERIC))
    made = lake_columns(numbers, TableOptions(on_unrepresentable="text"), NEW)
    assert [column.type for column in made] == [pa.int32(), pa.string()]


def test_a_generated_column_comes_before_the_source(world: Subscribed) -> None:
    dest = MemoryDestination(world.lake)
    options = TableOptions(shared=True, generated=(("w", "id + 1"),))
    names = [column.name for column in new_columns(T, options, NEW, dest)]
    assert names == ["id", "v", "w", SOURCE_COLUMN]


def test_columns_have_the_names_of_the_mapping(world: Subscribed) -> None:
    rel = subscribed(world)
    options = TableOptions(columns=(("id", "key"),), generated=(("w", "key + 1"),))
    made = prepare(world, rel, T, options)
    assert [column.name for column in made.columns] == ["key", "v", "w"]
    again = prepare(world, rel, T, options)
    assert again.columns == made.columns, "a mapped column is found"
