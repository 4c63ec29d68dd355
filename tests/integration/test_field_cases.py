"""Cases that other software got wrong with PostgreSQL's types: what the lake must have instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until

_FUNCTIONS = "LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE"
SHAPE = (
    "CREATE TYPE shape",
    f"CREATE FUNCTION shape_in(cstring) RETURNS shape {_FUNCTIONS} AS 'textin'",
    f"CREATE FUNCTION shape_out(shape) RETURNS cstring {_FUNCTIONS} AS 'textout'",
    f"CREATE FUNCTION shape_recv(internal) RETURNS shape {_FUNCTIONS} AS 'textrecv'",
    f"CREATE FUNCTION shape_send(shape) RETURNS bytea {_FUNCTIONS} AS 'textsend'",
)
AS_TEXT = (
    "CREATE TYPE shape (INPUT = shape_in, OUTPUT = shape_out, LIKE = pg_catalog.text,"
    " DELIMITER = ':')"
)
AS_BINARY = (
    "CREATE TYPE shape (INPUT = shape_in, OUTPUT = shape_out, RECEIVE = shape_recv,"
    " SEND = shape_send, LIKE = pg_catalog.text, DELIMITER = ':')"
)


# github.com/martin-georgiev/postgresql-for-doctrine/issues/724: PostGIS separates the elements of
# geometry[] by ':'. A type of text's own functions shows the same without PostGIS.
@pytest.mark.parametrize(
    "made", [pytest.param(AS_TEXT, id="text"), pytest.param(AS_BINARY, id="binary")]
)
def test_arrays_that_a_colon_separates_are_text(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow], made: str
) -> None:
    flow = make_flow(publisher, f"colon_{'binary' if made is AS_BINARY else 'text'}")
    flow.both(*SHAPE, made, "CREATE TABLE plots (id int PRIMARY KEY, parts shape[])")
    flow.pub.run(
        "INSERT INTO plots VALUES (1, '{0101AA:0101BB}'), (2, '{NULL:x}'), (3, '{}'), (4, NULL),"
        " (5, '{single}')",
        "CREATE PUBLICATION pub FOR TABLE plots",
    )
    flow.subscribe("sub", ["pub"])
    flow.catch_up()
    assert _rows(flow) == [
        (1, "{0101AA:0101BB}"),
        (2, "{NULL:x}"),
        (3, "{}"),
        (4, None),
        (5, "{single}"),
    ]
    flow.pub.run(
        """INSERT INTO plots VALUES (6, '{1,2:3,4}'), (7, '{"a:b":"c d":NULL}')""",
        "UPDATE plots SET parts = '{0101CC:0101DD:0101EE}' WHERE id = 1",
    )
    flow.catch_up()
    published = flow.pub.execute("SELECT id, parts::text FROM plots ORDER BY id")
    assert _rows(flow) == published
    assert published[0] == (1, "{0101CC:0101DD:0101EE}")
    assert published[5][1] == "{1,2:3,4}"


def _rows(flow: Flow) -> list[tuple[object, ...]]:
    return sorted(flow.pgsub.rows(flow.name, "plots", ["id", "parts"]))


NAMED = {
    "articles": {"columns": {"tags.element": {"to": "element"}, "ID": {"to": "id_2"}}},
}


# github.com/apache/iceberg/issues/13807: a column with a dot in its name beside an array column;
# github.com/apache/iceberg/issues/10875. Trino, Hive and Athena also cannot tell "ID" from "id".
def test_names_that_the_lake_cannot_have_are_mapped(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "odd_names")
    flow.both(
        'CREATE TABLE articles (id int PRIMARY KEY, tags text[], "tags.element" text, "ID" int)'
    )
    flow.pub.run(
        "INSERT INTO articles VALUES (1, '{a,b}', 'x', 10), (2, NULL, NULL, NULL),"
        " (3, '{}', '', 3)",
        "CREATE PUBLICATION pub FOR TABLE articles",
    )
    refused = flow.pgsub.create(f"{flow.name}_sub", flow.pub.dsn, ["pub"], status=1).stderr
    assert "42939" in refused
    assert '"tags" and "tags.element"' in refused
    assert 'columns: {"tags.element": {"to": "tags_element"}}' in refused
    name = flow.subscribe("sub", ["pub"], tables=NAMED)
    assert "differ only by case" not in flow.said[name]
    flow.pub.run(
        "UPDATE articles SET \"tags.element\" = 'y', tags = '{c}' WHERE id = 1",
        'UPDATE articles SET id = 20, "ID" = 21 WHERE id = 2',
        "DELETE FROM articles WHERE id = 3",
        "INSERT INTO articles VALUES (4, '{d,NULL}', 'z', 40)",
    )
    flow.catch_up()
    assert _articles(flow) == [(1, ["c"], "y", 10), (4, ["d", None], "z", 40), (20, None, None, 21)]
    flow.pgsub.command("refresh", name, "--recopy")
    flow.catch_up()
    flow.pub.run("DELETE FROM articles WHERE id = 4")
    flow.catch_up()
    assert _articles(flow) == [(1, ["c"], "y", 10), (20, None, None, 21)]


def _articles(flow: Flow) -> list[tuple[object, ...]]:
    """The lake's rows under their lake names, which are the twin's."""
    ours = sorted(flow.pgsub.rows(flow.name, "articles", ["id", "tags", "element", "id_2"]))
    assert ours == flow.sub.execute(
        'SELECT id, tags, "tags.element", "ID" FROM articles ORDER BY 1'
    )
    return ours


# github.com/sequinstream/sequin/issues/1257, github.com/pgpartman/pg_partman/issues/502: ALTER
# TABLE root REPLICA IDENTITY FULL reaches no partition; a change has what the partition logs.
def test_a_root_under_full_whose_partitions_log_their_key(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "root_full")
    flow.both(
        "CREATE TABLE metrics (id int, day date, v text, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE metrics_24 PARTITION OF metrics"
        " FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
        "CREATE TABLE metrics_25 PARTITION OF metrics"
        " FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
        "ALTER TABLE metrics REPLICA IDENTITY FULL",
    )
    flow.pub.run(
        "INSERT INTO metrics VALUES (1, '2024-02-01', 'a'), (2, '2024-02-01', 'b'),"
        " (3, '2025-02-01', 'c'), (4, '2025-02-01', 'd')",
        "CREATE PUBLICATION pub FOR TABLE metrics WITH (publish_via_partition_root = true)",
    )
    flow.subscribe("sub", ["pub"])
    flow.checkpoint("copied", "metrics")
    flow.same("copied", "metrics")
    flow.pub.run(
        "UPDATE metrics SET id = 20 WHERE id = 2",
        "DELETE FROM metrics WHERE id = 3",
        "UPDATE metrics SET day = '2024-03-01' WHERE id = 4",
        "UPDATE metrics SET v = 'A' WHERE id = 1",
    )
    flow.checkpoint("changed", "metrics")
    found = [(row[0], str(row[1]), row[2]) for row in flow.same("changed", "metrics")]
    assert sorted(found) == [
        (1, "2024-02-01", "A"),
        (4, "2024-03-01", "d"),
        (20, "2024-02-01", "b"),
    ]
    # A partition under FULL beside the other: whole rows and keys in one transaction.
    flow.both("ALTER TABLE metrics_24 REPLICA IDENTITY FULL")
    flow.pub.execute(
        "BEGIN; INSERT INTO metrics VALUES (5, '2025-05-05', 'e'); "
        "UPDATE metrics SET v = 'B' WHERE id = 20; DELETE FROM metrics WHERE id = 1; "
        "UPDATE metrics SET id = 50 WHERE id = 5; COMMIT"
    )
    flow.checkpoint("mixed", "metrics")
    found = [(row[0], str(row[1]), row[2]) for row in flow.same("mixed", "metrics")]
    assert sorted(found) == [
        (4, "2024-03-01", "d"),
        (20, "2024-02-01", "B"),
        (50, "2025-05-05", "e"),
    ]


# github.com/estuary/connectors/issues/2279, github.com/viggy28/streambed/issues/5: a nightly job
# fills a staging table and renames it into place; no row event says that the rows are others.
def test_a_staging_table_that_is_swapped_in_is_told_and_copied_by_refresh(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "swapped")
    flow.both("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    flow.pub.run(
        "INSERT INTO orders VALUES (1, 'old'), (2, 'old'), (3, 'old')",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA swapped",
    )
    name = flow.subscribe("sub", ["pub"], tables={"orders": {"on_schema_change": "stop"}})
    flow.checkpoint("copied", "orders")
    swap = (
        "BEGIN; ALTER TABLE orders RENAME TO orders_old;"
        " ALTER TABLE orders_new RENAME TO orders; DROP TABLE orders_old; COMMIT"
    )
    flow.both("CREATE TABLE orders_new (id int PRIMARY KEY, note text)")
    flow.pub.run("INSERT INTO orders_new VALUES (1, 'new'), (2, 'new'), (10, 'new')")
    flow.catch_up()
    flow.pub.execute(swap)
    flow.sub.execute(swap)
    flow.pub.run(
        "INSERT INTO orders VALUES (11, 'after')",
        "UPDATE orders SET note = 'changed' WHERE id = 10",
    )
    flow.catch_up()
    said = flow.pgsub.command("status").stdout
    assert 'table "swapped.orders" is another one on the publisher than the one that was' in said
    assert f"pgsub refresh {name}" in said
    flow.alter(name, "REFRESH PUBLICATION")
    assert 'table "swapped.orders" is another one on the publisher and will' in flow.said[name]
    flow.checkpoint("refreshed", "orders")
    assert sorted(flow.same("refreshed", "orders")) == [
        (1, "new"),
        (2, "new"),
        (10, "changed"),
        (11, "after"),
    ]
    assert "another one on the publisher" not in flow.pgsub.command("status").stdout
    flow.alter(name, "REFRESH PUBLICATION")
    assert "copied again" not in flow.said[name]


# github.com/readysettech/readyset/issues/108, github.com/debezium/debezium/pull/7668: ALTER TYPE
# ... RENAME VALUE changes the text of each row with the label, and nothing is in the stream.
def test_text_that_changes_without_an_event_is_told_and_copied_again(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "relabelled")
    flow.both(
        "CREATE TYPE stage AS ENUM ('new', 'done')",
        "CREATE TYPE spot AS (x int, y int)",
        "CREATE TABLE named (id int)",
        "CREATE TABLE stages (s stage PRIMARY KEY, n int, at spot, rel regclass)",
    )
    flow.pub.run(
        "INSERT INTO stages VALUES ('new', 1, '(1,2)', 'named'), ('done', 1, NULL, NULL)",
        "CREATE PUBLICATION pub FOR TABLE stages",
    )
    name = flow.subscribe("sub", ["pub"], tables={"stages": {"on_schema_change": "stop"}})
    assert 'column "s" of enum "relabelled.stage" finds rows' in flow.said[name]
    columns = {"stages": ["s", "n"]}
    flow.checkpoint("copied", "stages", columns=columns)
    flow.same("copied", "stages")
    flow.both(
        "ALTER TYPE stage RENAME VALUE 'new' TO 'open'",
        "ALTER TYPE stage ADD VALUE 'late' BEFORE 'done'",
        "ALTER TYPE spot ADD ATTRIBUTE z int",
        "ALTER TABLE named RENAME TO renamed",
    )
    changes = (
        'column "rel": "relabelled.named" of type regclass has the name "relabelled.renamed"',
        'column "at": type relabelled.spot has a new attribute "z"',
        'column "s": label "new" of type relabelled.stage is "open"',
    )

    def said() -> str:
        return flow.pgsub.command("status").stdout

    wait_until(lambda: all(change in said() for change in changes), 60, flow.pgsub.log_tail)
    assert f"pgsub refresh {name} --recopy relabelled.stages" in said()
    flow.pub.run(
        "UPDATE stages SET n = 2 WHERE s = 'open'", "INSERT INTO stages VALUES ('late', 5)"
    )
    flow.catch_up()
    assert sorted(flow.pgsub.rows(flow.name, "stages", ["s", "n", "at"])) == [
        ("done", 1, None),
        ("late", 5, None),
        ("new", 1, "(1,2)"),
    ]
    flow.pgsub.command("refresh", name, "--recopy", "relabelled.stages")
    flow.checkpoint("again", "stages", columns=columns)
    assert sorted(flow.same("again", "stages")) == [("done", 1), ("late", 5), ("open", 2)]
    assert "without an event" not in said()
    flow.both("ALTER TYPE stage RENAME VALUE 'late' TO 'last'")
    flow.pub.run("UPDATE stages SET n = 6 WHERE s = 'last'")
    flow.catch_up()  # whoever has applied the UPDATE has looked before
    assert 'column "s": label "late" of type relabelled.stage is "last"' in said()
    log = "\n".join(path.read_text() for path in (flow.pgsub.data_dir / "log").glob("pgsub.log*"))
    told = 'values of table "relabelled.stages" have changed'  # other flows are in the log, too
    assert 2 <= log.count(told) <= len(changes) + 1


def test_a_change_by_a_key_whose_label_was_renamed_finds_its_row(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    """The table follows: the copy that the new label asks for comes before the change."""
    flow = make_flow(publisher, "followed_label")
    flow.both(
        "CREATE TYPE stage AS ENUM ('new', 'done')",
        "CREATE TABLE stages (s stage PRIMARY KEY, n int)",
    )
    flow.pub.run(
        "INSERT INTO stages VALUES ('new', 1), ('done', 1)",
        "CREATE PUBLICATION pub FOR TABLE stages",
    )
    flow.subscribe("sub", ["pub"])
    flow.checkpoint("copied", "stages")
    flow.both("ALTER TYPE stage RENAME VALUE 'new' TO 'open'")
    flow.pub.run("UPDATE stages SET n = 2 WHERE s = 'open'")
    flow.checkpoint("updated", "stages")
    flow.both("ALTER TYPE stage RENAME VALUE 'done' TO 'shut'")
    flow.pub.run("DELETE FROM stages WHERE s = 'shut'")
    flow.checkpoint("deleted", "stages")
    assert sorted(flow.same("updated", "stages")) == [("done", 1), ("open", 2)]
    assert flow.same("deleted", "stages") == [("open", 2)]


def _stopped(flow: Flow, *words: str) -> dict[str, Any]:
    """The error that stops a subscription of the flow, once it says the words."""

    def error() -> dict[str, Any]:
        for row in flow.pgsub.status("last_errors"):
            if all(word in row["message"] for word in words):
                return row
        return {}

    return wait_until(error, 60, flow.pgsub.log_tail)


# github.com/syncliteio/SyncLite/issues/62, github.com/apache/paimon/issues/1076: after RENAME
# COLUMN the destination has both columns, and NULL under the new name.
def test_the_hint_for_a_renamed_column_is_followed_to_the_letter(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "renamed_column")
    flow.both("CREATE TABLE staff (id int PRIMARY KEY, dept text, size int)")
    flow.pub.run(
        "INSERT INTO staff VALUES (1, 'ops', 4), (2, 'dev', 5)",
        "CREATE PUBLICATION pub FOR TABLE staff",
    )
    flow.subscribe("sub", ["pub"], tables={"staff": {"on_schema_change": "stop"}})
    flow.checkpoint("copied", "staff")
    flow.both("ALTER TABLE staff RENAME COLUMN dept TO team")
    flow.pub.run("INSERT INTO staff VALUES (3, 'hr', 6)", "UPDATE staff SET size = 7 WHERE id = 1")
    hint = _stopped(flow, 'is missing replicated column: "team"')["hint"]
    (command,) = re.findall(r"run pgsub (sql '.+?'), which", hint)
    flow.pgsub.command(*shlex.split(command))
    flow.checkpoint("renamed", "staff")
    assert sorted(flow.same("renamed", "staff")) == [(1, "ops", 7), (2, "dev", 5), (3, "hr", 6)]


# github.com/PeerDB-io/peerdb/pull/4635, github.com/risingwavelabs/risingwave/issues/23320: rows
# from before ADD COLUMN ... DEFAULT have the default there, and NULL in a column just added here.
def test_the_hint_for_a_column_with_a_default_is_followed_to_the_letter(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "default_column")
    flow.both(
        "CREATE TABLE readings (sensor int, temp numeric(6,2))",
        "ALTER TABLE readings REPLICA IDENTITY FULL",
    )
    flow.pub.run(
        "INSERT INTO readings VALUES (1, 10), (2, 11), (3, 12)",
        "CREATE PUBLICATION pub FOR TABLE readings",
    )
    name = flow.subscribe("sub", ["pub"], tables={"readings": {"on_schema_change": "stop"}})
    flow.checkpoint("copied", "readings")
    flow.both("ALTER TABLE readings ADD COLUMN unit text DEFAULT 'C'")
    flow.pub.run("INSERT INTO readings VALUES (4, 21.5, 'F')")
    hint = _stopped(flow, 'is missing replicated column: "unit"')["hint"]
    assert "if the publisher's column has a default, copy the table again with pgsub" in hint
    flow.lake("ALTER TABLE {t}.readings ADD COLUMN unit STRING")
    flow.pgsub.command("refresh", name, "--recopy", "default_column.readings")
    flow.catch_up()
    flow.pub.run(
        "UPDATE readings SET temp = 20 WHERE sensor = 1", "DELETE FROM readings WHERE sensor = 2"
    )
    flow.checkpoint("changed", "readings")
    assert sorted(map(str, flow.same("changed", "readings"))) == [
        "(1, Decimal('20.00'), 'C')",
        "(3, Decimal('12.00'), 'C')",
        "(4, Decimal('21.50'), 'F')",
    ]
    (stats,) = (
        row for row in flow.pgsub.status("pg_stat_subscription_stats") if row["subname"] == name
    )
    assert (stats["confl_update_missing"], stats["confl_delete_missing"]) == (0, 0)


# github.com/MaterializeInc/materialize/issues/17927, github.com/aws/pgactive/issues/305: the table
# is announced as before, and nothing is sent for the rows; often the drop was for privacy.
def test_a_column_that_is_dropped_and_added_again_is_told_and_copied_again(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "readded")
    flow.both("CREATE TABLE members (id int PRIMARY KEY, score int, note text)")
    flow.pub.run(
        "INSERT INTO members VALUES (1, 10, 'secret 1'), (2, 20, 'secret 2')",
        "CREATE PUBLICATION pub FOR TABLE members",
    )
    name = flow.subscribe("sub", ["pub"], tables={"members": {"on_schema_change": "stop"}})
    flow.checkpoint("copied", "members")
    again = ("ALTER TABLE members DROP COLUMN note", "ALTER TABLE members ADD COLUMN note text")
    flow.both(*again)
    flow.pub.run(
        "INSERT INTO members VALUES (3, 30, 'fresh')", "UPDATE members SET score = 11 WHERE id = 1"
    )

    def said() -> str:
        return flow.pgsub.command("status").stdout

    told = 'column "note" was dropped and added again'
    wait_until(lambda: told in said(), 60, flow.pgsub.log_tail)
    assert f"pgsub refresh {name} --recopy readded.members" in said()
    flow.pgsub.command("refresh", name, "--recopy", "readded.members")
    flow.checkpoint("again", "members")
    assert sorted(flow.same("again", "members")) == [(1, 11, None), (2, 20, None), (3, 30, "fresh")]
    assert told not in said()


LATE = "('9999-12-31 23:59:59', '10000-01-01')"
"""Entered in Los Angeles: the first is in the year 10000 by the clock of UTC."""


# github.com/estuary/connectors/pull/4361, github.com/Snowflake-Labs/pg_lake/issues/439,
# github.com/transferwise/pipelinewise-tap-postgres/issues/62: the end of time crashes, wraps or is
# clamped.
def test_the_end_of_time_stops_by_name_or_is_what_the_table_says(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "end_of_time")
    tables = ("as_text", "as_null", "strict")
    flow.both(
        *(f"CREATE TABLE {table} (id serial PRIMARY KEY, ends timestamptz, day date)"
          for table in tables)
    )  # fmt: skip
    insert = "INSERT INTO {} (ends, day) VALUES {}"
    flow.pub.run(
        "SET timezone = 'America/Los_Angeles'",
        *(insert.format(table, LATE) for table in ("as_text", "as_null")),
        insert.format("strict", "('9999-12-31 15:59:59', '9999-12-31')"),
        f"CREATE PUBLICATION pub FOR TABLE {', '.join(tables)}",
    )
    options = {table: {"on_unrepresentable": table[3:]} for table in ("as_text", "as_null")}
    flow.subscribe("sub", ["pub"], tables=options)
    flow.catch_up()
    flow.pub.run(
        "SET timezone = 'America/Los_Angeles'",
        *(insert.format(table, LATE) for table in ("as_text", "as_null")),
    )
    flow.catch_up()
    late = ("10000-01-01 07:59:59+00", "10000-01-01")
    assert sorted(flow.pgsub.rows(flow.name, "as_text")) == [(n, *late) for n in (1, 2)]
    assert sorted(flow.pgsub.rows(flow.name, "as_null")) == [(n, None, None) for n in (1, 2)]
    (row,) = flow.pgsub.rows(flow.name, "strict")
    assert str(row[1:]).count("9999, 12, 31") == 2
    flow.pub.run("SET timezone = 'America/Los_Angeles'", insert.format("strict", LATE))
    stopped = _stopped(flow, 'column "ends" of lake table "end_of_time.strict" cannot hold a value')
    assert stopped["sqlstate"] == "22003"
    assert flow.pgsub.rows(flow.name, "strict") == [row]


# github.com/PeerDB-io/peerdb/issues/1846: a database of encoding SQL_ASCII holds any bytes, and the
# publisher sends them to no UTF-8 client: natively neither.
def test_bytes_of_sql_ascii_stop_by_name_until_they_are_mended(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    flow = make_flow(publisher, "ascii_bytes", encoding="SQL_ASCII")
    as_text = f"ALTER DATABASE {flow.pub.name} SET client_encoding = 'UTF8'"
    flow.pub.server.execute(as_text)  # this test's own connections would read bytes
    flow.both("CREATE TABLE names (id int PRIMARY KEY, v text)")
    flow.pub.run(
        "INSERT INTO names VALUES (1, E'J\\303\\274rgen')",
        "CREATE PUBLICATION pub FOR TABLE names",
    )
    name = flow.subscribe("sub", ["pub"])
    flow.checkpoint("copied", "names")
    assert flow.same("copied", "names") == [(1, "J\u00fcrgen")]
    flow.pub.run("INSERT INTO names VALUES (2, E'J\\374rgen')")
    stopped = _stopped(flow, 'invalid byte sequence for encoding "UTF8": 0xfc')
    assert stopped["sqlstate"] == "22021"
    # The transaction stays in the WAL: a mended row helps a copy, and a new slot begins behind.
    flow.pub.run("UPDATE names SET v = E'J\\303\\274rgen' WHERE id = 2")
    flow.pgsub.command("disable", name)
    drop = "SELECT pg_drop_replication_slot(%s)"
    free = "SELECT NOT active FROM pg_replication_slots WHERE slot_name = %s"
    wait_until(lambda: flow.pub.value(free, (name,)), 60, "nobody reads from the slot")
    flow.pub.execute(drop, (name,))
    flow.pgsub.command("refresh", name, "--recopy")
    flow.pgsub.command("enable", name)
    flow.pub.run("INSERT INTO names VALUES (3, 'again')")
    flow.pgsub.wait(name)
    whole = [(1, "J\u00fcrgen"), (2, "J\u00fcrgen"), (3, "again")]
    assert flow.pgsub.rows(flow.name, "names") == whole
