"""A seed that a fault of the publisher ended is told from one that stands still by our fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos import publisher_fault as module
from tests.chaos.__main__ import _summary
from tests.chaos.outcome import Outcome
from tests.chaos.plan import make_plan
from tests.chaos.publisher_fault import known_fault, publisher_fault
from tests.fix_publisher import Database, new_database
from tests.waiting import wait_until

DUPLICATE = "unexpected duplicate for tablespace 0, relfilenumber 26667"
_RAISE = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{}', MESSAGE = '{}'; END $$"


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher) -> Iterator[Database]:
    made = new_database(publisher, "publisher_fault")
    made.run("CREATE PUBLICATION chaos FOR ALL TABLES")
    made.run("SELECT pg_create_logical_replication_slot('chaos', 'pgoutput')")
    made.run("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    yield made
    made.drop()


@pytest.mark.parametrize(
    ("sqlstate", "text", "known"),
    [
        ("XX000", DUPLICATE, True),
        ("XX000", f"{DUPLICATE} and more", False),
        ("XX000", "could not map filenumber to relation OID", False),
        ("55000", DUPLICATE, False),
    ],
)
def test_exactly_one_error_is_the_known_fault(
    database: Database, sqlstate: str, text: str, known: bool
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        database.run(_RAISE.format(sqlstate, text))
    assert known_fault(raised.value) == (text if known else None)


def test_the_publisher_itself_is_asked(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the end a function stands for the one that reads the slot."""
    assert publisher_fault(database, "chaos", ["chaos"]) is None, "the slot can be read"
    assert publisher_fault(database, "none", ["chaos"]) is None, "another error"
    database.run(
        "CREATE FUNCTION fails(slot text, publications text) RETURNS void LANGUAGE plpgsql AS"
        f" $f$ BEGIN RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = '{DUPLICATE}'; END $f$"
    )
    monkeypatch.setattr(module, "_PEEK", "SELECT public.fails(%s, %s)")
    assert publisher_fault(database, "chaos", ["chaos"]) == DUPLICATE


def test_a_slot_in_use_proves_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker reads it, so the log can be decoded."""
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    start = (
        "START_REPLICATION SLOT chaos LOGICAL 0/0 (proto_version '4', publication_names 'chaos')"
    )
    with closing(psycopg.connect(database.dsn, replication="database", autocommit=True)) as reader:
        reader.pgconn.send_query(start.encode())
        held = "SELECT active FROM pg_replication_slots WHERE slot_name = 'chaos'"
        wait_until(lambda: database.value(held), what="the slot is in use")
        assert publisher_fault(database, "chaos", ["chaos"]) is None


def test_such_a_seed_is_named_and_is_not_right() -> None:
    plan, folder = make_plan(66), Path("seed-66")
    stopped = Outcome(plan, 1.0, 150, None, "AssertionError: not within 180 s", folder)
    faulty = Outcome(*(plan, 1.0, 150, None, stopped.error, folder), publisher_fault=DUPLICATE)
    assert not faulty.good
    assert DUPLICATE in str(faulty)
    assert "right" not in str(faulty)
    first, *_, last = _summary([stopped, faulty], 60.0).splitlines()
    assert "seeds stopped 1," in first
    assert last == "seeds that a fault of the publisher ended: 66"
    assert "publisher ended" not in _summary([stopped], 60.0)
