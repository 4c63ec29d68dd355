"""Catalogs and views beside PostgreSQL's own: their columns, and what a twin's hold.

``OPTIONS`` are of subscriptions that never connect: of CREATE, of ALTER, and hardly any. ``live``
is looked at while a table is copied, afterwards, and disabled. Its copy is held twice: by a
transaction that is open on the publisher, since no slot is made before it ends, and by a policy of
the table that lets its last row pass when the flow does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.status.views import VIEWS
from tests.fix_publisher import Database
from tests.integration.flow import Flow
from tests.waiting import wait_until

Row = dict[str, Any]

# What there is

OUR_VIEWS: Final = {
    "leaked_slots", "leaked_branches", "last_errors", "lake_maintenance", "lake_tables",
    "schema_changes", "spools",
}  # fmt: skip
OUR_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "pg_subscription": (
        "subuuid", "subcreate", "sync_slot", "refresh", "password_env", "sysid", "timeline",
        "datoid", "max_flush_lsn", "atomic_publish",
    ),
    "pg_subscription_rel": (
        "nspname", "relname", "lake_schema", "lake_table", "relstate", "attempt", "floor",
        "lake_lsn", "copied", "recopy", "remote_relid", "other_relid", "suspend_time",
        "suspend_sqlstate", "suspend_error", "suspend_lsn", "resuming",
    ),
    "pg_stat_subscription_stats": (
        "suspension_count", "schema_change_count", "column_add_count", "column_rename_count",
        "column_retype_count", "column_leave_count",
    ),
    "pg_stat_progress_copy": ("ranges_done", "ranges_total"),
    "pg_prepared_xacts": ("subid", "subname", "remote_gid", "prepare_lsn", "changes"),
}  # fmt: skip
"""Behind PostgreSQL's."""

NATIVE_COLUMNS: Final = tuple(
    name for name in VIEWS["pg_subscription"].columns if name not in OUR_COLUMNS["pg_subscription"]
)

TEXT_HERE: Final = ("name", '"char"', "pg_lsn")
"""Types that no lake has."""

NAMES: Final = {
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "timestamptz": "timestamp with time zone",
}
"""As ``format_type`` writes them."""

_COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def test_which_views_are_postgresql_s(database: Database) -> None:
    unknown = {
        view
        for view in VIEWS
        if database.value("SELECT to_regclass(%s) IS NULL", (f"pg_catalog.{view}",))
    }
    assert unknown == OUR_VIEWS


@pytest.mark.parametrize("view", sorted(VIEWS.keys() - OUR_VIEWS))
def test_the_columns_of_a_view_are_those_of_18(database: Database, view: str) -> None:
    """In its order, with its types."""
    native = database.execute(_COLUMNS, (f"pg_catalog.{view}",))
    ours = list(VIEWS[view].types.items())
    assert [(name, NAMES.get(type_, type_)) for name, type_ in ours[: len(native)]] == [
        (name, "text" if type_ in TEXT_HERE else {"xid": "oid"}.get(type_, type_))
        for name, type_ in native
    ]
    assert tuple(name for name, _ in ours[len(native) :]) == OUR_COLUMNS.get(view, ())


# What they hold

OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": {"streaming": "parallel"},
    "created": {
        "binary": True,
        "streaming": "off",
        "synchronous_commit": "remote_write",
        "disable_on_error": True,
        "password_required": False,
        "run_as_owner": True,
        "origin": "none",
        "slot_name": "views_slot",
    },
    "altered": {"streaming": "parallel"},
}
ALTERED: Final = (
    "SET (binary = true, streaming = on, synchronous_commit = local, origin = none)",
    "SET (disable_on_error = true, password_required = false, run_as_owner = true)",
    "SKIP (lsn = '0/16B3748')",
    "SET PUBLICATION second, third WITH (refresh = false)",
    "ADD PUBLICATION first WITH (refresh = false)",
)
CATALOG: Final = (*OPTIONS, "failover", "no slot", "live")

NUMBERED: Final = {"oid", "subdbid"}
"""Each server has its own."""

ALIKE: Final = {"subowner", "subtwophasestate"}
"""The same in all subscriptions: there is one owner, and two-phase commit is refused."""

