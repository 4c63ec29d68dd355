"""The lake follows the publisher's columns; the twin's columns are changed by hand, as a DBA does.

What cannot be followed is copied again, and compared with the publisher.

Changes of rows run before, between and behind the changes of columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until

TABLE = """
CREATE TABLE {name} (id int PRIMARY KEY, name varchar(10), n int, amount numeric(6, 2), f real,
                     big text, gone int)
"""
PLAIN, DROPS, GIVEN, WHOLE = "plain", "drops", "given", "whole"
COPIED = {
    "filled": ["id", "at", "extra"],
    "swapped": ["id", "v"],
    "retyped": ["id", "v", "x", "z", "y"],
    "labelled": ["id", "s", "at"],
    "readded": ["id", "n"],
    "computed": ["id", "n"],
}
"""The tables that are copied again, with their columns at the end."""


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "schema_changes")
    for name in (PLAIN, DROPS):
        flow.both(TABLE.format(name=name))
    flow.both(
        "CREATE TABLE filled (id int PRIMARY KEY)",
        "CREATE TABLE swapped (id int PRIMARY KEY, v text)",
        "CREATE TABLE retyped (id int PRIMARY KEY, v int, w int, z int)",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN price AS numeric(8, 2)",
        "CREATE TABLE given (id int PRIMARY KEY, name text, n int, big text)",
        "CREATE TABLE whole (id int, v text)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TYPE stage AS ENUM ('new', 'done')",
        "CREATE TYPE spot AS (x int, y int)",
        "CREATE TABLE labelled (id int PRIMARY KEY, s stage, at spot)",
        "CREATE TABLE readded (id int PRIMARY KEY, n int)",
        "CREATE TABLE computed (id int PRIMARY KEY, n int)",
    )
    flow.pub.run(
        *(_rows(name, 0) for name in (PLAIN, DROPS)),
        "INSERT INTO filled SELECT generate_series(1, 10)",
        "INSERT INTO swapped SELECT i, 'old' FROM generate_series(1, 10) i",
        "INSERT INTO retyped SELECT i, i, i, i FROM generate_series(1, 10) i",
        "INSERT INTO labelled SELECT i, 'new', format('(%s,%s)', i, i)::spot"
        " FROM generate_series(1, 10) i",
        "INSERT INTO readded SELECT i, i FROM generate_series(1, 10) i",
        "INSERT INTO computed SELECT i, i FROM generate_series(1, 10) i",
        "ALTER TABLE plain ALTER big SET STORAGE EXTERNAL",
        "ALTER TABLE given ALTER big SET STORAGE EXTERNAL",
        _insert(GIVEN, 0, GIVEN_VALUES),
        "INSERT INTO whole SELECT i, 'v' FROM generate_series(1, 10) i",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    flow.subscribe(
        "sub",
        ["pub"],
        tables={DROPS: {"on_dropped_column": "drop"}},
    )
    flow.checkpoint("copy", PLAIN, DROPS)
    _all_that_is_followed(flow)
    _defaults(flow)
    flow.checkpoint("end", PLAIN, DROPS, columns={PLAIN: PLAIN_COLUMNS, DROPS: DROPS_COLUMNS})
    flow.checkpoint("defaults", GIVEN, WHOLE, columns={GIVEN: GIVEN_COLUMNS})
    _copied_again(flow)
    return flow


PLAIN_COLUMNS = ["id", "title", "n", "amount", "f", "big", "extra", "gone"]
DROPS_COLUMNS = ["id", "name", "n", "amount", "f", "big"]
DEFAULTS = {
    "t": """text DEFAULT E'a "b", {c} \\\\ \\n'""",
    "m": "mood DEFAULT 'ok'",
    "p": "price DEFAULT 1.5",
    "j": """jsonb DEFAULT '{"a": [1, "x"]}'""",
    "ints": "int[] DEFAULT '{1,NULL,3}'",
    "words": """text[] DEFAULT '{"a b",c}'""",
    "ok": "boolean DEFAULT true NOT NULL",
    "bytes": "bytea DEFAULT '\\x00ff'",
    "f": "real DEFAULT 0.1",
    "span": "interval DEFAULT '1 day 02:00'",
    "cut": "char(5) DEFAULT 'ab'",
    "day": "date DEFAULT '1999-12-31'",
}
"""The columns that table ``given`` gets, each with a default that PostgreSQL stores."""
GIVEN_COLUMNS = ["id", "name", "n", "big", *DEFAULTS]
GIVEN_VALUES = {"id": "i", "name": "'r' || i", "n": "i", "big": "repeat(md5(i::text), 200)"}


def _rows(name: str, first: int) -> str:
    """Insert ten rows, with a value that is TOASTed."""
    return (
        f"INSERT INTO {name} SELECT i, 'r' || i, i, i / 7.0, i / 3.0,"
        f" repeat(md5(i::text), 200), i FROM generate_series({first + 1}, {first + 10}) i"
    )


def _change(flow: Flow, name: str, first: int, insert: str) -> None:
    """Insert rows, update old and new rows, without the TOASTed value, and delete one."""
    flow.pub.run(
        insert,
        f"UPDATE {name} SET n = n + 1 WHERE id % 3 = 0",
        f"UPDATE {name} SET id = -id WHERE id = {first + 2}",
        f"DELETE FROM {name} WHERE id = {first + 4}",
    )


def _alter(flow: Flow, statement: str) -> None:
    """The publisher, then the twin; both subscribers have the rows of the change before."""
    flow.catch_up()
    flow.both(statement)


def _insert(table: str, first: int, columns: Mapping[str, str]) -> str:
    names, values = ", ".join(columns), ", ".join(columns.values())
    return (
        f"INSERT INTO {table} ({names}) SELECT {values} FROM"
        f" generate_series({first + 1}, {first + 10}) i"
    )


def _all_that_is_followed(flow: Flow) -> None:
    columns = {"id": "i", "name": "'r' || i", "n": "i", "amount": "i / 7.0", "f": "i / 3.0"}
    columns |= {"big": "repeat(md5(i::text), 200)", "gone": "i"}
    steps = [
        ("ALTER TABLE plain ADD COLUMN extra date", {"extra": "DATE '2026-01-01' + i"}),
        ("ALTER TABLE plain RENAME COLUMN name TO title", {"title": "'t' || i"}),
        ("ALTER TABLE plain ALTER n TYPE bigint", {"n": "i + 5000000000"}),
        ("ALTER TABLE plain ALTER f TYPE double precision", {"f": "i / 3.0 + 1e300"}),
        ("ALTER TABLE plain ALTER amount TYPE numeric(12, 2)", {"amount": "i + 1e9"}),
        ("ALTER TABLE plain ALTER title TYPE varchar(40)", {"title": "repeat('t', 20) || i"}),
        ("ALTER TABLE plain DROP COLUMN gone", {"gone": ""}),
        (
            "BEGIN; ALTER TABLE plain RENAME COLUMN extra TO x;"
            " ALTER TABLE plain RENAME COLUMN title TO extra;"
            " ALTER TABLE plain RENAME COLUMN x TO title; COMMIT",
            {"title": "DATE '2027-01-01' + i", "extra": "'e' || i"},
        ),
        ("ALTER TABLE plain ADD COLUMN gone text", {"gone": "'again ' || i"}),
    ]
    for n, (statement, now) in enumerate(steps, 1):
        _change(flow, PLAIN, 100 * n, _insert(PLAIN, 100 * n, columns))
        _alter(flow, statement)
        if "RENAME COLUMN name" in statement:
            del columns["name"]
        columns = {name: value for name, value in (columns | now).items() if value}
        _change(flow, PLAIN, 100 * n + 50, _insert(PLAIN, 100 * n + 50, columns))
    _alter(flow, "ALTER TABLE drops DROP COLUMN gone")
    _change(flow, DROPS, 100, _insert(DROPS, 100, {"id": "i", "name": "'d'", "n": "i"}))


def _defaults(flow: Flow) -> None:
    """Columns with a default, among changes of rows; another default of a column comes later.

    A row of the publisher may have NULL in such a column.
    """
    _change(flow, GIVEN, 100, _insert(GIVEN, 100, GIVEN_VALUES))
    listed = ", ".join(f"ADD COLUMN {name} {type}" for name, type in DEFAULTS.items())
    _alter(flow, f"ALTER TABLE given {listed}")
    flow.both("ALTER TABLE given ALTER t SET DEFAULT 'later'")
    _change(flow, GIVEN, 200, _insert(GIVEN, 200, GIVEN_VALUES))
    _change(flow, GIVEN, 300, _insert(GIVEN, 300, {**GIVEN_VALUES, "t": "NULL", "m": "'sad'"}))
    flow.sub.run("ALTER TABLE whole ADD COLUMN z int DEFAULT 3")
    flow.pub.run(
        "BEGIN; INSERT INTO whole VALUES (11, 'before'); UPDATE whole SET v = 'x' WHERE id = 1;"
        " ALTER TABLE whole ADD COLUMN z int DEFAULT 3; DELETE FROM whole WHERE id = 2;"
        " INSERT INTO whole VALUES (12, 'own', 4), (13, 'none', NULL); COMMIT",
        "UPDATE whole SET v = 'y' WHERE id IN (3, 11)",
        "DELETE FROM whole WHERE id IN (4, 13)",
    )


def _copied_again(flow: Flow) -> None:
    """Changes whose values no event tells; further changes are queued behind each.

    A volatile default, whose default is dropped again: only the new file tells. Another table takes
    the name. A column gets another type, one another name, one is dropped and added again, and one
    gets other values under its type.
    """
    flow.catch_up()
    flow.sub.run("ALTER SUBSCRIPTION schema_changes_sub_native DISABLE")
    flow.pub.run(
        "ALTER TABLE filled ADD COLUMN at float DEFAULT random()",
        "ALTER TABLE filled ALTER at DROP DEFAULT",
        "INSERT INTO filled VALUES (11, 0.5)",
        "ALTER TABLE filled ADD COLUMN extra int",
        "INSERT INTO filled VALUES (12, 0.25, 7)",
        "CREATE TABLE swapped_new (LIKE swapped INCLUDING ALL)",
        "INSERT INTO swapped_new SELECT i, 'new' FROM generate_series(5, 20) i",
        "BEGIN; ALTER TABLE swapped RENAME TO swapped_old;"
        " ALTER TABLE swapped_new RENAME TO swapped; COMMIT",
        "UPDATE swapped SET v = 'newer' WHERE id = 7",
        "BEGIN; ALTER TABLE retyped ALTER v TYPE text USING 'v' || v;"
        " ALTER TABLE retyped RENAME w TO x; ALTER TABLE retyped DROP z;"
        " ALTER TABLE retyped ADD z text DEFAULT 'z'; ALTER TABLE retyped ADD y int; COMMIT",
        "INSERT INTO retyped VALUES (11, 'w', 11, 'zz', 1)",
        "ALTER TYPE stage RENAME VALUE 'new' TO 'fresh'",
        "ALTER TYPE spot ADD ATTRIBUTE z int",
        "INSERT INTO labelled VALUES (11, 'fresh', '(1,2,3)')",
        "ALTER TABLE readded DROP COLUMN n",
        "ALTER TABLE readded ADD COLUMN n int DEFAULT 7",
        "INSERT INTO readded VALUES (11, 8)",
        "ALTER TABLE computed ALTER n TYPE int USING n * 100",
        "INSERT INTO computed VALUES (11, 8)",
    )
    wait_until(lambda: _done(flow).keys() == COPIED.keys(), 60, lambda: list(_done(flow)))
    flow.pub.run(
        "UPDATE filled SET extra = id WHERE id = 3",
        "DELETE FROM swapped WHERE id = 8",
        "UPDATE retyped SET v = 'later', y = 2 WHERE id = 4",
        "ALTER TABLE given ADD COLUMN since timestamptz DEFAULT now()",
        "INSERT INTO given (id) VALUES (1000)",
    )
    flow.pgsub.wait(flow.subscriptions[0])
    flow.facts["published"] = {
        name: flow.pub.execute(f"SELECT {', '.join(columns)} FROM {name} ORDER BY id")
        for name, columns in {**COPIED, GIVEN: ["id", "since"]}.items()
    }
    flow.facts["copied"] = {
        name: sorted(flow.pgsub.rows(flow.name, name, columns)) for name, columns in COPIED.items()
    }
    flow.facts["since"] = flow.lake("SELECT id, since FROM {t}.given ORDER BY id")


def _done(flow: Flow) -> dict[str, dict[str, object]]:
    """The tables that were copied again, with the newest row of the view of changes."""
    return {
        str(row["relation"]).rpartition(".")[2]: row
        for row in flow.pgsub.status("schema_changes")
        if row["copy_state"] == "done"
    }


def test_rows_are_the_twin_s_after_every_change(flow: Flow) -> None:
    assert len(flow.same("copy", PLAIN)) == 10
    assert len(flow.same("end", PLAIN)) == 10 + 9 * 2 * 9


def test_rows_from_before_a_default_have_it_without_a_copy(flow: Flow) -> None:
    assert len(flow.same("defaults", GIVEN)) == 10 + 3 * 9
    assert GIVEN not in _done(flow)
    (change,) = [
        row
        for row in flow.pgsub.status("schema_changes")
        if '"since" added' in str(row["description"])
    ]
    assert "its stored default filled in" in str(change["description"])


def test_a_default_in_the_middle_of_a_transaction_under_replica_identity_full(flow: Flow) -> None:
    """As on the publisher. The twin has the column before, and misses the UPDATE without it."""
    _, ours = flow.recorded["defaults", WHOLE]
    found = {id: (v, z) for id, v, z in ours}
    changed = {1: ("x", 3), 3: ("y", 3), 11: ("y", 3), 12: ("own", 4)}
    assert found == dict.fromkeys(range(5, 11), ("v", 3)) | changed
    assert WHOLE not in _done(flow)


def test_now_is_the_moment_of_the_change_in_every_row(flow: Flow) -> None:
    published = dict(flow.facts["published"][GIVEN])
    found = {row["id"]: row["since"] for row in flow.facts["since"]}
    assert len(set(published.values())) == 2
    assert {id: _moment(text) for id, text in published.items()} == {
        id: _moment(text) for id, text in found.items()
    }


def _moment(value: object) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def test_a_dropped_column_is_kept_or_dropped(flow: Flow) -> None:
    flow.same("end", DROPS)
    found = {
        name: set(flow.lake(f"SELECT * FROM {{t}}.{name} LIMIT 1")[0]) for name in (PLAIN, DROPS)
    }
    assert "gone" not in found[DROPS]
    assert {"gone", "gone_dropped_7"} <= found[PLAIN]


def test_rows_from_before_keep_the_values_of_a_dropped_column(flow: Flow) -> None:
    rows = flow.lake("SELECT id, gone_dropped_7 AS gone FROM {t}.plain WHERE id IN (1, 801)")
    assert {row["id"]: row["gone"] for row in rows} == {1: 1, 801: None}


def test_what_cannot_be_followed_is_copied_again(flow: Flow) -> None:
    copied, published = flow.facts["copied"], flow.facts["published"]
    for name in COPIED:
        assert copied[name] == [tuple(row) for row in published[name]], name


def test_a_column_of_another_type_takes_the_place_of_the_old_one(flow: Flow) -> None:
    columns = flow.lake("DESCRIBE {t}.retyped")
    assert {row["col_name"]: row["data_type"] for row in columns} == {
        "id": "int",
        "v": "string",
        "x": "int",
        "y": "int",
        "z": "string",
    }


def test_changes_are_counted_and_no_error_is(flow: Flow) -> None:
    (stats,) = flow.pgsub.status("pg_stat_subscription_stats")
    assert stats["schema_change_count"] >= 10 + len(COPIED)
    assert stats["apply_error_count"] == 0
    for row in _done(flow).values():
        assert row["lsn"]
        assert row["copy_seconds"] is not None


def test_pgsub_schema_shows_both_sides_and_what_comes_next(flow: Flow) -> None:
    shown = _schema(flow, PLAIN)
    follows = {row["attname"]: row["lake_column"] for row in shown if row["state"] == "follows"}
    assert follows == {name: name for name in PLAIN_COLUMNS}
    (kept,) = [row for row in shown if row["state"] == "kept"]
    assert (kept["lake_column"], kept["attname"]) == ("gone_dropped_7", None)
    assert kept["since"] is not None
    flow.pub.run("ALTER TABLE filled RENAME extra TO more")
    try:
        shown = _schema(flow, "filled")
    finally:
        flow.pub.run("ALTER TABLE filled RENAME more TO extra")
    assert [(row["attname"], row["lake_column"], row["state"]) for row in shown] == [
        ("id", "id", "follows"),
        ("at", "at", "follows"),
        ("more", "extra", "pending"),
    ]
    assert shown[0]["in_key"] is True
    assert shown[2]["detail"] == 'column "extra" renamed to "more"'


def _schema(flow: Flow, table: str) -> list[dict[str, Any]]:
    name = f"{flow.name}.{table}"
    words = ("schema", flow.subscriptions[0], name, "--format", "json")
    found: list[dict[str, Any]] = json.loads(flow.pgsub.command(*words).stdout)
    assert {row["relation"] for row in found} == {name}
    return found
