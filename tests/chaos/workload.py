"""A random workload that depends on its seed alone, and the tables it changes.

Every statement is made without looking at the database, so that a seed always makes the same ones;
what a key or a lock stands in the way of is rolled back and goes on. Two sessions are used in turn,
so that transactions overlap and commit in another order than they began.

=======  ==============================================================================
``acc``  key, a value out of line; columns are added and dropped while it is replicated
``pair`` key of two columns, one of them text
``idx``  identity by another unique index than the primary key
``ful``  REPLICA IDENTITY FULL, no key, equal rows, NULLs, values out of line
``fpk``  REPLICA IDENTITY FULL and a primary key
``typ``  many types
``log``  no key and no identity, only inserted to: what comes twice shows
``par``  partitioned, published as its leaves or through its root
``late`` made and published while the workload runs
=======  ==============================================================================
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.chaos.ddl import Alterations

KEYS: Final = 60
"""Keys are small numbers, so that changes of one row meet."""

COPIED: Final = 3000
"""Rows of the largest table when the subscription is made; it is copied in several ranges."""

_PREPARE: Final = "PREPARE TRANSACTION"

TABLES: Final = ("acc", "pair", "idx", "ful", "fpk", "typ", "log", "par")
LATE: Final = "late"

_CREATE: Final = """
CREATE TABLE {s}.acc (id int PRIMARY KEY, n bigint, note text);
ALTER TABLE {s}.acc ALTER note SET STORAGE EXTERNAL;
CREATE TABLE {s}.pair (a int, b text, v numeric(12,2), PRIMARY KEY (a, b));
CREATE TABLE {s}.idx (id int PRIMARY KEY, code text NOT NULL UNIQUE, v int);
ALTER TABLE {s}.idx REPLICA IDENTITY USING INDEX idx_code_key;
CREATE TABLE {s}.ful (colour text, size int, note text);
ALTER TABLE {s}.ful ALTER note SET STORAGE EXTERNAL;
ALTER TABLE {s}.ful REPLICA IDENTITY FULL;
CREATE TABLE {s}.fpk (id int PRIMARY KEY, v text);
ALTER TABLE {s}.fpk REPLICA IDENTITY FULL;
CREATE TABLE {s}.typ (id int PRIMARY KEY, f float8, t timestamptz, d date, b bytea, o bool,
                      j jsonb, u uuid, a int[], c varchar(20), m numeric);
