"""A workload of every kind of change, in a thread, that can be paused at a transaction boundary.

Each schema of ``BUSY`` has ``account`` (key) and ``audit`` (no key, insert only: a transaction
applied twice shows at once); the first has ``orders`` and ``lines`` too (keys, changed together)
and ``box`` (REPLICA IDENTITY FULL, no key, with equal rows). The others are there because only one
worker can stand at a place; what a server costs that was just started is its tables. Those of each
schema of ``SYNCED`` are synchronised while it runs, one schema after the other: those with an even
number have a key, the others none and get inserts only. The two of ``LATE`` are like these.

Some lake tables are partitioned (``lake_options``): of each kind of change, one in files by
partition and one without; an UPDATE moves rows of ``orders`` from partition to partition.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg

from tests.fix_publisher import Database

BUSY = {
    "a": ("account", "audit", "orders", "lines", "box"),
    "b": ("account", "audit"),
    "c": ("account", "audit"),
    "d": ("account", "audit"),
}
"""Tables of each schema."""

PARTITIONED = {
    "account": ["bucket(3, id)"],
    "orders": ["account"],
    "audit": ["truncate(2, what)"],
    "box": ["colour"],
}
"""Partitions of the lake tables of the first schema of ``BUSY``; the other schemas have none."""

SYNCED = ("y", "z")
SYNCED_TABLES = 10
LATE = "x"
LATE_TABLES = 2

_ACCOUNTS = 40
_PAUSE = 0.3
"""Seconds between two turns, each of a transaction in every schema."""


def synced_table(number: int) -> str:
    """The name of a table in each schema of ``SYNCED``."""
    return f"t{number:02}"


def lake_options(schema: str) -> dict[str, dict[str, Any]]:
    """What ``tables:`` says of a schema's tables."""
    if schema in BUSY:
        found = PARTITIONED if schema == next(iter(BUSY)) else {}
    else:
        found = {synced_table(n): ["bucket(2, id)"] for n in range(SYNCED_TABLES) if n % 4 < 2}
    return {f"{schema}.{table}": {"partition_by": terms} for table, terms in found.items()}


def create_tables(database: Database) -> None:
    """Tables, first rows and one publication per schema (``pub_<schema>``)."""
    for schema, tables in BUSY.items():
        database.run(
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {schema}.account (id int PRIMARY KEY, balance bigint, note text)",
            f"ALTER TABLE {schema}.account ALTER note SET STORAGE EXTERNAL",
            f"CREATE TABLE {schema}.audit (at bigint, what text)",
            f"INSERT INTO {schema}.account SELECT i, 100, repeat('n', 3000) || i"
            f" FROM generate_series(1, {_ACCOUNTS}) i",
            f"CREATE PUBLICATION pub_{schema} FOR TABLES IN SCHEMA {schema}",
        )
        if "orders" in tables:
            database.run(
                f"CREATE TABLE {schema}.orders"
                " (id bigint PRIMARY KEY, account int, total numeric(12,2))",
                f"CREATE TABLE {schema}.lines"
                " (orderid bigint, n int, qty int, PRIMARY KEY (orderid, n))",
                f"CREATE TABLE {schema}.box (colour text, size int)",
                f"ALTER TABLE {schema}.box REPLICA IDENTITY FULL",
                f"INSERT INTO {schema}.box SELECT 'blue', i % 3 FROM generate_series(1, 12) i",
            )
    for schema, count in (*((schema, SYNCED_TABLES) for schema in SYNCED), (LATE, LATE_TABLES)):
        database.run(f"CREATE SCHEMA {schema}")
        for number in range(count):
            name = f"{schema}.{synced_table(number)}"
            key = "" if number % 2 else "PRIMARY KEY"
            database.run(
                f"CREATE TABLE {name} (id int {key}, v text)",
                f"INSERT INTO {name} SELECT i, 'first' FROM generate_series(1, 100) i",
            )
        database.run(f"CREATE PUBLICATION pub_{schema} FOR TABLES IN SCHEMA {schema}")


