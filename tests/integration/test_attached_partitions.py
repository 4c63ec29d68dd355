"""Partitions with rows that are attached to a table published via its root, and detached.

PostgreSQL sends neither. The twin is the publisher.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.fix_publisher import Database, new_database, requested_publisher
from tests.harness import Pgsub
from tests.servers import every_version
from tests.twin import native_rows
from tests.waiting import wait_until

PATIENCE = 200.0
"""A worker looks once a minute."""


@dataclass(slots=True)
class Attached:
    pgsub: Pgsub
    database: Database
    name: str

    def rows(self, table: str) -> list[tuple[object, ...]]:
        return self.pgsub.rows(self.database.schema, table)

    def told(self, table: str) -> list[str]:
        """What ``status`` says of rows that came or went."""
        lines = self.pgsub.command("status").stdout.splitlines()
        name = f'"{self.database.schema}.{table}" have come or gone'
        found = [at for at, line in enumerate(lines) if name in line]
        return lines[found[0] + 1 : found[0] + 3] if found else []


@pytest.fixture(scope="module", params=every_version(18))
def made(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Attached]:
    schema = f"attached_{request.param}"
    database = new_database(requested_publisher(request), schema, schema)
    for table in ("told", "copied", "kept"):
        database.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
            f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM (0) TO (100)",
            f"CREATE TABLE {table}_9 PARTITION OF {table} FOR VALUES FROM (900) TO (1000)",
            f"INSERT INTO {table} VALUES (1, 10), (901, 9010)",
            f"CREATE TABLE {table}_2 (id int PRIMARY KEY, v int)",
            f"INSERT INTO {table}_2 VALUES (101, 1010)",
        )
    database.run(
        "CREATE PUBLICATION pub FOR TABLE told, copied, kept"
        " WITH (publish_via_partition_root = true)"
    )
    name = database.name
    pgsub.create(name, database.dsn, ["pub"], tables={f"{schema}.copied": {"on_attach": "copy"}})
    pgsub.wait(name)
    database.run("INSERT INTO told VALUES (2, 20)", "INSERT INTO copied VALUES (2, 20)")
    pgsub.wait(name)
    yield Attached(pgsub, database, name)
    pgsub.drop(name)
    database.drop()


def test_an_attached_and_a_detached_partition_are_told_or_copied(made: Attached) -> None:
    for table in ("told", "copied"):
        made.database.run(
            f"ALTER TABLE {table} ATTACH PARTITION {table}_2 FOR VALUES FROM (100) TO (200)",
            f"ALTER TABLE {table} DETACH PARTITION {table}_9",
            f"BEGIN; CREATE TABLE {table}_3 PARTITION OF {table} FOR VALUES FROM (200) TO (300);"
            f" INSERT INTO {table} VALUES (102, 1020), (201, 2010); COMMIT",
            f"BEGIN; CREATE TABLE {table}_5 (LIKE {table} INCLUDING ALL);"
            f" INSERT INTO {table}_5 VALUES (401, 4010);"
            f" ALTER TABLE {table} ATTACH PARTITION {table}_5 FOR VALUES FROM (400) TO (500);"
            " COMMIT",
        )
    wait_until(
        lambda: made.rows("copied") == native_rows(made.database, "copied"),
        PATIENCE,
        made.pgsub.log_tail,
    )
    wait_until(lambda: made.told("told"), PATIENCE, made.pgsub.log_tail)
    detail, hint = made.told("told")
    schema = made.database.schema
    assert f'partition "{schema}.told_2" was attached, with rows' in detail
    assert f'partition "{schema}.told_5" was attached, with rows' in detail
    assert f'partition "{schema}.told_9" was detached' in detail
    assert "told_3" not in detail
    assert f"--recopy {schema}.told" in hint
    made.pgsub.wait(made.name)
    assert sorted(made.rows("told")) == [(1, 10), (2, 20), (102, 1020), (201, 2010), (901, 9010)]
    made.pgsub.command("refresh", made.name, "--recopy", f"{schema}.told")
    made.pgsub.wait(made.name)
    assert made.rows("told") == native_rows(made.database, "told")
    assert not made.told("told")


def test_a_dropped_partition_leaves_its_rows(made: Attached) -> None:
    made.database.run(
        "CREATE TABLE kept_4 PARTITION OF kept FOR VALUES FROM (300) TO (400)",
        "INSERT INTO kept VALUES (301, 3010)",
    )
    made.pgsub.wait(made.name)
    made.database.run("DROP TABLE kept_4", "INSERT INTO kept VALUES (3, 30)")
    made.pgsub.wait(made.name)
    assert (301, 3010) in made.rows("kept")
