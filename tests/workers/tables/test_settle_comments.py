"""Comments of a table that is there already come with the configuration, once."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from tests.workers.subscribed import Subscribed
from workers.changes.cannot_follow import CannotFollow
from workers.changes.column_comments import CLAMPED
from workers.lake.column_changes import AddColumn
from workers.proto.messages import Relation, RelationColumn
from workers.tables.settle_comments import settle_comments
from workers.tables.writer import LakeWriter

CLAMP = TableOptions(on_unrepresentable="clamp")
RELATION = Relation(
    7,
    "public",
    "a",
    "d",
    (
        RelationColumn(True, "id", 23, -1),
        RelationColumn(False, "v", 23, -1),
        RelationColumn(False, "due", 1082, -1),
    ),
)


@pytest.fixture
def writer(world: Subscribed) -> LakeWriter:
    world.worker()
    assert world.writer is not None
    return world.writer


def docs(writer: LakeWriter, rel: SubscriptionRel) -> dict[str, str]:
    return {each.name: each.doc for each in writer.open(rel).lake.columns}


def test_comments_are_made_and_stay_with_the_rows(world: Subscribed, writer: LakeWriter) -> None:
    rel = world.rel("a")
    added = [AddColumn("due", pa.date32()), AddColumn("own", pa.date32())]
    writer.change_columns(rel, added, lambda _columns: "kept")
    settle_comments(world.store, writer, rel, CLAMP, RELATION)
    assert {name for name, doc in docs(writer, rel).items() if doc == CLAMPED} == {"due"}
    settle_comments(world.store, writer, rel, TableOptions(), RELATION)
    assert docs(writer, rel)["due"] == CLAMPED
    assert writer.open(rel).lake.publisher_columns == "kept"


def test_a_key_has_none(world: Subscribed, writer: LakeWriter) -> None:
    rel = world.rel("a")
    writer.change_columns(rel, [AddColumn("due", pa.date32())], lambda _columns: "")
    keyed = replace(RELATION, columns=tuple(replace(c, key=True) for c in RELATION.columns))
    settle_comments(world.store, writer, rel, CLAMP, keyed)
    assert set(docs(writer, rel).values()) == {""}
    settle_comments(world.store, writer, rel, CLAMP, replace(keyed, replident="f"))
    assert docs(writer, rel)["due"] == CLAMPED
    with pytest.raises(CannotFollow):
        settle_comments(world.store, writer, rel, CLAMP, keyed)
