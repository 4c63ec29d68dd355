"""PostgreSQL's 001_rep_changes: inserts, updates, deletes under every replica identity.

Left out: S-001-8 (refused: `test_create_errors.py`), -10 and -31 (publisher's affairs).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, first, n_min_max
from tests.waiting import wait_until

SCHEMA = (
    "CREATE TABLE tab_notrep (a int)",
    "CREATE TABLE tab_ins (a int)",
    "CREATE TABLE tab_full (a int)",
    "CREATE TABLE tab_full2 (x text)",
    "CREATE TABLE tab_rep (a int PRIMARY KEY)",
    "CREATE TABLE tab_include (a int, b text, CONSTRAINT covering PRIMARY KEY (a) INCLUDE (b))",
    "CREATE TABLE tab_full_pk (a int PRIMARY KEY, b text)",
    "ALTER TABLE tab_full_pk REPLICA IDENTITY FULL",
    "CREATE TABLE tab_nothing (a int)",
    "ALTER TABLE tab_nothing REPLICA IDENTITY NOTHING",
    "CREATE TABLE tab_no_replidentity_index (c1 int)",
    "CREATE INDEX ON tab_no_replidentity_index (c1)",
    "CREATE TABLE temp1 (a int)",
    "CREATE TABLE temp2 (a int)",
)
PUBLISHED = (
    "tab_rep, tab_full, tab_full2, tab_mixed, tab_local, tab_include, tab_nothing, tab_full_pk,"
    " tab_no_replidentity_index"
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(18, id="pg18"),
        pytest.param(16, id="pg16", marks=[pytest.mark.matrix, pytest.mark.matrix_only]),
    ],
)
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t001_{request.param}")
    _set_up(flow)
    _initial_dml(flow)
    _publications(flow)
    _identity_full(flow)
    _missing_rows(flow)
    _large_values(flow)
    _local_column_dropped(flow)
    _publisher_restart(flow)
    _publish_set(flow)
    _other_connection(flow)
    _other_publications(flow)
    _empty_transaction(flow)
    _drop(flow)
    return flow


def _set_up(flow: Flow) -> None:
    flow.both(*SCHEMA)
    flow.pub.run(
        "CREATE FUNCTION public.pg_get_replica_identity_index(int) RETURNS regclass"
        " LANGUAGE sql AS 'SELECT 1/0'",
        "CREATE TABLE tab_mixed (a int PRIMARY KEY, b text, c numeric(8,2))",
        "ALTER TABLE tab_mixed ALTER b SET STORAGE EXTERNAL",
        "CREATE TABLE tab_local (a int PRIMARY KEY, b text, c numeric(8,2))",
        "INSERT INTO tab_notrep SELECT generate_series(1, 10)",
        "INSERT INTO tab_ins SELECT generate_series(1, 1002)",
        "INSERT INTO tab_full SELECT generate_series(1, 10)",
        "INSERT INTO tab_full2 VALUES ('a'), ('b'), ('b')",
        "INSERT INTO tab_mixed VALUES (1, 'foo', 1.1)",
        "INSERT INTO tab_local VALUES (1, 'foo', 1.1)",
        f"CREATE PUBLICATION tap_pub FOR TABLE {PUBLISHED}",
        "CREATE PUBLICATION tap_pub_ins_only FOR TABLE tab_ins WITH (publish = 'insert')",
        "CREATE PUBLICATION tap_pub_temp1 FOR TABLE temp1 WITH (publish = 'insert')",
        "CREATE PUBLICATION tap_pub_temp2 FOR TABLE temp2",
    )
    for table in ("tab_mixed", "tab_local"):
        flow.sub.run(
            f"CREATE TABLE {table} (d text DEFAULT 'local', c numeric(8,2), b text,"
            " a int PRIMARY KEY)"
        )
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    for table in ("tab_mixed", "tab_local"):
        flow.lake(f"CREATE TABLE {{t}}.{table} (d string, c decimal(8,2), b string, a int)")
    own: dict[str, dict[str, object]] = {
        "tab_mixed": {"adopt": True, "defaults": {"d": "'local'"}},
        "tab_local": {"adopt": True},
    }
    flow.subscribe("tap_sub", ["tap_pub", "tap_pub_ins_only"], tables=own)
    columns = {"tab_local": ["a", "b", "c"]}
    flow.checkpoint(
        "copy", "tab_ins", "tab_full", "tab_full2", "tab_mixed", "tab_local", columns=columns
    )
    flow.facts["tables"] = flow.lake_tables()


def _initial_dml(flow: Flow) -> None:
    for table in ("tab_ins", "tab_rep", "tab_include"):
        flow.pub.run(
            f"INSERT INTO {table} SELECT generate_series(1, 50)",
            f"DELETE FROM {table} WHERE a > 20",
            f"UPDATE {table} SET a = -a",
        )
    flow.pub.run(
        "INSERT INTO tab_mixed VALUES (2, 'bar', 2.2)",
        "INSERT INTO tab_full_pk VALUES (1, 'foo'), (2, 'baz')",
        "INSERT INTO tab_nothing VALUES (generate_series(1, 20))",
        "INSERT INTO tab_no_replidentity_index VALUES (1)",
    )
    flow.checkpoint(
        "dml", "tab_ins", "tab_rep", "tab_include", "tab_mixed", "tab_full_pk", "tab_nothing",
        "tab_no_replidentity_index",
    )  # fmt: skip
    flow.pub.run(
        "ALTER PUBLICATION tap_pub_ins_only DROP TABLE tab_ins", "INSERT INTO tab_ins VALUES (8888)"
    )
    flow.checkpoint("dropped from the publication", "tab_ins")
    flow.pub.run("ALTER PUBLICATION tap_pub_ins_only ADD TABLE tab_ins")


def _publications(flow: Flow) -> None:
    name = flow.subscribe("tap_sub_temp", ["tap_pub_temp1", "tap_pub_temp2"])
    flow.checkpoint("two publications before", "temp1")
    flow.pub.run("INSERT INTO temp1 VALUES (1)")
    flow.checkpoint("two publications", "temp1")
    flow.drop(name)


def _identity_full(flow: Flow) -> None:
    flow.both(
        "ALTER TABLE tab_full REPLICA IDENTITY FULL", "ALTER TABLE tab_full2 REPLICA IDENTITY FULL"
    )
    flow.pub.run(
        "INSERT INTO tab_full SELECT generate_series(1, 10)",
        "UPDATE tab_full SET a = a * a",
        "UPDATE tab_full2 SET x = 'bb' WHERE x = 'b'",
        "UPDATE tab_mixed SET b = 'baz' WHERE a = 1",
        "UPDATE tab_full_pk SET b = 'bar' WHERE a = 1",
    )
    flow.checkpoint("full", "tab_full", "tab_full2", "tab_mixed", "tab_full_pk")


def _missing_rows(flow: Flow) -> None:
    for where in (" tab_full_pk", " tab_full WHERE a = 25", " tab_include WHERE a = -1"):
        flow.sub.run(f"DELETE FROM{where}")
        flow.lake(f"DELETE FROM {{t}}.{where.strip()}")
    flow.pub.run(
        "UPDATE tab_full_pk SET b = 'quux' WHERE a = 1",
        "UPDATE tab_full SET a = a + 1 WHERE a = 25",
        "DELETE FROM tab_include WHERE a = -1",
        "DELETE FROM tab_full_pk WHERE a = 2",
        "INSERT INTO tab_full_pk VALUES (3, 'later')",
    )
    flow.checkpoint("missing", "tab_full_pk", "tab_full", "tab_include")
    _conflicts(flow)


def _conflicts(flow: Flow) -> None:
    """What was counted and told of the missing rows: ours, and the twin's."""
    [name] = flow.subscriptions
    columns = ("confl_update_missing", "confl_delete_missing")
    query = f"SELECT {', '.join(columns)} FROM pg_stat_subscription_stats WHERE subname = %s"

    def native() -> tuple[int, ...]:
        return flow.sub.execute(query, (f"{name}_native",))[0]

    wait_until(lambda: sum(native()) == 5, 20, native)  # its worker reports when it is idle
    rows = flow.pgsub.status("pg_stat_subscription_stats")
    [ours] = [tuple(row[each] for each in columns) for row in rows if row["subname"] == name]
    flow.facts["counted"] = ours, native()
    line = re.compile(rf'conflict detected on relation "{flow.name}\.\w+": conflict=\w+_missing')
    logs = (flow.pgsub.log_file, flow.twin.server.log_file)
    flow.facts["told"] = [set(line.findall(log.read_text(errors="replace"))) for log in logs]


