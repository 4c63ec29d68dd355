"""PostgreSQL's 004_sync: copying, again and again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise, product

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import requested_publisher
from tests.harness import Pgsub
from tests.integration.flow import Flow, n_min_max
from tests.servers import every_version
from tests.twin import NativeTwin, native_state
from tests.waiting import wait_until

SIDES = ("ours", "native")
LONG = 8.0
"""Seconds between two attempts that no busy machine takes for one of them."""

BEGUN = {
    "ours": r"^(\S+ \S+) UTC .* action=worker_start subid={subid} relid={relid} ",
    "native": r"^(\S+ \S+) UTC .* logical replication table synchronization worker for "
    r'subscription "{name}_native", table "{table}" has started$',
}
FAILED = r'^(\S+ \S+) UTC .* ERROR: .*table "{schema}\.{table}" .*not found'


@dataclass(frozen=True)
class Attempts:
    """When copies of a table were begun and failed, in seconds."""

    begun: list[float]
    failed: list[float]

    def idle(self) -> float:
        """The least time between one that failed and the next."""
        return min(later - one for one, later in zip(self.failed, self.begun[1:], strict=False))

    def apart(self) -> float:
        """The least time between the beginnings of two."""
        return min(later - one for one, later in pairwise(self.begun))


Tried = dict[str, Attempts]
"""By table."""


@pytest.fixture(scope="module", params=every_version(18))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t004_{request.param}")
    flow.both("CREATE TABLE tab_rep (a int PRIMARY KEY)")
    flow.pub.run(
        "INSERT INTO tab_rep SELECT generate_series(1, 10)",
        "CREATE PUBLICATION tap_pub FOR ALL TABLES",
    )
    sub = flow.subscribe("tap_sub", ["tap_pub"])
    flow.checkpoint("copy", "tab_rep")
    flow.facts["states"] = flow.same_letters(sub)
    flow.drop(sub)
    flow.facts["after drop"] = _left_over(flow)

    flow.pub.run("INSERT INTO tab_rep SELECT generate_series(11, 20)")
    over = flow.subscribe("tap_sub_over", ["tap_pub"], tables={"tab_rep": {"adopt": True}})
    flow.wait_failing(over, "sync_error_count")
    flow.facts["over old rows"] = flow.same_letters(over)
    _empty(flow, "tab_rep")
    flow.checkpoint("old rows gone", "tab_rep")
    flow.drop(over)

    _empty(flow, "tab_rep")
    again = flow.subscribe("tap_sub2", ["tap_pub"], tables={"tab_rep": {"adopt": True}})
    flow.checkpoint("recreated", "tab_rep")

    flow.both("CREATE TABLE tab_rep_next (a int)")
    flow.pub.run("INSERT INTO tab_rep_next SELECT generate_series(1, 10)")
    flow.pub.run("INSERT INTO tab_rep SELECT generate_series(21, 30)")
    flow.checkpoint("a table joins", "tab_rep")
    flow.facts["tables"] = flow.lake_tables()
    flow.facts["native next"] = flow.sub.value("SELECT count(*) FROM tab_rep_next")
    flow.alter(again, "REFRESH PUBLICATION")
    flow.checkpoint("refreshed", "tab_rep_next")
    flow.pub.run("INSERT INTO tab_rep_next SELECT generate_series(11, 20)")
    flow.checkpoint("after refresh", "tab_rep_next")
    flow.drop(again)
    flow.facts["while copying"] = _drop_while_copying(flow)
    return flow


def _empty(flow: Flow, table: str) -> None:
    flow.sub.run(f"DELETE FROM {table}")
    flow.lake(f"DELETE FROM {{t}}.{table}")


def _left_over(flow: Flow) -> dict[str, list[str]]:
    """Subscriptions of the flow and their origins, here and natively, once no slot is left."""
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = %s"
    wait_until(lambda: flow.pub.value(slots, (flow.pub.name,)) == 0, 30, "the slots are gone")
    subs = [(row["oid"], row["subname"]) for row in flow.pgsub.status("pg_subscription")]
    known = {str(oid) for oid, _ in subs}
    origins = [row["roname"] for row in flow.pgsub.status("pg_replication_origin")]
    native = flow.sub.execute(
        "SELECT subname::text FROM pg_subscription JOIN pg_database d ON d.oid = subdbid"
        " WHERE datname = current_database() UNION ALL"
        " SELECT roname FROM pg_replication_origin WHERE roname ~ '^pg_[0-9]+'"
        " AND split_part(roname, '_', 2) NOT IN (SELECT oid::text FROM pg_subscription)"
    )
    return {
        "ours": [name for _, name in subs if name.startswith(flow.name)],
        "origins": [each for each in origins if each.split("_")[1] not in known],
        "native": [name for (name,) in native],
    }


NOTHING: dict[str, list[str]] = {"ours": [], "origins": [], "native": []}


def _drop_while_copying(flow: Flow) -> dict[str, list[str]]:
    """A copy that takes a second a row (by a row security policy), dropped.

    As natively its slot is a permanent one.
    """
    role = f"{flow.name}_reader"
    flow.pub.run(
        "CREATE PUBLICATION tap_pub_next FOR TABLE tab_rep_next",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT USAGE ON SCHEMA {flow.name} TO {role}",
        f"GRANT CREATE ON DATABASE {flow.pub.name} TO {role}",
        f"GRANT SELECT ON tab_rep_next TO {role}",
        "CREATE FUNCTION slow() RETURNS boolean LANGUAGE plpgsql"
        " AS 'BEGIN PERFORM pg_sleep(1); RETURN true; END'",
        "CREATE POLICY slow ON tab_rep_next USING (slow())",
        "ALTER TABLE tab_rep_next ENABLE ROW LEVEL SECURITY",
    )
    name = f"{flow.name}_held"
    connection = flow.pub.server.conninfo(flow.pub.name, user=role)
    adopted = {f"{flow.name}.tab_rep_next": {"adopt": True}}
    flow.pgsub.create(name, connection, ["tap_pub_next"], tables=adopted, sync_slot="permanent")
    flow.sub.execute(
        f"CREATE SUBSCRIPTION {name}_native CONNECTION '{connection}' PUBLICATION tap_pub_next"
        " WITH (streaming = on)"
    )
    copying = (
        "SELECT count(DISTINCT application_name) FROM pg_stat_activity"
        " WHERE usename = %s AND wait_event = 'PgSleep'"
    )
    wait_until(lambda: flow.pub.value(copying, (role,)) == 2, 60, "both copies are under way")
    native = {"tab_rep_next": native_state(flow.sub, "tab_rep_next")}
    flow.facts["held state"] = flow.states(name), native
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = %s AND slot_name ~ '_sync_'"
    flow.facts["held slots"] = flow.pub.value(slots, (flow.pub.name,))
    of_a_table = re.compile(r"pg_\d+_\d+")
    origins = [row["roname"] for row in flow.pgsub.status("pg_replication_origin")]
    native_origins = flow.sub.execute("SELECT roname FROM pg_replication_origin")
    flow.facts["held origins"] = [
        len([name for name in names if of_a_table.fullmatch(name)])
        for names in (origins, [name for (name,) in native_origins])
    ]
    flow.pgsub.drop(name)
    flow.sub.execute(f"DROP SUBSCRIPTION {name}_native")
    return _left_over(flow)


def test_s_004_1_the_initial_copy(flow: Flow) -> None:
    assert n_min_max(flow.same("copy", "tab_rep")) == (10, 1, 10)
    assert flow.facts["states"] == {"tab_rep": "r"}


def test_s_004_2_keys_that_are_there_stop_the_copy_until_they_are_gone(flow: Flow) -> None:
    """It is tried again and again, and each failure counted."""
    assert flow.facts["over old rows"] == {"tab_rep": "d"}
    assert n_min_max(flow.same("old rows gone", "tab_rep")) == (20, 1, 20)


def test_s_004_4_drop_leaves_no_subscription_and_no_slot(flow: Flow) -> None:
    assert flow.facts["after drop"] == NOTHING


def test_s_004_5_recreated_after_a_clean_up(flow: Flow) -> None:
    assert n_min_max(flow.same("recreated", "tab_rep")) == (20, 1, 20)


def test_s_004_6_a_table_that_joins_later_waits_for_refresh(flow: Flow) -> None:
    assert flow.facts["native next"] == 0
    assert "tab_rep_next" not in flow.facts["tables"]
    assert n_min_max(flow.same("a table joins", "tab_rep")) == (30, 1, 30)


def test_s_004_7_refresh_copies_it(flow: Flow) -> None:
    assert n_min_max(flow.same("refreshed", "tab_rep_next")) == (10, 1, 10)


def test_s_004_8_and_later_inserts_arrive(flow: Flow) -> None:
    assert n_min_max(flow.same("after refresh", "tab_rep_next")) == (20, 1, 20)


def test_s_004_10_drop_while_copying_removes_the_slots(flow: Flow) -> None:
    """H-8."""
    ours, native = flow.facts["held state"]
    assert ours == native == {"tab_rep_next": "d"}
    assert flow.facts["held slots"] == 2
    assert flow.facts["while copying"] == NOTHING


def test_s_004_11_and_leaves_no_origin(flow: Flow) -> None:
    """H-9: the copy had begun one on each side."""
    assert flow.facts["held origins"] == [1, 1]
    assert flow.facts["while copying"]["origins"] == []


@pytest.fixture(scope="module")
def tried(publisher: EmbeddedPublisher, pgsub: Pgsub, twin: NativeTwin) -> dict[str, Tried]:
    """Attempts to copy two tables that the publisher has no more, by side and pace."""
    found = _tried(Flow(pgsub, twin, publisher, "t004_short"), "short")
    interval = f"{LONG:g}s"
    slow = NativeTwin(18, wal_retrieve_retry_interval=interval)
    with slow.server, pgsub.settings(wal_retrieve_retry_interval=interval):
        return found | _tried(Flow(pgsub, slow, publisher, "t004_long"), "long")


def _tried(flow: Flow, pace: str) -> dict[str, Tried]:
    """Until each side has tried each table three times."""
    tables = ("one", "two")
    try:
        flow.both(*(f"CREATE TABLE {table} (a int)" for table in tables))
        flow.pub.run("CREATE PUBLICATION pub FOR TABLE one, two")
        name = flow.subscribe("sub", ["pub"], enabled=False)
        flow.pub.run(*(f"DROP TABLE {table}" for table in tables))
        subs = flow.pgsub.status("pg_subscription")
        [subid] = [row["oid"] for row in subs if row["subname"] == name]
        rels = flow.pgsub.status("pg_subscription_rel")
        relids = {row["relname"]: row["srrelid"] for row in rels if row["srsubid"] == subid}
        flow.alter(name, "ENABLE")

        def attempts(side: str) -> Tried:
            log = flow.pgsub.log_file if side == "ours" else flow.twin.server.log_file
            text = log.read_text(errors="replace")
            found = {}
            for table, relid in relids.items():
                named = {"subid": subid, "relid": relid, "name": name, "table": table}
                begun, failed = (
                    [
                        datetime.fromisoformat(stamp).timestamp()
                        for stamp in re.findall(line.format(schema=flow.name, **named), text, re.M)
                    ]
                    for line in (BEGUN[side], FAILED)
                )
                found[table] = Attempts(begun, failed)
            return found

        def enough(side: str) -> bool:
            return min(len(each.failed) for each in attempts(side).values()) > 2

        for side in SIDES:
            wait_until(partial(enough, side), 300, partial(attempts, side))
        assert flow.same_letters(name) == dict.fromkeys(tables, "d")
        return {f"{side} {pace}": attempts(side) for side in SIDES}
    finally:
        flow.close()


@pytest.mark.parametrize("side", SIDES)
def test_s_004_9_the_pace_is_configurable(tried: dict[str, Tried], side: str) -> None:
    assert min(each.idle() for each in tried[f"{side} short"].values()) < LONG / 2
    assert min(each.apart() for each in tried[f"{side} long"].values()) > LONG / 2


@pytest.mark.parametrize("side", SIDES)
def test_s_004_9_the_pace_is_that_of_each_table(tried: dict[str, Tried], side: str) -> None:
    """Where one table's attempt would put off the other's, none were so close."""
    one, two = tried[f"{side} long"].values()
    assert min(abs(first - second) for first, second in product(one.begun, two.begun)) < LONG / 2
