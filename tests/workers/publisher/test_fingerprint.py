"""Fingerprints: equal for one table and for all, different after every change."""

from __future__ import annotations

from tests.workers.publisher.scripted import ScriptedPublisher, answers
from workers.publisher.fingerprint import fetch_fingerprints
from workers.publisher.remote_table import (
    fetch_remote_table_info,
)


def test_fingerprints_of_all_tables_are_those_of_each() -> None:
    conn = ScriptedPublisher(18, answers())
    each = fetch_remote_table_info(conn, "public", "table_1", ["p"]).fingerprint
    found = fetch_fingerprints(conn, ["p", "q"])
    assert found[("public", "table_1")] == each
    assert found[("public", "b")].startswith("iudtv @")


def test_a_publication_that_was_changed_back_has_another_fingerprint() -> None:
    before = fetch_fingerprints(ScriptedPublisher(18, answers()), ["p", "q"])
    changed = answers()
    changed["pubinsert"][0] = (*changed["pubinsert"][0][:-1], "1/2")
    after = fetch_fingerprints(ScriptedPublisher(18, changed), ["p", "q"])
    assert {name for name in before if before[name] != after[name]} == {("public", "table_1")}
