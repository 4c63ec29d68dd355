"""Names and values of the publisher in the lake's statements: as what they are, never as SQL."""

from __future__ import annotations

import ast
import sys
import uuid
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fix_lake import Lake
from tests.security.lexers import PIECES, SPARK, hostile, same_but_for_names, tokens
from tests.security.spark_builders import BUILDERS, Names
from workers.lake.connect.session import LakeSession
from workers.lake.sql import merge
from workers.lake.sql.merge import KeyBounds, merge_by_key
from workers.lake.sql.statements import identifier, name_of, sql_text, text
from workers.lake.table import LakeIdent

LAKE = Path(merge.__file__).parents[1]
BUILDING = frozenset({"sql_text", "call", "name_of"})
"""What ``workers.lake.sql.statements`` has for who puts a statement together."""

FIVE = st.lists(hostile(), min_size=5, max_size=5, unique=True)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=FIVE)
@example(names=["\\", "'", "`", "\\'; DROP TABLE x; --", "${env:PATH}"])
def test_a_statement_is_the_same_whatever_the_names(names: Names) -> None:
    for build in BUILDERS.values():
        same_but_for_names(build, names, SPARK)


def builders() -> set[tuple[str, str]]:
    """File and name of every function that puts a statement for the lake together."""
    found: set[tuple[str, str]] = set()
    for path in LAKE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        known = BUILDING if path.name == "statements.py" else imported(tree) & BUILDING
        found |= {
            (str(path), function.name)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            and any(builds(node, known) for node in ast.walk(function))
        }
    return found


def imported(tree: ast.Module) -> set[str]:
    froms = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    ours = [node for node in froms if node.module == "workers.lake.sql.statements"]
    return {name.name for node in ours for name in node.names}


def builds(node: ast.AST, known: Collection[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in known
    by_sqlglot = isinstance(node.func, ast.Attribute) and node.func.attr == "sql"
    return by_sqlglot and any(keyword.arg == "dialect" for keyword in node.keywords)


def test_every_statement_is_among_them() -> None:
    reached: set[tuple[str, str]] = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, *_: reached.add((frame.f_code.co_filename, frame.f_code.co_name)))
    try:
        for build in BUILDERS.values():
            build([f"n{number}" for number in range(5)])
    finally:
        sys.setprofile(before)
    expected = builders()
    assert len(expected) > 30
    assert sorted(expected - reached) == []


MOMENTS = st.one_of(
    st.dates(),
    st.datetimes(),
    st.datetimes(
        min_value=datetime(2, 1, 1),
        max_value=datetime(9998, 1, 1),
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))]),
    ),
)


@settings(max_examples=60, deadline=None)
@given(low=st.one_of(MOMENTS, st.integers(-(2**63), 2**63)), column=hostile())
@example(low=date(1, 1, 1), column="c")
def test_a_key_s_bound_is_one_literal(low: int | date, column: str) -> None:
    sql = merge_by_key(
        LakeIdent("s", "t"), None, columns=[column], key=[column], bounds=KeyBounds(column, low, 1)
    )
    found = tokens(sql, SPARK)
    start = found.index(("word", "BETWEEN")) + 1
    said = found[start : found.index(("word", "AND"), start)]
    if isinstance(low, int):
        assert "".join(word for _, word in said) == str(low)
    else:
        assert [kind for kind, _ in said] == ["word", "literal"]
        assert type(low).fromisoformat(said[1][1]) == low


@pytest.fixture(scope="module")
def session(lake_server: Lake) -> Iterator[LakeSession]:
    made = LakeSession(lake_server.url, "security", str(uuid.uuid4()))
    yield made
    made.close()


WORDS = [*PIECES, "".join(PIECES), "${spark:spark.app.name}", "${user.name}", "${system:user.name}"]


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(made=st.lists(hostile(200), min_size=50, max_size=50, unique=True))
@example(made=WORDS)
def test_spark_reads_what_was_meant(session: LakeSession, made: list[str]) -> None:
    """All of them in one statement, as a value and as its column's name."""
    items = [f"{name_of(text(word))} AS {name_of(identifier(word))}" for word in made]
    row = session.query(f"SELECT {', '.join(items)}", "quoting")
    assert row.column_names == made
    assert [column[0].as_py() for column in row.columns] == made


def test_a_name_does_not_read_the_server_s_environment(session: LakeSession) -> None:
    """``${env:…}`` is Spark's own way to put a variable into a statement."""
    name = "${env:SPARK_CONNECT_AUTHENTICATE_TOKEN}"
    read = session.query(sql_text("SELECT", text(name), "AS", identifier(name)), "quoting")
    assert read.to_pylist() == [{name: name}]
