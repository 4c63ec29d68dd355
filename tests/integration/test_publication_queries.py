"""The publisher queries against real servers of every version."""

from collections.abc import Callable, Iterator

import pytest

from catalog.errcodes import FeatureNotSupported
from tests.fix_publisher import Database, requested_publisher
from tests.servers import every_version
from workers.publication import (
    RemoteTable,
    copy_statement,
    fetch_fingerprints,
    fetch_leaves,
    fetch_remote_table_info,
    fetch_table_list,
    missing_publications,
    tables_of_other_origins,
)
from workers.remote_slots import fetch_slot
from workers.walreceiver import WalReceiverConn, connect

SCHEMA = """
CREATE DOMAIN price AS numeric(10, 2);
CREATE DOMAIN dear AS price;
CREATE TYPE mood AS ENUM ('ok', 'sad');
CREATE TABLE "Odd ""name" (id int PRIMARY KEY, gone text, "Big Col" dear, m mood, l price[],
    p point, n numeric(8, 3)[]);
ALTER TABLE "Odd ""name" DROP COLUMN gone;
CREATE TABLE filtered (a int, b text, c int, PRIMARY KEY (b) INCLUDE (a));
CREATE TABLE plain (a int, g int GENERATED ALWAYS AS (a * 2) STORED);
CREATE TABLE parent (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE leaf1 (v text, id int NOT NULL);
ALTER TABLE parent ATTACH PARTITION leaf1 FOR VALUES FROM (0) TO (10);
CREATE TABLE leaf2 PARTITION OF parent FOR VALUES FROM (10) TO (20);
INSERT INTO filtered SELECT i, i::text, i FROM generate_series(1, 20) i;
INSERT INTO parent SELECT i, i::text FROM generate_series(0, 19) i;
INSERT INTO plain VALUES (1);
CREATE PUBLICATION "it's" FOR TABLE "Odd ""name", plain;
CREATE PUBLICATION root FOR TABLE parent WITH (publish_via_partition_root);
CREATE PUBLICATION leaves FOR TABLE parent;
CREATE PUBLICATION inserts FOR TABLE filtered WITH (publish = 'insert');
CREATE PUBLICATION updates FOR TABLE filtered WITH (publish = 'update');
"""

SINCE_15 = """
CREATE PUBLICATION two FOR TABLE filtered (a, b) WHERE (a > 5) WITH (publish = 'insert');
CREATE PUBLICATION three FOR TABLE filtered (b, a) WHERE (a < 3) WITH (publish = 'update');
CREATE PUBLICATION lists FOR TABLE filtered (b);
CREATE SCHEMA whole;
CREATE TABLE whole.a (id int);
CREATE TABLE whole.b (id int);
CREATE PUBLICATION schemas FOR TABLES IN SCHEMA whole, TABLE filtered;
"""

SINCE_18 = """
CREATE TABLE generating (g int GENERATED ALWAYS AS (a * 2) STORED, a int PRIMARY KEY,
    v int GENERATED ALWAYS AS (a * 3) VIRTUAL);
INSERT INTO generating (a) VALUES (1);
CREATE PUBLICATION stored FOR TABLE generating WITH (publish_generated_columns = stored);
CREATE PUBLICATION listed FOR TABLE generating (g);
"""


@pytest.fixture(scope="module", params=every_version(16, 18))
def conn(
    request: pytest.FixtureRequest, make_database: Callable[..., Database]
) -> Iterator[WalReceiverConn]:
    server = requested_publisher(request)
    database = make_database(server, f"queries_{request.param}")
    database.execute(SCHEMA)
    for version, more in ((15, SINCE_15), (18, SINCE_18)):
        if request.param >= version:
            database.execute(more)
    conn = connect(database.dsn, "queries")
    yield conn
    conn.close()


pytestmark = pytest.mark.postgres

since_15 = pytest.mark.parametrize("conn", every_version(16, 18, since=15), indirect=True)
since_18 = pytest.mark.parametrize("conn", every_version(18, since=18), indirect=True)


def rows(conn: WalReceiverConn, remote: RemoteTable, statement: str) -> list[str]:
    return sorted(b"".join(conn.copy_out(statement)).decode().splitlines())


def test_publications(conn: WalReceiverConn) -> None:
    assert missing_publications(conn, ["nosuch", "it's", "inserts"]) == ["nosuch"]
    assert fetch_table_list(conn, ["it's"]) == [("public", 'Odd "name'), ("public", "plain")]
    assert fetch_table_list(conn, ["nosuch"]) == []
    assert fetch_table_list(conn, ["inserts", "updates"]) == [("public", "filtered")]
    assert tables_of_other_origins(conn, ["it's", "root"]) == []


def test_actions_of_several_publications(conn: WalReceiverConn) -> None:
    remote = fetch_remote_table_info(conn, "public", "filtered", ["inserts", "updates"])
    assert [column.name for column in remote.columns] == ["a", "b", "c"]
    assert [column.name for column in remote.columns if column.in_key] == ["b"]
    assert (remote.row_filters, remote.fingerprint[:7]) == ((), "iu--- @")
    found = fetch_fingerprints(conn, ["inserts", "updates"])
    assert found == {("public", "filtered"): remote.fingerprint}
    assert len(rows(conn, remote, copy_statement(remote))) == 20