CREATE TABLE {s}.log (at bigint, what text);
CREATE TABLE {s}.par (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE {s}.par_1 PARTITION OF {s}.par FOR VALUES FROM (MINVALUE) TO (30);
CREATE TABLE {s}.par_2 PARTITION OF {s}.par FOR VALUES FROM (30) TO (MAXVALUE)
"""
_FIRST_ROWS: Final = """
INSERT INTO {s}.acc SELECT i, i, repeat('n', 2500) || i FROM generate_series(1, 40) i;
INSERT INTO {s}.pair SELECT i % 8, 'k' || i, i / 4.0 FROM generate_series(1, 60) i;
INSERT INTO {s}.idx SELECT i, 'c' || i, i FROM generate_series(1, 40) i;
INSERT INTO {s}.ful SELECT 'blue', i % 3, NULL FROM generate_series(1, 20) i;
INSERT INTO {s}.fpk SELECT i, 'v' || i FROM generate_series(1, 40) i;
INSERT INTO {s}.typ (id, f, o) SELECT i, i / 3.0, i % 2 = 0 FROM generate_series(1, 40) i;
INSERT INTO {s}.log SELECT -i, repeat('first', 20) FROM generate_series(1, 3000) i;
INSERT INTO {s}.par SELECT i, 'p' || i FROM generate_series(1, 50) i
"""
_CREATE_LATE: Final = "CREATE TABLE {s}.late (id int PRIMARY KEY, v text)"
_LATE_ROWS: Final = (
    "INSERT INTO {s}.late SELECT i, repeat('late', 30) FROM generate_series(1, 2000) i"
)


def create_statements(schema: str) -> list[str]:
    """The tables, empty: for the publisher and for a native subscriber."""
    return [f"CREATE SCHEMA {schema}", *_statements(_CREATE, schema)]


def first_rows(schema: str) -> list[str]:
    """What the tables hold before anybody subscribes."""
    return _statements(_FIRST_ROWS, schema)


def late_table(schema: str) -> tuple[str, str]:
    """How the table that comes later is made, and its first rows."""
    return _CREATE_LATE.format(s=schema), _LATE_ROWS.format(s=schema)


def _statements(script: str, schema: str) -> list[str]:
    return [part.strip() for part in script.format(s=schema).split(";")]


@dataclass(frozen=True, slots=True)
class Step:
    """Something a session does; ``session`` 0 or 1."""

    session: int
    sql: str


class Workload:
    """An endless stream of steps; ``late`` and ``extra`` are set by who made such a table, column.

    ``transactions`` counts the COMMITs among the steps that were taken. With ``prepares`` some
    transactions are prepared first, and stay so while others go on: ``prepared`` are their names,
    for whoever ends them all. ``wide`` makes the largest so
    large that their rows are written before they commit. ``alterations`` come between.
    """

    def __init__(
        self,
        seed: int,
        schema: str,
        *,
        wide: bool = False,
        prepares: bool = False,
        alterations: Alterations | None = None,
    ) -> None:
        self.transactions = 0
        self.prepared: list[str] = []
        self.late = False
        self.extra: str | None = None
        self._random = random.Random(seed)
        self._ends = random.Random(f"ends {seed}") if prepares else None
        self._wide = wide
        self._alterations = alterations
        self._schema = schema
        self._number = 0
        self._open: list[list[str]] = [[], []]

    def steps(self) -> Iterator[Step]:
        """Sessions in turn, now and then one a few times in a row."""
        while True:
            session = self._random.randrange(2)
            for _ in range(self._random.choice((1, 1, 2, 4))):
                if not self._open[session]:
                    self._open[session] = self._transaction()
                sql = self._open[session].pop(0)
                if sql == "COMMIT" or sql.startswith("COMMIT PREPARED"):
                    self.transactions += 1
                if sql.startswith(_PREPARE):
                    self.prepared.append(sql.removeprefix(_PREPARE).strip())
                yield Step(session, sql)

    def _transaction(self) -> list[str]:
        """BEGIN, changes with savepoints between, COMMIT or, seldom, ROLLBACK.

        Or the end of a transaction that was prepared before.
        """
        if self._ends and self.prepared and self._ends.random() < 0.3 * len(self.prepared):
            verb = self._ends.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))
            return [f"{verb} PREPARED {self.prepared.pop(0)}"]
        choice = self._random.random()
        if self._alterations and self._alterations.is_next():
            body = self._alterations.body()
        elif choice < 0.03:
            body = self._large()
        elif choice < 0.06:
            body = [self._truncate()]
        else:
            body = self._small()
        end = "ROLLBACK" if self._random.random() < 0.06 else "COMMIT"
        if self._ends and end == "COMMIT" and self._ends.random() < 0.3:
            end = f"{_PREPARE} '{self._schema}_{self._next()}'"
        return ["BEGIN", *body, end]

    def _small(self) -> list[str]:
        body: list[str] = []
        depth = 0
        for _ in range(self._random.choice((1, 1, 2, 3, 6))):
            if self._random.random() < 0.15:
                depth += 1
                body.append(f"SAVEPOINT s{depth}")
            body += self._change()
            if depth and self._random.random() < 0.3:
                verb = self._random.choice(("ROLLBACK TO", "RELEASE"))
                body.append(f"{verb} SAVEPOINT s{depth}")
                depth -= 1
        body += self._alterations.rows() if self._alterations else []
        return [*body, self._log("small")]

    def _change(self) -> list[str]:
        kinds: list[Callable[[], list[str]]] = [
            *[self._account] * 3, self._pair, self._index, *[self._full] * 2, self._full_key,
            self._types, self._partitioned, self._swap,
        ]  # fmt: skip
        if self.late:
            kinds.append(self._late)
        return self._random.choice(kinds)()

    # -- changes of one table each ---------------------------------------------------------------

    def _account(self) -> list[str]:
        name, key = f"{self._schema}.acc", self._key()
        extra = (
            []
            if self.extra is None
            else [
                f"UPDATE {name} SET {self.extra} = {self._next()} WHERE id = {key}",
                f"INSERT INTO {name} (id, n, {self.extra}) VALUES ({key}, 2, {self._next()})"
                " ON CONFLICT DO NOTHING",
            ]
        )
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} (id, n, note) VALUES ({key}, 0,"
                    f" repeat('i', 2500) || {self._next()}) ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET n = n + {self._next()} WHERE id = {key}",
                    f"UPDATE {name} SET n = n + 1 WHERE id BETWEEN {key} AND {key + 5}",
                    f"UPDATE {name} SET note = repeat('u', 2500) || {self._next()}"
                    f" WHERE id = {key}",
                    f"UPDATE {name} SET note = NULL WHERE id = {key}",
                    f"UPDATE {name} SET id = {self._key()}, n = n + 1 WHERE id = {key}",
                    f"DELETE FROM {name} WHERE id = {key}",
                    *extra,
                ]
            )
        ]

    def _swap(self) -> list[str]:
        """Two rows exchange their keys; each keeps its value out of line."""
        table = self._random.choice(("acc", "fpk", "typ"))
        name, low, high = f"{self._schema}.{table}", self._key(), self._key()
        moves = ((low, -1), (high, low), (-1, high))
        return [f"UPDATE {name} SET id = {new} WHERE id = {old}" for old, new in moves]

    def _pair(self) -> list[str]:
        name, a, b = f"{self._schema}.pair", self._key() % 8, f"k{self._key()}"
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} VALUES ({a}, '{b}', {self._next()}.5)"
                    " ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET v = {self._next()} WHERE b = '{b}'",
                    f"UPDATE {name} SET b = b || '''' WHERE a = {a} AND b < 'k3' AND b > '{b}'",
                    f"UPDATE {name} SET a = a + 1 WHERE b = '{b}'",
                    f"DELETE FROM {name} WHERE a = {a} AND b >= '{b}'",
                ]
            )
        ]

    def _index(self) -> list[str]:
        name, key = f"{self._schema}.idx", self._key()
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} VALUES ({key}, 'c{self._key()}', {self._next()})"
                    " ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET v = {self._next()} WHERE code = 'c{key}'",
                    f"UPDATE {name} SET code = 'c{self._key()}' WHERE id = {key}",
                    f"UPDATE {name} SET id = {self._key()} WHERE code = 'c{key}'",
                    f"DELETE FROM {name} WHERE code = 'c{key}'",
                ]
            )
        ]

    def _full(self) -> list[str]:
        name = f"{self._schema}.ful"
        colour = self._random.choice(("'blue'", "'red'", "NULL"))
        other = self._random.choice(("'blue'", "'red'", "NULL"))
        size = self._random.randrange(4)
        one = (
            f"ctid = (SELECT ctid FROM {name} WHERE colour IS NOT DISTINCT FROM {colour}"
            f" ORDER BY ctid LIMIT 1)"
        )
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} VALUES ({colour}, {size}, NULL)",
                    f"INSERT INTO {name} VALUES ({colour}, {size}, repeat('f', 2500))",
                    f"UPDATE {name} SET colour = {other} WHERE {one}",
                    f"UPDATE {name} SET size = size + 1 WHERE size = {size}",
                    f"DELETE FROM {name} WHERE {one}",
                    f"DELETE FROM {name} WHERE size = {size + 2}",
                ]
            )
        ]

    def _full_key(self) -> list[str]:
        name, key = f"{self._schema}.fpk", self._key()
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} VALUES ({key}, 'n{self._next()}') ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET v = 'u{self._next()}' WHERE id = {key}",
                    f"UPDATE {name} SET id = {self._key()} WHERE id = {key}",
                    f"DELETE FROM {name} WHERE id = {key}",
                ]
            )
        ]

    def _types(self) -> list[str]:
        name, key, n = f"{self._schema}.typ", self._key(), self._next()
        values = (
            f"f = {n} / 7.0, t = timestamptz '2020-01-01 00:00:00+02' + interval '{n} minutes',"
            f" d = date '2020-01-01' + {n % 4000}, b = '\\x{n:08x}', o = {n % 2 == 0},"
            f' j = \'{{"n": {n}, "s": "a\\"b"}}\', u = md5(\'{n}\')::uuid,'
            f" a = ARRAY[{n}, NULL, {n % 5}], c = 'Ünï {n}', m = {n}.{n}"
        )
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} (id) VALUES ({key}) ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET {values} WHERE id = {key}",
                    f"UPDATE {name} SET {values} WHERE id = {key}",
                    f"UPDATE {name} SET t = NULL, c = '', a = '{{}}' WHERE id = {key}",
                    f"DELETE FROM {name} WHERE id = {key}",
                ]
            )
        ]

    def _partitioned(self) -> list[str]:
        name, key = f"{self._schema}.par", self._key()
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} VALUES ({key}, 'i{self._next()}') ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET v = 'u{self._next()}' WHERE id = {key}",
                    f"UPDATE {name} SET id = {self._key()} WHERE id = {key}",  # also across leaves
                    f"DELETE FROM {name} WHERE id = {key}",
                ]
            )
        ]

    def _late(self) -> list[str]:
        name, key = f"{self._schema}.late", self._random.randrange(1, 2100)
        return [
            self._random.choice(
                [
                    f"INSERT INTO {name} VALUES ({key}, 'i{self._next()}') ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET v = 'u{self._next()}' WHERE id % 50 = {key % 50}",
                    f"DELETE FROM {name} WHERE id = {key}",
                ]
            )
        ]

    # -- whole transactions ----------------------------------------------------------------------

    def _large(self) -> list[str]:
        """Thousands of rows come, change and partly go, with a savepoint that is undone."""
        rows, n = self._random.choice((2000, 6000, 15000)), self._next()
        name = f"{self._schema}.log"
        series = f"generate_series({n * 100000}, {n * 100000 + rows})"
        what = "repeat(md5(i::text), 60)" if self._wide and rows > 6000 else "'large' || i"
        return [
            f"INSERT INTO {name} SELECT i, {what} FROM {series} i",
            "SAVEPOINT large",
            f"INSERT INTO {name} SELECT i, 'undone' FROM {series} i",
            f"UPDATE {self._schema}.acc SET n = n + 1",
            "ROLLBACK TO SAVEPOINT large",
            f"UPDATE {self._schema}.typ SET f = {n}",
            f"DELETE FROM {self._schema}.ful",
            f"INSERT INTO {self._schema}.ful"
            f" SELECT 'blue', i % 4, NULL FROM generate_series(1, {rows // 100}) i",
            self._log("large"),
        ]

    def _truncate(self) -> str:
        tables = self._random.sample(TABLES, self._random.choice((1, 1, 2)))
        return "TRUNCATE " + ", ".join(f"{self._schema}.{table}" for table in sorted(tables))

    def _log(self, what: str) -> str:
        return f"INSERT INTO {self._schema}.log VALUES ({self._next()}, '{what}')"

    def _key(self) -> int:
        return self._random.randint(1, KEYS)

    def _next(self) -> int:
        self._number += 1
        return self._number
