"""PostgreSQL's 034_temporal: keys of ranges WITHOUT OVERLAPS, under every replica identity.

All identities at once, in tables named ``key_identity``. FOR PORTION OF (S-034-7) is PostgreSQL
19's.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow, Rows

ROW = "INSERT INTO {} VALUES ('[1,2)', '[2000-01-01,2010-01-01)', 'a')"
MORE = (
    "INSERT INTO {0} SELECT int4range(n, n + 1), '[2000-01-01,2010-01-01)', 'a'"
    " FROM generate_series(2, 4) n"
)
KEYS = {
    "no_key": "",
    "pk": ", PRIMARY KEY (id, valid_at WITHOUT OVERLAPS)",
    "unique": ", UNIQUE (id, valid_at WITHOUT OVERLAPS)",
}
IDENTITIES = {
    "no_key_default": None,
    "pk_default": None,
    "unique_default": None,
    "no_key_full": "FULL",
    "pk_full": "FULL",
    "unique_full": "FULL",
    "pk_index": "USING INDEX pk_index_pkey",
    "unique_index": "USING INDEX unique_index_id_valid_at_key",
    "no_key_nothing": "NOTHING",
    "pk_nothing": "NOTHING",
    "unique_nothing": "NOTHING",
}
WITHOUT = [
    *("no_key_default", "unique_default"),
    *("no_key_nothing", "pk_nothing", "unique_nothing"),
]
"""Tables that the publisher does not let anybody update."""

FROM_2000 = "[2000-01-01,2010-01-01)"
CHANGED = [("[1,2)", FROM_2000, "a"), ("[2,3)", FROM_2000, "b"), ("[4,5)", FROM_2000, "a")]


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t034")
    for table, identity in IDENTITIES.items():
        key = KEYS[table.rpartition("_")[0]]
        columns = "id int4range NOT NULL, valid_at daterange NOT NULL, a text"
        flow.both(f"CREATE TABLE {table} ({columns}{key})")
        if identity:
            flow.both(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
    flow.pub.run(
        *(ROW.format(table) for table in IDENTITIES),
        f"CREATE PUBLICATION pub1 FOR TABLE {', '.join(IDENTITIES)}",
    )
    flow.subscribe("sub1", ["pub1"])
    flow.checkpoint("copy", *IDENTITIES)
    flow.pub.run(*(MORE.format(table) for table in IDENTITIES))
    flow.checkpoint("insert", *IDENTITIES)
    flow.facts["refused"] = {table: _change(flow, table) for table in IDENTITIES}
    flow.checkpoint("change", *IDENTITIES)
    return flow


def _change(flow: Flow, table: str) -> list[str]:
    """Update one row, delete another; what the publisher said against it."""
    said = []
    for words in (
        f"UPDATE {table} SET a = 'b' WHERE id = '[2,3)'",
        f"DELETE FROM {table} WHERE id = '[3,4)'",
    ):
        try:
            flow.pub.run(words)
        except psycopg.Error as error:
            said.append(str(error.diag.message_primary))
    return said


def _all(flow: Flow, label: str, *suffixes: str) -> dict[str, Rows]:
    return {table: flow.same(label, table) for table in IDENTITIES if table.endswith(suffixes)}


def test_s_034_1_tables_with_such_keys_are_copied(flow: Flow) -> None:
    assert set(map(tuple, _all(flow, "copy", "").values())) == {(CHANGED[0],)}


def test_s_034_2_and_get_inserts(flow: Flow) -> None:
    found = _all(flow, "insert", "")
    assert {len(rows) for rows in found.values()} == {4}


def test_s_034_3_updates_and_deletes_by_the_primary_key(flow: Flow) -> None:
    assert flow.same("change", "pk_default") == CHANGED
    assert flow.same("change", "pk_index") == CHANGED


def test_s_034_4_without_identity_nothing_comes(flow: Flow) -> None:
    refused = {table: len(said) for table, said in flow.facts["refused"].items()}
    assert refused == {table: 2 if table in WITHOUT else 0 for table in IDENTITIES}
    assert all(
        "does not have a replica identity" in said
        for table in WITHOUT
        for said in flow.facts["refused"][table]
    )
    for table in WITHOUT:
        assert flow.same("change", table) == flow.same("insert", table)


def test_s_034_5_identity_full_needs_no_key(flow: Flow) -> None:
    found = _all(flow, "change", "_full")
    assert list(found) == ["no_key_full", "pk_full", "unique_full"]
    assert all(rows == CHANGED for rows in found.values())


def test_s_034_6_a_unique_index_as_identity(flow: Flow) -> None:
    assert flow.same("change", "unique_index") == CHANGED
