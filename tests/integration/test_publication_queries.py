"""The publisher queries against real servers of every version."""

import threading
from collections.abc import Callable, Iterator

import pytest

from catalog.errcodes import AdminShutdown, FeatureNotSupported, ReplicationError
from catalog.pg_subscription import sync_slot_name
from tests.fix_publisher import Database, requested_publisher
from tests.servers import every_version
from workers.publisher.changing_text import fetch_text_mark, fetch_text_types, text_changes
from workers.publisher.connect import connect, join_conninfo
from workers.publisher.connection import WalReceiverConn
from workers.publisher.copy_statement import copy_statement
from workers.publisher.declared_columns import do_not_wait_for_locks, fetch_declared_columns
from workers.publisher.fingerprint import fetch_fingerprints
from workers.publisher.publications import (
    fetch_table_list,
    missing_publications,
    tables_of_other_origins,
)
from workers.publisher.remote_table import (
    RemoteTable,
    fetch_leaves,
    fetch_names,
    fetch_remote_table_info,
)
from workers.publisher.replica_identity import OTHER_LEAF, fetch_identities
from workers.publisher.replication_slots import fetch_slot, fetch_sync_slots
from workers.publisher.table_shape import fetch_shape

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
CREATE TYPE place AS (x int, at mood[]);
CREATE DOMAIN places AS place[];
CREATE TYPE moods AS RANGE (subtype = mood);
CREATE TABLE texts (id int PRIMARY KEY, here places, spans moods, name regclass, at point, m mood);
CREATE PUBLICATION "it's" FOR TABLE "Odd ""name", plain;
CREATE PUBLICATION root FOR TABLE parent WITH (publish_via_partition_root);
CREATE PUBLICATION leaves FOR TABLE parent;
CREATE PUBLICATION inserts FOR TABLE filtered WITH (publish = 'insert');
CREATE PUBLICATION updates FOR TABLE filtered WITH (publish = 'update');
CREATE TABLE with_g (a int, b int NOT NULL, g int GENERATED ALWAYS AS (b * 2) STORED,
    PRIMARY KEY (g, a));
CREATE TABLE by_index (a int, b int NOT NULL UNIQUE);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_b_key;
CREATE TABLE whole_rows (a int PRIMARY KEY);
ALTER TABLE whole_rows REPLICA IDENTITY FULL;
CREATE TABLE roots (id int, day int, code text NOT NULL, PRIMARY KEY (id, day))
    PARTITION BY LIST (day);
CREATE TABLE roots_1 PARTITION OF roots FOR VALUES IN (1);
CREATE UNIQUE INDEX roots_1_code ON roots_1 (code);
CREATE UNIQUE INDEX roots_1_more ON roots_1 (day, code, id);
ALTER TABLE roots REPLICA IDENTITY FULL;
CREATE PUBLICATION identities FOR TABLE with_g, by_index, whole_rows, plain;
"""

SINCE_15 = """
CREATE PUBLICATION two FOR TABLE filtered (a, b) WHERE (a > 5) WITH (publish = 'insert');
CREATE PUBLICATION three FOR TABLE filtered (b, a) WHERE (a < 3) WITH (publish = 'update');
CREATE PUBLICATION lists FOR TABLE filtered (b);
CREATE SCHEMA whole;
CREATE TABLE whole.a (id int);
CREATE TABLE whole.b (id int);
CREATE PUBLICATION schemas FOR TABLES IN SCHEMA whole, TABLE filtered;
CREATE TABLE two_keys (a int, b int, c int, PRIMARY KEY (b, a));
CREATE PUBLICATION partly FOR TABLE two_keys (a, c);
CREATE PUBLICATION wholly FOR TABLE two_keys (a, b);
"""

SINCE_18 = """
CREATE TABLE generating (g int GENERATED ALWAYS AS (a * 2) STORED, a int PRIMARY KEY,
    v int GENERATED ALWAYS AS (a * 3) VIRTUAL);
INSERT INTO generating (a) VALUES (1);
CREATE PUBLICATION stored FOR TABLE generating WITH (publish_generated_columns = stored);
CREATE PUBLICATION listed FOR TABLE generating (g);
CREATE PUBLICATION stored_g FOR TABLE with_g WITH (publish_generated_columns = stored);
CREATE PUBLICATION listed_g FOR TABLE with_g (g, a);
CREATE PUBLICATION rest_of_g FOR TABLE with_g (a, b);
CREATE PUBLICATION stored_parent FOR TABLE parent WITH (publish_generated_columns = stored);
CREATE PUBLICATION stored_schema FOR TABLES IN SCHEMA public
    WITH (publish_generated_columns = stored);
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


