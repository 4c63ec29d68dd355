"""PostgreSQL's 029_on_error: an error disables, and the transaction it names can be skipped.

With the counters of 026_stats, for which the same errors are needed; S-026-12 is with the slots.

Both targets have a row before: the copy stops at its key. Later a publication of inserts brings a
key twice without its DELETE. Both sides stop at it, and both are told to skip the position that
ours named.

What is prepared fails on the twin at PREPARE, here at COMMIT PREPARED (docs/fidelity.md). So the
position to skip is the one that the twin names, and ours is told before the transaction comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, first
from tests.integration.prepared import await_enabled, await_prepared, natives, ours, prepare
from tests.servers import every_version
from tests.twin import native_state
from tests.waiting import wait_until

FINISHED = re.compile(
    r'processing remote data for replication origin "pg_(\d+)" during message type "INSERT" for '
    r'replication target relation "t029_\d+\.tbl" in transaction (\d+), finished at ([0-9A-F/]+)'
)


@pytest.fixture(scope="module", params=every_version(18, since=15))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t029_{request.param}")
    flow.both(
        "CREATE TABLE tbl (i int PRIMARY KEY, t text)", "CREATE TABLE gone (i int PRIMARY KEY)"
    )
    flow.facts["stats before"] = _both_stats(flow, f"{flow.name}_sub")
    flow.sub.run("INSERT INTO tbl VALUES (1, 'value_029')")
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    flow.lake("CREATE TABLE {t}.tbl (i int, t string)")
    flow.lake("INSERT INTO {t}.tbl VALUES (1, 'value_029')")
    flow.pub.run(
        "CREATE PUBLICATION pub FOR TABLE tbl WITH (publish = 'insert')",
        "CREATE PUBLICATION pub_gone FOR TABLE gone",
        "CREATE PUBLICATION pub_none",
        "INSERT INTO tbl VALUES (1, 'first')",
        "INSERT INTO gone VALUES (1), (2)",
    )
    name = flow.subscribe(
        "sub",
        ["pub", "pub_gone"],
        disable_on_error=True,
        two_phase=True,
        tables={"tbl": {"adopt": True}},
    )
    _remove_what_stops_the_copy(flow, name)
    flow.checkpoint("copied", "tbl", "gone")
    await_enabled(flow, name)
    flow.facts["states"] = flow.same_letters(name)
    flow.facts["stats at first"] = _both_stats(flow, name)
    _delete_what_is_gone(flow, name)
    flow.pub.run("DELETE FROM tbl", "INSERT INTO tbl VALUES (1, 'twice'), (5, 'with it')")
    flow.facts["xid"] = flow.pub.value("SELECT xmin::text::bigint FROM tbl WHERE i = 1")
    _await_disabled(flow, name)
    flow.facts["log"] = flow.pgsub.log_tail(10_000)
    flow.facts["stats"] = _stats(flow, name)
    flow.facts["native stats"] = _native_stats(flow, "apply_error_count, confl_insert_exists")
    _skip(flow, name)
    flow.pub.run("INSERT INTO tbl VALUES (2, 'after')")
    flow.checkpoint("skipped", "tbl")
    flow.facts["after"] = (_subscription(flow, name)["subskiplsn"], _native(flow, "subskiplsn"))
    flow.facts["later log"] = flow.pgsub.log_tail(10_000)
    _skip_prepared(flow, name)
    _reset(flow, name)
    return flow


def _await_disabled(flow: Flow, name: str) -> None:
    wait_until(lambda: not _subscription(flow, name)["subenabled"], 120, flow.pgsub.log_tail)
    wait_until(lambda: not _native(flow, "subenabled"), 60, "the twin is disabled")


def _remove_what_stops_the_copy(flow: Flow, name: str) -> None:
    _await_disabled(flow, name)
    flow.facts["copy fails"] = {
        "stats": _stats(flow, name)[0]["sync_error_count"],
        "native stats": _native_stats(flow, "sync_error_count")[0],
        "state": flow.states(name)["tbl"],
        "native state": native_state(flow.sub, "tbl"),
        "native log": flow.twin.server.log_file.read_text(errors="replace"),
        "log": flow.pgsub.log_tail(10_000),
    }
    flow.sub.run("DELETE FROM tbl")
    flow.lake("DELETE FROM {t}.tbl")
    flow.alter(name, "ENABLE")


def _delete_what_is_gone(flow: Flow, name: str) -> None:
    flow.sub.run("DELETE FROM gone WHERE i = 1")
    flow.lake("DELETE FROM {t}.gone WHERE i = 1")
    flow.pub.run("DELETE FROM gone WHERE i = 1")
    flow.checkpoint("gone", "gone")
    flow.facts["missing"] = (
        tuple(
            _stats(flow, name)[0][f"confl_{each}"] for each in ("delete_missing", "update_missing")
        ),
        _native_stats(flow, "confl_delete_missing, confl_update_missing"),
    )


def _skip(flow: Flow, name: str) -> None:
    """ALTER SUBSCRIPTION … SKIP and ENABLE on both sides."""
    found = FINISHED.findall(flow.facts["log"])
    flow.facts["finished"] = found[-1]
    flow.alter(name, f"SKIP (lsn = '{found[-1][2]}')")
    flow.facts["to skip"] = (_subscription(flow, name)["subskiplsn"], _native(flow, "subskiplsn"))
    flow.alter(name, "ENABLE")


def _skip_prepared(flow: Flow, name: str) -> None:
    flow.alter(name, "DISABLE")
    flow.pub.run("DELETE FROM tbl WHERE i = 1")
    prepare(flow, "t029", "INSERT INTO tbl VALUES (1, 'prepared'), (6, 'with it')")
    log = flow.twin.server.log_file
    before = log.stat().st_size
    flow.sub.execute(f'ALTER SUBSCRIPTION "{name}_native" ENABLE')
    wait_until(lambda: not _native(flow, "subenabled"), 60, flow.twin.log_tail)
    (*_, (_, _, lsn)) = FINISHED.findall(log.read_bytes()[before:].decode(errors="replace"))
    flow.alter(name, f"SKIP (lsn = '{lsn}')")
    flow.alter(name, "ENABLE")
    flow.facts["skipped, prepared"] = (len(await_prepared(flow, name, 1)), natives(flow, name))
    flow.pub.run("COMMIT PREPARED 't029'", "INSERT INTO tbl VALUES (3, 'after it')")
    flow.checkpoint("prepared and skipped", "tbl")
    flow.facts["prepared, left"] = (ours(flow, name), natives(flow, name))
    flow.facts["after it"] = (_subscription(flow, name)["subskiplsn"], _native(flow, "subskiplsn"))


def _reset(flow: Flow, name: str) -> None:
    flow.subscribe("other", ["pub_none"], enabled=False)
    reset = "SELECT pg_stat_reset_subscription_stats({})"
    one = f"(SELECT oid FROM pg_subscription WHERE subname = '{name}_native')"
    resets = {"reset": ([name], one), "reset again": ([name], one), "reset all": ([], "NULL")}
    for label, (words, oid) in resets.items():
        flow.pgsub.command("reset-stats", *words)
        flow.sub.execute(reset.format(oid))
        flow.facts[label] = _both_stats(flow, name)
        flow.facts[f"{label}, other"] = _both_stats(flow, f"{flow.name}_other")
    flow.drop(name)
    flow.facts["stats after drop"] = _both_stats(flow, name)


def _subscription(flow: Flow, name: str) -> dict[str, Any]:
    return next(row for row in flow.pgsub.status("pg_subscription") if row["subname"] == name)


def _stats(flow: Flow, name: str) -> list[dict[str, Any]]:
    found = flow.pgsub.status("pg_stat_subscription_stats")
    return [row for row in found if row["subname"] == name]


def _both_stats(flow: Flow, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The row of a subscription's counters, if there is one: ours, and the twin's."""
    query = "SELECT to_jsonb(s) FROM pg_stat_subscription_stats s WHERE subname = %s"
    return _stats(flow, name), [row for (row,) in flow.sub.execute(query, (f"{name}_native",))]


