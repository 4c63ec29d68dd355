"""Queries for publications and their tables, by the publisher's version."""

from __future__ import annotations

import re

import pytest

from catalog.errcodes import FeatureNotSupported, ReplicationError
from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.interfaces import Row
from workers.publisher.publications import (
    fetch_table_list,
    missing_publications,
)
from workers.publisher.remote_table import (
    fetch_remote_table_info,
)


def test_missing_publications_keep_their_order() -> None:
    conn = ScriptedPublisher(18, {"pg_publication": [("b",)]})
    assert missing_publications(conn, ["z", "b", "it's"]) == ["z", "it's"]
    assert "IN ('z', 'b', 'it''s')" in conn.asked[0]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (19, "VARIADIC"),
        (18, "VARIADIC"),
        (16, "VARIADIC"),
        (15, "t.attnames"),
        (14, "pg_partition_ancestors"),
        (13, "pg_partition_ancestors"),
        (12, "SELECT DISTINCT t.schemaname, t.tablename\nFROM"),
        (10, "SELECT DISTINCT t.schemaname, t.tablename\nFROM"),
    ],
)
def test_table_list_by_version(version: int, words: str) -> None:
    """H-24: a leaf whose ancestor is listed too is left out by our own query up to 15."""
    conn = ScriptedPublisher(version, {"SELECT": [("public", "a", "1 2"), ("public", "b", "1")]})
    assert fetch_table_list(conn, ["p"]) == [("public", "a"), ("public", "b")]
    assert words in conn.asked[0]
    assert not re.search(r"(?<!:):[a-z]", conn.asked[0])
    assert ("attnames" in conn.asked[0]) == (version == 15)
    assert ("pg_partition_ancestors" in conn.asked[0]) == (13 <= version <= 15)


def test_different_column_lists() -> None:
    conn = ScriptedPublisher(18, {"SELECT": [("public", "a", "1 2"), ("public", "a", "1")]})
    with pytest.raises(FeatureNotSupported, match=r'column lists for table "public\.a"'):
        fetch_table_list(conn, ["p"])
    conn = ScriptedPublisher(
        18, {"pg_class c\nINNER": [("1", "d", "r")], "array_length": [(None,), ("1",)]}
    )
    with pytest.raises(FeatureNotSupported):
        fetch_remote_table_info(conn, "public", "a", ["p"])


def test_errors_of_the_publisher_pass_through() -> None:
    class Refusing(ScriptedPublisher):
        def exec(self, sql: str) -> list[Row]:
            raise ReplicationError("permission denied", sqlstate="42501")

    with pytest.raises(ReplicationError) as caught:
        fetch_table_list(Refusing(18, {}), ["p"])
    assert caught.value.code == "42501"