TIMES: Final = ("last_msg_send_time", "last_msg_receipt_time", "latest_end_time")
PHASES: Final = ("copied", "ready", "disabled")

# Minus infinity is what a twin's worker has before it has set its times.
_STAT: Final = f"""
SELECT worker_type, pid, leader_pid, relid, received_lsn, latest_end_lsn,
       {", ".join(f"nullif({time}, '-infinity') AS {time}" for time in TIMES)}
  FROM pg_stat_subscription WHERE subname = %s
"""


_PROGRESS: Final = """
SELECT * FROM pg_stat_progress_copy WHERE datname = current_database()
"""
_ORIGIN: Final = """
SELECT remote_lsn, local_lsn FROM pg_replication_origin_status
 WHERE external_id = (SELECT 'pg_' || oid FROM pg_subscription WHERE subname = %s)
"""
_REL: Final = """
SELECT srsubstate, srsublsn FROM pg_subscription_rel
 WHERE srsubid = (SELECT oid FROM pg_subscription WHERE subname = %s)
"""

READER: Final = "views_reader"
GATE: Final = 7
ROWS: Final = 3000
"""More than the publisher keeps before it sends something."""


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Iterator[Flow]:
    flow = make_flow(publisher, "views")
    tables = ("t", "f", "n")
    flow.both(*(f"CREATE TABLE {table} (a int PRIMARY KEY)" for table in tables))
    flow.pub.run(
        f"INSERT INTO t SELECT generate_series(1, {ROWS})",
        *(f"CREATE PUBLICATION {name}" for name in ("first", "second", "third")),
        *(f"CREATE PUBLICATION of_{table} FOR TABLE {table}" for table in tables),
        f"CREATE ROLE {READER} LOGIN REPLICATION",
        f"GRANT USAGE ON SCHEMA views TO {READER}",
        f"GRANT SELECT ON t TO {READER}",
        "CREATE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS"
        f" 'BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN true; END'",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY held ON t USING (a < {ROWS} OR views.gate())",
    )
    _catalog(flow)
    _live(flow)
    yield flow
    flow.drop("views_live")
    flow.pub.run(f"DROP OWNED BY {READER}", f"DROP ROLE {READER}")


def _catalog(flow: Flow) -> None:
    names = {
        label: flow.subscribe(label, ["first"], connect=False, **options)
        for label, options in OPTIONS.items()
    }
    for words in ALTERED:
        flow.alter(names["altered"], words)
    _connect(flow, names["altered"], f"{flow.pub.dsn} application_name=views")
    names["failover"] = flow.subscribe(
        "failover", ["of_f"], enabled=False, failover=True, streaming="on"
    )
    uncopied = flow.subscribe("uncopied", ["of_n"], enabled=False, copy_data=False)
    _look_at_tables(flow, names["failover"], "not begun")
    _look_at_tables(flow, uncopied, "not to be copied")
    flow.drop(uncopied)
    flow.facts["catalog"] = {label: _subscription(flow, name) for label, name in names.items()}
    for label in OPTIONS:  # nor could they be dropped otherwise: there is no slot
        flow.alter(names[label], "SET (slot_name = NONE)")
    flow.facts["catalog"]["no slot"] = _subscription(flow, names["plain"])
    for name in names.values():
        flow.drop(name)


def _connect(flow: Flow, name: str, conninfo: str) -> None:
    flow.sub.execute(f"ALTER SUBSCRIPTION {name}_native CONNECTION '{conninfo}'")
    flow.pgsub.command("alter", name, "CONNECTION", conninfo)


def _subscription(flow: Flow, name: str) -> tuple[Row, Row]:
    """The twin's row and ours; the twin's names without what tells them from ours."""
    columns = ", ".join(NATIVE_COLUMNS)
    query = f"SELECT {columns} FROM pg_subscription WHERE subname = %s"
    [values] = flow.sub.execute(query, (f"{name}_native",))
    native = dict(zip(NATIVE_COLUMNS, values, strict=True))
    for column in ("subname", "subslotname"):
        native[column] = native[column] and native[column].removesuffix("_native")
    [ours] = [row for row in flow.pgsub.status("pg_subscription") if row["subname"] == name]
    return native, ours


