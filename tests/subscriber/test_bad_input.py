"""Bad input by each way it can be asked: PostgreSQL's error, and nothing has changed afterwards."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from tests.subscriber.bad_input import (
    BEFORE,
    CANNOT,
    CODES,
    ERRORS,
    NOTHING_LIKE_IT,
    WARNINGS,
    WAYS,
    Ask,
)
from tests.subscriber.test_execute import prepared
from tests.subscriber.twins import Around


@pytest.mark.parametrize(
    ("sqlstate", "said", "ask"),
    [
        pytest.param(sqlstate, said, ask, id=f"{code} {number} {way}")
        for number, (code, sqlstate, said, ways) in enumerate(ERRORS)
        for way, ask in ways.items()
    ],
)
def test_refused(world: Around, sqlstate: str, said: str, ask: Ask) -> None:
    prepared(world)
    if said in BEFORE:
        BEFORE[said](world)
    before = world.store.subscriptions()
    with pytest.raises(ReplicationError) as caught:
        ask(world)
    assert (caught.value.code, said in caught.value.primary) == (sqlstate, True), caught.value
    assert "Traceback" not in caught.value.report()
    assert world.store.subscriptions() == before
    assert (world.publisher.slots, world.lake.tables) == ({}, {})
    assert not list(world.site.data_dir.rglob("passfile/*"))


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(ask, id=f"{code} {way}")
        for code, ways in WARNINGS.items()
        for way, ask in ways.items()
    ],
)
def test_taken_with_a_warning_or_without(world: Around, ask: Ask) -> None:
    before = len(prepared(world).store.subscriptions())
    ask(world)
    assert len(world.store.subscriptions()) != before


def test_every_code_by_every_way_or_why_not() -> None:
    asked = {(code, way) for code, _, _, ways in ERRORS for way in ways}
    asked |= {(code, way) for code, ways in WARNINGS.items() for way in ways}
    every = {(code, way) for code in CODES for way in WAYS}
    nothing = {(code, way) for code in NOTHING_LIKE_IT for way in WAYS}
    assert not asked & nothing
    # A-1 has a second error, which a file can meet.
    assert asked | nothing | set(CANNOT) == every
    assert asked & set(CANNOT) == {("A-1", "file")}