class MixedWorkload(threading.Thread):
    """Runs from ``start`` to ``end``; ``pause`` returns when no transaction is open."""

    def __init__(self, database: Database, seed: int = 3) -> None:
        super().__init__(name="workload", daemon=True)
        self.transactions = 0
        self.error: BaseException | None = None
        self._database = database
        self._random = random.Random(seed)
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self._orders: dict[str, list[int]] = {schema: [] for schema in BUSY}
        few = (self._transfer, self._rename)
        more = (*few, self._order, self._order, self._remove, self._box)
        self._kinds = {schema: more if "orders" in BUSY[schema] else few for schema in BUSY}
        self._next = 0

    # -- from outside ----------------------------------------------------------------------------

    def pause(self) -> None:
        """Wait for the transaction that runs, and start no other before ``resume``."""
        self._turn.acquire()
        if self.error is not None:
            self._turn.release()
            raise self.error

    def resume(self) -> None:
        """Go on after ``pause``."""
        self._turn.release()

    def end(self) -> None:
        """Stop for good; raises what went wrong."""
        self._ended.set()
        self.join()
        if self.error is not None:
            raise self.error

    # -- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Transaction after transaction, each of a random kind."""
        try:
            with self._database.connect() as connection:
                while not self._ended.wait(_PAUSE):
                    with self._turn:
                        self._one(connection)
        except BaseException as error:
            self.error = error

    def _one(self, connection: psycopg.Connection) -> None:
        for schema, kinds in self._kinds.items():
            with connection.transaction():
                self._random.choice(kinds)(connection, schema)
        with connection.transaction():
            self._synced(connection)
        if self._random.random() < 0.05:
            with connection.transaction(force_rollback=True):
                self._order(connection, "a")
        self.transactions += 1

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _audit(self, connection: psycopg.Connection, schema: str, what: str) -> None:
        connection.execute(f"INSERT INTO {schema}.audit VALUES (%s, %s)", (self._number(), what))

    def _order(self, connection: psycopg.Connection, schema: str) -> None:
        order = self._number()
        account = self._random.randint(1, _ACCOUNTS)
        connection.execute(f"INSERT INTO {schema}.orders VALUES (%s, %s, 9.50)", (order, account))
        for n in range(3):
            connection.execute(f"INSERT INTO {schema}.lines VALUES (%s, %s, 1)", (order, n))
        connection.execute(
            f"UPDATE {schema}.account SET balance = balance - 1 WHERE id = %s", (account,)
        )
        self._audit(connection, schema, "order")
        self._orders[schema].append(order)

    def _transfer(self, connection: psycopg.Connection, schema: str) -> None:
        low, high = self._random.sample(range(1, _ACCOUNTS + 1), 2)
        change = f"UPDATE {schema}.account SET balance = balance + %s WHERE id = %s"
        connection.execute(change, (5, low))
        connection.execute(change, (-5, high))
        if self._random.random() < 0.2:  # a new value out of line
            connection.execute(
                f"UPDATE {schema}.account SET note = repeat('m', 3000) || %s WHERE id = %s",
                (self._number(), low),
            )
        if self._orders[schema]:
            moved = f"UPDATE {schema}.orders SET account = %s WHERE account = %s"
            connection.execute(moved, (high, low))
        self._audit(connection, schema, "transfer")

    def _remove(self, connection: psycopg.Connection, schema: str) -> None:
        if not self._orders[schema]:
            return
        orders = self._orders[schema]
        order = orders.pop(self._random.randrange(len(orders)))
        connection.execute(f"DELETE FROM {schema}.lines WHERE orderid = %s", (order,))
        connection.execute(f"DELETE FROM {schema}.orders WHERE id = %s", (order,))
        self._audit(connection, schema, "remove")

    def _rename(self, connection: psycopg.Connection, schema: str) -> None:
        """Keys change: one of an order and its lines, or two accounts' against each other."""
        low, high = self._random.sample(range(1, _ACCOUNTS + 1), 2)
        change = f"UPDATE {schema}.account SET id = %s WHERE id = %s"
        for new, old in ((-1, low), (low, high), (high, -1)):
            connection.execute(change, (new, old))
        if self._orders[schema]:
            orders = self._orders[schema]
            place, new = self._random.randrange(len(orders)), self._number()
            pair = (new, orders[place])
            connection.execute(f"UPDATE {schema}.orders SET id = %s WHERE id = %s", pair)
            connection.execute(f"UPDATE {schema}.lines SET orderid = %s WHERE orderid = %s", pair)
            orders[place] = new
        self._audit(connection, schema, "rename")

    def _box(self, connection: psycopg.Connection, schema: str) -> None:
        """One of several equal rows is inserted, changed or deleted."""
        one = f"(SELECT ctid FROM {schema}.box WHERE colour = %s LIMIT 1)"
        colour, other = self._random.sample(["blue", "red", "green", None], 2)
        connection.execute(f"INSERT INTO {schema}.box VALUES (%s, 1)", (colour,))
        connection.execute(
            f"UPDATE {schema}.box SET colour = %s WHERE ctid = {one}", (other, colour)
        )
        connection.execute(f"DELETE FROM {schema}.box WHERE ctid = {one}", (other,))
        self._audit(connection, schema, "box")

    def _synced(self, connection: psycopg.Connection) -> None:
        tables = [(schema, number) for schema in SYNCED for number in range(SYNCED_TABLES)]
        tables += [(LATE, number) for number in range(LATE_TABLES)]
        for schema, number in self._random.sample(tables, 6):
            name = f"{schema}.{synced_table(number)}"
            connection.execute(f"INSERT INTO {name} VALUES (%s, 'later')", (1000 + self._number(),))
            if number % 2 == 0:
                key = self._random.randint(1, 100)
                connection.execute(f"UPDATE {name} SET v = v || '.' WHERE id = %s", (key,))
                connection.execute(f"DELETE FROM {name} WHERE id = %s - 50", (key,))
