"""PostgreSQL's 020_messages: logical messages as a publisher sends them, read by our decoder.

Without a subscriber, but for S-020-6: pgsub never asks for messages, nor does the twin. What apply
does with one that comes all the same is in `tests/workers/test_scenarios.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from catalog.pg_lsn import LSN
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database
from tests.integration.flow import Flow
from workers.proto import decode
from workers.proto.messages import Begin, Commit, Insert, LogicalMessage, Message, Relation

pytestmark = pytest.mark.postgres

PREFIX = "pgoutput"
_number = itertools.count(1)


class Slot:
    """A slot of the database that nobody streams from."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.name = f"messages_{next(_number)}"
        database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self.name,))

    def sent(self, *, messages: bool) -> list[Message]:
        """All there is from here on, as a subscriber would receive it."""
        options = "'proto_version', '1', 'publication_names', 'pub'"
        asked = ", 'messages', 'true'" if messages else ""
        function = f"pg_logical_slot_peek_binary_changes(%s, NULL, NULL, {options}{asked})"
        rows = self.database.execute(f"SELECT data FROM {function}", (self.name,))
        return [decode.message(data) for (data,) in rows]


@pytest.fixture
def slot(each_database: Database) -> Slot:
    each_database.run(
        "CREATE TABLE tab (a int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE tab"
    )
    return Slot(each_database)


def emit(slot: Slot, transactional: bool, content: str = "said") -> LSN:
    """``pg_logical_emit_message``; the position that it names."""
    emitted = "SELECT pg_logical_emit_message(%s, %s, %s::text)::text"
    return LSN.parse(slot.database.value(emitted, (transactional, PREFIX, content)))


def test_s_020_1_2_a_message_of_a_transaction(slot: Slot) -> None:
    emit(slot, transactional=True)
    begin, said, commit = slot.sent(messages=True)
    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    assert isinstance(said, LogicalMessage)
    assert (said.transactional, said.prefix, said.content) == (True, PREFIX, b"said")


def test_s_020_3_messages_have_to_be_asked_for(slot: Slot) -> None:
    """Of the transaction nothing is sent either; publishers of 14 send it empty."""
    emit(slot, transactional=True)
    emit(slot, transactional=False)
    sent = [type(message) for message in slot.sent(messages=False)]
    assert sent == ([Begin, Commit] if slot.database.server.version < 15 else [])


def test_s_020_4_a_message_outside_a_transaction(slot: Slot) -> None:
    slot.database.run("INSERT INTO tab VALUES (1)")
    lsn = emit(slot, transactional=False)
    slot.database.run("INSERT INTO tab VALUES (2)")
    sent = slot.sent(messages=True)
    assert [type(message) for message in sent if not isinstance(message, Relation)] == [
        *(Begin, Insert, Commit),
        LogicalMessage,
        *(Begin, Insert, Commit),
    ]
    said = next(message for message in sent if isinstance(message, LogicalMessage))
    assert (said.transactional, said.lsn) == (False, lsn)


def test_s_020_5_of_what_is_rolled_back_only_messages_outside_it(slot: Slot) -> None:
    with slot.database.connect() as connection:
        connection.execute("BEGIN")
        for transactional, content in ((False, "first"), (True, "lost"), (False, "last")):
            said = (transactional, PREFIX, content)
            connection.execute("SELECT pg_logical_emit_message(%s, %s, %s::text)", said)
            connection.execute("INSERT INTO tab VALUES (3) ON CONFLICT DO NOTHING")
        connection.execute("ROLLBACK")
    slot.database.execute("SELECT pg_switch_wal()")  # what is not followed by anything is not sent
    sent = slot.sent(messages=True)
    assert [message.content for message in sent if isinstance(message, LogicalMessage)] == [
        b"first",
        b"last",
    ]
    assert all(isinstance(message, LogicalMessage) for message in sent)


def test_s_020_6_apply_takes_no_notice_of_messages(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    """One between two changes of a transaction, one alone in it, and one outside."""
    flow = make_flow(publisher, "t020")
    flow.both("CREATE TABLE tab (a int PRIMARY KEY)")
    flow.pub.run("CREATE PUBLICATION pub FOR TABLE tab")
    name = flow.subscribe("sub", ["pub"])
    flow.catch_up()
    worker = flow.pgsub.worker(name)
    said = f"SELECT pg_logical_emit_message({{}}, '{PREFIX}', 'said')"
    flow.pub.run(
        f"INSERT INTO tab VALUES (1); {said.format(True)}; INSERT INTO tab VALUES (2)",
        *(said.format(transactional) for transactional in (True, False)),
        "INSERT INTO tab VALUES (3)",
    )
    flow.checkpoint("said", "tab")
    assert flow.same("said", "tab") == [(1,), (2,), (3,)]
    now = flow.pgsub.worker(name)
    assert worker is not None
    assert now is not None
    assert now["pid"] == worker["pid"]
