"""Roles with few privileges on the publisher: what is copied is what PostgreSQL's own copies.

The twin connects as the same role. One flow has every table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database
from tests.integration.flow import Flow

pytestmark = pytest.mark.postgres

ROLE = "regress_reader"
TABLES = ("people", "events", "notes")
COLUMNS = {"people": ("id", "name")}


class AsRole(Database):
    """A database to which subscribers connect as a role."""

    def __init__(self, database: Database, role: str) -> None:
        super().__init__(database.server, database.name, database.schema)
        self.role = role

    @property
    def dsn(self) -> str:
        return self.server.conninfo(self.name, user=self.role)


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Iterator[Flow]:
    flow = make_flow(publisher, "rights")
    flow.both(
        "CREATE TABLE people (id int PRIMARY KEY, name text, ssn text)",
        "CREATE TABLE events (id int, day date, note text, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE SCHEMA parts",
        "CREATE TABLE notes (id int PRIMARY KEY, tenant int, note text)",
        *(
            f"CREATE TABLE parts.events_{year} PARTITION OF events"
            f" FOR VALUES FROM ('{year}-01-01') TO ('{year + 1}-01-01')"
            for year in (2024, 2025)
        ),
    )
    flow.pub.run(
        "INSERT INTO people VALUES (1, 'ann', 'x1'), (2, 'bob', 'x2')",
        "INSERT INTO events VALUES (1, '2024-05-01', 'a'), (2, '2025-05-01', 'b')",
        "INSERT INTO notes VALUES (1, 1, 'a'), (2, 2, 'b')",
        f"CREATE ROLE {ROLE} LOGIN REPLICATION",
        f"GRANT USAGE ON SCHEMA rights TO {ROLE}",
        f"GRANT SELECT (id, name) ON people TO {ROLE}",
        f"GRANT SELECT ON events TO {ROLE}",
        f"GRANT SELECT ON notes TO {ROLE}",
        "ALTER TABLE notes ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY own ON notes TO {ROLE} USING (tenant = 1)",
        "CREATE PUBLICATION pub FOR TABLE people (id, name), events, notes"
        " WITH (publish_via_partition_root = true)",
    )
    flow.pub = AsRole(flow.pub, ROLE)
    try:
        name = flow.subscribe("sub", ["pub"])
        flow.checkpoint("copied", *TABLES, columns=COLUMNS)
        flow.pub.run(
            "INSERT INTO people VALUES (3, 'cleo', 'x3')",
            "UPDATE people SET name = 'Bob' WHERE id = 2",
            "INSERT INTO events VALUES (3, '2025-06-01', 'c')",
            "UPDATE events SET day = '2024-12-31' WHERE id = 2",
            "INSERT INTO notes VALUES (3, 2, 'c')",
            "UPDATE notes SET note = 'B' WHERE id = 2",
        )
        flow.checkpoint("changed", *TABLES, columns=COLUMNS)
        yield flow
        flow.drop(name)
    finally:
        flow.pub.run(f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")


def test_grants_on_the_published_columns_do(flow: Flow) -> None:
    """As for COPY; LOCK TABLE takes a grant on the whole table.

    Seen by others: https://github.com/databasus/databasus/issues/347,
    https://github.com/estuary/flow/pull/3085.
    """
    assert flow.same("copied", "people") == [(1, "ann"), (2, "bob")]
    assert flow.same("changed", "people") == [(1, "ann"), (2, "Bob"), (3, "cleo")]


def test_a_grant_on_a_partitioned_table_does(flow: Flow) -> None:
    """A new partition has no grants, and its schema may be closed.

    Seen by others: https://github.com/databasus/databasus/issues/347,
    https://github.com/styk-tv/pgRDF/pull/99.
    """
    old = (1, date(2024, 5, 1), "a")
    assert flow.same("copied", "events") == [old, (2, date(2025, 5, 1), "b")]
    moved, new = (2, date(2024, 12, 31), "b"), (3, date(2025, 6, 1), "c")
    assert flow.same("changed", "events") == [old, moved, new]


def test_unseen_differences_that_hides_rows_is_a_warning(flow: Flow) -> None:
    """The copy lacks them, as natively, and nothing else says so.

    Seen by others: https://github.com/powersync-ja/powersync-service/pull/275,
    https://github.com/MaterializeInc/materialize/issues/22249.
    """
    ours, _ = flow.warnings("rights_sub")
    assert [line for line in ours if "row security" in line] == [
        f'WARNING:  row security of table "rights.notes" applies to role "{ROLE}"; '
        "its copy may lack rows"
    ]
    assert flow.same("copied", "notes") == [(1, 1, "a")]
    assert flow.same("changed", "notes") == [(1, 1, "a"), (3, 2, "c")]
