"""Hashes of values of every kind: copy and stream, text and binary form, and rows found by a hash.

The key of ``keyed-hash`` is in a variable that the launcher of all tests has.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub

SCHEMA = "masked"
KEY_ENV = "PATH"
FORMS = {"masked_binary": "kinds", "masked_text": "texts"}
"""Subscription, and schema in the lake → the table with every kind. ``texts`` has a column whose
binary form is not known: then copy and stream are text."""
VALUES = {
    "t": ("text", "'it''s ünïcode \\n'"),
    "big": ("text", "repeat('0123456789', 1000)"),
    "i": ("int", "-7"),
    "l": ("bigint", "9007199254740993"),
    "n": ("numeric", "12345678901234567890.1234500"),
    "nan": ("numeric(10,2)", "'NaN'"),
    "f4": ("real", "1.1"),
    "f8": ("double precision", "0.1::float8 + 0.2::float8"),
    "b": ("boolean", "true"),
    "by": ("bytea", "'\\x00ff61'"),
    "d": ("date", "'infinity'"),
    "ts": ("timestamp", "'2024-02-29 12:34:56.789'"),
    "tz": ("timestamptz", "'2024-02-29 12:34:56+05'"),
    "iv": ("interval", "'1 year 2 days 3:04:05.6'"),
    "u": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    "j": ("jsonb", """'{"b": 1.00, "a": [null]}'"""),
    "a": ("int[]", "'{1,NULL,3}'"),
    "r": ("int4range", "'[1,5)'"),
    "m": ("stage", "'new'"),
    "c": ("char(5)", "'ab'"),
    "ip": ("inet", "'192.0.2.1'"),
    "z": ("text", "NULL"),
}
"""By column: the type, and the value of every row."""
AS_PGSUB = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 3"


def keyed(value: object) -> str:
    return hmac.new(os.fsencode(os.environ[KEY_ENV]), f"{value}".encode(), "sha256").hexdigest()


def sha(value: object) -> str | None:
    return None if value is None else hashlib.sha256(f"{value}".encode()).hexdigest()


class Site:
    """What both sides have."""

    def __init__(self, pgsub: Pgsub, pub: Database) -> None:
        self.pgsub = pgsub
        self.pub = pub
        self.facts: dict[object, Any] = {}


@pytest.fixture(scope="module")
def site(pgsub: Pgsub, publisher: EmbeddedPublisher) -> Iterator[Site]:
    database = new_database(publisher, SCHEMA, schema=SCHEMA)
    site = Site(pgsub, database)
    columns = ", ".join(f"{name} {type}" for name, (type, _) in VALUES.items())
    values = ", ".join(value for _, value in VALUES.values())
    database.run(
        "CREATE TYPE stage AS ENUM ('new', 'done')",
        f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})",
        f"INSERT INTO kinds SELECT i, {values} FROM generate_series(1, 3) i",
        f"CREATE TABLE texts (id int PRIMARY KEY, {columns}, w tsvector)",
        f"INSERT INTO texts SELECT i, {values}, 'a' FROM generate_series(1, 3) i",
        "CREATE TABLE keys (id int PRIMARY KEY, gone text, v int)",
        "INSERT INTO keys SELECT i, 'gone', i FROM generate_series(1, 5) i",
        "CREATE TABLE whole (a text, v int)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "INSERT INTO whole SELECT i % 2, i % 2 FROM generate_series(1, 6) i",
        *(
            f"CREATE PUBLICATION {name} FOR TABLE {kinds}, keys, whole"
            for name, kinds in FORMS.items()
        ),
    )
    try:
        for name, kinds in FORMS.items():
            pgsub.create(name, database.dsn, [name], tables=_tables(name, kinds))
        for name in FORMS:
            pgsub.wait(name)
        database.run(
            f"INSERT INTO kinds SELECT i, {values} FROM generate_series(101, 103) i",
            f"INSERT INTO texts SELECT i, {values}, 'a' FROM generate_series(101, 103) i",
            *(
                f"UPDATE {kinds} SET i = i WHERE id = 2" for kinds in FORMS.values()
            ),  # big is not sent
            "UPDATE keys SET v = v + 10 WHERE id = 1",
            "UPDATE keys SET id = 20, gone = 'again' WHERE id = 2",
            "DELETE FROM keys WHERE id = 3",
            "INSERT INTO keys VALUES (6, 'gone', 6)",
            "DELETE FROM whole WHERE ctid IN (SELECT min(ctid) FROM whole GROUP BY a)",
            "UPDATE whole SET v = 9 WHERE ctid IN (SELECT max(ctid) FROM whole GROUP BY a)",
        )
        for name in FORMS:
            pgsub.wait(name)
            for table, wanted in (("kinds", ["id", *VALUES]), ("keys", ["id", "gone", "v"])):
                site.facts[name, table] = pgsub.rows(name, table, wanted)
            site.facts[name, "whole"] = pgsub.rows(name, "whole", ["a", "v"])
        with database.connect() as conn:
            conn.execute(AS_PGSUB)
            texts = ", ".join(
                f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END" for name in VALUES
            )
            site.facts["texts"] = conn.execute(f"SELECT {texts} FROM kinds LIMIT 1").fetchone()
        site.facts["whole"] = database.execute("SELECT a, v FROM whole")
        yield site
        for name in FORMS:
            pgsub.drop(name)
    finally:
        database.drop()


def _tables(lake_schema: str, table: str) -> dict[str, dict[str, Any]]:
    kinds = {name: {"mask": "sha256"} for name in VALUES}
    keys = {"id": {"mask": "keyed-hash", "mask_key_env": KEY_ENV}, "gone": {"mask": "null"}}
    whole: dict[str, Any] = {"a": {"mask": "sha256"}}
    return {
        f"{SCHEMA}.{table}": {"to": f"{lake_schema}.kinds", "columns": kinds},
        f"{SCHEMA}.keys": {"to": f"{lake_schema}.keys", "columns": keys},
        f"{SCHEMA}.whole": {"to": f"{lake_schema}.whole", "columns": whole},
    }


@pytest.mark.parametrize("name", FORMS)
def test_copy_and_stream_give_one_hash_which_is_that_of_the_text(site: Site, name: str) -> None:
    rows = sorted(site.facts[name, "kinds"])
    assert [row[0] for row in rows] == [1, 2, 3, 101, 102, 103]
    expected = dict(zip(VALUES, (sha(text) for text in site.facts["texts"]), strict=True))
    for row in rows:
        assert dict(zip(VALUES, row[1:], strict=True)) == expected, row[0]


@pytest.mark.parametrize("name", FORMS)
def test_rows_are_found_by_the_hash_of_the_key(site: Site, name: str) -> None:
    left = {1: 11, 20: 2, 4: 4, 5: 5, 6: 6}
    found = {id: (gone, v) for id, gone, v in site.facts[name, "keys"]}
    assert found == {keyed(id): (None, v) for id, v in left.items()}


@pytest.mark.parametrize("name", FORMS)
def test_whole_rows_are_found_by_their_hashes(site: Site, name: str) -> None:
    published = sorted((sha(a), v) for a, v in site.facts["whole"])
    assert sorted(site.facts[name, "whole"]) == published
    assert len(published) == 4


@pytest.mark.parametrize("name", FORMS)
def test_a_masked_column_is_text_in_the_lake(site: Site, name: str) -> None:
    schema = site.pgsub.arrow(name, "kinds").schema
    assert {str(schema.field(column).type) for column in VALUES} <= {"string", "large_string"}
    assert str(site.pgsub.arrow(name, "keys").schema.field("v").type) == "int32"