def _live(flow: Flow) -> None:
    name = flow.subscribe("live", ["of_t"], enabled=False, streaming="on")
    _connect(flow, name, flow.pub.server.conninfo(flow.pub.name, user=READER))
    _look_at_origin(flow, name, "created")
    with flow.pub.connect() as gate:
        gate.execute(f"SELECT pg_advisory_lock({GATE})")
        with flow.pub.connect() as writer, writer.transaction():
            writer.execute("SELECT pg_current_xact_id()")
            flow.alter(name, "ENABLE")
            _await(flow, name, lambda rows: len(rows) == 2 and _streams(rows[0]))
            wait_until(lambda: _letters(flow, name) == ["d", "d"], 180, flow.pgsub.log_tail)
            _look(flow, name, "copied")
        wait_until(lambda: all(_progress(flow)), 60, flow.pgsub.log_tail)
        flow.facts["progress"] = _progress(flow)
        flow.facts["who copies"] = flow.pgsub.worker(name, "t")
    flow.catch_up()
    flow.pub.run("DELETE FROM t WHERE a = 1")
    flow.catch_up()
    _await(flow, name, lambda rows: len(rows) == 1 and _streams(rows[0]))
    _look(flow, name, "ready")
    flow.facts["catalog"]["live"] = _subscription(flow, name)
    flow.alter(name, "DISABLE")
    _await(flow, name, lambda rows: len(rows) == 1 and rows[0]["pid"] is None)
    _look(flow, name, "disabled")


def _streams(row: Row) -> bool:
    """Whether a worker has heard of the publisher's end."""
    return row["worker_type"] == "apply" and row["latest_end_lsn"] is not None


def _await(flow: Flow, name: str, reached: Callable[[list[Row]], bool]) -> None:
    wait_until(
        lambda: all(reached(rows) for rows in _stat(flow, name)),
        180,
        lambda: f"{_stat(flow, name)}; {flow.pgsub.log_tail()}",
    )


def _look(flow: Flow, name: str, phase: str) -> None:
    flow.facts[phase] = _stat(flow, name)
    flow.facts[f"{phase}: letters"] = _letters(flow, name)
    _look_at_tables(flow, name, phase)
    _look_at_origin(flow, name, phase)


def _look_at_tables(flow: Flow, name: str, label: str) -> None:
    """``srsubstate`` and ``srsublsn`` of its one table, on the twin and here."""
    [native] = flow.sub.execute(_REL, (f"{name}_native",))
    rels, subid = flow.pgsub.status("pg_subscription_rel"), _subid(flow, name)
    [ours] = [row for row in rels if row["srsubid"] == subid]
    flow.facts[f"{label}: srsublsn"] = native, (ours["srsubstate"], ours["srsublsn"])


def _look_at_origin(flow: Flow, name: str, label: str) -> None:
    """What the subscription's own stands at, on the twin and here."""
    native = flow.sub.execute(_ORIGIN, (f"{name}_native",))
    roname = f"pg_{_subid(flow, name)}"
    ours = [
        (row["remote_lsn"], row["local_lsn"])
        for row in flow.pgsub.status("pg_replication_origin_status")
        if row["external_id"] == roname
    ]
    flow.facts[f"{label}: origin"] = native, ours


def _subid(flow: Flow, name: str) -> int:
    found = flow.pgsub.status("pg_subscription")
    return next(int(row["oid"]) for row in found if row["subname"] == name)


def _progress(flow: Flow) -> tuple[list[Row], list[Row]]:
    with flow.sub.connect() as connection:
        cursor = connection.execute(_PROGRESS.encode())
        columns = [column.name for column in cursor.description or ()]
        native = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    ours = flow.pgsub.status("pg_stat_progress_copy")
    return native, [{each: row[each] for each in columns} for row in ours]


def _letters(flow: Flow, name: str) -> list[str]:
    """The table's, on the twin and here."""
    return [letters[name, "views", "t"] for letters in flow.letters()]


def _stat(flow: Flow, name: str) -> tuple[list[Row], list[Row]]:
    """The twin's workers and ours, apply before table synchronization."""
    with flow.sub.connect() as connection:
        cursor = connection.execute(_STAT.encode(), (f"{name}_native",))
        columns = [column.name for column in cursor.description or ()]
        native = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    found = flow.pgsub.status("pg_stat_subscription")
    ours = [{each: row[each] for each in columns} for row in found if row["subname"] == name]
    return _by_type(native), _by_type(ours)


