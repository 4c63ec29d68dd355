"""PostgreSQL's 007_ddl and 009_matviews.

S-007-1 is in test_024_add_drop_pub.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow, first

RENAME = "ALTER PUBLICATION {} RENAME TO {}"


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t007")
    flow.both("CREATE TABLE test2 (a int)", "CREATE TABLE mix (a int PRIMARY KEY, b int, c int)")
    flow.pub.run(
        "INSERT INTO test2 VALUES (0)",
        "INSERT INTO mix VALUES (1, 2, 3)",
        "CREATE PUBLICATION for_all_tables FOR ALL TABLES",
        "CREATE PUBLICATION empty_1",
        "CREATE PUBLICATION empty_2",
    )
    every = flow.subscribe("every", ["for_all_tables", "non_existent"])
    flow.facts["create"] = flow.warnings(every)
    flow.catch_up()
    flow.facts["states"] = flow.same_letters(every)
    flow.both("CREATE TABLE test1 (a int)")
    flow.pub.run("CREATE PUBLICATION for_table FOR TABLE test1")
    one = flow.subscribe("one", ["for_table"])
    flow.catch_up()
    flow.pub.run(
        "INSERT INTO test1 VALUES (1)",
        "INSERT INTO test2 VALUES (1)",
        "INSERT INTO mix VALUES (4, 5, 6)",
        "CREATE MATERIALIZED VIEW testmv1 AS SELECT * FROM mix",
        "REFRESH MATERIALIZED VIEW testmv1",
    )
    flow.checkpoint("before", "test1", "test2", "mix")
    flow.facts["tables"] = flow.lake_tables()
    workers = [flow.pgsub.worker(name) for name in (every, one)]
    for name, empty in (("for_table", "empty_1"), ("for_all_tables", "empty_2")):
        flow.pub.run(RENAME.format(name, "moved"), RENAME.format(empty, name))
        flow.pub.run(RENAME.format("moved", empty))
    flow.pub.run("INSERT INTO test1 VALUES (2)", "INSERT INTO test2 VALUES (2)")
    flow.checkpoint("swapped", "test1", "test2")
    flow.facts["workers"] = workers, [flow.pgsub.worker(name) for name in (every, one)]
    for verb, words in (("add", "gone_1, gone_2"), ("set", "gone")):
        flow.alter(one, f"{verb} PUBLICATION {words}")
        flow.facts[verb] = flow.warnings(one), _listed(flow, one)
    return flow


def _listed(flow: Flow, name: str) -> list[tuple[list[str], list[str]]]:
    """Publications and tables of a subscription: ours, and the twin's."""
    subs = flow.pgsub.status("pg_subscription")
    [publications] = [row["subpublications"] for row in subs if row["subname"] == name]
    [native] = flow.sub.execute(
        "SELECT subpublications, array(SELECT srrelid::regclass::text FROM pg_subscription_rel"
        " WHERE srsubid = s.oid) FROM pg_subscription s WHERE subname = %s",
        (f"{name}_native",),
    )
    return [(list(publications), list(flow.states(name))), native]


def test_s_007_2_a_publication_that_is_missing_at_create(flow: Flow) -> None:
    ours, native = flow.facts["create"]
    assert native == ['WARNING:  publication "non_existent" does not exist on the publisher']
    # Natively nothing is said of a table without an identity.
    assert [line for line in ours if "identity" not in line] == native
    assert flow.facts["states"] == {"test2": "r", "mix": "r"}
    assert first(flow.same("before", "test2")) == [0, 1]


def test_s_009_1_a_materialized_view_sends_nothing(flow: Flow) -> None:
    """Nor does it hold up what comes after it."""
    assert "testmv1" not in flow.facts["tables"]
    assert first(flow.same("before", "mix")) == [1, 4]


def test_s_007_5_an_empty_publication_takes_the_name_of_ours(flow: Flow) -> None:
    assert first(flow.same("before", "test1")) == [1]
    assert first(flow.same("swapped", "test1")) == [1]


def test_s_007_6_and_that_of_one_for_all_tables(flow: Flow) -> None:
    assert first(flow.same("swapped", "test2")) == [0, 1]
    before, after = flow.facts["workers"]
    assert [row and row["pid"] for row in before] == [row and row["pid"] for row in after]
    assert None not in before


def test_s_007_3_one_warning_names_all_publications_that_are_missing(flow: Flow) -> None:
    (ours, native), listed = flow.facts["add"]
    assert ours == native
    assert ours == ['WARNING:  publications "gone_1", "gone_2" do not exist on the publisher']
    assert listed[0] == listed[1]
    assert listed[0][0] == ["for_table", "gone_1", "gone_2"]


def test_s_007_4_and_its_refresh_leaves_no_table(flow: Flow) -> None:
    (ours, native), listed = flow.facts["set"]
    assert ours == native == ['WARNING:  publication "gone" does not exist on the publisher']
    assert listed == [(["gone"], []), (["gone"], [])]
