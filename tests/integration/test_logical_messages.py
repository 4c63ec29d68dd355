"""``messages_to``: the lake has each logical message once, as a slot beside ours sends it.

PostgreSQL's subscriber has no table of messages. The twin is a second slot that is asked for
messages, and read at the end: its publisher sends every transaction at its commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pytest

from tests.fix_publisher import Database, new_database, requested_publisher
from tests.harness import Pgsub
from tests.integration.test_020_messages import Slot
from tests.servers import every_version
from tests.waiting import wait_until
from workers.proto.messages import LogicalMessage

SECRET: Final = "classified"
"""A part of every content."""
COLUMNS: Final = ("prefix", "content", "lsn", "transactional")
SAYS: Final = "SELECT pg_logical_emit_message({}, '{}', {})"
LARGE: Final = "INSERT INTO tab SELECT {0} + i, repeat('x', 50) FROM generate_series(1, 2000) i"

Said = tuple[str, bytes, str, bool]


def say(prefix: str, *, transactional: bool = True, times: int = 1) -> str:
    """A statement that emits a message."""
    return SAYS.format(transactional, prefix, f"repeat('{SECRET} ', {times})")


@dataclass(slots=True)
class Told:
    """A subscription with a table of messages, and the slot beside."""

    pgsub: Pgsub
    database: Database
    slot: Slot
    name: str

    def published(self) -> Counter[Said]:
        """Every message that the publisher has sent."""
        return Counter(
            (each.prefix, each.content, str(each.lsn), each.transactional)
            for each in self.slot.sent(messages=True)
            if isinstance(each, LogicalMessage)
        )

    def held(self) -> Counter[Any]:
        """Every message that readers of the lake see."""
        return Counter(self.pgsub.rows(self.database.schema, "said", COLUMNS))

    def state(self) -> str:
        rows = self.pgsub.status("pg_subscription")
        return next(str(row["subtwophasestate"]) for row in rows if row["subname"] == self.name)

    def play(self, first: int) -> None:
        """Messages of every kind: outside, inside, rolled back, large, streamed, prepared."""
        run = self.database.run
        run(say("alone", transactional=False), say("inside"))
        run(f"BEGIN; {say('mixed')}; INSERT INTO tab VALUES ({first}); {say('mixed')}; COMMIT")
        run(f"BEGIN; {say('lost')}; {say('of lost', transactional=False)}; ROLLBACK")
        run(
            say("large", times=100_000),
            say("empty", times=0),
            say("none", transactional=False, times=0),
        )
        with self.database.connect() as one, self.database.connect() as other:
            for connection, start in ((one, first + 10_000), (other, first + 20_000)):
                _begin(connection, start)
            run(say("between parts", transactional=False))
            _execute(one, f"ROLLBACK TO s; {LARGE.format(first + 50_000)}; {say('kept')}; COMMIT")
            _execute(other, f"{LARGE.format(first + 60_000)}; {say('lost')}; ROLLBACK")
        for start, fate, end in ((70_000, "kept", "COMMIT"), (80_000, "lost", "ROLLBACK")):
            gid = f"{self.name} {fate}"
            with self.database.connect() as connection:
                _begin(connection, first + start)
                _execute(connection, f"{say(gid)}; PREPARE TRANSACTION '{gid}'")
            run(say("between", transactional=False), f"{end} PREPARED '{gid}'")


def _begin(connection: psycopg.Connection, start: int) -> None:
    """A transaction that is sent while it runs, with a savepoint that stays open."""
    _execute(
        connection,
        f"BEGIN; {say('streamed')}; {LARGE.format(start)}; SAVEPOINT s; {say('in savepoint')};"
        f" {say('alone in savepoint', transactional=False)}; {LARGE.format(start + 3000)}",
    )


def _execute(connection: psycopg.Connection, statements: str) -> None:
    connection.execute(statements.encode())


@pytest.fixture(scope="module", params=every_version(18, since=15))
def told(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Told]:
    schema = f"told_{request.param}"
    database = new_database(requested_publisher(request), schema, schema=schema)
    name = database.name
    database.run(
        f"ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'",
        "CREATE TABLE tab (a int PRIMARY KEY, b text)",
        "CREATE PUBLICATION pub FOR TABLE tab",
    )
    made = Told(pgsub, database, Slot(database), name)
    where = f"{schema}.said"
    pgsub.create(name, database.dsn, ["pub"], messages_to=where, two_phase=True)
    wait_until(lambda: made.state() == "e", 120, pgsub.log_tail)
    made.play(0)
    pgsub.kill_worker(name)
    made.play(100_000)
    pgsub.command("alter", name, "SET", "(binary", "=", "true,", "streaming", "=", "off)")
    made.play(200_000)
    pgsub.kill_worker(name)
    pgsub.wait(name)
    yield made
    pgsub.drop(name)
    made.database.execute("SELECT pg_drop_replication_slot(%s)", (made.slot.name,))
    database.drop()


def test_every_message_is_in_the_lake_once(told: Told) -> None:
    published, held = told.published(), told.held()
    assert (published - held, held - published) == (Counter(), Counter())
    kinds = {prefix for prefix, *_ in held}
    assert {"alone", "of lost", "large", "between parts", "kept", f"{told.name} kept"} <= kinds
    assert not {"lost", f"{told.name} lost"} & kinds
    assert max(held.values()) == 1, "the LSN tells messages apart"


def test_the_rows_beside_the_messages_are_the_publisher_s(told: Told) -> None:
    rows = told.database.execute("SELECT a FROM tab ORDER BY a")
    assert sorted(told.pgsub.rows(told.database.schema, "tab", ["a"])) == rows


def test_no_content_is_in_the_log(told: Told) -> None:
    assert SECRET not in told.pgsub.log_file.read_text(errors="replace")
    assert "messages=true" in told.pgsub.log_file.read_text(errors="replace")


def test_the_table_is_ready_and_has_a_position(told: Told) -> None:
    rows = told.pgsub.status("pg_subscription_rel")
    names = (told.database.schema, "said")
    (row,) = [each for each in rows if (each["lake_schema"], each["lake_table"]) == names]
    assert (row["relname"], row["srsubstate"]) == ("pg_logical_emit_message", "r")
