"""CREATE says that a large table will be copied, before the probe; and says nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subscriber.commands.create_drop import create_subscription
from subscriber.commands.schema import probe_lake
from tests.subscriber.twins import Around, PublishedTable, around, statement

LARGE = 65 * 2**20


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    made = around(tmp_path)
    made.publisher.tables = {"a": PublishedTable(), "b": PublishedTable()}
    yield made
    made.store.close()


def steps(
    world: Around, monkeypatch: pytest.MonkeyPatch, sizes: list[int], **options: Any
) -> list[object]:
    """What CREATE asks the lake for: the answer to "is a table large?", and the probe."""
    found: list[object] = []
    monkeypatch.setattr(probe_lake, "fetch_largest", lambda _conn, _relids: max(sizes))

    def expect(is_large: Callable[[], bool]) -> None:
        found.append(is_large())

    def probe() -> None:
        found.append("probe")

    world.context = replace(world.context, expect_copy=expect, probe_lake=probe)
    create_subscription(statement(with_=options), world.context)
    return found


@pytest.mark.parametrize(("size", "large"), [(0, False), (LARGE, True)])
def test_a_large_table_is_expected_before_the_probe(
    world: Around, monkeypatch: pytest.MonkeyPatch, size: int, large: bool
) -> None:
    assert steps(world, monkeypatch, [0, size]) == [large, "probe"]


@pytest.mark.parametrize("options", [{"copy_data": False}, {"enabled": False}])
def test_nothing_is_expected_that_is_not_copied_now(
    world: Around, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    assert steps(world, monkeypatch, [LARGE, LARGE], **options) == ["probe"]