@since_15
def test_schemas(conn: WalReceiverConn) -> None:
    published = fetch_table_list(conn, ["schemas"])
    assert published == [("public", "filtered"), ("whole", "a"), ("whole", "b")]
    remote = fetch_remote_table_info(conn, "whole", "b", ["schemas"])
    assert [column.name for column in remote.columns] == ["id"]
    assert fetch_fingerprints(conn, ["schemas"])["whole", "b"] == remote.fingerprint


def test_a_partition_is_not_listed_beside_its_root(conn: WalReceiverConn) -> None:
    """H-24."""
    assert fetch_table_list(conn, ["root", "leaves"]) == [("public", "parent")]
    assert fetch_table_list(conn, ["leaves"]) == [("public", "leaf1"), ("public", "leaf2")]


@since_15
def test_s_031_24_lists_must_agree(conn: WalReceiverConn) -> None:
    assert fetch_table_list(conn, ["two", "three"]) == [("public", "filtered")]
    said = 'different column lists for table "public.filtered"'
    with pytest.raises(FeatureNotSupported, match=said):
        fetch_table_list(conn, ["two", "lists"])
    with pytest.raises(FeatureNotSupported, match=said):
        fetch_remote_table_info(conn, "public", "filtered", ["two", "lists"])


def test_types(conn: WalReceiverConn) -> None:
    remote = fetch_remote_table_info(conn, "public", 'Odd "name', ["it's"])
    assert (remote.relkind, remote.relreplident, remote.publishes_everything) == ("r", "d", True)
    columns = {column.name: column for column in remote.columns}
    assert list(columns) == ["id", "Big Col", "m", "l", "p", "n"]
    assert [name for name, column in columns.items() if column.in_key] == ["id"]
    assert [name for name, column in columns.items() if column.notnull] == ["id"]
    dear, array = columns["Big Col"].type, columns["l"].type
    assert (dear.typname, dear.typmod) == ("numeric", (10 << 16 | 2) + 4)
    assert array.element == dear
    assert (columns["m"].type.typtype, columns["p"].type.element) == ("e", None)
    element = columns["n"].type.element
    assert element is not None
    assert element.typmod == (8 << 16 | 3) + 4


@since_15
def test_filters_and_lists(conn: WalReceiverConn) -> None:
    remote = fetch_remote_table_info(conn, "public", "filtered", ["two", "three"])
    assert [(column.name, column.in_key) for column in remote.columns] == [
        ("a", False),
        ("b", True),
    ]
    assert sorted(remote.row_filters) == ["(a < 3)", "(a > 5)"]
    assert remote.fingerprint.startswith("iu--- OR (a < 3) OR (a > 5) @")
    found = fetch_fingerprints(conn, ["two", "three", "root"])
    assert found.keys() == {("public", "filtered"), ("public", "parent")}
    assert found["public", "filtered"] == remote.fingerprint
    assert found["public", "parent"].startswith("iudtv @")
    assert len(rows(conn, remote, copy_statement(remote))) == 17
    assert len(rows(conn, remote, copy_statement(remote, ctid_from=0))) == 17
    assert rows(conn, remote, copy_statement(remote, ctid_from=1)) == []


def test_generated_column(conn: WalReceiverConn) -> None:
    remote = fetch_remote_table_info(conn, "public", "plain", ["it's"])
    assert [column.name for column in remote.columns] == ["a"]
    assert rows(conn, remote, copy_statement(remote)) == ["1"]


@since_18
def test_generated_columns_that_are_published(conn: WalReceiverConn) -> None:
    remote = fetch_remote_table_info(conn, "public", "generating", ["stored"])
    columns = [(column.name, column.generated) for column in remote.columns]
    assert columns == [("g", True), ("a", False)]
    assert rows(conn, remote, copy_statement(remote)) == ["2,1"]
    remote = fetch_remote_table_info(conn, "public", "generating", ["listed"])
    assert [(column.name, column.generated) for column in remote.columns] == [("g", True)]
    assert rows(conn, remote, copy_statement(remote)) == ["2"]


def test_partitions(conn: WalReceiverConn) -> None:
    remote = fetch_remote_table_info(conn, "public", "parent", ["root"])
    assert (remote.relkind, remote.fingerprint[:5]) == ("p", "iudtv")
    everything = rows(conn, remote, copy_statement(remote))
    leaves = fetch_leaves(conn, remote)
    assert [leaf.relname for leaf in leaves] == ["leaf1", "leaf2"]
    by_leaf = [rows(conn, remote, copy_statement(remote, leaf=leaf)) for leaf in leaves]
    assert len(everything) == 20
    assert everything == sorted(by_leaf[0] + by_leaf[1])


def test_s_100_9_a_slot_is_made_and_dropped_at_once(conn: WalReceiverConn) -> None:
    assert fetch_slot(conn, "nosuch") is None
    name = f"queries_{conn.server_version}"
    point = conn.create_slot(name, temporary=True, snapshot="nothing")
    slot = fetch_slot(conn, name)
    assert slot is not None
    assert (slot.active, slot.ours, slot.confirmed_flush_lsn) == (True, True, point)
    assert slot.invalidation is None
    conn.drop_slot(name)