def _large_values(flow: Flow) -> None:
    flow.pub.run("UPDATE tab_mixed SET b = repeat('xyzzy', 100000) WHERE a = 2")
    flow.checkpoint("large", "tab_mixed")
    flow.pub.run("UPDATE tab_mixed SET c = 3.3 WHERE a = 2")
    flow.checkpoint("unchanged", "tab_mixed")


def _local_column_dropped(flow: Flow) -> None:
    flow.sub.run("ALTER TABLE tab_local DROP COLUMN d")
    flow.lake("ALTER TABLE {t}.tab_local DROP COLUMN d")
    flow.pub.run(
        "UPDATE tab_local SET b = 'baz', c = 11.11 WHERE a = 1",
        "INSERT INTO tab_local VALUES (2, 'bar', 22.22)",
    )
    flow.checkpoint("column dropped", "tab_local")


def _publisher_restart(flow: Flow) -> None:
    server = flow.pub.server
    server.halt()
    server.start()
    flow.pub.run("INSERT INTO tab_ins SELECT generate_series(1001, 1100)", "DELETE FROM tab_rep")
    flow.checkpoint("restarted", "tab_ins", "tab_rep")


def _publish_set(flow: Flow) -> None:
    flow.both("ALTER TABLE tab_ins REPLICA IDENTITY FULL")
    flow.pub.run(
        "ALTER PUBLICATION tap_pub_ins_only SET (publish = 'insert, delete')",
        "INSERT INTO tab_ins SELECT generate_series(2001, 2010)",
        "DELETE FROM tab_ins WHERE a > 2005",
        "UPDATE tab_ins SET a = a + 10000 WHERE a = 2001",
    )
    flow.checkpoint("insert and delete", "tab_ins")