@pytest.fixture
def undone(conn: WalReceiverConn) -> Iterator[WalReceiverConn]:
    """The connection in a transaction that is rolled back: the tests share the tables."""
    conn.exec("BEGIN")
    yield conn
    conn.exec("ROLLBACK")


pytestmark = pytest.mark.postgres

since_15 = pytest.mark.parametrize("conn", every_version(16, 18, since=15), indirect=True)
since_18 = pytest.mark.parametrize("conn", every_version(18, since=18), indirect=True)


def rows(conn: WalReceiverConn, remote: RemoteTable, statement: str) -> list[str]:
    return sorted(b"".join(map(bytes, conn.copy_out(statement))).decode().splitlines())


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
    assert {name: table.fingerprint for name, table in found.items()} == {
        ("public", "filtered"): remote.fingerprint
    }
    assert found["public", "filtered"].file.number == remote.file > 0
    assert len(rows(conn, remote, copy_statement(remote))) == 20


@since_15
def test_schemas(conn: WalReceiverConn) -> None:
    published = fetch_table_list(conn, ["schemas"])
    assert published == [("public", "filtered"), ("whole", "a"), ("whole", "b")]
    remote = fetch_remote_table_info(conn, "whole", "b", ["schemas"])
    assert [column.name for column in remote.columns] == ["id"]
    assert fetch_fingerprints(conn, ["schemas"])["whole", "b"].fingerprint == remote.fingerprint


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
    assert found["public", "filtered"].fingerprint == remote.fingerprint
    assert found["public", "parent"].fingerprint.startswith("iudtv @")
    assert found["public", "parent"].file.number == 0
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


def identities(conn: WalReceiverConn, *publications: str) -> dict[str, dict[str, bool]]:
    """By name, of every table."""
    oids = conn.exec("SELECT oid, relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p')")
    names = {int(oid or 0): name or "" for oid, name in oids}
    found = fetch_identities(conn, publications, names)
    return {names[relid]: identity for relid, identity in found.items()}


def test_what_a_replica_identity_has(conn: WalReceiverConn) -> None:
    """An index's INCLUDE is no part of it, and a generated column is not sent by itself."""
    found = identities(conn, "identities")
    assert found["filtered"] == {"b": True}
    assert found["by_index"] == {"b": True}
    assert found["with_g"] == {"g": False, "a": True}
    assert found["parent"] == found["leaf1"] == {"id": True}
    assert found["whole_rows"] == {"a": True}  # by which rows are found under FULL, too
    assert "plain" not in found
    remote = fetch_remote_table_info(conn, "public", "with_g", ["identities"])
    assert (remote.identity, remote.key) == (2, ())
    remote = fetch_remote_table_info(conn, "public", "by_index", ["identities"])
    assert (remote.identity, remote.key) == (1, ("b",))


@pytest.mark.parametrize(
    ("logs", "lacks"),
    [
        ("DEFAULT", False),
        ("USING INDEX roots_1_code", True),
        ("USING INDEX roots_1_more", False),
        ("NOTHING", True),
        ("FULL", None),
    ],
)
def test_does_what_a_partition_logs_have_the_key_of_its_root(
    conn: WalReceiverConn, logs: str, lacks: bool | None
) -> None:
    conn.command(f"ALTER TABLE public.roots_1 REPLICA IDENTITY {logs}")
    found = identities(conn, "identities")["roots"]
    more = {} if lacks is None else {OTHER_LEAF: lacks}
    assert found == {"id": True, "day": True, **more}


def test_it_is_told_while_the_table_is_locked(each_database: Database) -> None:
    """Who holds the lock may be waiting for our confirmation."""
    each_database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    with each_database.connect() as holder, holder.transaction():
        holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        conn = connect(each_database.dsn, "queries")
        conn.exec("SELECT pg_catalog.set_config('lock_timeout', '1s', false)")
        assert identities(conn, "pub")["t"] == {"id": True}
        conn.close()


@since_15
def test_what_a_list_leaves_of_an_identity(conn: WalReceiverConn) -> None:
    assert identities(conn, "partly")["two_keys"] == {"a": True, "b": False}
    assert identities(conn, "wholly")["two_keys"] == {"a": True, "b": True}
    for publication, key in (("partly", ()), ("wholly", ("a", "b"))):
        remote = fetch_remote_table_info(conn, "public", "two_keys", [publication])
        assert (remote.identity, remote.key) == (2, key)


