"""``make soak-quiet``: an hour of changes and two thousand sessions on one server, and no kill.

make soak-quiet                          docs/soak_quiet.csv
make soak-quiet MINUTES=5 SESSIONS=150   shorter

A server that is killed every few minutes shows no leak of a long life. Here one lake server serves
readers that come and go (``pgsub sql``), short sessions as a worker has them, and an apply worker
that a user turns off and on again.
Each measure's median over the last sixth is set against that of the second sixth, as in ``make
soak``. Exit status 1 if one grew, a row is wrong, or the server was replaced.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import psycopg
from py4j.protocol import Py4JError

from tests.chaos.compare import compare
from tests.crash.family import FAMILY_SETTINGS, Family, wait_confirmed
from tests.fix_publisher import Database
from tests.soak.meter import Sample, growth, not_flat, tell, write
from tests.soak.quiet_meter import FLAT, NEAR_ZERO, QuietMeter
from tests.soak.run import ACCOUNTS, NAME, SAMPLE_EVERY, TABLES, Load
from tests.soak.servers import servers
from tests.soak.steady import Steady
from workers.lake.api.session_catalogs import close_catalogs_of
from workers.lake.connect.sessions import Sessions

SETTINGS: Final = {
    **FAMILY_SETTINGS,
    "file_grace": "10s",
    "snapshot_expiry_batches": 20,
    "snapshot_retain_last": 20,
    "compaction_batches": 40,
    "status_tables_interval": "5s",
    "lake_heartbeat_interval": "5s",
}
"""All that is removed is removed soon, so that an early sample is one of a steady state."""

RATE: Final = 20.0
"""Transactions a second."""
RESTART_EVERY: Final = 40
"""Every so many sessions the apply worker is turned off and on."""
TOLD_EVERY: Final = 6
"""Every so many samples a line is printed."""
COMMAND_EVERY: Final = 4
"""Every so many sessions are a ``pgsub sql``; the others are as a worker's, and take no process."""


class ShortSessions(Steady):
    """Sessions one after the other, at a steady pace."""

    def __init__(self, family: Family, wanted: int, pause: float) -> None:
        super().__init__("sessions", pause, wanted)
        self._family = family
        self.begin()

    def one(self) -> None:
        pgsub = self._family.pgsub
        if self.made % RESTART_EVERY == RESTART_EVERY - 1:
            pgsub.command("disable", NAME)
            pgsub.command("enable", NAME)
            return
        query = f"SELECT count(*) AS rows FROM lake.{NAME}.{TABLES[1]}"
        if self.made % COMMAND_EVERY == COMMAND_EVERY - 1:
            assert pgsub.sql(query) == [{"rows": ACCOUNTS}]
            return
        url = self._family.status().lake_url
        assert url is not None
        close = partial(close_catalogs_of, url)
        session = Sessions(url, NAME, lambda *ids: None, close_catalogs=close)
        try:
            assert session.get().query(query, "counting").to_pylist() == [{"rows": ACCOUNTS}]
        finally:
            session.close()


def soak_quietly(
    family: Family, database: Database, *, seconds: float, sessions: int, fewest: int
) -> list[Sample]:
    """The samples; at the end the server is the first one, and every row is right.

    A busy machine may make less than ``sessions`` in the time, and never less than ``fewest``.
    """
    meter, load = QuietMeter(family, database, NAME, TABLES), Load(database, RATE)
    readers = ShortSessions(family, sessions, seconds / sessions)
    server = family.status().lake_pid
    samples: list[Sample] = []
    began, pause = time.monotonic(), threading.Event()
    while (at := time.monotonic() - began) < seconds or readers.made < fewest:
        assert load.error is None, load.error
        assert readers.error is None, readers.error
        # A worker, a gateway or a file may go in between.
        with suppress(OSError, Py4JError, psutil.Error, psycopg.Error):
            samples.append({"at": at, "transactions": float(load.transactions), **meter.sample()})
        if len(samples) % TOLD_EVERY == 1:
            shown = {name: round(samples[-1][name]) for name in ("descriptors", "heap_mb")}
            print(
                f"{at:6.0f} s: {load.transactions} transactions, {readers.made} sessions, {shown}"
            )
        pause.wait(max(0.0, SAMPLE_EVERY - (time.monotonic() - began - at)))
    readers.end()
    load.end()
    wait_confirmed(family, database, NAME, timeout=300)
    status = family.status()
    assert (status.lake_pid, status.lake_restarts) == (server, 0), family.log_tail()
    compared = compare(database, None, family.pgsub, NAME, TABLES)
    assert not compared.wrong, compared.wrong
    print(f"{load.transactions} transactions, {readers.made} sessions, {compared.rows} rows right")
    return samples


def grown_in(samples: list[Sample]) -> list[str]:
    """Print the measures; return those that grew."""
    found = growth(samples)
    grown = not_flat(found, FLAT, NEAR_ZERO)
    tell(found, grown)
    return grown


def main() -> int:
    """Run it, write ``soak_quiet.csv``, and say what grew."""
    parser = argparse.ArgumentParser(prog="make soak-quiet")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    options = parser.parse_args()
    with servers(settings=SETTINGS) as (family, database):
        samples = soak_quietly(
            family,
            database,
            seconds=options.minutes * 60,
            sessions=options.sessions,
            fewest=options.sessions,
        )
    write(samples, options.folder / "soak_quiet.csv")
    return 1 if grown_in(samples) else 0


if __name__ == "__main__":
    sys.exit(main())
