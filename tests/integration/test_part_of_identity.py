"""Tables of whose replica identity only a part is published: by a column list, and by a publisher
before 18 because a column of it is generated. Our side overwrites by key; there is none.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow

LISTED = {"shop_bill": ["shop", "total"], "all_kinds": ["shop", "total"]}
WARNED = 'table "{}" publishes updates or deletes but only part of its replica identity'


@pytest.fixture(scope="module")
def lists(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    """``shop_bill`` publishes inserts only, into a lake table that has a row; ``all_kinds``
    everything, as long as nothing but inserts happens."""
    flow = make_flow(publisher, "part_list")
    for table in LISTED:
        flow.pub.run(
            f"CREATE TABLE {table} (shop int, number int, total int, PRIMARY KEY (shop, number))",
            f"INSERT INTO {table} VALUES (1, 1, 10), (1, 2, 20)",
        )
        flow.sub.run(f"CREATE TABLE {table} (shop int, number int, total int)")
    flow.pub.run(
        "CREATE PUBLICATION bills FOR TABLE shop_bill (shop, total) WITH (publish = 'insert')",
        "CREATE PUBLICATION kinds FOR TABLE all_kinds (shop, total)",
    )
    flow.sub.run("INSERT INTO shop_bill VALUES (1, NULL, 5)")
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    flow.lake("CREATE TABLE {t}.shop_bill (shop int, total int)")
    flow.lake("INSERT INTO {t}.shop_bill VALUES (1, 5)")
    overwriting = {"on_key_conflict": "overwrite"}
    name = flow.subscribe(
        "sub",
        ["bills", "kinds"],
        tables={"shop_bill": {**overwriting, "adopt": True}, "all_kinds": overwriting},
    )
    flow.facts["said"] = flow.said[name]
    flow.checkpoint("copy", *LISTED, columns=LISTED)
    flow.pub.run(
        "INSERT INTO shop_bill VALUES (1, 3, 30), (1, 4, 40)",
        "INSERT INTO all_kinds VALUES (1, 3, 30), (1, 4, 40)",
        "INSERT INTO shop_bill VALUES (2, 1, 50)",
        "UPDATE shop_bill SET total = 0",
    )
    with pytest.raises(psycopg.Error) as refused:
        flow.pub.run("UPDATE all_kinds SET total = 0")
    flow.facts["refused"] = str(refused.value)
    flow.checkpoint("stream", *LISTED, columns=LISTED)
    return flow


def test_copied_rows_that_share_the_listed_part_stay(lists: Flow) -> None:
    assert lists.same("copy", "shop_bill") == [(1, 10), (1, 20), (1, 5)]
    assert lists.same("copy", "all_kinds") == [(1, 10), (1, 20)]


def test_and_inserted_ones(lists: Flow) -> None:
    """Taken for a key, the part stopped ``shop_bill`` here, since two rows have it; where one had,
    each row took the place of the one before."""
    totals = [(1, 10), (1, 20), (1, 30), (1, 40), (1, 5), (2, 50)]
    assert lists.same("stream", "shop_bill") == totals
    assert lists.same("stream", "all_kinds") == totals[:4]


def test_the_publisher_refuses_what_the_part_would_have_to_find(lists: Flow) -> None:
    assert "used by the publication does not cover the replica identity" in lists.facts["refused"]
    assert WARNED.format("part_list.all_kinds") in lists.facts["said"]
    assert WARNED.format("part_list.shop_bill") not in lists.facts["said"]


@pytest.fixture(scope="module")
def generated(
    server_of: Callable[[int], EmbeddedPublisher], make_flow: Callable[..., Flow]
) -> Flow:
    """A publisher of 16: it sends no generated column, and an UPDATE with the rest of the key."""
    flow = make_flow(server_of(16), "part_generated")
    flow.both(
        "CREATE TABLE t (a int, b int, g int GENERATED ALWAYS AS (b * 2) STORED,"
        " PRIMARY KEY (a, g))"
    )
    flow.pub.run("INSERT INTO t (a, b) VALUES (1, 1), (1, 2)", "CREATE PUBLICATION pub FOR TABLE t")
    name = flow.subscribe("sub", ["pub"], tables={"t": {"on_key_conflict": "overwrite"}})
    flow.facts["said"] = flow.said[name]
    columns = {"t": ["a", "b"]}
    flow.checkpoint("copy", "t", columns=columns)
    flow.pub.run("INSERT INTO t (a, b) VALUES (1, 3), (1, 4)")
    flow.checkpoint("stream", "t", columns=columns)
    flow.pub.run("UPDATE t SET b = 5 WHERE b = 1")
    flow.wait_failing(name)
    flow.facts["log"] = flow.pgsub.log_tail(10_000)
    flow.facts["rows"] = flow.pgsub.rows(flow.name, "t", ["a", "b"])
    return flow


def test_rows_that_share_all_but_the_generated_column_stay(generated: Flow) -> None:
    assert generated.same("copy", "t") == [(1, 1), (1, 2)]
    assert generated.same("stream", "t") == [(1, 1), (1, 2), (1, 3), (1, 4)]


def test_an_update_by_a_part_of_the_key_stops_on_both_sides(generated: Flow) -> None:
    assert (
        "publisher did not send replica identity column expected by the logical replication "
        f'target relation "{generated.name}.t"'
    ) in generated.facts["log"]
    assert generated.facts["rows"] == generated.recorded["stream", "t"][1]
    assert WARNED.format("part_generated.t") in generated.facts["said"]
