"""Updates and deletes of a large transaction have files before the commit (``parallel``).

The twin's subscription has ``on``. Other transactions change the same table while the large one
runs: what they commit first is in the table when the large one is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from tests.waiting import wait_until

SMALL: Final = "ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'"
TABLES: Final = (
    "CREATE TABLE big (a int PRIMARY KEY, n int, b text)",
    "CREATE TABLE moved (a int PRIMARY KEY, n int, b text)",
    "CREATE TABLE toasted (a int PRIMARY KEY, n int, b text, large text)",
)
ROWS: Final = 16_000
MADE: Final = "SELECT i, 0, repeat(md5(i::text), 57) FROM generate_series({}, {}) i"
UPDATE: Final = "UPDATE {t} SET n = n + {n}, b = repeat(md5(b), 57) WHERE a BETWEEN {{}} AND {{}}"
"""Rows of 1,840 bytes: 15,000 are more than the least slice."""
DIGEST: Final = (
    "SELECT count(*) AS n, sum(a) AS a, sum(n) AS m, sum(a * CAST(n AS bigint)) AS o,"
    " sum(a * CAST(ascii(substr(b, 9, 1)) AS bigint)) AS b FROM {t}."
)


@pytest.fixture(scope="module", params=every_version(18))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"updates_{request.param}")
    flow.pub.run(
        SMALL.format(name=flow.pub.name),
        *TABLES,
        "ALTER TABLE toasted ALTER COLUMN large SET STORAGE EXTERNAL",
        *(f"INSERT INTO {t} {MADE.format(1, ROWS)}" for t in ("big", "moved")),
        "INSERT INTO toasted SELECT i, 0, repeat(md5(i::text), 57), repeat('x', 2100)"
        f" FROM generate_series(1, {ROWS}) i",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    flow.sub.run(*TABLES)
    name = flow.subscribe("sub", ["pub"], streaming="on")
    flow.catch_up()
    flow.pgsub.command("alter", name, "SET", "(streaming", "=", "parallel)")
    _play(flow)
    _play_what_waits(flow)
    return flow


def _play(flow: Flow) -> None:
    """Three parts with files; one of them is rolled back, and a fourth comes at the commit."""
    pub, update = flow.pub, UPDATE.format(t="big", n=1)
    flow.facts["known"] = _files(flow)
    with pub.connect() as one:
        one.execute("BEGIN; " + update.format(1, 15_000))
        _wait_files(flow, 1)
        pub.run(
            "DELETE FROM big WHERE a BETWEEN 15901 AND 15950",
            "UPDATE big SET n = 1000 WHERE a BETWEEN 15951 AND 16000",
            f"INSERT INTO big {MADE.format(ROWS + 1, ROWS + 100)}",
        )
        _digest(flow, "big", "before")
        one.execute("SAVEPOINT s; DELETE FROM big WHERE a < 100; " + update.format(1, 15_900))
        one.execute(update.format(1, 15_000))  # twice the least slice
        _wait_files(flow, 2)
        one.execute("ROLLBACK TO s; RELEASE s")
        _wait_files(flow, 1)
        again = UPDATE.format(t="big", n=7)
        one.execute(
            "DELETE FROM big WHERE a BETWEEN 1 AND 50;"
            f" INSERT INTO big {MADE.format(1, 10)}; " + again.format(1, ROWS + 50)
        )
        _wait_files(flow, 2)
        one.execute(
            "DELETE FROM big WHERE a BETWEEN 100 AND 110; UPDATE big SET n = -5 WHERE a < 5; COMMIT"
        )
        _digest(flow, "big", "committed")
    flow.facts["log"] = flow.pgsub.log_tail(10_000)
    pub.run("UPDATE big SET n = n + 1 WHERE a % 3 = 0")
    _digest(flow, "big", "afterwards")
    flow.facts["known"] = _files(flow)
    with pub.connect() as one:
        one.execute("BEGIN; " + update.format(1, 15_900))
        _wait_files(flow, 1)
        one.execute("ROLLBACK")
    pub.run("DELETE FROM big WHERE a = 5")
    _digest(flow, "big", "rolled back")
    _wait_files(flow, 0)


def _play_what_waits(flow: Flow) -> None:
    """Keys that change, and values that are not sent, have no files before the commit."""
    before = _files(flow)
    flow.pub.run("UPDATE moved SET a = a + 100000, n = n + a")
    _digest(flow, "moved", "keys")
    flow.pub.run(UPDATE.format(t="toasted", n=3).format(1, ROWS))
    _digest(flow, "toasted", "unsent")
    flow.facts["large"] = (
        flow.sub.execute("SELECT sum(length(large)) FROM toasted"),
        [tuple(row.values()) for row in flow.lake("SELECT sum(length(large)) FROM {t}.toasted")],
    )
    flow.facts["new"] = _files(flow) - before
    flow.facts["notes"] = list((flow.pgsub.data_dir / "parallel").iterdir())


def _files(flow: Flow) -> set[Path]:
    """The data files of large transactions, committed or not."""
    tables = flow.pgsub.lake_dir / "warehouse" / flow.name
    return set(tables.glob("*/data/pgsub-copy-*.parquet"))


def _wait_files(flow: Flow, count: int) -> None:
    """Wait for so many files beside those that were there at the last look."""
    known = flow.facts["known"]
    wait_until(lambda: len(_files(flow) - known) == count, 60, flow.pgsub.log_tail)


def _digest(flow: Flow, table: str, label: str) -> None:
    flow.catch_up()
    native = flow.sub.execute((DIGEST + table).format(t=flow.name))
    ours = [tuple(row.values()) for row in flow.lake(DIGEST + table)]
    flow.facts[label] = native, ours


@pytest.mark.parametrize("label", ["before", "committed", "afterwards", "rolled back"])
def test_the_order_of_commits_decides(flow: Flow, label: str) -> None:
    native, ours = flow.facts[label]
    assert ours == native


def test_most_changes_were_in_files(flow: Flow) -> None:
    lines = [each for each in flow.facts["log"].splitlines() if "parallel_applied" in each]
    assert max(int(each.partition("rows=")[2].split()[0]) for each in lines) > 25_000


@pytest.mark.parametrize("label", ["keys", "unsent", "large"])
def test_what_needs_the_old_row_waits_for_the_commit(flow: Flow, label: str) -> None:
    native, ours = flow.facts[label]
    assert ours == native


def test_nothing_is_left_behind(flow: Flow) -> None:
    assert (flow.facts["new"], flow.facts["notes"]) == (set(), [])