def _walsenders(flow: Flow, after: dict[str, int] | None = None) -> dict[str, int]:
    """The pids of both walsenders that stream, once they are others than ``after``."""
    [name] = flow.subscriptions
    streams = "SELECT pid FROM pg_stat_replication WHERE application_name = %s AND pid <> %s"
    query = f"{streams} AND state = 'streaming'"
    found = {}
    for each in (name, f"{name}_native"):
        values = (each, after[each] if after else 0)
        rows = wait_until(partial(flow.pub.execute, query, values), 60, f"{each} streams")
        found[each] = int(rows[0][0])
    return found


def _other_connection(flow: Flow) -> None:
    [name] = flow.subscriptions
    before = _walsenders(flow)
    connection = f"{flow.pub.dsn} options=''-c log_statement_stats=on''"
    flow.alter(name, f"CONNECTION '{connection}'")
    after = flow.facts["walsenders"] = _walsenders(flow, before)
    log = flow.pub.server.log_file
    for each, pid in after.items():
        said = re.compile(rf"\[{pid}\] {each} LOG:  .*STATISTICS")
        found = partial(lambda said: said.search(log.read_text(errors="replace")), said)
        wait_until(found, 30, "statistics")
    flow.pub.run("INSERT INTO tab_rep SELECT generate_series(1, 20)")
    flow.checkpoint("another connection", "tab_rep")


def _other_publications(flow: Flow) -> None:
    [name] = flow.subscriptions
    flow.alter(name, "SET PUBLICATION tap_pub_ins_only WITH (copy_data = false)")
    _walsenders(flow, flow.facts["walsenders"])
    flow.pub.run(
        "INSERT INTO tab_ins SELECT generate_series(3001, 3100)",
        "DELETE FROM tab_rep",
        "INSERT INTO tab_full VALUES (7777)",
    )
    flow.checkpoint("fewer publications", "tab_ins", "tab_rep", "tab_full")
    flow.pub.run("ALTER PUBLICATION tap_pub_ins_only ADD TABLE tab_full")
    flow.alter(name, "REFRESH PUBLICATION WITH (copy_data = false)")
    flow.pub.run("INSERT INTO tab_full VALUES (0)")
    flow.checkpoint("joined without copy", "tab_full")


