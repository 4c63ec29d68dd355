"""A sync worker writes no row of columns that its copy does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.workers.apply.test_follow_schema import RENAMED, A, Publisher, remember, rows
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.proto.messages import Insert, Relation
from workers.sync.copied_columns import CopiedColumns, CopyOutdated

RETYPED = replace(A, columns=(A.columns[0], replace(A.columns[1], typid=20)))
SWAPPED = relation(1, "a", "v", "id")


def catching_up(world: Subscribed) -> Applier:
    """A sync worker's applier whose copy had the columns of ``A``."""
    remember(world, Publisher())
    applier = world.worker()
    assert world.writer is not None
    applier.own_relid, applier.publishes_each_batch = world.rel("a").srrelid, True
    applier.schema = CopiedColumns(world.store, world.writer)
    return applier


@pytest.mark.parametrize("changed", [RETYPED, SWAPPED, RENAMED])
def test_a_message_with_other_columns_writes_nothing(world: Subscribed, changed: Relation) -> None:
    applier = catching_up(world)
    applier.apply_batch(batch([A, Insert(1, row("2", "20"))], after=100))
    with pytest.raises(CopyOutdated) as caught:
        applier.apply_batch(batch([changed, Insert(1, row("3", "30"))], after=200))
    assert [rel.relname for rel in caught.value.tables] == ["a"]
    assert rows(world) == [{"id": 1, "v": 10}, {"id": 2, "v": 20}]
