"""``failover = true``: slots that a standby of the publisher keeps, and tables copied under it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from tests.waiting import wait_until

SYNC_SLOTS = ("temporary", "permanent")
_SYNC = """
SELECT slot_name, temporary, failover FROM pg_replication_slots
 WHERE database = current_database() AND slot_name ~ '^pg_[0-9]+_sync_[0-9]+_' ORDER BY 2
"""
_MAIN = """
SELECT slot_name, failover FROM pg_replication_slots
 WHERE database = current_database() AND slot_name !~ '^pg_[0-9]+_sync_'
"""


@pytest.fixture(scope="module", params=every_version(18, since=17))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    """The slots are looked at while a transaction of the publisher keeps them from being made."""
    flow = make_flow(requested_publisher(request), f"failover_{request.param}")
    tables = [f"by_{kind}" for kind in SYNC_SLOTS]
    names = []
    for kind, table in zip(SYNC_SLOTS, tables, strict=True):
        flow.both(f"CREATE TABLE {table} (a int PRIMARY KEY)")
        flow.pub.run(
            f"INSERT INTO {table} VALUES (1), (2)",
            f"CREATE PUBLICATION {table} FOR TABLE {table}",
        )
        made = flow.subscribe(kind, [table], sync_slot=kind, enabled=False, failover=True)
        names.append(made)
    with flow.pub.connect() as writer, writer.transaction():
        writer.execute("SELECT pg_current_xact_id()")
        for name in names:
            flow.alter(name, "ENABLE")
        wait_until(lambda: len(flow.pub.execute(_SYNC)) == 4, 120, flow.pgsub.log_tail)
        flow.facts["sync"] = flow.pub.execute(_SYNC)
    flow.checkpoint("copy", *tables)
    flow.facts["main"] = dict(flow.pub.execute(_MAIN))
    for table in tables:
        flow.pub.run(f"INSERT INTO {table} VALUES (3)", f"DELETE FROM {table} WHERE a = 1")
    flow.checkpoint("stream", *tables)
    wait_until(lambda: not flow.pub.execute(_SYNC), 30, "no table's slot is left")
    return flow


@pytest.mark.parametrize("kind", SYNC_SLOTS)
def test_a_table_is_copied_and_followed(flow: Flow, kind: str) -> None:
    assert flow.same("copy", f"by_{kind}") == [(1,), (2,)]
    assert flow.same("stream", f"by_{kind}") == [(2,), (3,)]
    for letters in flow.recorded_letters["copy"]:
        assert set(letters.values()) == {"r"}


def test_the_subscriptions_slots_carry_it(flow: Flow) -> None:
    names = {f"{flow.name}_{kind}{side}" for kind in SYNC_SLOTS for side in ("", "_native")}
    assert flow.facts["main"] == dict.fromkeys(names, True)


def test_a_sync_slot_carries_it_where_it_can(flow: Flow) -> None:
    """As natively; no publisher makes a temporary slot that carries it."""
    twin = str(flow.sub.value("SELECT system_identifier FROM pg_control_system()"))
    native, ours = (
        [each for name, *each in flow.facts["sync"] if name.endswith(twin) == natively]
        for natively in (True, False)
    )
    assert native == [[False, True]] * 2
    assert ours == [[False, True], [True, False]]
