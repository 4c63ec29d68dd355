"""Names and values of the publisher in the lake's statements: as what they are, never as SQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fix_lake import Lake
from tests.security.lexers import PIECES, SPARK, hostile, same_but_for_names, tokens
from workers.lake.destination import LakeColumn, LakeIdent
from workers.lake.merge import (
    Bound,
    KeyBounds,
    count_repeated,
    find_any_key,
    find_keys,
    find_positions,
    find_ranges,
    merge_by_key,
    merge_by_position,
)
from workers.lake.session import LakeSession
from workers.lake.snapshots import read_history, read_outcomes, read_ref
from workers.lake.statements import (
    branch_path,
    call,
    create_branch,
    create_namespace,
    create_table,
    drop_branch,
    identifier,
    join,
    name_of,
    set_properties,
    table_path,
    text,
)

BRANCH = "pgsub_1_2"
Names = list[str]
Build = Callable[[Names], str]


class SaidError(Exception):
    """What a session was asked."""


class Listening:
    """In a session's place; the statement comes back as an error."""

    def query(self, sql: str, what: str) -> pa.Table:
        raise SaidError(sql)


def asked(read: Callable[[Any], object]) -> str:
    with pytest.raises(SaidError) as said:
        read(Listening())
    return str(said.value)


def ident(names: Names) -> LakeIdent:
    return LakeIdent(names[0], names[1])


def bounds(names: Names) -> KeyBounds:
    return KeyBounds(names[2], names[3], names[4])


BUILDERS: dict[str, Build] = {
    "merge by key": lambda n: merge_by_key(
        ident(n), BRANCH, columns=n[2:], key=n[2:4], unchanged=n[3:], bounds=bounds(n)
    ),
    "merge by position": lambda n: merge_by_position(
        ident(n), BRANCH, columns=n[2:], deletes=True, updates=True
    ),
    "find positions": lambda n: find_positions(ident(n), BRANCH, n[2:]),
    "find keys": lambda n: find_keys(ident(n), BRANCH, n[2:4], bounds(n)),
    "find any key": lambda n: find_any_key(ident(n), BRANCH, [("s", n[2:4]), ("s1", n[4:])], n[2]),
    "count repeated": lambda n: count_repeated(ident(n), BRANCH, n[2:4], n[2]),
    "find ranges": lambda n: find_ranges(ident(n), n[2]),
    "create namespace": lambda n: create_namespace(ident(n)),
    "create table": lambda n: create_table(
        ident(n),
        [LakeColumn(n[2], pa.int64()), LakeColumn(n[3], pa.list_(pa.string()), nullable=False)],
        properties={n[4]: n[3]},
        location=n[2],
    ),
    "set properties": lambda n: set_properties(ident(n), {n[2]: n[3]}),
    "create branch": lambda n: create_branch(ident(n), n[2]),
    "drop branch": lambda n: drop_branch(ident(n), n[2]),
    "procedure": lambda n: call("fast_forward", ident(n), branch=n[2], to=n[3]),
    "path": lambda n: name_of(branch_path(ident(n), BRANCH)),
    "property": lambda n: join("SHOW TBLPROPERTIES", table_path(ident(n)), "(", text(n[2]), ")"),
    "history": lambda n: asked(lambda session: read_history(session, ident(n))),
    "ref": lambda n: asked(lambda session: read_ref(session, ident(n), n[2])),
    "outcomes": lambda n: asked(lambda session: read_outcomes(session, ident(n), n[2:])),
}

FIVE = st.lists(hostile(), min_size=5, max_size=5, unique=True)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=FIVE)
@example(names=["\\", "'", "`", "\\'; DROP TABLE x; --", "${env:PATH}"])
def test_a_statement_is_the_same_whatever_the_names(names: Names) -> None:
    for build in BUILDERS.values():
        same_but_for_names(build, names, SPARK)


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
def test_a_key_s_bound_is_one_literal(low: Bound, column: str) -> None:
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
    max_examples=1, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    read = session.query(join("SELECT", text(name), "AS", identifier(name)), "quoting")
    assert read.to_pylist() == [{name: name}]
