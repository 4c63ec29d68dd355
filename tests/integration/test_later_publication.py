"""A publication that is younger than what is to be sent next (H-26), beside the native subscriber.

The publisher decodes a change with its catalog as it was then. Where the publication is not in
that, a server before 18 ends the stream, for ever; a newer one leaves the change out, and warns in
its log.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, first
from tests.servers import every_version
from tests.waiting import wait_until

SAID = 'publication "pub_later" does not exist'


@pytest.fixture(scope="module", params=every_version())
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t_later_{request.param}")
    flow.both("CREATE TABLE tab (a int PRIMARY KEY)")
    flow.pub.run("CREATE PUBLICATION pub FOR TABLE tab")
    name = flow.subscribe("sub", ["pub"])
    flow.catch_up()
    flow.alter(name, "DISABLE")
    both = (name, f"{name}_native")
    streams = "SELECT pid FROM pg_stat_replication WHERE application_name IN (%s, %s)"
    wait_until(lambda: flow.pub.execute(streams, both) == [], 60, "nobody streams")
    flow.pub.run(
        "INSERT INTO tab VALUES (1)",
        "CREATE PUBLICATION pub_later FOR TABLE tab",
        "INSERT INTO tab VALUES (2)",
    )
    flow.alter(name, "SET PUBLICATION pub_later WITH (refresh = false)")
    flow.alter(name, "ENABLE")
    if request.param < 18:
        flow.wait_failing(name)
        rows = flow.pgsub.status("last_errors")
        flow.facts["error"] = next(row for row in rows if row["subname"] == name)
        flow.facts["native log"] = flow.twin.server.log_file.read_text(errors="replace")
        flow.facts["states"] = flow.states(name)
        # As the HINT says.
        flow.alter(name, "SET PUBLICATION pub WITH (refresh = false)")
        flow.catch_up()
        flow.alter(name, "SET PUBLICATION pub_later WITH (refresh = false)")
    flow.pub.run("INSERT INTO tab VALUES (3)")
    flow.checkpoint("later", "tab")
    return flow


def test_h_26_it_is_told_with_a_remedy(flow: Flow) -> None:
    """H-26: as natively the worker tries for ever; its HINT says how to go on."""
    if "error" not in flow.facts:
        assert flow.pub.server.version >= 18
        return
    error = flow.facts["error"]
    assert (error["sqlstate"], error["message"]) == ("42704", SAID)
    assert "go back to the list before" in error["hint"]
    assert SAID in flow.facts["native log"]
    assert flow.facts["states"] == {"tab": "r"}


def test_h_26_and_that_remedy_loses_nothing(flow: Flow) -> None:
    """H-26: a newer server has left out what it cannot say, for the native subscriber too."""
    left_out = [] if "error" in flow.facts else [1]
    assert [*left_out, *first(flow.same("later", "tab"))] == [1, 2, 3]
