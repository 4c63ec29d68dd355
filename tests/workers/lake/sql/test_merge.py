"""The statements' text, and names that try to break out of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from workers.lake.sql.find_rows import (
    find_keys,
    find_positions,
    find_ranges,
)
from workers.lake.sql.merge import TARGET, Bound, KeyBounds, merge_by_key, merge_by_position
from workers.lake.sql.statements import (
    call,
    create_branch,
    create_table,
    drop_branch,
    set_properties,
)
from workers.lake.table import LakeColumn, LakeIdent

PLAIN = LakeIdent("public", "orders")
HOSTILE = [
    "`",
    "``; DROP TABLE x; --",
    "a.b",
    "'",
    '"',
    "\\",
    "new\nline",
    "{s}",
    "%s",
    "/* */",
    "🙂",
]


def plain(sql: str) -> str:
    """With a shorter name for the target."""
    return sql.replace(TARGET, "t")


def test_a_merge_updates_and_deletes_matched_rows_only() -> None:
    sql = merge_by_key(PLAIN, "b1", columns=("id", "v"), key=("id",))
    assert plain(sql) == (
        "MERGE INTO `lake`.`public`.`orders`.`branch_b1` AS t USING s ON `t`.`id` = `s`.`b0`"
        " WHEN MATCHED AND `s`.`op` = 1Y THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET `t`.`id` = `s`.`c0`, `t`.`v` = `s`.`c1`"
    )
    assert "NOT MATCHED" not in sql


def test_main_is_the_table_itself() -> None:
    sql = merge_by_key(PLAIN, "main", columns=("id",), key=("id",))
    assert plain(sql).startswith("MERGE INTO `lake`.`public`.`orders` AS t ")


def test_only_the_clauses_that_are_needed() -> None:
    deletes = merge_by_key(PLAIN, None, columns=("id",), key=("id",), updates=False)
    assert deletes.endswith("WHEN MATCHED THEN DELETE")
    updates = merge_by_key(PLAIN, None, columns=("id",), key=("id",), deletes=False)
    assert "DELETE" not in updates


def test_case_only_where_a_value_may_be_missing() -> None:
    sql = merge_by_key(
        PLAIN, None, columns=("id", "big", "v"), key=("id",), unchanged=("big",), deletes=False
    )
    assert sql.count("CASE") == 1
    assert "`t`.`big` = CASE WHEN `s`.`m1` THEN `t`.`big` ELSE `s`.`c1` END" in plain(sql)


def test_every_key_column_is_compared() -> None:
    sql = merge_by_key(PLAIN, None, columns=("a", "b"), key=("b", "a"))
    assert "ON `t`.`b` = `s`.`b0` AND `t`.`a` = `s`.`b1`" in plain(sql)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-5, 10, "-5 AND 10"),
        (date(2024, 1, 2), date(2024, 2, 1), "DATE '2024-01-02' AND DATE '2024-02-01'"),
        (
            datetime(2024, 1, 2, 3, 4, 5, 6),
            datetime(2025, 1, 1),
            "TIMESTAMP_NTZ '2024-01-02 03:04:05.000006' AND TIMESTAMP_NTZ '2025-01-01"
            " 00:00:00.000000'",
        ),
        (
            datetime(2024, 1, 2, tzinfo=UTC),
            datetime(2024, 1, 3, tzinfo=UTC),
            "TIMESTAMP '2024-01-02 00:00:00.000000+00:00' AND TIMESTAMP '2024-01-03"
            " 00:00:00.000000+00:00'",
        ),
        (
            datetime(1, 1, 1),
            datetime(999, 12, 31, 23, 59, 59, 1),
            "TIMESTAMP_NTZ '0001-01-01 00:00:00.000000' AND TIMESTAMP_NTZ '0999-12-31"
            " 23:59:59.000001'",
        ),
        (
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(999, 1, 1, tzinfo=UTC),
            "TIMESTAMP '0001-01-01 00:00:00.000000+00:00' AND TIMESTAMP '0999-01-01"
            " 00:00:00.000000+00:00'",
        ),
        (date(1, 1, 1), date(999, 1, 1), "DATE '0001-01-01' AND DATE '0999-01-01'"),
    ],
)
def test_bounds_are_literals(low: Bound, high: Bound, text: str) -> None:
    sql = merge_by_key(PLAIN, None, columns=("id",), key=("id",), bounds=KeyBounds("id", low, high))
    assert f"AND `t`.`id` BETWEEN {text} WHEN" in plain(sql)


def test_positions() -> None:
    deletes = merge_by_position(PLAIN, "b", columns=("v",), deletes=True, updates=False)
    assert plain(deletes).endswith(
        "ON `t`.`_file` = `s`.`f` AND `t`.`_pos` = `s`.`p` WHEN MATCHED THEN DELETE"
    )
    both = merge_by_position(PLAIN, "b", columns=("v",), deletes=True, updates=True)
    assert plain(both).endswith(
        # A literal that Spark has to cast makes Iceberg fail.
        " WHEN MATCHED AND `s`.`op` = 1Y THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET `t`.`v` = `s`.`c0`"
    )


def _tokens(sql: str) -> list[Any]:
    """Read by sqlglot, which takes what follows some first words (CALL) as one text."""
    return sqlglot.tokenize(f"SELECT {sql}", read="spark")


def _names(sql: str) -> list[str]:
    """Every quoted identifier."""
    tokens = _tokens(sql)
    return [t.text for t in tokens if t.token_type == sqlglot.TokenType.IDENTIFIER]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_always_one_name(name: str) -> None:
    ident = LakeIdent(name, name)
    columns = (name, "v")
    statements = [
        merge_by_key(ident, "b1", columns=columns, key=(name,), unchanged=(name,)),
        merge_by_position(ident, "b1", columns=columns, deletes=False, updates=True),
        find_positions(ident, "b1", columns),
        find_keys(ident, "b1", (name,)),
        find_ranges(ident, name),
        create_branch(ident, name),
        drop_branch(ident, name),
        set_properties(ident, {name: name}),
        create_table(ident, [LakeColumn(name, pa.int64())], properties={name: name}, location=name),
    ]
    for sql in statements:
        names = _names(sql)
        assert names.count(name) >= 2
        known = {
            name,
            "lake",
            "v",
            TARGET,
            "s",
            "image",
            "n",
            "f",
            "p",
            "k",
            "low",
            "high",
            "branch_b1",
        }
        known |= {"op", "b0", "c0", "c1", "m0", "_file", "_pos"}
        known |= {"readable_metrics", "data_files", "lower_bound", "upper_bound"}
        assert set(names) <= known, sql


@pytest.mark.parametrize("name", HOSTILE)
def test_a_procedure_gets_the_name_as_one_literal(name: str) -> None:
    sql = call("fast_forward", LakeIdent(name, name), branch="main", to=name)
    strings = [t.text for t in _tokens(sql) if t.token_type == sqlglot.TokenType.STRING]
    quoted = exp.to_identifier(name, quoted=True).sql(dialect="spark")
    assert strings == [f"{quoted}.{quoted}", "main", name]
