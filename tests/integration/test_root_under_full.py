"""A root under REPLICA IDENTITY FULL, and a partition that logs an index without the key."""

from __future__ import annotations

from collections.abc import Callable

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.waiting import wait_until


def test_a_root_under_full_whose_partition_logs_another_index(
    publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]
) -> None:
    """No old row tells which row it is. The native subscriber stops, too."""
    flow = make_flow(publisher, "root_index")
    flow.both(
        "CREATE TABLE metrics (id int, day date, code text NOT NULL, v text, PRIMARY KEY (id, day))"
        " PARTITION BY RANGE (day)",
        "CREATE TABLE metrics_24 PARTITION OF metrics"
        " FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
        "CREATE UNIQUE INDEX by_code ON metrics_24 (code)",
        "ALTER TABLE metrics REPLICA IDENTITY FULL",
    )
    flow.pub.run(
        "ALTER TABLE metrics_24 REPLICA IDENTITY USING INDEX by_code",
        "INSERT INTO metrics VALUES (1, '2024-02-01', 'x', 'a'), (2, '2024-02-01', 'y', 'b')",
        "CREATE PUBLICATION pub FOR TABLE metrics WITH (publish_via_partition_root = true)",
    )
    name = flow.subscribe("sub", ["pub"])
    flow.checkpoint("copied", "metrics")
    flow.pub.run(
        "INSERT INTO metrics VALUES (3, '2024-02-01', 'z', 'c')",
        "DELETE FROM metrics WHERE id = 1",
        "UPDATE metrics SET id = 20 WHERE id = 2",
    )
    error = 'partitions of "root_index.metrics" do not log whole rows'
    wait_until(lambda: error in flow.pgsub.command("status").stdout, 60, flow.pgsub.log_tail)
    ours = flow.pgsub.rows(flow.name, "metrics", ["id", "code", "v"])
    assert sorted(ours) == [(1, "x", "a"), (2, "y", "b"), (3, "z", "c")]
    flow.wait_failing(name)
    assert "no partition of relation" in flow.twin.log_tail()
    # Mended, what was logged before has the remedy still.
    flow.pub.run("ALTER TABLE metrics_24 REPLICA IDENTITY DEFAULT")
    flow.pgsub.command("refresh", name, "--recopy", "root_index.metrics")
    flow.pub.run("DELETE FROM metrics WHERE id = 3", "UPDATE metrics SET id = 21 WHERE id = 20")
    flow.pgsub.wait(name)
    ours = flow.pgsub.rows(flow.name, "metrics", ["id", "code", "v"])
    assert sorted(ours) == [(21, "y", "b")]