def _empty_transaction(flow: Flow) -> None:
    flow.pub.run("INSERT INTO tab_notrep VALUES (11)")
    target = flow.pub.lsn()
    query = "SELECT replay_lsn >= %s FROM pg_stat_replication WHERE application_name = %s"
    [name] = flow.subscriptions
    for each in (name, f"{name}_native"):
        confirmed = partial(flow.pub.execute, query, (target, each))
        wait_until(
            partial(lambda ask: ask() == [(True,)], confirmed),
            30,
            f"{each} confirms what holds nothing for it",
        )
    flow.facts["confirmed"] = True


NATIVE_LEFT = (
    "SELECT count(*) FROM pg_subscription WHERE oid = %(subid)s",
    "SELECT count(*) FROM pg_subscription_rel WHERE srsubid = %(subid)s",
    "SELECT count(*) FROM pg_replication_origin WHERE roname ~ ('^pg_' || %(subid)s || '(_|$)')",
)


def _drop(flow: Flow) -> None:
    """Subscriptions, tables, origins, slots: how many there are before and after it."""
    [name] = flow.subscriptions
    [subid] = [r["oid"] for r in flow.pgsub.status("pg_subscription") if r["subname"] == name]
    oid = "SELECT oid FROM pg_subscription WHERE subname = %s"
    native = {"subid": flow.sub.value(oid, (f"{name}_native",))}
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"

    def counts() -> dict[str, list[int]]:
        origins = [row["roname"] for row in flow.pgsub.status("pg_replication_origin")]
        ours = [
            [row["oid"] for row in flow.pgsub.status("pg_subscription")].count(subid),
            [row["srsubid"] for row in flow.pgsub.status("pg_subscription_rel")].count(subid),
            sum(bool(re.match(rf"pg_{subid}(_|$)", each)) for each in origins),
        ]
        return {
            "ours": [*ours, flow.pub.value(slots, (name,))],
            "native": [
                *(flow.sub.value(query, native) for query in NATIVE_LEFT),
                flow.pub.value(slots, (f"{name}_native",)),
            ],
        }

    flow.facts["before drop"] = counts()
    flow.drop(name)
    flow.facts["after drop"] = counts()


def test_s_001_1_rows_that_pre_exist_are_copied(flow: Flow) -> None:
    assert n_min_max(flow.same("copy", "tab_ins")) == (1002, 1, 1002)
    assert "tab_notrep" not in flow.facts["tables"]


def test_s_001_2_an_insert_only_publication_sends_no_updates_and_deletes(flow: Flow) -> None:
    assert n_min_max(flow.same("dml", "tab_ins")) == (1052, 1, 1002)


def test_s_001_3_updates_of_the_key_itself(flow: Flow) -> None:
    assert n_min_max(flow.same("dml", "tab_rep")) == (20, -20, -1)


def test_s_001_4_other_column_order_and_a_local_default(flow: Flow) -> None:
    """H-17: in the copy and in the stream."""
    rows = flow.same("dml", "tab_mixed")
    assert [(d, a, b) for d, _, b, a in rows] == [("local", 1, "foo"), ("local", 2, "bar")]


def test_s_001_5_identity_nothing_accepts_inserts(flow: Flow) -> None:
    assert len(flow.same("dml", "tab_nothing")) == 20


def test_s_001_6_a_key_with_included_columns(flow: Flow) -> None:
    assert n_min_max(flow.same("dml", "tab_include")) == (20, -20, -1)


def test_s_001_7_an_index_without_identity(flow: Flow) -> None:
    assert flow.same("dml", "tab_no_replidentity_index") == [(1,)]


def test_s_001_9_functions_in_public_are_never_called(flow: Flow) -> None:
    assert len(flow.same("copy", "tab_full")) == 10  # the sync would have failed


