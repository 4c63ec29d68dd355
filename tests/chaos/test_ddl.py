"""The functions that change tables find something to change, and a difference is found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos import followed
from tests.chaos.ddl import ALTERED, KINDS, Alterations, create_altered
from tests.chaos.workload import Workload
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub
from tests.twin import column_names


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher) -> Iterator[Database]:
    made = new_database(publisher, "altered")
    made.run(*create_altered("s"), "CREATE PUBLICATION altered FOR TABLES IN SCHEMA s_ddl")
    yield made
    made.drop()


def shape(database: Database) -> list[tuple[Any, ...]]:
    return database.execute(
        "SELECT relname, relfilenode, attname, atttypid, attnum FROM pg_class"
        " JOIN pg_attribute ON attrelid = pg_class.oid"
        " WHERE relnamespace = 's_ddl'::regnamespace AND attnum > 0 ORDER BY 1, 5"
    )


@pytest.mark.parametrize("table", ALTERED)
def test_each_kind_changes_a_table(database: Database, table: str) -> None:
    for n, kind in enumerate(sorted(set(KINDS)) * 6, 1):
        before = shape(database)
        touches = [f"SELECT s_ddl.touch('{table}', {n}, {6 * n + m})" for m in range(6)]
        database.run(f"SELECT s_ddl.alter('{table}', '{kind}', {n})", *touches)
        assert (shape(database) == before) == (kind == "there and back"), kind


def test_a_seed_changes_tables_and_rows_and_undoes_some() -> None:
    steps = Workload(1, "s", alterations=Alterations(1, "s")).steps()
    said = [step.sql for step in itertools.islice(steps, 3000)]
    assert sum(".alter(" in each for each in said) > 100
    assert sum(".touch(" in each for each in said) > 300
    assert said.count("ROLLBACK TO SAVEPOINT ddl") > 3
    assert {kind for kind in KINDS for each in said if f"'{kind}'" in each} == set(KINDS)


def test_by_looking_a_seed_widens_or_computes() -> None:
    for seed in range(10):
        made = Alterations(seed, "s", captured=False)
        said = [each for _ in range(500) for each in made.body()]
        computes, widens = (
            any(f"'{kind}'" in each for each in said) for kind in ("compute", "widen")
        )
        assert computes != widens


def test_rows_are_the_same_without_changed_tables() -> None:
    """The draws of the others do not depend on how tables change."""
    plain, other = (Workload(1, "s", alterations=each) for each in (None, _Never()))
    steps = [list(itertools.islice(each.steps(), 500)) for each in (plain, other)]
    assert steps[0] == steps[1]


class _Never(Alterations):
    def __init__(self) -> None:
        super().__init__(1, "s")

    def is_next(self) -> bool:
        return False

    def rows(self) -> list[str]:
        return []


def test_a_difference_of_columns_or_rows_is_found(
    publisher: EmbeddedPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_PATIENCE", 0.1)
    database = new_database(publisher, "followed")
    database.run(
        "CREATE TABLE t (id int, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, NULL)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    assert column_names(database, "t") == ["id", "v"]
    right = pa.table({"id": [2, 1], "v": [None, "a"], "kept": [1, None]})

    def found(lake: pa.Table | None, *, drops: bool = False) -> tuple[int, int]:
        def arrow(_schema: str, _table: str) -> pa.Table:
            if lake is None:
                raise NoSuchTableError
            return lake

        ours = cast("Pgsub", SimpleNamespace(arrow=arrow, status=lambda _: []))
        rows, wrong = followed.await_equal(database, ours, "p", "public", drops=drops)
        return rows, len(wrong)

    try:
        assert found(right) == (2, 0)
        assert found(right, drops=True) == (2, 1)
        assert found(right.drop_columns("kept"), drops=True) == (2, 0)
        assert found(right.drop_columns("v")) == (2, 1)
        assert found(right.slice(1)) == (2, 1)
        assert found(right.set_column(1, "v", [["x", "a"]])) == (2, 1)
        assert found(None) == (2, 1)
    finally:
        database.drop()
