"""Small transactions at a steady rate, and a process killed every so often.

One subscription of two tables: ``event`` (no key, one row more in each transaction) and ``account``
(one of 10,000 rows changed in each). Every ten seconds all that could leak is measured; at the end
rows are compared.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from typing import Final

import psycopg

from tests.chaos.compare import compare
from tests.crash.family import Family, wait_confirmed
from tests.fix_publisher import Database
from tests.soak.meter import Meter, Sample
from tests.soak.steady import Steady

NAME: Final = "soak"
TABLES: Final = ("event", "account")
ACCOUNTS: Final = 10_000
SAMPLE_EVERY: Final = 10.0
VICTIMS: Final = ("apply worker", "apply worker", "lake server", "apply worker", "launcher")
"""Who is killed, in turn."""

STATEMENTS: Final = (
    f"CREATE SCHEMA {NAME}",
    f"CREATE TABLE {NAME}.event (n bigint, what text)",
    f"CREATE TABLE {NAME}.account (id int PRIMARY KEY, balance bigint)",
    f"INSERT INTO {NAME}.account SELECT i, 0 FROM generate_series(1, {ACCOUNTS}) i",
    f"CREATE PUBLICATION {NAME} FOR TABLES IN SCHEMA {NAME}",
)


class Load(Steady):
    """Transactions at a steady rate, until ``end``."""

    def __init__(self, database: Database, rate: float) -> None:
        super().__init__("load", 1 / rate)
        self._connection = database.connect()
        self._chance = random.Random(1)
        self.begin()

    @property
    def transactions(self) -> int:
        return self.made

    def one(self) -> None:
        insert = f"INSERT INTO {NAME}.event VALUES (%s, %s)"
        update = f"UPDATE {NAME}.account SET balance = balance + 1 WHERE id = %s"
        with self._connection.transaction():
            self._connection.execute(insert, (self.transactions, "x" * 40))
            self._connection.execute(update, (self._chance.randint(1, ACCOUNTS),))

    def end(self) -> None:
        with self._connection:
            super().end()


def _kill(family: Family, victim: str) -> None:
    if victim == "launcher":
        family.kill_launcher()
        family.start()
        return
    pid = family.apply_pid(NAME) if victim == "apply worker" else family.status().lake_pid
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def soak(
    family: Family, database: Database, *, seconds: float, rate: float, kill_every: float
) -> tuple[list[Sample], int]:
    """The samples, and how many transactions were committed; every row is there at the end."""
    meter, load = Meter(family, database, NAME, TABLES), Load(database, rate)
    samples: list[Sample] = []
    kills = 0
    began = time.monotonic()
    pause = threading.Event()
    while (at := time.monotonic() - began) < seconds:
        assert load.error is None, load.error
        if at >= (kills + 1) * kill_every:
            victim = VICTIMS[kills % len(VICTIMS)]
            print(f"{at:6.0f} s: {load.transactions} transactions, killing {victim}", flush=True)
            _kill(family, victim)
            kills += 1
        with suppress(AssertionError, OSError, psycopg.Error):  # somebody is coming up
            samples.append({"at": at, "transactions": float(load.transactions), **meter.sample()})
        pause.wait(max(0.0, SAMPLE_EVERY - (time.monotonic() - began - at)))
    load.end()
    wait_confirmed(family, database, NAME, timeout=300)
    compared = compare(database, None, family.pgsub, NAME, TABLES)
    assert not compared.wrong, compared.wrong
    print(f"{load.transactions} transactions, {kills} kills, {compared.rows} rows right")
    return samples, load.transactions
