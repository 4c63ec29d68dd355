"""Which lake table a published table goes to, and the reasons against."""

from __future__ import annotations

import pytest

from catalog.errcodes import (
    DuplicateTable,
    FeatureNotSupported,
    InvalidName,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from subscriber.commands.create_drop import create_subscription, drop_subscription
from tests.subscriber.twins import (
    POINT,
    Around,
    PublishedTable,
    nothing_is_left,
    statement,
)
from workers.lake.table import LakeIdent


def test_warnings_about_tables(world: Around) -> None:
    world.publisher.tables = {"a": PublishedTable(key=0), "b": PublishedTable(letters="tfff")}
    create_subscription(statement(tables={"public.nosuch": {}}), world.context)
    assert world.said()[:2] == [
        'WARNING: table "public.nosuch" of the configuration is not published',
        'WARNING: table "public.a" has no replica identity and publishes updates or deletes',
    ]


def test_a_table_that_publishes_a_part_of_its_identity(world: Around) -> None:
    world.publisher.tables = {
        "a": PublishedTable(columns=("id",), key=2),
        "b": PublishedTable(columns=("id",), key=2, letters="tfft"),
    }
    create_subscription(statement(), world.context)
    assert [said for said in world.said() if "replica identity" in said] == [
        'WARNING: table "public.a" publishes updates or deletes but only part of its '
        "replica identity"
    ]


@pytest.mark.parametrize(
    ("tables", "error", "sqlstate"),
    [
        ({"a": PublishedTable(columns=("id", "_file"))}, InvalidName, "42939"),
        ({"a": PublishedTable(columns=())}, FeatureNotSupported, "0A000"),
        ({"a": PublishedTable(relkind="S")}, ReplicationError, "42809"),
    ],
)
def test_tables_that_cannot_be_written(
    world: Around, tables: dict[str, PublishedTable], error: type[Exception], sqlstate: str
) -> None:
    world.publisher.tables = tables
    with pytest.raises(error) as caught:
        create_subscription(statement(), world.context)
    assert getattr(caught.value, "code", None) == sqlstate
    nothing_is_left(world)


def test_a_column_called_as_the_elements_of_an_array_column(world: Around) -> None:
    """Iceberg: multiple fields for name tags.element."""
    columns = ("id", "tags", "tags.element")
    world.publisher.tables = {"a": PublishedTable(columns=columns, arrays=("tags",))}
    with pytest.raises(InvalidName) as caught:
        create_subscription(statement(), world.context)
    assert caught.value.code == "42939"
    assert caught.value.primary == (
        'column names "tags" and "tags.element" of table "public.a" exclude each other in the lake'
    )
    hint = caught.value.hint or ""
    assert 'columns: {"tags.element": {"to": "tags_element"}} of table "public.a"' in hint
    nothing_is_left(world)
    renamed = {"public.a": {"columns": {"tags.element": {"to": "tags_element"}}}}
    named = create_subscription(
        statement("named", tables=renamed, with_={"copy_data": False}), world.context
    )
    made = world.lake.tables[LakeIdent("public", "a")]
    assert [column.name for column in made.columns] == ["id", "tags", "tags_element"]
    drop_subscription(named.subname, world.context)
    del world.lake.tables[LakeIdent("public", "a")]
    as_text = {"public.a": {"on_unrepresentable": "text"}}
    create_subscription(statement(tables=as_text), world.context)
    world.publisher.tables = {"b": PublishedTable(columns=columns)}
    create_subscription(statement("two"), world.context)


def test_partitions_by_a_column_that_is_not_there_or_by_a_number(world: Around) -> None:
    """Found before anything is made, on the publisher or in the lake."""
    world.publisher.tables = {"a": PublishedTable(columns=("id", "v"))}
    for word, sqlstate in (("days(gone)", "42703"), ("days(id)", "42804")):
        with pytest.raises(ReplicationError) as caught:
            create_subscription(
                statement(tables={"public.a": {"partition_by": [word]}}), world.context
            )
        assert caught.value.code == sqlstate
        nothing_is_left(world)
    sorted_by = {"public.a": {"partition_by": ["bucket(4, id)"], "sort_by": ["v DESC"]}}
    create_subscription(statement(tables=sorted_by), world.context)


def test_names_that_differ_only_by_case_are_a_warning(world: Around) -> None:
    world.publisher.tables = {
        "a": PublishedTable(columns=("id", "Name", "NAME", "other")),
        "A": PublishedTable(),
        "b": PublishedTable(),
    }
    create_subscription(statement(), world.context)
    assert [said for said in world.said() if "by case" in said] == [
        'WARNING: columns "NAME", "Name" of table "public.a" differ only by case',
        'WARNING: lake tables "public.A", "public.a" differ only by case',
    ]
    columns, lake_tables = [n for n in world.notices if "by case" in n.primary]
    assert "Trino, Hive and Athena" in (columns.detail or "")
    assert 'columns: {"NAME": {"to": "name_2"}}' in (columns.hint or "")
    assert "to:" in (lake_tables.hint or "")


def test_a_mapping_gives_names_that_every_reader_can_have(world: Around) -> None:
    world.publisher.tables = {
        "a": PublishedTable(columns=("id", "ID", "_pos")),
        "A": PublishedTable(),
    }
    tables = {
        "public.a": {"columns": {"ID": {"to": "id_2"}, "_pos": {"to": "pos"}}},
        "public.A": {"to": "public.a_2"},
    }
    create_subscription(statement(tables=tables, with_={"copy_data": False}), world.context)
    assert not [said for said in world.said() if "WARNING" in said]
    made = world.lake.tables[LakeIdent("public", "a")]
    assert [column.name for column in made.columns] == ["id", "id_2", "pos"]


@pytest.mark.parametrize(
    ("to", "sqlstate", "said"),
    [
        ("v", "42701", 'published columns "id", "v" are mapped to one column'),
        ("_pos", "42939", 'column name "_pos" of table "public.a" is reserved'),
    ],
)
def test_a_mapping_to_a_name_that_is_not_free(
    world: Around, to: str, sqlstate: str, said: str
) -> None:
    tables = {"public.a": {"columns": {"id": {"to": to}}}}
    with pytest.raises(ReplicationError, match=said) as caught:
        create_subscription(statement(tables=tables), world.context)
    assert caught.value.code == sqlstate
    nothing_is_left(world)


def test_s_001_8_a_table_without_columns_is_refused(world: Around) -> None:
    """H-31: no COPY without columns is ever asked for."""
    world.publisher.tables["empty"] = PublishedTable(columns=())
    with pytest.raises(FeatureNotSupported, match=r'"public\.empty" has no published'):
        create_subscription(statement(), world.context)
    nothing_is_left(world)


def test_all_findings_are_told(world: Around) -> None:
    world.publisher.tables = {
        "a": PublishedTable(columns=("_pos", "_file")),
        "b": PublishedTable(columns=()),
    }
    with pytest.raises(InvalidName, match='"_pos"') as caught:
        create_subscription(statement(), world.context)
    assert '"_file"' in (caught.value.detail or "")
    assert '"public.b" has no published columns' in (caught.value.detail or "")


def test_two_tables_into_one(world: Around) -> None:
    world.publisher.tables["b"] = PublishedTable()
    with pytest.raises(DuplicateTable, match="both mapped to lake table"):
        create_subscription(statement(tables={"public.a": {"to": "public.b"}}), world.context)
    nothing_is_left(world)
    both = {name: {"to": "x.y", "shared": True} for name in ("public.a", "public.b")}
    sub = create_subscription(statement(tables=both), world.context)
    assert len({rel.srrelid for rel in world.store.rels(sub.oid)}) == 2


def test_two_subscriptions_into_one(world: Around) -> None:
    create_subscription(statement(), world.context)
    with pytest.raises(ObjectInUse, match='belongs to subscription "mysub"'):
        create_subscription(statement("two"), world.context)
    assert list(world.publisher.slots) == ["mysub"]
    sharing = {"public.a": {"shared": True}}
    with pytest.raises(ObjectInUse, match='belongs to subscription "mysub"'):
        create_subscription(statement("two", tables=sharing), world.context)


def test_two_subscriptions_share_a_lake_table(world: Around) -> None:
    sharing = {"public.a": {"shared": True, "generated": {"whose": "upper(_pgsub_source)"}}}
    no_copy = {"copy_data": False}
    one = create_subscription(statement("one", tables=sharing, with_=no_copy), world.context)
    create_subscription(statement("two", tables=sharing, with_=no_copy), world.context)
    found = world.lake.tables[LakeIdent("public", "a")]
    assert found.owner == "shared"
    assert [column.name for column in found.columns] == ["id", "v", "whose", "_pgsub_source"]
    assert len(found.sources) == 2
    position = found.position(f"{one.subuuid}:public.a")
    assert position is not None
    assert position.lsn == position.floor == POINT
    (rel,) = world.store.rels(one.oid)
    assert position.epoch == rel.epoch
    with pytest.raises(ObjectInUse, match="belongs to subscription") as caught:
        create_subscription(statement("three"), world.context)
    assert "shared: true" in (caught.value.hint or "")


def test_a_shared_lake_table_that_exists(world: Around) -> None:
    columns = ("id", "v", "_pgsub_source")
    world.lake.add("a", columns, owner="shared")
    for adopt in (False, True):
        with pytest.raises(ObjectInUse, match="is shared"):
            create_subscription(statement(tables={"public.a": {"adopt": adopt}}), world.context)
    create_subscription(statement("one", tables={"public.a": {"shared": True}}), world.context)
    world.lake.add("a", columns, owner="somebody")
    world.store.delete_subscription(world.store.subscriptions()[0].oid)
    with pytest.raises(DuplicateTable):
        create_subscription(statement("two", tables={"public.a": {"shared": True}}), world.context)
    both = {"public.a": {"shared": True, "adopt": True}}
    with pytest.raises(ObjectInUse, match="written by another subscription"):
        create_subscription(statement("two", tables=both), world.context)
    world.lake.add("a", ("id", "v"))
    with pytest.raises(ObjectNotInPrerequisiteState, match=r'missing .*"_pgsub_source"'):
        create_subscription(statement("two", tables=both), world.context)


def test_a_column_of_the_publisher_in_the_way(world: Around) -> None:
    world.publisher.tables["a"] = PublishedTable(columns=("id", "_pgsub_source"))
    with pytest.raises(ReplicationError, match="in the way") as caught:
        create_subscription(statement(tables={"public.a": {"shared": True}}), world.context)
    assert caught.value.code == "42701"
    create_subscription(statement(), world.context)
    world.publisher.tables["a"] = PublishedTable(columns=("id", "v"))
    generating = {"public.a": {"shared": True, "generated": {"_pgsub_source": "v"}}}
    with pytest.raises(ReplicationError, match="in the way"):
        create_subscription(statement("two", tables=generating), world.context)


def test_lake_table_exists(world: Around) -> None:
    world.lake.add("a")
    with pytest.raises(DuplicateTable, match=r'lake table "public\.a" already exists'):
        create_subscription(statement(), world.context)
    adopt = {"public.a": {"adopt": True}}
    create_subscription(statement(tables=adopt, with_={"copy_data": False}), world.context)
    assert world.lake.tables[LakeIdent("public", "a")].snapshot_id == 2


def test_adopted_table_lacks_columns(world: Around) -> None:
    world.lake.add("a", columns=("id",))
    with pytest.raises(ObjectNotInPrerequisiteState, match='"v"'):
        create_subscription(statement(tables={"public.a": {"adopt": True}}), world.context)


def test_adopting_what_somebody_else_writes(world: Around) -> None:
    world.lake.add("a", owner="somebody else")
    adopt = {"public.a": {"adopt": True}}
    with pytest.raises(ObjectInUse, match="written by another subscription"):
        create_subscription(statement(tables=adopt), world.context)