def _native_stats(flow: Flow, columns: str) -> tuple[int, ...]:
    """Of the twin; its workers may keep what they counted for a second."""
    flow.sub.execute("SELECT pg_stat_force_next_flush()")
    query = f"SELECT {columns} FROM pg_stat_subscription_stats WHERE subname = %s"
    name = (f"{flow.name}_sub_native",)
    return wait_until(
        lambda: _unless_zero(flow.sub.execute(query, name)[0]), 60, "the twin's counters"
    )


def _unless_zero(counters: tuple[int, ...]) -> tuple[int, ...] | None:
    return counters if any(counters) else None


def _native(flow: Flow, column: str) -> Any:
    query = f"SELECT {column} FROM pg_subscription WHERE subname = %s"
    return flow.sub.value(query, (f"{flow.name}_sub_native",))


def test_s_026_2_a_failing_copy_is_counted(flow: Flow) -> None:
    assert flow.facts["copy fails"]["stats"] > 0
    assert flow.facts["copy fails"]["native stats"] > 0


def test_s_029_1_a_failing_copy_disables(flow: Flow) -> None:
    found = flow.facts["copy fails"]
    assert found["state"] == found["native state"] == "d"
    sub = f"{flow.name}_sub"
    for log, name in ((found["log"], sub), (found["native log"], f"{sub}_native")):
        assert f'subscription "{name}" has been disabled because of an error' in log
    table = f'lake table "{flow.name}.tbl"'
    assert f"duplicate key value violates the unique key of {table}" in found["log"]
    assert "value_029" not in found["log"]