def _by_type(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row["worker_type"]))


def _known(row: Row, *, times: bool) -> Row:
    """Which columns are not NULL, and the type; the rest is each server's own."""
    shown = {column: value is not None for column, value in row.items()}
    if not times:
        shown = {column: known for column, known in shown.items() if column not in TIMES}
    return shown | {"worker_type": row["worker_type"]}


@pytest.mark.parametrize("column", [column for column in NATIVE_COLUMNS if column not in NUMBERED])
def test_a_column_of_pg_subscription_holds_what_the_twin_s_does(flow: Flow, column: str) -> None:
    rows = flow.facts["catalog"]
    assert set(rows) == set(CATALOG)
    native = {label: row[column] for label, (row, _) in rows.items()}
    expected = {
        label: "on" if column == "subsynccommit" and value == "off" else value
        for label, value in native.items()
    }  # no statement sets off: it is the twin's default, and on is ours
    assert {label: row[column] for label, (_, row) in rows.items()} == expected
    assert (len({str(value) for value in native.values()}) == 1) == (column in ALIKE)


@pytest.mark.parametrize("phase", PHASES)
def test_a_row_of_pg_stat_subscription_knows_what_the_twin_s_does(flow: Flow, phase: str) -> None:
    """A worker that has received nothing has no times here; the twin's has that of its start."""
    native, ours = (
        [_known(row, times=row["worker_type"] != "table synchronization") for row in rows]
        for rows in flow.facts[phase]
    )
    assert ours == native
    for row in flow.facts[phase][1]:
        if row["worker_type"] == "table synchronization":
            assert [row[time] for time in TIMES] == [None] * 3


def test_the_workers_of_each_phase(flow: Flow) -> None:
    found = {phase: [row["worker_type"] for row in flow.facts[phase][1]] for phase in PHASES}
    assert found == {
        "copied": ["apply", "table synchronization"],
        "ready": ["apply"],
        "disabled": [None],
    }
    apply, sync = flow.facts["copied"][1]
    assert apply["relid"] is apply["leader_pid"] is None
    assert apply["pid"] != sync["pid"]
    assert flow.facts["ready"][1][0]["pid"] == apply["pid"]


def test_the_state_letters_of_each_phase(flow: Flow) -> None:
    letters = {phase: flow.facts[f"{phase}: letters"] for phase in PHASES}
    assert letters == {"copied": ["d", "d"], "ready": ["r", "r"], "disabled": ["r", "r"]}


@pytest.mark.parametrize(
    ("label", "letter", "known"),
    [
        ("not begun", "i", False),
        ("copied", "d", False),
        ("ready", "r", True),
        ("not to be copied", "r", False),
    ],
)
def test_srsublsn_is_known_where_the_twin_s_is(
    flow: Flow, label: str, letter: str, known: bool
) -> None:
    for srsubstate, srsublsn in flow.facts[f"{label}: srsublsn"]:
        assert (srsubstate, srsublsn is not None) == (letter, known)


def test_an_origin_has_a_status_when_it_has_moved(flow: Flow) -> None:
    """The twin's has one from when a worker has taken it."""
    status = {phase: flow.facts[f"{phase}: origin"] for phase in ("created", *PHASES)}
    assert status["created"] == ([], [])
    assert status["copied"] == ([("0/0", "0/0")], [])
    for phase in ("ready", "disabled"):
        [(native, _)], [(ours, local_lsn)] = status[phase]
        assert ours == native
        assert re.fullmatch(r"snapshot \d+ of views\.t", local_lsn)


def test_a_row_of_pg_stat_progress_copy_knows_what_the_twin_s_does(flow: Flow) -> None:
    [native], [ours] = flow.facts["progress"]
    own = {"pid", "datid", "datname", "relid", "bytes_processed", "tuples_processed"}
    assert None not in (*native.values(), *ours.values())
    for column in native.keys() - own:
        assert ours[column] == native[column], column
    assert (ours["pid"], ours["datname"]) == (flow.facts["who copies"]["pid"], "lake")
