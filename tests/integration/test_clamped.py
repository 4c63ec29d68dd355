"""``on_unrepresentable: clamp``: the first and the last value of a lake type, which comments tell.

``moments`` is copied and streamed in binary form; ``texts`` has a column whose binary form is not
known, so everything is text.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub
from tests.waiting import wait_until

NAME = SCHEMA = "clamped"
TABLES = ("moments", "texts")
COLUMNS = ("id", "day", "at", "tz", "days")
INSERT = (
    "INSERT INTO {t} (id, day, at, tz, days) VALUES ({n}, '{v}', '{v}', '{v}', ARRAY['{v}'::date])"
)
VALUES = ("-infinity", "0044-03-15 BC", "2024-02-29", "10000-01-01", "infinity")
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)


class Site:
    def __init__(self, pgsub: Pgsub, pub: Database) -> None:
        self.pgsub = pgsub
        self.pub = pub
        self.facts: dict[object, Any] = {}

    def comments(self, table: str) -> dict[str, str]:
        """By column, those that are there."""
        found = self.pgsub.sql(f"DESCRIBE lake.{SCHEMA}.{table}")
        return {row["col_name"]: row["comment"] for row in found if row["comment"]}

    def rel(self, table: str) -> dict[str, Any]:
        rels = self.pgsub.status("pg_subscription_rel")
        return next(
            rel for rel in rels if (rel["lake_schema"], rel["lake_table"]) == (SCHEMA, table)
        )


@pytest.fixture(scope="module")
def site(pgsub: Pgsub, publisher: EmbeddedPublisher) -> Iterator[Site]:
    database = new_database(publisher, SCHEMA, schema=SCHEMA)
    site = Site(pgsub, database)
    columns = "id int PRIMARY KEY, day date, at timestamp, tz timestamptz, days date[]"
    database.run(
        f"CREATE TABLE moments ({columns})",
        f"CREATE TABLE texts ({columns}, w tsvector)",
        "CREATE TABLE keyed (day date PRIMARY KEY, due date)",
        "INSERT INTO keyed VALUES ('2024-02-29', 'infinity')",
        *(INSERT.format(t=t, n=n, v=v) for t in TABLES for n, v in enumerate(VALUES)),
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA clamped",
    )
    clamp = {"on_unrepresentable": "clamp"}
    tables = {f"{SCHEMA}.{table}": clamp for table in TABLES}
    tables[f"{SCHEMA}.keyed"] = {**clamp, "on_error": "suspend"}
    try:
        pgsub.create(NAME, database.dsn, ["pub"], tables=tables)
        pgsub.wait(NAME)
        database.run(
            *(INSERT.format(t=t, n=n + 10, v=v) for t in TABLES for n, v in enumerate(VALUES)),
            *(f"UPDATE {t} SET day = 'infinity' WHERE id = 2" for t in TABLES),
            "INSERT INTO keyed VALUES ('2024-03-01', '-infinity')",
        )
        pgsub.wait(NAME)
        for table in TABLES:
            site.facts[table] = sorted(pgsub.rows(SCHEMA, table, COLUMNS))
        site.facts["comments"] = {table: site.comments(table) for table in (*TABLES, "keyed")}
        _columns_come_and_go(site)
        _a_clamped_column_finds_rows(site)
        database.run("INSERT INTO keyed VALUES ('infinity', '2024-01-01')")
        wait_until(lambda: site.rel("keyed")["suspend_time"], 120, pgsub.log_tail)
        yield site
        pgsub.drop(NAME)
    finally:
        database.drop()


def _columns_come_and_go(site: Site) -> None:
    site.pub.run(
        "ALTER TABLE moments DROP COLUMN at, ADD COLUMN ends date DEFAULT 'infinity'",
        "INSERT INTO moments (id, ends) VALUES (20, '-infinity')",
    )
    site.pgsub.wait(NAME)
    site.facts["later"] = site.comments("moments")
    site.facts["ends"] = dict(site.pgsub.rows(SCHEMA, "moments", ["id", "ends"]))


def _a_clamped_column_finds_rows(site: Site) -> None:
    site.pub.run(
        "DELETE FROM texts WHERE day < '0001-01-01' OR day > '9999-12-31'",
        "ALTER TABLE texts ALTER day SET NOT NULL",
        "CREATE UNIQUE INDEX texts_day ON texts (day)",
        "ALTER TABLE texts REPLICA IDENTITY USING INDEX texts_day",
        "UPDATE texts SET id = 30",
    )
    site.pgsub.wait(NAME)
    site.facts["keyed texts"] = list(site.pgsub.rows(SCHEMA, "texts", ["id", "day"]))
    site.facts["keyed comments"] = site.comments("texts")


@pytest.mark.parametrize("table", TABLES)
def test_copy_and_stream_have_the_first_and_the_last_value(site: Site, table: str) -> None:
    moment = datetime(2024, 2, 29)
    expected = [
        (first + n, at.date(), at, at.replace(tzinfo=UTC), [at.date()])
        for first in (0, 10)
        for n, at in enumerate((FIRST, FIRST, moment, LAST, LAST))
    ]
    expected[2] = (2, LAST.date(), *expected[2][2:])
    assert site.facts[table] == expected


def test_the_comments_tell(site: Site) -> None:
    for table in TABLES:
        comments = site.facts["comments"][table]
        assert set(comments) == {"day", "at", "tz", "days"}
        assert all("the first and the last value" in each for each in comments.values())
    assert set(site.facts["comments"]["keyed"]) == {"due"}


def test_a_key_is_no_other_key(site: Site) -> None:
    """Rows of the keys infinity and 10000-01-01 would be one row."""
    assert site.rel("keyed")["suspend_sqlstate"] == "22003"
    rows = [(date(2024, 2, 29), LAST.date()), (date(2024, 3, 1), FIRST.date())]
    assert sorted(site.pgsub.rows(SCHEMA, "keyed")) == rows


def test_a_dropped_column_tells_since_when(site: Site) -> None:
    """And one that comes is clamped, with its stored default."""
    comments = site.facts["later"]
    assert f"; pgsub: dropped {datetime.now(UTC):%Y-}" in comments["at"]
    assert comments["at"].endswith("NULL since")
    assert "the first and the last value" in comments["ends"]
    ends = site.facts["ends"]
    assert ends.pop(20) == FIRST.date()
    assert set(ends.values()) == {LAST.date()}


def test_a_clamped_column_that_comes_to_a_key_is_copied_again(site: Site) -> None:
    """A row with the last value may be that of another key."""
    assert site.facts["keyed texts"] == [(30, date(2024, 2, 29))]
    assert set(site.facts["keyed comments"]) == {"at", "tz", "days"}
