"""What a walsender takes by itself, when whoever reads throws away what it sends."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Final

from catalog.pg_lsn import LSN
from tests.bench.core import WIDE, Bench
from tests.bench.figures import median

FORMS: Final = {"ours": "true", "native": "false"}
"""Whether values are asked for in binary form: as each side does."""

_SLOT, _PUBLICATION, _TABLE = "sent", "pub_sent", "sent"


def alone(bench: Bench, rounds: int) -> None:
    """1,000 transactions of 1,000 inserts, from the walsender's start to the last one."""
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
        end = bench.last_commit(_TABLE)
        os.sync()
        began = time.monotonic()
        receive(bench, end, binary)
        runs[side].append({"s": round(time.monotonic() - began, 2)})
        bench.publisher.run(f"SELECT pg_drop_replication_slot('{_SLOT}')")
    bench.record("walsender", {side: median(each) for side, each in runs.items()}, rows=1000 * step)
    bench.publisher.run(f"DROP PUBLICATION {_PUBLICATION}", f"DROP TABLE {_TABLE}")


def receive(bench: Bench, end: LSN, binary: str) -> None:
    """``pg_recvlogical`` up to a position, into nothing."""
    program = str(bench.server.bin_dir / "pg_recvlogical")
    options = ("proto_version=4", f"publication_names={_PUBLICATION}", f"binary={binary}")
    command = [program, "--dbname", bench.publisher.dsn, "--slot", _SLOT, "--start", "--no-loop"]
    command += ["--file", os.devnull, "--fsync-interval", "0", "--endpos", str(end)]
    command += [word for option in options for word in ("--option", option)]
    subprocess.run(command, check=True, capture_output=True)
