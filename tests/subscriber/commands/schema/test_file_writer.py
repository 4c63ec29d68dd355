"""``writer: files`` where a worker cannot write files is an error of CREATE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import FeatureNotSupported
from subscriber.commands.create_drop import create_subscription, drop_subscription
from tests.subscriber.twins import Around, PublishedTable, around, nothing_is_left, statement

ELSEWHERE = "It lies elsewhere."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    made = around(tmp_path)
    made.publisher.tables = {"a": PublishedTable()}
    yield made
    made.store.close()


def refused(world: Around, **table: Any) -> str:
    """The DETAIL with which CREATE refuses table a; empty if CREATE does not."""
    given = statement(tables={"public.a": table})
    found = None
    try:
        create_subscription(given, world.context)
    except FeatureNotSupported as error:
        found = error
    if found is None:
        drop_subscription("mysub", world.context)
        return ""
    nothing_is_left(world)
    assert found.primary == 'lake table "public.a" cannot have the writer "files"'
    return found.detail or ""


def test_a_new_table_is_judged_by_the_scratch_table_of_the_probe(world: Around) -> None:
    assert refused(world, writer="files") == ""
    world.context = replace(world.context, probe_lake=lambda: ELSEWHERE)
    assert refused(world, writer="files") == ELSEWHERE
    assert refused(world, writer="auto") == ""
    assert refused(world) == ""
    world.context = replace(world.context, lake_writer="files")
    assert refused(world) == ELSEWHERE
    assert refused(world, writer="spark") == ""


def test_a_new_table_is_judged_by_its_own_words_too(world: Around) -> None:
    found = refused(world, writer="files", properties={"write.format.default": "orc"})
    assert found == "Only Spark writes a table with the property write.format.default."
    found = refused(world, writer="files", generated={"double": "2 * id"})
    assert found == 'Spark computes column "double" (generated).'


def test_an_existing_table_is_judged_by_its_metadata(world: Around) -> None:
    world.lake.add("a", owner=None)
    world.context = replace(world.context, probe_lake=lambda: ELSEWHERE)
    given = statement(tables={"public.a": {"writer": "files", "adopt": True}})
    create_subscription(given, world.context)
    drop_subscription("mysub", world.context)
    world.lake.only_spark = ELSEWHERE
    with pytest.raises(FeatureNotSupported) as error:
        create_subscription(given, world.context)
    assert error.value.detail == ELSEWHERE
