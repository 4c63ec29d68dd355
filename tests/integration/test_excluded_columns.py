"""Excluded columns on real servers: copy and stream, renamed and dropped columns, changed rules.

The role of the subscription may not read the excluded columns of ``people``. So a copy that named
one of them would fail.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS, Pgsub
from tests.waiting import wait_until

NAME, SCHEMA = "excluded_sub", "excluded"
SECRET = "planted-ssn-4711"
ROLE = "regress_excluded"
EXCLUDE = {"columns": {"ssn": {"exclude": True}}}
TABLES: Mapping[str, Mapping[str, Any]] = {
    "people": {**EXCLUDE, "on_error": "suspend"},
    "whole": EXCLUDE,
    "events": EXCLUDE,
    "computed": EXCLUDE,
    "later": {},
}
Rows = list[tuple[Any, ...]]
COLUMNS = {
    "people": "id, name, big",
    "whole": "a, v",
    "events": "id, day, note",
    "computed": "id, n",
    "later": "id, n, ssn",
}


def file_of(database: Database, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    entry = {
        "connection": database.server.conninfo(database.name, user=ROLE),
        "publication": ["pub"],
        "tables": {f"{SCHEMA}.{name}": dict(told) for name, told in tables.items()},
    }
    return {"subscriptions": {NAME: entry}, "settings": SETTINGS}


class Site:
    """The publisher's tables, the lake's, and what both had at some moments."""

    def __init__(self, pgsub: Pgsub, database: Database) -> None:
        self.pgsub = pgsub
        self.pub = database
        self.recorded: dict[tuple[str, str], tuple[list[str], Rows, Rows]] = {}
        self.facts: dict[str, Any] = {}

    def record(self, label: str, table: str) -> None:
        """The lake's columns and rows, and the publisher's rows of these columns."""
        columns = self.lake_columns(table)
        lake = self.pgsub.rows(SCHEMA, table, columns)
        published = self.pub.execute(f"SELECT {', '.join(columns)} FROM {table}")
        self.recorded[label, table] = columns, sorted(lake), sorted(published)

    def lake_columns(self, table: str) -> list[str]:
        return list(self.pgsub.arrow(SCHEMA, table).column_names)

    def rel(self, table: str) -> dict[str, Any]:
        rels = self.pgsub.status("pg_subscription_rel")
        return next(each for each in rels if each["relname"] == table)

    def bring_in_line(self, tables: Mapping[str, Mapping[str, Any]]) -> None:
        """``up`` with another file."""
        self.pgsub.file(file_of(self.pub, tables), "up.yaml")
        self.pgsub.launcher.send_signal(signal.SIGHUP)

    def everything_said(self) -> str:
        texts = [self.pgsub.log_file.read_text(errors="replace")]
        texts += [path.read_text(errors="replace") for path in self.pgsub.data_dir.glob("log/*")]
        texts.append((self.pgsub.data_dir / "catalog.db").read_bytes().decode("latin-1"))
        return "\n".join(texts)


@pytest.fixture(scope="module")
def site(pgsub: Pgsub, publisher: EmbeddedPublisher) -> Iterator[Site]:
    database = new_database(publisher, SCHEMA, schema=SCHEMA)
    database.run(*MADE)
    before = (pgsub.scratch / "up.yaml").read_text()
    try:
        site = Site(pgsub, database)
        _refused(site)
        pgsub.command("create", str(pgsub.file(file_of(database, TABLES), "excluded.yaml")))
        pgsub.wait(NAME)
        _copied_and_changed(site)
        _rule_comes_and_goes(site)
        _renamed(site)
        _dropped(site)
        site.facts["said"] = site.everything_said()
        yield site
        pgsub.drop(NAME)
    finally:
        (pgsub.scratch / "up.yaml").write_text(before)
        pgsub.launcher.send_signal(signal.SIGHUP)
        database.run(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")
        database.drop()


MADE = (
    "CREATE TABLE people (id int PRIMARY KEY, ssn text, name text, big text)",
    "ALTER TABLE people ALTER ssn SET STORAGE EXTERNAL, ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE whole (a int, ssn text, v int)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE events (ssn text, id int, day date, note text, PRIMARY KEY (id, day))"
    " PARTITION BY RANGE (day)",
    "CREATE TABLE events_1 PARTITION OF events DEFAULT",
    "CREATE TABLE computed (id int PRIMARY KEY, n int,"
    f" ssn text GENERATED ALWAYS AS ('{SECRET}') STORED)",
    "CREATE TABLE later (id int PRIMARY KEY, n int, ssn text)",
    f"INSERT INTO people SELECT i, repeat('{SECRET}', 200), 'n' || i, repeat('b', 3000)"
    " FROM generate_series(1, 5) i",
    f"INSERT INTO whole SELECT i % 2, '{SECRET}' || i, i % 2 FROM generate_series(1, 6) i",
    f"INSERT INTO events SELECT '{SECRET}', i, '2024-01-01', 'e' FROM generate_series(1, 3) i",
    "INSERT INTO computed SELECT i, i FROM generate_series(1, 3) i",
    f"INSERT INTO later SELECT i, i, '{SECRET}' FROM generate_series(1, 3) i",
    f"CREATE ROLE {ROLE} LOGIN REPLICATION",
    f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}",
    f"GRANT SELECT ON whole, events, computed, later TO {ROLE}",
    f"GRANT SELECT (id, name, big) ON people TO {ROLE}",
    f"CREATE PUBLICATION pub FOR TABLES IN SCHEMA {SCHEMA}"
    " WITH (publish_via_partition_root, publish_generated_columns = stored)",
)


def _refused(site: Site) -> None:
    for name, rule in (("sssn", "no column"), ("id", "key")):
        rules = {"people": {"columns": {name: {"exclude": True}}}}
        file = str(site.pgsub.file(file_of(site.pub, rules), "wrong.yaml"))
        for verb in ("check", "create"):
            done = site.pgsub.command(verb, file, status=None)
            site.facts[f"{verb} {rule}"] = (done.returncode, done.stdout + done.stderr)


def _copied_and_changed(site: Site) -> None:
    site.pub.run(
        f"INSERT INTO people VALUES (6, '{SECRET}', 'six', 'b')",
        "UPDATE people SET name = 'unsent' WHERE id = 1",
        f"UPDATE people SET ssn = '{SECRET}2' WHERE id = 2",
        "UPDATE people SET id = 30 WHERE id = 3",
        "DELETE FROM people WHERE id = 4",
        f"DELETE FROM whole WHERE ssn = '{SECRET}1'",
        f"UPDATE whole SET v = 7 WHERE ssn = '{SECRET}2'",
        f"UPDATE whole SET ssn = '{SECRET}' WHERE ssn = '{SECRET}3'",
        f"INSERT INTO events VALUES ('{SECRET}', 9, '2024-02-02', 'new')",
        "UPDATE events SET note = 'old' WHERE id = 1",
        "UPDATE computed SET n = 10 WHERE id = 1",
        "INSERT INTO computed VALUES (4, 4)",
    )
    site.pgsub.wait(NAME)
    for table in TABLES:
        site.record("changed", table)
    shown = site.pgsub.command("schema", NAME, f"{SCHEMA}.people", "--format", "json")
    site.facts["states"] = {each["attname"]: each["state"] for each in json.loads(shown.stdout)}


def _rule_comes_and_goes(site: Site) -> None:
    site.bring_in_line({**TABLES, "later": EXCLUDE})
    wait_until(lambda: "ssn" not in site.lake_columns("later"), 120, site.pgsub.log_tail)
    site.pub.run(f"INSERT INTO later VALUES (4, 4, '{SECRET}')")
    site.pgsub.wait(NAME)
    site.record("excluded", "later")
    site.bring_in_line(TABLES)
    wait_until(lambda: "ssn" in site.lake_columns("later"), 120, site.pgsub.log_tail)
    site.pgsub.wait(NAME)
    site.record("back", "later")


def _renamed(site: Site) -> None:
    site.pub.run(
        "ALTER TABLE people RENAME ssn TO social",
        f"INSERT INTO people VALUES (7, '{SECRET}', 'seven', 'b')",
    )
    wait_until(lambda: site.rel("people")["suspend_time"], 120, site.pgsub.log_tail)
    site.facts["suspended"] = site.rel("people")
    site.facts["while suspended"] = sorted(site.pgsub.rows(SCHEMA, "people", ["id"]))
    shown = site.pgsub.command("schema", NAME, f"{SCHEMA}.people", "--format", "json")
    site.facts["remedy"] = json.loads(shown.stdout)[0]
    social = {"columns": {"social": {"exclude": True}}, "on_error": "suspend"}
    site.bring_in_line({**TABLES, "people": social})
    wait_until(lambda: not site.rel("people")["suspend_time"], 120, site.pgsub.log_tail)
    site.pub.run("UPDATE people SET name = 'again' WHERE id = 7")
    site.pgsub.wait(NAME)
    site.record("renamed", "people")


def _dropped(site: Site) -> None:
    site.pub.run("ALTER TABLE whole DROP ssn, ADD more int", "INSERT INTO whole VALUES (8, 8, 8)")
    site.pgsub.wait(NAME)
    site.record("dropped", "whole")


def test_a_rule_without_a_column_and_a_key_are_refused(site: Site) -> None:
    for verb in ("check", "create"):
        status, said = site.facts[f"{verb} no column"]
        assert status != 0
        assert "42703" in said
        assert 'Perhaps you meant column "ssn"' in said
        status, said = site.facts[f"{verb} key"]
        assert status != 0
        assert 'column "id" of table "excluded.people" cannot be excluded' in said


@pytest.mark.parametrize("table", TABLES)
def test_copy_and_stream_leave_the_values_out(site: Site, table: str) -> None:
    columns, lake, published = site.recorded["changed", table]
    assert columns == COLUMNS[table].split(", ")
    assert len(lake) >= 3
    assert lake == published


def test_the_column_is_shown_as_excluded(site: Site) -> None:
    follows = {"id": "follows", "name": "follows", "big": "follows"}
    assert site.facts["states"] == {**follows, "ssn": "excluded"}


def test_a_rule_that_comes_or_goes_has_the_table_copied_again(site: Site) -> None:
    """The column leaves the lake table with the copy, and comes back when the rule goes."""
    columns, lake, published = site.recorded["excluded", "later"]
    assert columns == ["id", "n"]
    assert lake == published
    columns, lake, published = site.recorded["back", "later"]
    assert sorted(columns) == ["id", "n", "ssn"]
    assert lake == published


def test_a_renamed_column_suspends_its_table_until_the_rule_has_the_name(site: Site) -> None:
    suspended = site.facts["suspended"]
    assert suspended["suspend_sqlstate"] == "55000"
    assert suspended["suspend_error"] == (
        'excluded column "ssn" of table "excluded.people" is not there any more'
    )
    _, lake, _ = site.recorded["changed", "people"]
    assert site.facts["while suspended"] == [(row[0],) for row in lake]
    assert site.facts["remedy"]["state"] == "differs"
    columns, lake, published = site.recorded["renamed", "people"]
    assert columns == ["id", "name", "big"]
    assert lake == published
    assert (7, "again", "b") in lake


def test_a_dropped_column_is_followed(site: Site) -> None:
    columns, lake, published = site.recorded["dropped", "whole"]
    assert columns == ["a", "v", "more"]
    assert lake == published


def test_no_value_was_said(site: Site) -> None:
    assert NAME in site.facts["said"]
    assert SECRET not in site.facts["said"]
