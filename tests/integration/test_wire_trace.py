"""What a publisher hears from us, against what it hears from PostgreSQL's own subscriber.

``wire_trace.txt`` is the latter. Ours must be the same once the statements and words that are
listed in ``docs/protocol.md`` as ours are taken out: with ``sync_slot: permanent``. A temporary
slot of the sync worker is made as one, and vanishes with its connection.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.proxy import Proxy
from tests.docs.own_statements import APPLY, CREATE, STATEMENTS, SYNC, WORDS, patterns
from tests.fix_publisher import Database
from tests.harness import Pgsub
from tests.integration.wire import Conversation, Said, WireTrace
from tests.waiting import wait_until

EXPECTED = Path(__file__).with_name("wire_trace.txt")

OWN_STATEMENTS, OWN_WORDS = patterns(STATEMENTS), patterns(WORDS)
"""What only we send, by connection and why; each is sent at least once."""

CATALOG_QUERIES: dict[str, tuple[str, tuple[int, ...]]] = {
    "[relation: oid, replica identity, kind]": (r"SELECT c\.oid, c\.relreplident", (0, 1, 2)),
    "[column list: NULL for all columns]": (r"SELECT DISTINCT CASE .*gpt\.attrs", (0,)),
    "[columns: number, name, type, in key]": (r"SELECT a\.attnum", (0, 1, 2, 5)),
    "[row filters]": (r"SELECT DISTINCT pg_catalog\.pg_get_expr\(gpt\.qual", (0,)),
}
"""By name, and which of the columns that we ask for are PostgreSQL's too."""

PLACEHOLDERS = {
    r"^(SELECT c\.oid.*|\[relation.*)$": (r"^\d+", "<oid>"),
    r"^IDENTIFY_SYSTEM$": (r"^\d+ \| 1 \| [0-9A-F]+/[0-9A-F]+ \| \w+$",
                           "<system identifier> | 1 | <position> | <database>"),
}  # fmt: skip

IDLE = [
    "<- keepalive, no reply asked",
    "=> write = flush = apply = the keepalive's position, no reply asked",
]
"""A stream in which nothing comes. A sync worker with nothing to catch up with may end it before
the first keepalive, or before it has answered."""

SYNC_SLOT = re.compile(r"pg_\d+_sync_\d+_\d+")


