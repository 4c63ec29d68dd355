"""The text of the queries."""

from __future__ import annotations

from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.publications import (
    missing_publications,
)


def test_names_never_become_variables() -> None:
    conn = ScriptedPublisher(18, {})
    missing_publications(conn, [":relid", "a::b"])
    assert "IN (':relid', 'a::b')" in conn.asked[0]
