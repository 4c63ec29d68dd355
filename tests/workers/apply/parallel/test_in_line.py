"""Rows become files only under the columns that the lake table is in line with."""

from __future__ import annotations

import pytest

from tests.workers.apply.test_follow_schema import RENAMED, WIDER, A, Publisher, remember, worker
from tests.workers.subscribed import Subscribed
from workers.apply.parallel.in_line import is_in_line
from workers.proto.messages import Relation


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


def in_line(world: Subscribed, relation: Relation) -> bool:
    assert world.writer is not None
    return is_in_line(world.store, world.writer, world.sub, world.rel("a"), relation)


def test_the_message_has_the_columns_that_are_remembered(
    world: Subscribed, publisher: Publisher
) -> None:
    remember(world, publisher)
    for _ in range(2):
        assert [in_line(world, each) for each in (A, WIDER, RENAMED)] == [True, False, False]
        worker(world, publisher)
    assert publisher.asked == 0


@pytest.mark.parametrize(("excluded", "expected"), [((), True), (("ssn",), False)])
def test_nothing_is_remembered_yet(
    world: Subscribed, publisher: Publisher, excluded: tuple[str, ...], expected: bool
) -> None:
    world.declare("a", excluded=excluded)
    worker(world, publisher)
    assert [in_line(world, each) for each in (A, RENAMED)] == [expected, expected]