@since_18
def test_a_generated_column_of_an_identity_may_be_sent(conn: WalReceiverConn) -> None:
    for publication, sent in (("stored_g", True), ("listed_g", True), ("rest_of_g", False)):
        assert identities(conn, publication)["with_g"] == {"g": sent, "a": True}
        remote = fetch_remote_table_info(conn, "public", "with_g", [publication])
        assert remote.key == (("a", "g") if sent else ())
    for stored, sent in (("stored", False), ("stored_parent", False), ("stored_schema", True)):
        assert identities(conn, "identities", stored)["with_g"] == {"g": sent, "a": True}


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
    assert (slot.active, slot.is_pgoutput_here, slot.confirmed_flush_lsn) == (True, True, point)
    assert slot.invalidation is None
    conn.drop_slot(name)


def test_the_slots_that_synchronisations_left(conn: WalReceiverConn) -> None:
    """Permanent ones with this number at the end, whatever their oids."""
    number = f"70000000000000000{conn.server_version}"
    left = [sync_slot_name(16384, relid, number) for relid in (16390, 16391)]
    names = [*left, sync_slot_name(16384, 16390, f"1{number}"), f"x_{left[0]}"]
    for name in names:
        conn.create_slot(name, temporary=False, snapshot="nothing")
    try:
        assert fetch_sync_slots(conn, number) == left
        conn.create_slot(sync_slot_name(1, 2, number), temporary=True, snapshot="nothing")
        assert fetch_sync_slots(conn, number) == left
    finally:
        for name in names:
            conn.drop_slot(name)


def beside(
    conn: WalReceiverConn, interrupted: Callable[[], bool] = lambda: False
) -> WalReceiverConn:
    """Another connection to the same database."""
    pgconn = conn.pgconn
    parts = conn.host() | {"dbname": pgconn.db.decode(), "user": pgconn.user.decode()}
    return connect(join_conninfo(parts), "queries", interrupted=interrupted)


LONG = "SELECT repeat('x', 100) FROM generate_series(1, 200000)"


def test_an_error_of_the_server_in_the_midst_of_a_copy(conn: WalReceiverConn) -> None:
    failing = "SELECT repeat('x', 100), 1 / (200000 - n) FROM generate_series(1, 300000) n"
    data = conn.copy_out(f"COPY ({failing}) TO STDOUT")
    assert next(data)
    with pytest.raises(ReplicationError) as caught:
        list(data)
    assert (caught.value.code, caught.value.primary) == ("22012", "division by zero")
    assert conn.exec("SELECT 1") == [("1",)]


def test_a_copy_ends_when_its_connection_does(conn: WalReceiverConn) -> None:
    other = beside(conn)
    [[pid]] = other.exec("SELECT pg_backend_pid()")
    data = other.copy_out(f"COPY ({LONG}) TO STDOUT")
    assert next(data)
    conn.exec(f"SELECT pg_terminate_backend({pid})")
    with pytest.raises(ReplicationError) as caught:
        list(data)
    assert caught.value.code in ("08006", "57P01")
    other.close()


def test_a_copy_whose_data_never_ceases_can_be_stopped(conn: WalReceiverConn) -> None:
    told = threading.Event()
    other = beside(conn, told.is_set)
    data = other.copy_out(f"COPY ({LONG}) TO STDOUT")
    assert next(data)
    told.set()
    with pytest.raises(AdminShutdown):
        next(data)
    other.close()


def test_the_types_that_text_is_made_of(conn: WalReceiverConn) -> None:
    """Below domains, arrays, ranges and composites; of what is built in, names alone."""
    relids = {
        name: fetch_remote_table_info(conn, "public", name, ["it's"]).relid
        for name in ("texts", "filtered", 'Odd "name')
    }
    found = fetch_text_types(conn, relids.values())
    plain = found[relids["filtered"]]
    assert plain.numbers == {"a": 1, "b": 2, "c": 3}
    assert plain.versions["a"].startswith("23/-1/")
    assert plain.files.startswith(f"{relids['filtered']}:")
    assert (plain.columns, plain.types) == ({}, {})
    texts, odd = found[relids["texts"]], found[relids['Odd "name']]
    (mood,) = odd.columns["m"]
    (place,) = set(texts.columns["here"]) - {mood}
    regclass = 2205
    assert odd.columns.keys() == {"m"}
    assert texts.columns == {
        "here": (mood, place),
        "m": (mood,),
        "spans": (mood,),
        "name": (regclass,),
    }
    named = texts.types[regclass].parts
    assert named[str(relids["filtered"])] == "public.filtered"
    assert "pg_catalog.pg_class" not in named.values()
    assert sorted(odd.types[mood].parts.values()) == ["ok", "sad"]
    assert texts.types[place].parts == {"1": "x", "2": "at"}
    assert (odd.types[mood].name, texts.types[place].kind) == ("public.mood", "c")