@pytest.fixture(scope="module", params=["temporary", "permanent"])
def sync_slot(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def heard(
    sync_slot: str,
    server_of: Callable[[int], EmbeddedPublisher],
    make_database: Callable[..., Database],
    pgsub: Pgsub,
) -> list[Conversation]:
    """CREATE, the copy of one table, and an idle apply worker's first status update."""
    database = make_database(server_of(15), f"wire_{sync_slot}")
    tables = {"public.table_1": {"to": f"wire_{sync_slot}.table_1"}}
    database.run(
        "CREATE TABLE table_1 (id int PRIMARY KEY, name varchar)",
        "INSERT INTO table_1 SELECT i, 'name ' || i FROM generate_series(1, 10) i",
        "CREATE PUBLICATION mypub FOR TABLE table_1",
    )
    trace = WireTrace()
    with Proxy(database, trace) as proxy:
        # As the subscriber that was heard, whose default is off.
        words: dict[str, Any] = {"tables": tables, "sync_slot": sync_slot, "streaming": "off"}
        pgsub.create("mysub", proxy.conninfo, ["mypub"], **words)
        try:
            pgsub.wait("mysub", lsn=database.lsn())
            wait_until(
                lambda: (
                    len(trace.conversations) == 3
                    and all(kinds(each)[-1:] == ["terminate"] for each in trace.conversations[::2])
                    and "status" in kinds(trace.conversations[1])
                ),
                30,
                lambda: [kinds(each) for each in trace.conversations],
            )
            talks = trace.conversations
        finally:
            pgsub.drop("mysub")
    assert len(pgsub.rows(f"wire_{sync_slot}", "table_1")) == 10
    return talks


pytestmark = [pytest.mark.matrix, pytest.mark.matrix_only]


def kinds(talk: Conversation) -> list[str]:
    return [said.kind for said in talk.said]


def expected(sync_slot: str) -> list[str]:
    """PostgreSQL's trace, but for what a temporary slot of the sync worker changes."""
    text = "\n".join(
        line for line in EXPECTED.read_text().splitlines() if line and not line.startswith("#")
    )
    if sync_slot == "permanent":
        return text.splitlines()
    text = text.replace(
        '"<sync slot>" LOGICAL pgoutput', '"<sync slot>" TEMPORARY LOGICAL pgoutput'
    )
    return text.replace("DROP_REPLICATION_SLOT <sync slot> WAIT\n", "").splitlines()


def without_own(talk: Conversation, role: str) -> list[Said]:
    """Without the statements that are only ours, and without their answers."""
    kept: list[Said] = []
    seen: set[str] = set()
    own = False
    for said in talk.said:
        if said.kind == "query":
            text = one_line(said)
            names = {why for why, each in OWN_STATEMENTS[role].items() if re.match(each, text)}
            own = bool(names)
            seen |= names
        elif said.kind not in ("row", "data"):
            own = False
        if not own:
            kept.append(said)
    assert seen == OWN_STATEMENTS[role].keys(), f"{role}: not every one of the list was sent"
    return kept


def one_line(said: Said) -> str:
    return " ".join((said.values[0] or "").split())


def told(talk: Conversation, role: str) -> Iterator[str]:
    """A conversation in the words of ``wire_trace.txt``."""
    startup = talk.startup
    yield f"connection {startup['application_name']}, replication {startup['replication']}"
    statement = ""
    wanted: tuple[int, ...] = ()
    keepalive = None
    spoken: set[str] = set()
    for said in without_own(talk, role):
        if said.kind == "query":
            statement, wanted = theirs(one_line(said))
            for why, words in OWN_WORDS[role].items():
                statement, times = re.subn(f" {words}$", "", statement)
                spoken |= {why} if times else set()
            yield statement
        elif said.kind in ("row", "data"):
            values = list(said.values)
            if said.kind == "data":
                values = list(next(csv.reader([str(said.values[0])])))
            row = " | ".join("NULL" if values[n] is None else str(values[n]) for n in
                             wanted or range(len(values)))  # fmt: skip
            for where, (value, name) in PLACEHOLDERS.items():
                row = re.sub(value, name, row) if re.match(where, statement) else row
            yield f"-> {row}"
        elif said.kind == "keepalive":
            keepalive = said.values[0]
            yield "<- keepalive, no reply asked" if said.values[1] == "0" else "<- keepalive"
        elif said.kind == "status":
            same = said.values == (keepalive,) * 3 + ("0",)
            what = "write = flush = apply = the keepalive's position, no reply asked"
            yield f"=> {what if same else ' '.join(map(str, said.values))}"
        elif said.kind != "done":  # CopyDone is not in the trace; nothing can be said before it
            yield said.kind
    assert spoken == OWN_WORDS[role].keys(), f"{role}: not all words of the list were sent"


def theirs(statement: str) -> tuple[str, tuple[int, ...]]:
    """A statement as it stands, or a catalog query's name and the columns to look at."""
    for name, (text, columns) in CATALOG_QUERIES.items():
        if re.match(text, statement):
            return name, columns
    return statement, ()


def said_once(lines: Iterator[str]) -> list[str]:
    """Keepalives and status updates come again and again; the first of each is kept."""
    kept: list[str] = []
    for line in lines:
        if line[:2] not in ("<-", "=>") or line[:2] not in (each[:2] for each in kept):
            kept.append(line)
    return kept


def test_a_15_publisher_hears_what_it_hears_from_postgres(
    heard: list[Conversation], sync_slot: str
) -> None:
    lines: list[str] = []
    for talk, role in zip(heard, (CREATE, APPLY, SYNC), strict=True):
        said = "\n".join(said_once(told(talk, role)))
        points = re.findall(r"^-> \S+ \| ([0-9A-F]+/[0-9A-F]+) \| NULL \| pgoutput$", said, re.M)
        slots = set(SYNC_SLOT.findall(said))
        assert (len(points), len(slots)) == ({CREATE: 1, APPLY: 0, SYNC: 1}[role], role == SYNC)
        for point in points:
            said = said.replace(point, "<consistent point>")
        lines += SYNC_SLOT.sub("<sync slot>", said).splitlines()
    wanted = expected(sync_slot)
    for line, kind in zip(IDLE, ("keepalive", "status"), strict=True):
        if kind not in kinds(heard[2]):  # through before it came
            del wanted[len(wanted) - wanted[::-1].index(line) - 1]
    assert lines == wanted


def test_no_status_is_ahead_of_what_was_heard(heard: list[Conversation]) -> None:
    for talk in heard:
        positions = {said.values[0] for said in talk.said if said.kind == "keepalive"}
        for said in talk.said:
            assert said.kind != "status" or set(said.values[:3]) <= positions
