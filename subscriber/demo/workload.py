"""The demo's shop: four related tables, and a workload of small transactions.

A transaction places an order with lines, moves an order on, changes a price, or cancels an order
with all lines. The workload is seeded: a run can be repeated.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psycopg

SCHEMA: Final = "shop"
PUBLICATION: Final = "shop_pub"
CUSTOMERS: Final = 20_000
PRODUCTS: Final = 1_000
ORDERS: Final = 150_000
LINES_PER_ORDER: Final = 4

DDL: Final = """
CREATE SCHEMA shop;
SET search_path = shop;
CREATE TABLE customers (
    id          int PRIMARY KEY,
    name        text NOT NULL,
    email       varchar(80),
    newsletter  boolean NOT NULL,
    joined      date NOT NULL
);
CREATE TABLE products (
    id          int PRIMARY KEY,
    title       text NOT NULL,
    price       numeric(10,2) NOT NULL,
    tags        text[]
);
CREATE TABLE orders (
    id          bigint PRIMARY KEY,
    customer_id int NOT NULL REFERENCES customers,
    status      text NOT NULL,
    placed      timestamptz NOT NULL,
    note        text
);
CREATE TABLE order_items (
    order_id    bigint NOT NULL REFERENCES orders,
    line        smallint NOT NULL,
    product_id  int NOT NULL REFERENCES products,
    quantity    int NOT NULL,
    price       numeric(10,2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
"""

FILL: Final = """
INSERT INTO shop.customers
SELECT n, 'Customer ' || n, 'c' || n || '@example.com', n %% 3 = 0, date '2020-01-01' + n %% 2000
  FROM generate_series(1, %(customers)s) n;
INSERT INTO shop.products
SELECT n, 'Product ' || n, 1 + n %% 500 + 0.99,
       CASE WHEN n %% 5 > 0 THEN ARRAY['tag' || n %% 7, 'all'] END
  FROM generate_series(1, %(products)s) n;
INSERT INTO shop.orders
SELECT n, 1 + n * 7 %% %(customers)s, 'delivered',
       timestamptz '2024-01-01 00:00:00+00' + n * interval '7.25 minutes', NULL
  FROM generate_series(1, %(orders)s) n;
INSERT INTO shop.order_items
SELECT o, l, 1 + (o * 3 + l * 11) %% %(products)s, 1 + (o + l) %% 5, 1 + o %% 500 + 0.99
  FROM generate_series(1, %(orders)s) o, generate_series(1, %(lines)s) l;
ANALYZE shop.order_items;
"""

NEW_ORDER: Final = """
INSERT INTO shop.orders VALUES (%s, %s, 'new', clock_timestamp(), %s)
"""
NEW_LINE: Final = """
INSERT INTO shop.order_items
SELECT %s, %s, id, %s, price FROM shop.products WHERE id = %s
"""
MOVE_ON: Final = """
UPDATE shop.orders SET status = CASE status WHEN 'new' THEN 'paid' WHEN 'paid' THEN 'shipped'
       ELSE 'delivered' END WHERE id = %s
"""
NEW_PRICE: Final = "UPDATE shop.products SET price = round(price * %s, 2) WHERE id = %s"
CANCEL: Final = (
    "DELETE FROM shop.order_items WHERE order_id = %s",
    "DELETE FROM shop.orders WHERE id = %s",
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and the kind of conversion to text in the proof."""

    name: str
    kind: str = "plain"  # plain | instant | array


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the shop: the number of rows before the workload, and the columns in order."""

    name: str
    rows: int
    columns: tuple[Column, ...]


TABLES: Final = (
    Table(
        "customers",
        CUSTOMERS,
        (
            Column("id"), Column("name"), Column("email"), Column("newsletter"),
            Column("joined"),
        ),
    ),
    Table(
        "products",
        PRODUCTS,
        (Column("id"), Column("title"), Column("price"), Column("tags", "array")),
    ),
    Table(
        "orders",
        ORDERS,
        (
            Column("id"), Column("customer_id"), Column("status"), Column("placed", "instant"),
            Column("note"),
        ),
    ),
    Table(
        "order_items",
        ORDERS * LINES_PER_ORDER,
        (
            Column("order_id"), Column("line"), Column("product_id"), Column("quantity"),
            Column("price"),
        ),
    ),
)  # fmt: skip


def fill(connection: psycopg.Connection) -> None:
    """Create and fill the tables and the publication; the connection is autocommit."""
    connection.execute(DDL.encode())
    sizes = {
        "customers": CUSTOMERS,
        "products": PRODUCTS,
        "orders": ORDERS,
        "lines": LINES_PER_ORDER,
    }
    connection.execute("SET session_replication_role = replica")  # keys are right: no checks
    for statement in filter(None, map(str.strip, FILL.split(";"))):
        connection.execute(statement.encode(), sizes)
    connection.execute("RESET session_replication_role")
    connection.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLES IN SCHEMA {SCHEMA}".encode())


class Workload(threading.Thread):
    """Transactions at a steady pace until ``stop``; counters of transactions and rows.

    ``error`` is the error that ended the workload early, else None.
    """

    def __init__(self, dsn: Callable[[], str], rate: float, seed: int = 1) -> None:
        super().__init__(name="workload", daemon=True)
        self.rate = rate
        self.transactions = 0
        self.rows = 0
        self.by_kind: Counter[str] = Counter()
        self.error: psycopg.Error | None = None
        self._dsn = dsn
        self._random = random.Random(seed)  # noqa: S311 (a workload, not a secret)
        self._next_order = ORDERS
        self._open: list[int] = []
        self._ending = threading.Event()

    def stop(self) -> None:
        """Finish the transaction in hand and end."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        """The thread's body."""
        try:
            with psycopg.connect(self._dsn(), application_name="workload") as connection:
                due = time.monotonic()
                while not self._ending.wait(max(0.0, due - time.monotonic())):
                    due = max(due + 1 / self.rate, time.monotonic() - 1)
                    with connection.transaction():
                        kind, changed = self._step(connection)
                    self.transactions += 1
                    self.rows += changed
                    self.by_kind[kind] += changed
        except psycopg.Error as error:
            self.error = error

    def _step(self, connection: psycopg.Connection) -> tuple[str, int]:
        """Run a transaction; the kind of change and the number of rows."""
        dice = self._random.random()
        if dice < 0.45 or not self._open:
            return "inserted", self._buy(connection)
        if dice < 0.80:
            order = self._random.choice(self._open)
            return "updated", connection.execute(MOVE_ON, (order,)).rowcount
        if dice < 0.90:
            factor = self._random.choice(("1.1", "0.9"))
            product = self._random.randint(1, PRODUCTS)
            return "updated", connection.execute(NEW_PRICE, (factor, product)).rowcount
        order = self._open.pop(self._random.randrange(len(self._open)))
        return "deleted", sum(connection.execute(step, (order,)).rowcount for step in CANCEL)

    def _buy(self, connection: psycopg.Connection) -> int:
        self._next_order += 1
        order = self._next_order
        note = self._random.choice((None, "gift", "leave it at the neighbour's – danke"))
        connection.execute(NEW_ORDER, (order, self._random.randint(1, CUSTOMERS), note))
        lines = self._random.randint(1, 6)
        for line in range(1, lines + 1):
            product = self._random.randint(1, PRODUCTS)
            connection.execute(NEW_LINE, (order, line, self._random.randint(1, 9), product))
        self._open.append(order)
        return 1 + lines
