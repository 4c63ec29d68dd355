"""A stream that is in binary form because nobody said otherwise comes as text where it has to.

What is published now says nothing of what is still to be sent: columns and tables may be gone
since, and types altered. The native subscriber's stream is text, and knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from tests.waiting import wait_until

NEEDED = "action=text_needed"


@pytest.fixture(scope="module", params=every_version(18))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    if request.param < 16:
        pytest.skip("an older publisher's stream is text")
    flow = make_flow(requested_publisher(request), f"t014t_{request.param}")
    flow.both(
        "CREATE TABLE plain (a int PRIMARY KEY, b text)",
        "CREATE TABLE found (a int PRIMARY KEY, b text, v tsvector)",
    )
    flow.pub.run(
        "INSERT INTO plain VALUES (1, 'one')",
        "CREATE PUBLICATION tpub FOR ALL TABLES",
    )
    flow.subscribe("text", ["tpub"])
    flow.checkpoint("copied", "plain", "found")
    return flow


def is_binary(flow: Flow) -> bool:
    query = (
        "SELECT query ~ 'binary .true' FROM pg_stat_activity"
        " WHERE application_name = %s AND query ~ '^START_REPL'"
    )
    asked = partial(flow.pub.execute, query, (flow.subscriptions[0],))
    return bool(wait_until(asked, 60, asked)[0][0])


def told(flow: Flow) -> int:
    """How often it was said, in all that the family has done, that a stream starts as text."""
    return flow.pgsub.log_file.read_text().count(NEEDED)


LATE = {
    "a column that is gone": (
        "INSERT INTO found VALUES (1, 'x', 'a fat cat'), (2, 'y', NULL)",
        "UPDATE found SET v = 'thin', b = 'z' WHERE a = 2",
        "ALTER TABLE found DROP COLUMN v",
        "INSERT INTO found VALUES (3, 'x')",
    ),
    "an array that no server sends": (
        "INSERT INTO lists SELECT oid, relacl FROM pg_class WHERE relacl IS NOT NULL",
        "DROP TABLE lists",
    ),
    "a composite type": (
        "INSERT INTO pairs VALUES (1, (5, 6))",
        "ALTER TYPE pair DROP ATTRIBUTE b, ADD ATTRIBUTE c text",
        "DROP TABLE pairs",
    ),
}
"""What the publisher does while nobody reads, and nothing of it is in its catalog afterwards."""

MADE = {
    "an array that no server sends": ("CREATE TABLE lists (a oid PRIMARY KEY, l aclitem[])",),
    "a composite type": (
        "CREATE TYPE pair AS (a int, b int)",
        "CREATE TABLE pairs (a int PRIMARY KEY, p pair)",
    ),
}
"""Tables that nobody subscribes to; the native subscriber has to know them all the same."""

PASSED_OVER = ("a composite type",)
"""Here nobody looks at its values, and the publisher has no trouble with them."""


def test_014_what_is_still_to_be_sent_may_need_text(flow: Flow) -> None:
    """Everything before it, it, and everything behind it, once; from then on binary again."""
    assert not is_binary(flow), "text search has no binary form that is known here"
    before = told(flow)
    name = flow.subscriptions[0]
    for number, late in enumerate(LATE):
        flow.alter(name, "DISABLE")
        flow.both(*MADE.get(late, ()))
        flow.pub.run(
            "INSERT INTO plain SELECT max(a) + 1, 'before' FROM plain",
            "UPDATE plain SET b = b || '!' WHERE a % 2 = 0",
            *LATE[late],
            "INSERT INTO plain SELECT max(a) + 1, 'behind' FROM plain",
            "DELETE FROM plain WHERE a = (SELECT min(a) FROM plain)",
        )
        flow.alter(name, "ENABLE")
        flow.checkpoint(late, "plain", "found")
        assert flow.same(late, "plain")
        assert flow.same(late, "found")
        assert is_binary(flow) is (late in PASSED_OVER)
        assert told(flow) - before == min(number + 1, 2)
    flow.alter(name, "DISABLE")
    flow.alter(name, "ENABLE")
    flow.pub.run("INSERT INTO plain SELECT max(a) + 1, 'again' FROM plain")
    flow.checkpoint("again", "plain")
    assert flow.same("again", "plain")
    assert is_binary(flow)
