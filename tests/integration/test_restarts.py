"""Which changes of a subscription start its apply worker again (H-37), beside the native one.

Each change is made on both sides while both workers live, and followed by a transaction: a worker
looks at its subscription before it applies one. Then the walsenders' pids say whether the worker
is another. Left out: OWNER TO (there is one role), and what needs a disabled subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow, first
from tests.waiting import wait_until

RESTARTS = {
    "connection": "CONNECTION '{dsn} connect_timeout=9'",
    "slot_name": "SET (slot_name = {slot})",
    "binary": "SET (binary = true)",
    "streaming": "SET (streaming = off)",
    "password_required": "SET (password_required = false)",
    "origin": "SET (origin = none)",
    "add": "ADD PUBLICATION pub_2 WITH (refresh = false)",
    "drop": "DROP PUBLICATION pub_2",
    "set": "SET PUBLICATION pub_1, pub_2 WITH (copy_data = false)",
    "rename": "RENAME TO {renamed}",
}
STAYS = {
    "options": (
        "SET (synchronous_commit = local)",
        "SET (disable_on_error = true)",
        "SET (run_as_owner = true)",
        "SKIP (lsn = 'FFFFFFFF/FFFFFFFF')",
    ),
    "what comes to nothing": (
        "SKIP (lsn = NONE)",
        "REFRESH PUBLICATION",
        "SET (binary = false)",
        "SET PUBLICATION pub_1 WITH (refresh = false)",
        "ENABLE",
    ),
}
"""Changes that need not be told apart: after none of them is the worker another."""


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t_restarts")
    flow.both("CREATE TABLE tab (a int PRIMARY KEY)")
    flow.pub.run("CREATE PUBLICATION pub_1 FOR TABLE tab", "CREATE PUBLICATION pub_2")
    flow.subscribe("sub", ["pub_1"])
    flow.catch_up()
    pids = _walsenders(flow)
    changes = {**STAYS, **{label: (words,) for label, words in RESTARTS.items()}}
    for number, (label, each) in enumerate(changes.items()):
        _change(flow, label, each)
        flow.pub.run(f"INSERT INTO tab VALUES ({number})")
        flow.catch_up()
        before, pids = pids, _walsenders(flow)
        flow.facts[label] = [old != new for old, new in zip(before, pids, strict=True)]
    flow.checkpoint("all", "tab")
    for suffix in ("", "_native"):
        flow.pub.execute("SELECT pg_drop_replication_slot(%s)", (f"t_restarts_sub{suffix}",))
    return flow


def _walsenders(flow: Flow) -> tuple[int, int]:
    """The pids of both walsenders that stream: ours, and the twin's."""
    [name] = flow.subscriptions
    streams = "SELECT application_name, pid FROM pg_stat_replication WHERE state = 'streaming'"

    def now() -> dict[str, int]:
        return dict(flow.pub.execute(streams))

    wait_until(lambda: {name, f"{name}_native"} <= now().keys(), 60, "both stream")
    return now()[name], now()[f"{name}_native"]


def _change(flow: Flow, label: str, changes: Sequence[str]) -> None:
    """``ALTER SUBSCRIPTION`` on both sides, each with its names."""
    [name] = flow.subscriptions
    copy = "SELECT pg_copy_logical_replication_slot(%s, %s)"
    for suffix in ("", "_native"):
        slot = f"t_restarts_slot{suffix}"
        if label == "slot_name":
            flow.pub.execute(copy, (f"{name}{suffix}", slot))
        own = [
            words.format(dsn=flow.pub.dsn, slot=slot, renamed=f"{name}_renamed{suffix}")
            for words in changes
        ]
        statements = [f"ALTER SUBSCRIPTION {name}{suffix} {words}" for words in own]
        if suffix:
            flow.sub.run(*statements)
        else:
            flow.pgsub.command("exec", "; ".join(statements))
    if label == "rename":
        flow.subscriptions[:] = [f"{name}_renamed"]


@pytest.mark.parametrize("label", RESTARTS)
def test_h_37_what_starts_the_worker_again(flow: Flow, label: str) -> None:
    """H-37."""
    ours, native = flow.facts[label]
    assert ours == native
    assert ours


@pytest.mark.parametrize("label", STAYS)
def test_h_37_what_a_worker_goes_by_without_that(flow: Flow, label: str) -> None:
    """H-37."""
    ours, native = flow.facts[label]
    assert ours == native
    assert not ours


def test_no_row_is_lost_or_doubled_by_it(flow: Flow) -> None:
    assert first(flow.same("all", "tab")) == list(range(len(STAYS) + len(RESTARTS)))