def test_s_026_3_the_copy_goes_through_when_its_fault_is_gone(flow: Flow) -> None:
    assert flow.same("copied", "tbl") == [(1, "first")]


def test_s_029_2_after_enable_all_tables_are_copied(flow: Flow) -> None:
    assert first(flow.same("copied", "gone")) == [1, 2]
    assert set(flow.facts["states"].values()) == {"r"}


def test_s_029_3_a_failing_transaction_disables(flow: Flow) -> None:
    log = flow.facts["log"]
    assert f'conflict detected on relation "{flow.name}.tbl": conflict=insert_exists' in log
    assert "LOG:  action=disable_on_error" in log
    assert f'subscription "{flow.name}_sub" has been disabled because of an error' in log
    assert int(flow.facts["finished"][1]) == flow.facts["xid"]


def test_s_029_3_the_position_that_is_named_can_be_skipped(flow: Flow) -> None:
    """On the twin too, so it is the one that PostgreSQL means."""
    assert first(flow.same("copied", "tbl")) == [1]
    assert flow.same("skipped", "tbl") == [(1, "first"), (2, "after")]
    lsn = flow.facts["finished"][2]
    assert flow.facts["to skip"] == (lsn, lsn)
    assert flow.facts["after"] == ("0/0", "0/0")
    for step in ("starts", "completed"):
        assert (
            f"logical replication {step} skipping transaction at LSN {lsn}"
            in (flow.facts["later log"])
        )


def test_s_029_4_a_prepared_transaction_that_is_skipped_is_prepared_empty(flow: Flow) -> None:
    of_ours, native = flow.facts["skipped, prepared"]
    assert (of_ours, len(native)) == (1, 1)
    rows = flow.same("prepared and skipped", "tbl")
    assert rows == [(1, "first"), (2, "after"), (3, "after it")]
    assert flow.facts["after it"] == ("0/0", "0/0")


def test_s_029_6_nothing_is_left_prepared(flow: Flow) -> None:
    assert flow.facts["prepared, left"] == ([], [])


def test_s_026_1_and_6_what_there_is_at_first(flow: Flow) -> None:
    assert flow.facts["stats before"] == ([], [])
    for (row,) in flow.facts["stats at first"]:
        assert row["stats_reset"] is None
        assert _counted(row) == row["sync_error_count"] > 0


def test_s_026_4_a_failing_transaction_is_counted(flow: Flow) -> None:
    (row,) = flow.facts["stats"]
    ours = (row["apply_error_count"], row["confl_insert_exists"])
    assert ours == flow.facts["native stats"] == (1, 1)
    assert _counted(row) == 3 + row["sync_error_count"]


def test_s_026_5_a_delete_that_finds_no_row_is_counted(flow: Flow) -> None:
    ours, native = flow.facts["missing"]
    assert ours == native == (1, 0)
    assert first(flow.same("gone", "gone")) == [2]


def test_s_026_7_8_and_9_a_reset_zeroes_and_stamps(flow: Flow) -> None:
    labels = ("reset", "reset again", "reset all")
    for side in (0, 1):
        rows = [flow.facts[label][side][0] for label in labels]
        assert [_counted(row) for row in rows] == [0, 0, 0]
        stamps = [row["stats_reset"] for row in rows]
        assert None not in stamps
        assert stamps == sorted(set(stamps))
        others = [flow.facts[f"{label}, other"][side][0]["stats_reset"] for label in labels]
        assert [stamp is None for stamp in others] == [True, True, False]


def test_s_026_10_drop_removes_the_stats(flow: Flow) -> None:
    assert flow.facts["stats after drop"] == ([], [])


def _counted(row: dict[str, Any]) -> int:
    return sum(row[name] for name in row if name.startswith("confl_") or name.endswith("_count"))
