"""Fingerprints: equal for one table and for all, different after every change."""

from __future__ import annotations

from tests.workers.publisher.scripted import ScriptedPublisher, answers
from workers.publisher.fingerprint import (
    PublishedTable,
    TableFile,
    fetch_fingerprints,
    key_digest,
    published_as,
    stored_file,
    stored_key_digest,
    with_file,
    with_key_digest,
)
from workers.publisher.remote_table import (
    fetch_remote_table_info,
)


def test_fingerprints_of_all_tables_are_those_of_each() -> None:
    conn = ScriptedPublisher(18, answers())
    each = fetch_remote_table_info(conn, "public", "table_1", ["p"]).fingerprint
    found = fetch_fingerprints(conn, ["p", "q"])
    assert found[("public", "table_1")] == PublishedTable(each, TableFile(16402, 7))
    assert found[("public", "b")].fingerprint.startswith("iudtv @")


def test_a_publication_that_was_changed_back_has_another_fingerprint() -> None:
    before = fetch_fingerprints(ScriptedPublisher(18, answers()), ["p", "q"])
    changed = answers()
    changed["pubinsert"][0] = (*changed["pubinsert"][0][:8], "1/2", "16402", "7")
    after = fetch_fingerprints(ScriptedPublisher(18, changed), ["p", "q"])
    assert {name for name in before if before[name] != after[name]} == {("public", "table_1")}


def test_a_copy_stores_the_key_with_the_types_that_relation_messages_send() -> None:
    conn = ScriptedPublisher(18, answers())
    remote = fetch_remote_table_info(conn, "public", "table_1", ["p"])
    stored = remote.fingerprint_at_copy
    assert stored_key_digest(stored) == key_digest([("id", 23, -1)])
    assert stored_file(stored) == 16402
    assert published_as(stored) == remote.fingerprint


def test_a_stored_fingerprint_with_and_without_a_key() -> None:
    older = "iudt- OR (a # 3) @0123456789abcdef"
    assert (published_as(older), stored_key_digest(older)) == (older, None)
    digest = key_digest([("a", 23, -1), ("b", 1043, 14)])
    assert digest == key_digest([("b", 1043, 14), ("a", 23, -1)])
    stored = with_key_digest(older, digest)
    assert (published_as(stored), stored_key_digest(stored)) == (older, digest)
    assert (published_as(None), stored_key_digest(None)) == (None, None)
    for moved in (with_file(stored, 16402), with_key_digest(with_file(older, 16402), digest)):
        assert moved == f"{older} #{digest} /16402"
        assert (published_as(moved), stored_key_digest(moved)) == (older, digest)
        assert (stored_file(moved), stored_file(with_file(moved, 9))) == (16402, 9)
    assert (stored_file(stored), stored_file(older), stored_file(None)) == (None, None, None)
    assert published_as(with_file(older, 5)) == older
    assert len({digest, key_digest([("a", 20, -1), ("b", 1043, 14)]), key_digest([])}) == 3
