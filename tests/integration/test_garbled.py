"""A message of each type arrives cut short: the error says where, and each row is there once.

One flow: while a type is cut short the next transaction is committed, and nobody waits for the lake
before the next type has its turn, so that workers end in front of transactions of every kind.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from catalog.errcodes import ProtocolViolation
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.proxy import XLOG_HEADER, Proxy
from tests.fix_publisher import Database, new_database
from tests.harness import Pgsub
from tests.integration.flow import Rows
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.proto import decode
from workers.proto.messages import LogicalRepMsgType

NAME = "t_garbled"
TABLES = ("keyed", "log", "emptied")

SENT = (
    LogicalRepMsgType.BEGIN,
    LogicalRepMsgType.COMMIT,
    LogicalRepMsgType.ORIGIN,
    LogicalRepMsgType.INSERT,
    LogicalRepMsgType.UPDATE,
    LogicalRepMsgType.DELETE,
    LogicalRepMsgType.TRUNCATE,
    LogicalRepMsgType.RELATION,
    LogicalRepMsgType.TYPE,
)
"""What a publisher sends of a transaction that is whole and not prepared."""


@dataclass
class Flow:
    """What was told of each type, and in the end the rows of each table on both sides.

    ``wrong`` is what became of the message, ``told`` the log from then on, ``rows`` ours and the
    publisher's.
    """

    wrong: dict[LogicalRepMsgType, bytes] = field(default_factory=dict)
    told: dict[LogicalRepMsgType, str] = field(default_factory=dict)
    rows: dict[str, tuple[Rows, Rows]] = field(default_factory=dict)


def change(database: Database, n: int) -> None:
    """One transaction that comes from elsewhere; each table is announced anew in it."""
    database.run(
        *(f"ALTER TABLE {table} SET (fillfactor = {50 + n})" for table in TABLES),
        f"SELECT pg_replication_origin_session_setup('{NAME}')",
        f"INSERT INTO keyed VALUES ({2 * n}, 'glum'), ({2 * n + 1}, 'glum');"
        f"INSERT INTO log VALUES ({n}, 'glum');"
        f"UPDATE keyed SET m = 'merry' WHERE id = {2 * n};"
        f"DELETE FROM keyed WHERE id = {2 * n + 1};"
        f"INSERT INTO emptied VALUES ({n}); TRUNCATE emptied; INSERT INTO emptied VALUES ({n})",
    )


@pytest.fixture(scope="module")
def flow(pgsub: Pgsub, publisher: EmbeddedPublisher) -> Iterator[Flow]:
    database = new_database(publisher, NAME, schema=NAME)
    database.run(
        "CREATE TYPE mood AS ENUM ('glum', 'merry')",
        "CREATE TABLE keyed (id int PRIMARY KEY, m mood)",
        "CREATE TABLE log (n int, m mood)",
        "CREATE TABLE emptied (n int)",
        f"CREATE PUBLICATION pub FOR TABLE {', '.join(TABLES)}",
        f"SELECT pg_replication_origin_create('{NAME}')",
    )
    made = Flow()
    with Proxy(database) as proxy:
        pgsub.create(NAME, proxy.conninfo, ["pub"])
        try:
            pgsub.wait(NAME)
            for n, kind in enumerate(SENT):
                cut_short(kind, made, proxy, pgsub, partial(change, database, n))
            pgsub.wait(NAME, lsn=database.lsn())
            for table in TABLES:
                made.rows[table] = pgsub.rows(NAME, table), native_rows(database, table)
        finally:
            pgsub.drop(NAME)
    yield made
    database.execute(f"SELECT pg_replication_origin_drop('{NAME}')")
    database.drop()


def cut_short(
    kind: LogicalRepMsgType, flow: Flow, proxy: Proxy, pgsub: Pgsub, run: Callable[[], None]
) -> None:
    """The next message of a type lacks its last byte; until a worker ended by the error of that.

    The launcher then starts the successor at once: nobody waits for the delay of equal errors.
    """
    since = pgsub.log_file.stat().st_size

    def cut(payload: bytes) -> bytes:
        flow.wrong[kind] = payload[:-1]
        return payload[:-1]

    def told() -> str:
        with pgsub.log_file.open("rb") as log:
            log.seek(since)
            return log.read().decode()

    proxy.garble_next(cut, bytes([kind]))
    run()
    ended = re.compile(r"HINT:  Nothing of it was applied\..*action=worker_exit", re.DOTALL)
    wait_until(lambda: ended.search(told()), 120, pgsub.log_tail)
    flow.told[kind] = told()
    pgsub.launcher.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.name.lower())
def test_a_message_cut_short_is_told(flow: Flow, kind: LogicalRepMsgType) -> None:
    """What was expected at which byte, and no value of a row."""
    with pytest.raises(ProtocolViolation) as expected:
        decode.message(flow.wrong[kind][XLOG_HEADER:])
    said = flow.told[kind]
    assert f"sqlstate=08P01 {expected.value.primary}\n" in said
    assert f"DETAIL:  {expected.value.detail}" in said
    assert "glum" not in said
    assert "merry" not in said


def test_each_ends_a_worker(flow: Flow) -> None:
    error = r"\[(\d+)\] apply \d+/0 ERROR:  action=error .* sqlstate=08P01 "
    pids = [re.findall(error, said) for said in flow.told.values()]
    assert [len(each) for each in pids] == [1] * len(SENT)
    assert len({pid for [pid] in pids}) == len(SENT)


@pytest.mark.parametrize("table", TABLES)
def test_each_row_is_there_once(flow: Flow, table: str) -> None:
    ours, native = flow.rows[table]
    assert ours == native
    assert len(ours) == {"keyed": len(SENT), "log": len(SENT), "emptied": 1}[table]
