"""Prepared transactions in a flow: on a publisher and a twin that may prepare and may crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import Pgsub
from tests.integration.flow import Flow
from tests.servers import programs
from tests.twin import NativeTwin
from tests.waiting import wait_until

MOST: dict[str, str | int] = {"max_prepared_transactions": 64}


@contextmanager
def a_flow(pgsub: Pgsub, version: int, base: str, **conf: Any) -> Iterator[Flow]:
    """A flow on a publisher and a twin of its own, so that both may crash."""
    settings = {**MOST, **conf}
    twin = NativeTwin(18)
    server = EmbeddedPublisher(version, conf=settings, programs=programs(version))
    with server, twin.server:
        flow = Flow(pgsub, twin, server, f"{base}_{version}")
        try:
            yield flow
        finally:
            flow.close()


def prepare(flow: Flow, gid: str, *statements: str) -> None:
    """PREPARE TRANSACTION on the publisher."""
    flow.pub.execute("; ".join(["BEGIN", *statements, f"PREPARE TRANSACTION '{gid}'"]))


def ours(flow: Flow, name: str) -> list[dict[str, Any]]:
    """Our prepared transactions of a subscription."""
    return [row for row in flow.pgsub.status("pg_prepared_xacts") if row["subname"] == name]


def natives(flow: Flow, name: str) -> list[str]:
    """The names of the prepared transactions of a subscription of the twin."""
    query = (
        "SELECT gid FROM pg_prepared_xacts, pg_subscription"
        " WHERE subname = %s AND gid LIKE 'pg\\_gid\\_' || pg_subscription.oid || '\\_%%'"
    )
    return [gid for (gid,) in flow.sub.execute(query, (f"{name}_native",))]


def await_prepared(flow: Flow, name: str, number: int) -> list[dict[str, Any]]:
    """Until both sides have so many prepared transactions; ours."""
    wait_until(lambda: len(natives(flow, name)) == number, 60, flow.twin.log_tail)
    wait_until(lambda: len(ours(flow, name)) == number, 60, flow.pgsub.log_tail)
    return ours(flow, name)


def states(flow: Flow, name: str) -> tuple[str, str]:
    """``subtwophasestate``: ours, and the twin's."""
    found = {
        row["subname"]: row["subtwophasestate"] for row in flow.pgsub.status("pg_subscription")
    }
    query = "SELECT subtwophasestate FROM pg_subscription WHERE subname = %s"
    return found[name], flow.sub.value(query, (f"{name}_native",))


def await_enabled(flow: Flow, name: str) -> None:
    """Until both sides have enabled two-phase commit."""
    wait_until(lambda: states(flow, name) == ("e", "e"), 120, flow.pgsub.log_tail)


def crash(flow: Flow, *, publisher: bool = False, subscribers: str | None = None) -> None:
    """Kill the publisher, or our worker of a subscription and the twin's server."""
    if subscribers is not None:
        flow.pgsub.kill_worker(subscribers)
        flow.twin.server.restart("immediate")
    if publisher:
        flow.pub.server.restart("immediate")