def test_s_001_11_a_table_dropped_from_the_publication_stops_at_once(flow: Flow) -> None:
    assert n_min_max(flow.same("dropped from the publication", "tab_ins")) == (1052, 1, 1002)


def test_s_001_13_each_publication_has_its_own_publish_set(flow: Flow) -> None:
    assert flow.same("two publications before", "temp1") == []
    assert flow.same("two publications", "temp1") == [(1,)]


def test_s_001_14_one_of_equal_rows_is_updated(flow: Flow) -> None:
    """H-33."""
    assert n_min_max(flow.same("full", "tab_full")) == (20, 1, 100)


def test_s_001_15_the_same_for_text(flow: Flow) -> None:
    """H-33."""
    assert first(flow.same("full", "tab_full2")) == ["a", "bb", "bb"]


def test_s_001_17_identity_full_though_there_is_a_key(flow: Flow) -> None:
    assert flow.same("full", "tab_full_pk") == [(1, "bar"), (2, "baz")]


@pytest.mark.parametrize("table", ["tab_full_pk", "tab_full", "tab_include"])
def test_s_001_18_changes_of_missing_rows_are_skipped(flow: Flow, table: str) -> None:
    rows = flow.same("missing", table)
    if table == "tab_full_pk":
        assert rows == [(3, "later")]


def test_s_001_18_and_each_is_counted_and_told(flow: Flow) -> None:
    ours, native = flow.facts["counted"]
    assert ours == native == (3, 2)
    ours, native = flow.facts["told"]
    assert ours == native
    assert len(ours) == 4  # three tables, of which one misses both an update's and a delete's row


def test_s_001_19_a_value_of_500000_bytes(flow: Flow) -> None:
    lengths = {a: len(b) for _, _, b, a in flow.same("large", "tab_mixed")}
    assert lengths == {1: 3, 2: 500000}


def test_s_001_20_an_unchanged_large_value_stays(flow: Flow) -> None:
    rows = flow.same("unchanged", "tab_mixed")
    assert {(a, float(c), len(b)) for _, c, b, a in rows} == {(1, 1.1, 3), (2, 3.3, 500000)}


def test_s_001_22_a_local_column_is_dropped(flow: Flow) -> None:
    rows = flow.same("column dropped", "tab_local")
    assert [(float(c), b, a) for c, b, a in rows] == [(11.11, "baz", 1), (22.22, "bar", 2)]


def test_s_001_25_the_publisher_restarts(flow: Flow) -> None:
    assert n_min_max(flow.same("restarted", "tab_ins")) == (1152, 1, 1100)
    assert flow.same("restarted", "tab_rep") == []


def test_s_001_26_the_publish_set_changes(flow: Flow) -> None:
    assert n_min_max(flow.same("insert and delete", "tab_ins")) == (1157, 1, 2005)


def test_s_001_23_another_connection_starts_the_worker_again(flow: Flow) -> None:
    """With options that reach the walsender: the flow has found them in its log."""
    assert n_min_max(flow.same("another connection", "tab_rep")) == (20, 1, 20)


def test_s_001_24_other_publications_without_copying(flow: Flow) -> None:
    """What comes of tables that left is ignored, and missing for ever. The flow has seen that both
    workers start again."""
    assert n_min_max(flow.same("fewer publications", "tab_ins")) == (1257, 1, 3100)
    assert n_min_max(flow.same("fewer publications", "tab_rep")) == (20, 1, 20)
    assert 7777 not in first(flow.same("fewer publications", "tab_full"))


def test_s_001_27_a_table_joins_without_copying(flow: Flow) -> None:
    before = first(flow.same("fewer publications", "tab_full"))
    assert first(flow.same("joined without copy", "tab_full")) == [0, *before]


def test_s_001_28_an_empty_transaction_moves_the_confirmed_position(flow: Flow) -> None:
    """H-34: as natively."""
    assert flow.facts["confirmed"]


def test_s_001_30_drop_leaves_nothing(flow: Flow) -> None:
    """H-10: of a subscription whose workers live."""
    before, after = flow.facts["before drop"], flow.facts["after drop"]
    assert before["ours"] == before["native"] == [1, 2, 1, 1]
    assert after["ours"] == after["native"] == [0, 0, 0, 0]
