"""What a walsender takes by itself, when whoever reads throws away what it sends."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing, suppress
from typing import Final

import psycopg

from tests.bench.core import WIDE, Bench
from tests.waiting import wait_until

FORMS: Final = {"ours": "true", "native": "false"}
"""Whether values are asked for in binary form: as each side does."""

_SLOT, _PUBLICATION, _TABLE = "sent", "pub_sent", "sent"
_FREE = f"SELECT NOT active FROM pg_replication_slots WHERE slot_name = '{_SLOT}'"
_SILENCE: Final = 1.0
"""Seconds without anything behind which nothing comes any more."""
_NAP: Final = 0.0005
_BUFFER: Final = 8 << 20
_KEEPALIVE: Final = 100
"""Bytes that are no data of a transaction."""


def alone(bench: Bench, rounds: int) -> None:
    """1,000 transactions of 1,000 inserts, from the stream's start to the last one.

    The fastest of the rounds counts: it is a limit that is looked for, and the same walsender took
    1.3 and 2.5 s of CPU for the same changes, as it was woken and where it ran.
    """
    step = bench.rows(1_000_000) // 1000
    steps = [
        f"INSERT INTO {_TABLE} SELECT * FROM made({n * step} + 1, {(n + 1) * step})"
        for n in range(1000)
    ]
    bench.publisher.run(
        f"CREATE TABLE {_TABLE} ({WIDE})", f"CREATE PUBLICATION {_PUBLICATION} FOR TABLE {_TABLE}"
    )
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in FORMS}
    for side, binary in [form for _ in range(rounds) for form in FORMS.items()]:
        made = f"SELECT FROM pg_create_logical_replication_slot('{_SLOT}', 'pgoutput')"
        bench.publisher.run(f"TRUNCATE {_TABLE}", made)
        bench.writing(*steps)()
        bench.last_commit(_TABLE)
        os.sync()
        runs[side].append({"s": round(receive(bench, binary), 2)})
        wait_until(lambda: bench.publisher.value(_FREE), 60, "the walsender's end")
        bench.publisher.run(f"SELECT pg_drop_replication_slot('{_SLOT}')")
    bench.record(
        "walsender",
        {side: min(each, key=_seconds) for side, each in runs.items()},
        rows=1000 * step,
    )
    bench.publisher.run(f"DROP PUBLICATION {_PUBLICATION}", f"DROP TABLE {_TABLE}")


def receive(bench: Bench, binary: str) -> float:
    """Seconds from the stream's start to its last data.

    Read from the socket some ten thousand bytes at a time: whoever reads each message as it comes
    is woken a million times by a walsender that has to wake him. So ``pg_recvlogical`` takes nearly
    twice as long as our worker does with all that it has to do besides.
    """
    start = (
        f"START_REPLICATION SLOT {_SLOT} LOGICAL 0/0 (proto_version '4',"
        f" publication_names '{_PUBLICATION}', binary '{binary}')"
    )
    conn = psycopg.pq.PGconn.connect(f"{bench.publisher.dsn} replication=database".encode())
    try:
        began = last = time.monotonic()
        answer = conn.exec_(start.encode())
        assert answer.status == psycopg.pq.ExecStatus.COPY_BOTH, conn.error_message
        with closing(socket.socket(fileno=os.dup(conn.socket))) as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            wire.settimeout(_SILENCE)
            with suppress(TimeoutError):
                while True:
                    if len(wire.recv(1 << 20)) > _KEEPALIVE:
                        last = time.monotonic()
                    time.sleep(_NAP)
        return last - began
    finally:
        conn.finish()


def _seconds(run: dict[str, float]) -> float:
    return run["s"]