def test_the_shape_of_a_table(undone: WalReceiverConn) -> None:
    """A constant default is in the catalog, a volatile one in the files alone."""
    relid = fetch_remote_table_info(undone, "public", "filtered", ["inserts"]).relid
    before = fetch_shape(undone, relid, ["inserts", "lists"])
    assert before is not None
    assert [(c.attnum, c.name) for c in before.columns] == [(1, "a"), (2, "b"), (3, "c")]
    assert before.files.keys() == {relid}
    assert ("*" in before.lists) == (undone.server_version >= 15)
    undone.exec(
        "ALTER TABLE public.filtered ADD COLUMN d int DEFAULT 5, ADD COLUMN e int, DROP COLUMN c"
    )
    constant = fetch_shape(undone, relid, ["inserts"])
    assert constant is not None
    assert constant.dropped == {3}
    assert {c.name: c.has_missing for c in constant.columns} == {
        "a": False,
        "b": False,
        "d": True,
        "e": False,
    }
    assert (constant.columns[2].stored, constant.columns[2].stored_in) == ("5", frozenset({relid}))
    assert constant.files == before.files
    undone.exec("ALTER TABLE public.filtered ADD COLUMN f float DEFAULT random()")
    undone.exec("ALTER TABLE public.filtered ALTER f DROP DEFAULT")
    volatile = fetch_shape(undone, relid, ["inserts"])
    assert volatile is not None
    assert not volatile.columns[-1].has_missing
    assert volatile.files != before.files


def test_the_shape_of_a_partitioned_table(undone: WalReceiverConn) -> None:
    """Its files are those of the partitions, and so are the values of a constant default."""
    relid = fetch_remote_table_info(undone, "public", "parent", ["root"]).relid
    undone.exec("ALTER TABLE public.parent ADD COLUMN d int DEFAULT 5")
    shape = fetch_shape(undone, relid, ["root"])
    assert shape is not None
    assert len(shape.files) == 2
    assert [c.has_missing for c in shape.columns] == [False, False, True]
    assert (shape.columns[2].stored, shape.columns[2].stored_in) == ("5", frozenset(shape.files))


def test_the_shape_of_a_table_with_generated_columns(conn: WalReceiverConn) -> None:
    relid = fetch_remote_table_info(conn, "public", "plain", ["it's"]).relid
    shape = fetch_shape(conn, relid, ["it's"])
    assert shape is not None
    assert [(c.name, c.computed) for c in shape.columns] == [("a", False), ("g", True)]


def test_columns_as_a_definition_has_them(conn: WalReceiverConn) -> None:
    do_not_wait_for_locks(conn)
    relid = fetch_remote_table_info(conn, "public", "plain", ["it's"]).relid
    _, g = fetch_declared_columns(conn, relid)
    assert (g.attnum, g.name, g.type, g.nullable) == (2, "g", "integer", True)
    assert g.default == "generated always as (a * 2) stored"
    relid = fetch_remote_table_info(conn, "public", 'Odd "name', ["it's"]).relid
    found = fetch_declared_columns(conn, relid)
    assert [(c.attnum, c.type, c.nullable, c.default) for c in found[:3]] == [
        (1, "integer", False, None),
        (3, "public.dear", True, None),
        (4, "public.mood", True, None),
    ]


def test_names_by_oid(conn: WalReceiverConn) -> None:
    relid = fetch_remote_table_info(conn, "public", 'Odd "name', ["it's"]).relid
    assert fetch_names(conn, [relid, 1]) == {relid: ("public", 'Odd "name')}
    assert fetch_names(conn, []) == {}


def test_a_type_that_was_altered_and_altered_back(undone: WalReceiverConn) -> None:
    relid = fetch_remote_table_info(undone, "public", "texts", ["it's"]).relid
    before = fetch_text_types(undone, [relid])[relid]
    marks = [fetch_text_mark(undone, before.types)]
    labels = ("RENAME VALUE 'sad' TO 'blue'", "RENAME VALUE 'blue' TO 'sad'")
    for change in (*labels, "ADD ATTRIBUTE z int", "DROP ATTRIBUTE z"):
        undone.exec(f"ALTER TYPE public.{'mood' if change in labels else 'place'} {change}")
        marks.append(fetch_text_mark(undone, before.types))
    assert set(text_changes(before, fetch_text_types(undone, [relid])[relid])) >= {
        'column "here": label "sad" of type public.mood had another name for a while',
        'column "here": type public.place had another attribute for a while',
    }
    assert marks[0] not in marks[1:]
