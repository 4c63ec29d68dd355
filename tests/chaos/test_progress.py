"""Who goes on is waited for, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos import progress
from tests.chaos.progress import await_confirmed
from tests.fix_publisher import Database, new_database


@pytest.fixture
def database(publisher: EmbeddedPublisher) -> Iterator[Database]:
    made = new_database(publisher, "progress")
    made.run("CREATE TABLE t (id int)")
    made.run(f"SELECT pg_create_logical_replication_slot('{made.name}', 'pgoutput')")
    yield made
    made.drop()


FAMILY = cast("Any", SimpleNamespace(log_tail=lambda: "the log"))


@pytest.mark.parametrize(("needed", "waited"), [(1, 1), (3, 3), (4, 4), (9, 4)])
def test_a_subscription_that_goes_on_is_waited_for(
    database: Database, monkeypatch: pytest.MonkeyPatch, needed: int, waited: int
) -> None:
    rounds = 0

    def advances(*_args: Any, lsn: str, timeout: float) -> None:
        nonlocal rounds
        rounds += 1
        assert timeout == 7.0
        database.run(
            "INSERT INTO t VALUES (1)",
            f"SELECT pg_replication_slot_advance('{database.name}', pg_current_wal_lsn())",
        )
        targets.add(lsn)
        assert rounds >= needed, "not yet"

    targets: set[str] = set()
    monkeypatch.setattr(progress, "wait_confirmed", advances)
    if waited == needed:
        await_confirmed(FAMILY, database, database.name, 7.0)
    else:
        with pytest.raises(AssertionError, match="not yet"):
            await_confirmed(FAMILY, database, database.name, 7.0)
    assert rounds == waited
    assert len(targets) == 1, "what is committed meanwhile does not count"


def test_one_that_stands_still_is_not_waited_for_twice(database: Database) -> None:
    database.run("INSERT INTO t VALUES (1)")
    with pytest.raises(AssertionError, match="the log"):
        await_confirmed(FAMILY, database, database.name, 0.0)
