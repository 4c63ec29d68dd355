"""PostgreSQL's short files, in one database and one subscription: 003_constraints, 005_encoding,
006_rewrite, 011_generated (as far as the publisher generates) and of 032_subscribe_use_index what
an index has no part in.

The database is in LATIN1, for 005; the others do not mind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow

BOTH = (
    "CREATE TABLE tab_fk (bid int PRIMARY KEY)",
    "CREATE TABLE encoded (id int PRIMARY KEY, b text)",
    "CREATE TABLE test1 (a int, b text)",
)
DOUBLED = "int GENERATED ALWAYS AS (a * {}) STORED"
PUBLISHERS = (
    "CREATE TABLE tab_fk_ref (id int PRIMARY KEY, junk text, bid int REFERENCES tab_fk)",
    f"CREATE TABLE gen_none (a int PRIMARY KEY, b {DOUBLED.format(2)})",
    f"CREATE TABLE gen_stored (a int PRIMARY KEY, b {DOUBLED.format(2)},"
    " v int GENERATED ALWAYS AS (a * 3) VIRTUAL)",
    f"CREATE TABLE gen_listed (a int, gen1 {DOUBLED.format(2)})",
    f"CREATE TABLE gen_one_of_two (a int, gen1 {DOUBLED.format(2)}, gen2 {DOUBLED.format(2)})",
    "CREATE TABLE full_id (x int)",
    "ALTER TABLE full_id REPLICA IDENTITY FULL",
)
TWINS = (
    "CREATE TABLE tab_fk_ref (id int PRIMARY KEY, bid int REFERENCES tab_fk, junk text)",
    "CREATE TABLE gen_none (a int PRIMARY KEY, b int)",
    "CREATE TABLE gen_stored (a int PRIMARY KEY, b int)",
    "CREATE TABLE gen_listed (gen1 int)",
    "CREATE TABLE gen_one_of_two (gen1 int)",
    "CREATE TABLE full_id (x int, extra int)",
    "ALTER TABLE full_id REPLICA IDENTITY FULL",
)
LAKE = (
    "CREATE NAMESPACE IF NOT EXISTS {t}",
    "CREATE TABLE {t}.tab_fk_ref (id int, bid int, junk string)",
    "CREATE TABLE {t}.gen_none (a int, b int)",
    "CREATE TABLE {t}.full_id (x int, extra int)",
)
ADOPTED = ("tab_fk_ref", "gen_none", "full_id")
PUBLICATIONS = (
    "CREATE PUBLICATION pub FOR TABLE tab_fk, tab_fk_ref, encoded, test1, full_id",
    "CREATE PUBLICATION pub_none FOR TABLE gen_none, gen_listed (gen1)"
    " WITH (publish_generated_columns = none)",
    "CREATE PUBLICATION pub_stored FOR TABLE gen_stored, gen_one_of_two (gen1)"
    " WITH (publish_generated_columns = stored)",
)
GENERATING = ("gen_none", "gen_stored", "gen_listed", "gen_one_of_two")
ENCODED = "'Mot' || chr(246) || 'rhead'"  # a character's number, in LATIN1


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t003", encoding="LATIN1")
    flow.both(*BOTH)
    flow.pub.run(*PUBLISHERS, *PUBLICATIONS)
    flow.sub.run(*TWINS)
    flow.pub.run(
        "SET client_encoding = 'UTF8'",
        'ALTER TABLE encoded RENAME COLUMN b TO "größe"',
        f"INSERT INTO encoded VALUES (1, {ENCODED})",
        "INSERT INTO test1 VALUES (1, 'one')",
        "INSERT INTO full_id VALUES (1), (3)",
        *(f"INSERT INTO {table} (a) VALUES (1), (2)" for table in GENERATING),
    )
    flow.sub.run('ALTER TABLE encoded RENAME COLUMN b TO "größe"')
    for words in LAKE:
        flow.lake(words)
    names = [words.split()[2] for words in PUBLICATIONS]
    flow.subscribe("sub", names, tables={key: {"adopt": True} for key in ADOPTED})
    flow.checkpoint("copy", "encoded", *GENERATING)
    flow.facts["columns"] = flow.pgsub.arrow("t003", "gen_stored").column_names
    flow.pub.run(
        "SET client_encoding = 'UTF8'",
        "INSERT INTO tab_fk VALUES (1)",
        "INSERT INTO tab_fk_ref (id, bid, junk) VALUES (1, 1, repeat(pi()::text, 20000))",
        f"INSERT INTO encoded VALUES (2, {ENCODED}), (3, 'plain')",
        f"UPDATE encoded SET id = 4, \"größe\" = 'more of ' || {ENCODED} WHERE id = 3",
        "INSERT INTO test1 VALUES (2, 'two')",
        "INSERT INTO full_id VALUES (2)",
        "UPDATE full_id SET x = 4 WHERE x = 3",
        "DELETE FROM full_id WHERE x = 1",
        *(f"INSERT INTO {table} (a) VALUES (4), (5)" for table in GENERATING),
    )
    flow.checkpoint("stream", "tab_fk", "tab_fk_ref", "encoded", "test1", "full_id", *GENERATING)
    _rewrite(flow)
    return flow


def _rewrite(flow: Flow) -> None:
    """The publisher writes its table anew; a child arrives whose parent does not exist."""
    flow.lake("ALTER TABLE {t}.test1 ADD COLUMN c int")
    flow.lake("UPDATE {t}.test1 SET c = 0")
    flow.sub.run("ALTER TABLE test1 ADD c int NOT NULL DEFAULT 0")
    flow.pub.run(
        "ALTER TABLE test1 ADD c int NOT NULL DEFAULT (random() * 0)::int",
        "VACUUM FULL test1",
        "INSERT INTO test1 VALUES (3, 'three', 33)",
        "DROP TABLE tab_fk CASCADE",
        "INSERT INTO tab_fk_ref (id, bid) VALUES (2, 2)",
    )
    flow.checkpoint("rewritten", "test1", "tab_fk_ref")


def test_s_003_1_tables_tied_by_a_foreign_key(flow: Flow) -> None:
    """H-17: the columns are in another order."""
    assert flow.same("stream", "tab_fk") == [(1,)]
    [(id_, bid, junk)] = flow.same("stream", "tab_fk_ref")
    assert (id_, bid, len(junk)) == (1, 1, 20000 * len("3.141592653589793"))


def test_s_003_2_a_child_without_its_parent(flow: Flow) -> None:
    rows = flow.same("rewritten", "tab_fk_ref")
    assert [(id_, bid) for id_, bid, _ in rows] == [(1, 1), (2, 2)]


def test_s_005_1_a_database_in_another_encoding(flow: Flow) -> None:
    """Its rows and the name of a column."""
    assert flow.pub.value("SELECT octet_length(%s::text)", ("ö",)) == 1
    assert flow.same("copy", "encoded") == [(1, "Motörhead")]
    assert flow.same("stream", "encoded") == [
        *((1, "Motörhead"), (2, "Motörhead")),
        (4, "more of Motörhead"),
    ]
    assert flow.pgsub.arrow("t003", "encoded").column_names == ["id", "größe"]


def test_s_006_1_rows_before_and_after_a_rewrite(flow: Flow) -> None:
    assert flow.same("stream", "test1") == [(1, "one"), (2, "two")]
    assert flow.same("rewritten", "test1") == [(1, "one", 0), (2, "two", 0), (3, "three", 33)]


def test_s_011_4_a_generated_column_that_is_not_published_in_the_copy(flow: Flow) -> None:
    assert flow.same("copy", "gen_none") == [(1, None), (2, None)]


def test_s_011_5_published_ones_are_copied(flow: Flow) -> None:
    """Stored ones; nobody publishes virtual ones."""
    assert flow.same("copy", "gen_stored") == [(1, 2), (2, 4)]
    assert flow.facts["columns"] == ["a", "b"]


def test_s_011_6_one_that_is_not_published_in_the_stream(flow: Flow) -> None:
    assert flow.same("stream", "gen_none") == [(1, None), (2, None), (4, None), (5, None)]


def test_s_011_7_published_ones_in_the_stream(flow: Flow) -> None:
    assert flow.same("stream", "gen_stored") == [(1, 2), (2, 4), (4, 8), (5, 10)]


def test_s_011_8_a_list_that_names_one_whatever_the_option(flow: Flow) -> None:
    assert flow.same("copy", "gen_listed") == [(2,), (4,)]
    assert flow.same("stream", "gen_listed") == [(10,), (2,), (4,), (8,)]


def test_s_011_9_a_list_without_one_whatever_the_option(flow: Flow) -> None:
    assert flow.same("copy", "gen_one_of_two") == [(2,), (4,)]
    assert flow.same("stream", "gen_one_of_two") == [(10,), (2,), (4,), (8,)]


def test_s_032_5_identity_full_beside_a_column_of_our_own_that_is_null(flow: Flow) -> None:
    assert flow.same("stream", "full_id") == [(2, None), (4, None)]
